"""What a replica answers for when it takes over before its watch has shown what the other one
bound.
"""

from __future__ import annotations

import asyncio

from kubesched.app.simulated import SimulatedProcess
from kubesched.client.transport import Request
from kubesched.lab.simulation.faults import CallFault
from kubesched.lab.simulation.options import NO_FAULTS, Options
from kubesched.lab.simulation.run import simulate
from kubesched.lab.simulation.world import Scenario, World
from kubesched.playground.apimachinery.objects import JsonObject

OPTIONS = Options(
    nodes=0,
    pods=0,
    mixes=("plain",),
    duration_s=80.0,
    instances=2,
    rates=NO_FAULTS,
    focus="",
    crash_every_s=0.0,
    partition_every_s=0.0,
    jump_every_s=0.0,
    change_every_s=0.0,
    mischief=0.0,
)
UNREACHABLE = CallFault("unreachable", commits=False)
LATE = CallFault("held", commits=True)
EXPIRY_S = 40.0
"""Enough for a lease to expire and be taken."""
TRIED_S = 3.0
"""After this long a new leader has tried every pod, and their backoff is over."""


def _room(cpu: str) -> JsonObject:
    room = {"cpu": cpu, "memory": "4Gi", "pods": "10"}
    return {"allocatable": room, "capacity": room}


class TakesOverBlind:
    """Node and pods of one CPU each.

    One replica binds a pod; the other takes over and has not heard of that.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._stage = world._stage
        self._leader = self._follower = ""
        self.is_blind = False
        """Whether the follower's watch of pods is broken and cannot be resumed."""
        self._has_lease = True
        self.known: dict[str, set[str]] = {}
        """Pod -> the pods that the follower answers for beside it."""

    async def play(self) -> None:
        stage, api = self._stage, self._world.cluster.api
        self._world.cluster.pods_may_end = False
        await stage.until(lambda: any(map(self._leads, self._names())))
        self._leader = stage.leader()
        (self._follower,) = set(self._names()) - {self._leader}
        self._world.processes.on_call = self._on_call

        for name in ("first", "slow", "quick"):
            self._pod(name)
            await stage.rejected(name)  # there is no node
        self.is_blind = True
        self._world.network.epoch += 1  # watches break with their next event
        api.create("nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": _room("1")})
        await stage.placed("first")

        stage.patch_node("n1", {"spec": {"unschedulable": True}})
        self._grow("2")
        self._has_lease = False
        await stage.until(lambda: self._leads(self._follower), EXPIRY_S)
        await asyncio.sleep(TRIED_S)
        stage.patch_node("n1", {"spec": {"unschedulable": False}})
        await stage.placed("quick")
        assert not stage.node_of("slow"), "its binding is on its way"
        await stage.placed("slow")

        self.is_blind = False
        await stage.until(self._sees_all, EXPIRY_S)
        self._grow("4")
        self._pod("last")
        await stage.placed("last")
        self._has_lease = True
        self.known = {name: self._known(name) for name in ("slow", "quick", "last")}

    def _on_call(self, process: str, request: Request) -> CallFault | None:
        path = request.target.partition("?")[0]
        if process != self._follower:
            return UNREACHABLE if "/leases" in path and not self._has_lease else None
        if path == "/api/v1/pods" and self.is_blind:
            return UNREACHABLE
        return LATE if path.endswith("/pods/slow/binding") else None

    def _grow(self, cpu: str) -> None:
        patch = {"status": _room(cpu)}
        self._world.cluster.api.patch("nodes", None, "n1", patch, subresource="status")

    def _pod(self, name: str) -> None:
        container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": "1"}}}
        spec = {"containers": [container]}
        metadata = {"name": name, "namespace": "default"}
        self._world.cluster.api.create("pods", {"metadata": metadata, "spec": spec})

    def _names(self) -> list[str]:
        return [incarnation.name for incarnation in self._world.processes.alive()]

    def _leads(self, name: str) -> bool:
        alive = self._world.processes.alive()
        return any(each.name == name and each.process.may_write() for each in alive)

    def _sees_all(self) -> bool:
        alive = self._world.processes.alive()
        (pods,) = (each.pods for each in alive if each.name == self._follower)
        return all(pod.spec.node_name for pod in pods.list())

    def _known(self, name: str) -> set[str]:
        pods = self._world.cluster.pods()
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
        (uid,) = (uid for uid, its_name in names.items() if its_name == name)
        return {names[other] for other in self._world._decisions[self._follower, uid, "n1"]}


def test_the_other_replicas_pod_does_not_count_if_it_was_only_assumed() -> None:
    """A pod is bound late, which was to share the node with one that the other replica had bound
    there long ago.

    By then that pod's second binding has been refused, and a third one has taken the room.
    """
    stories: list[TakesOverBlind] = []

    def prepare(world: World) -> None:
        world.scenario = Scenario(name="none", steps=())
        stories.append(TakesOverBlind(world))
        world._group.create_task(stories[0].play())

    outcome = simulate(1, SimulatedProcess, options=OPTIONS, prepare=prepare)
    assert outcome.violation is None
    assert stories[0].known == {"slow": set(), "quick": set(), "last": {"first", "slow", "quick"}}
