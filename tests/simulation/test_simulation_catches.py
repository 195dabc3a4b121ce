"""The simulation finds what it looks for: schedulers that were broken on purpose are caught, each by its property.

Every invariant has a broken scheduler that violates it, and none is missing from the reference.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from broken_recorders import BROKEN_RECORDERS

from kubesched.app.simulated import SimulatedProcess
from kubesched.embedded.objects import JsonObject
from kubesched.framework.extenders import Victims
from kubesched.framework.interfaces import (
    PostBindPlugin,
    PostFilterResult,
)
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.status import Code
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.plugins.dynamic_resources import DynamicResources
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.preemption.budgets import Budgets
from kubesched.preemption.candidates import Candidate, candidates_of
from kubesched.simulation import devices, storage, workloads
from kubesched.simulation import run as simulation_run
from kubesched.simulation.cluster import SimulatedCluster
from kubesched.simulation.options import NO_FAULTS, Options, draw
from kubesched.simulation.run import SimulationResult, simulate
from kubesched.simulation.virtual_loop import SENDER
from kubesched.simulation.world import World

MAX_SEEDS = 40


class LosesFailedPods(SimulatedProcess):
    """A pod whose attempt failed is forgotten."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        queue = self.assembly.scheduler.queue

        def forget(info: Any, _failure: Any = None) -> bool:
            queue.done(info.pod_info.uid)
            return True

        queue.add_unschedulable_if_not_present = forget  # type: ignore[method-assign]


class Generous(NodeResourcesFit):
    """Every pod fits everywhere."""

    def filter_nodes(self, *_arguments: Any) -> None:
        return None


class IgnoresRoom(SimulatedProcess):
    """Nodes never fill up."""

    def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
        registry.unregister(Generous.name)
        registry.register(Generous.name, lambda: Generous)
        super().__init__(config, gates, registry, **settings)


def blind_to(plugin: str) -> type[SimulatedProcess]:
    """A scheduler in which one plugin has been replaced by one that does nothing."""

    class Nothing(PostBindPlugin):
        name = plugin

        def post_bind(self, *_arguments: Any) -> None:
            """Nothing is done."""

    class Blind(SimulatedProcess):
        __doc__ = f"There is no {plugin}."

        def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
            registry.unregister(plugin)
            registry.register(plugin, lambda: Nothing)
            super().__init__(config, gates, registry, **settings)

    return Blind


class IsDeaf(SimulatedProcess):
    """Pods that did not fit are never told that something changed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.handlers._move = lambda *_arguments: None  # type: ignore[method-assign]


class LeadsAlways(SimulatedProcess):
    """Writes without asking whether it leads."""

    def may_write(self) -> bool:
        return True


class Dies(SimulatedProcess):
    """Falls over once it has something to do."""

    async def run(self) -> None:
        raise RuntimeError("fell over")


class NeverConfirms(SimulatedProcess):
    """What the watch says about bound pods is not heard."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.cache.add_pod = lambda _pod: None  # type: ignore[method-assign]


class KeepsGhosts(SimulatedProcess):
    """Pods that are gone stay in the cache."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.cache.remove_pod = lambda _pod: None  # type: ignore[method-assign]


class Spins(SimulatedProcess):
    """Looks for work again and again without ever resting."""

    async def run(self) -> None:
        while True:  # noqa: ASYNC110  # what it does wrong
            await asyncio.sleep(0)


class PopsTheLeastImportantFirst(SimulatedProcess):
    """Takes pods in the wrong order."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        queue = self.assembly.scheduler.queue
        pop_specific = queue.pop_specific_pod

        def pop() -> Any:
            ready = queue.pods_in_active_q()
            if not ready:
                return None
            return pop_specific(min(ready, key=lambda pod: pod.spec.priority or 0))

        queue.pop = pop  # type: ignore[method-assign]


class SleepsForEver(SimulatedProcess):
    """Who waits for an event is never tried again without one."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.queue.next_deadline = lambda: None  # type: ignore[method-assign]


class Careless(DefaultPreemption):
    """Ignores disruption budgets."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.evaluator._budgets.list = lambda: Budgets(())  # type: ignore[method-assign]
        self.evaluator._best = lambda shortlist: max(  # type: ignore[method-assign]
            candidates_of(shortlist), key=lambda item: len(item.victims.pods)
        )


class Deluded(DefaultPreemption):
    """Room is announced where no victim could make any."""

    def post_filter(self, state: Any, pod: Any, statuses: Any) -> Any:
        for name in self.handle.table.row_of:
            if statuses.get(name).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PostFilterResult(NominatingInfo(override=True, node_name=name)), None
        return super().post_filter(state, pod, statuses)


class _Generous(DefaultPreemption):
    """More pods of the chosen node are evicted than have to be."""

    @staticmethod
    def also(priority: int, own: int) -> bool:
        raise NotImplementedError

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        find = self.evaluator._find_candidates

        def remember(state: Any, pod: Any, statuses: Any, **how: Any) -> Any:
            self._priority = pod.spec.priority or 0
            return find(state, pod, statuses, **how)

        best = self.evaluator._best

        def more(shortlist: Any) -> Any:
            chosen = best(shortlist)
            row = handle.table.row_of[chosen.node_name]
            known = {pod.metadata.uid for pod in chosen.victims.pods}
            added = [
                info.pod
                for info in handle.table.pods[row].values()
                if info.uid not in known and self.also(info.priority, self._priority)
            ]
            victims = Victims((*chosen.victims.pods, *added), chosen.victims.pdb_violations)
            return Candidate(chosen.node_name, victims)

        self.evaluator._find_candidates = remember  # type: ignore[method-assign]
        self.evaluator._best = more  # type: ignore[method-assign]


class Ruthless(_Generous):
    """Evicts its equals as well."""

    @staticmethod
    def also(priority: int, own: int) -> bool:
        return priority >= own


class Wasteful(_Generous):
    """Evicts all it may."""

    @staticmethod
    def also(priority: int, own: int) -> bool:
        return priority < own


class Insistent(DefaultPreemption):
    """Deletes victims that are terminating, too."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        executor = self.evaluator.executor

        def start(candidate: Any, preemptor: Any) -> None:
            executor._preempting.add(preemptor.metadata.uid)
            victims = list(candidate.victims.pods)
            handle.spawn(executor._evict(candidate, victims, preemptor), "evict")

        executor.start = start  # type: ignore[method-assign]


class _PreemptsWith(SimulatedProcess):
    """Preempts in another way, and is watched all the same."""

    way: type[DefaultPreemption]

    def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
        audited, way = registry.get(DefaultPreemption.name), self.way

        class Both(audited, way):  # type: ignore[misc, valid-type]
            """The other way, and watched."""

        registry.unregister(DefaultPreemption.name)
        registry.register(DefaultPreemption.name, lambda: Both)
        super().__init__(config, gates, registry, **settings)


class IgnoresBudgets(_PreemptsWith):
    """Evicts whom it likes, and as many as it can."""

    way = Careless


class EvictsItsEquals(_PreemptsWith):
    """Evicts pods of the same priority."""

    way = Ruthless


class EvictsTooMany(_PreemptsWith):
    """Evicts pods that could have stayed."""

    way = Wasteful


class EvictsTwice(_PreemptsWith):
    """Evicts pods that are terminating."""

    way = Insistent


class PreemptsInVain(_PreemptsWith):
    """Nominates pods to nodes that they cannot use."""

    way = Deluded


class Hasty(VolumeBinding):
    """Does not wait for volumes."""

    async def pre_bind(self, *_arguments: Any) -> None:
        return None

    def pre_bind_pre_flight(self, *_arguments: Any) -> None:
        return None


class BindsBeforeVolumes(SimulatedProcess):
    """Pods are bound before their claims."""

    def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
        registry.unregister(Hasty.name)
        registry.register(Hasty.name, lambda: Hasty)
        super().__init__(config, gates, registry, **settings)


class ForgetsWhatItGave(SimulatedProcess):
    """Devices count as taken only when the watch says so."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        tracker = next(iter(self.assembly.frameworks.values())).handle.dra_manager.claims
        tracker.add_in_flight = lambda _uid, _allocation: None
        tracker.assume = lambda _claim: True


class Pedantic(NodeResourcesFit):
    """Compares every toleration with every other."""

    def filter_nodes(self, state: Any, pod: Any, nodes: Any) -> Any:
        tolerations = pod.spec.tolerations or ()
        sum(one.key.startswith(other.key) for one in tolerations for other in tolerations)
        return super().filter_nodes(state, pod, nodes)


class IsQuadratic(SimulatedProcess):
    """The work for a pod grows with the square of its size."""

    def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
        registry.unregister(Pedantic.name)
        registry.register(Pedantic.name, lambda: Pedantic)
        super().__init__(config, gates, registry, **settings)


class HoldsRoomForTheGone(SimulatedProcess):
    """The room of a pod that is deleted while it is being bound is not given up."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.cache.forget_pod = lambda _pod: None  # type: ignore[method-assign]


class Possessive(DynamicResources):
    """Does not take its reservations back."""

    def unreserve(self, *_arguments: Any) -> None:
        return None


class KeepsReservations(SimulatedProcess):
    """A pod that was not bound keeps its claims."""

    def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
        registry.unregister(Possessive.name)
        registry.register(Possessive.name, lambda: Possessive)
        super().__init__(config, gates, registry, **settings)


class Empty(DynamicResources):
    """Does not write to claims."""

    async def pre_bind(self, *_arguments: Any) -> None:
        return None

    def pre_bind_pre_flight(self, *_arguments: Any) -> None:
        return None


class BindsWithoutDevices(SimulatedProcess):
    """Pods are bound before their claims are allocated."""

    def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
        registry.unregister(Empty.name)
        registry.register(Empty.name, lambda: Empty)
        super().__init__(config, gates, registry, **settings)


class KnowsBetter(SimulatedProcess):
    """An extender is asked, but not heard."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        extended = self.assembly.scheduler.cycle._extended
        if extended is not None:
            extended._rows = lambda _extender, _names, rows: rows  # type: ignore[method-assign]


class Miscounts(SimulatedProcess):
    """Every pod is counted a little too large."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        table = self.assembly.scheduler.cache.table
        account = table._account

        def miscount(pod: Any, row: int, sign: int) -> None:
            account(pod, row, sign)
            table.requested[0].add(row, 1)

        table._account = miscount  # type: ignore[method-assign]


def _first_failure(process: type[SimulatedProcess], **pinned: Any) -> SimulationResult:
    for seed in range(1, MAX_SEEDS):
        options: Options = replace(draw(Random(f"{seed}/options"), faults=True), **pinned)
        outcome = simulate(seed, process, options=options)
        if not outcome.is_good:
            return outcome
    raise AssertionError(f"{process.__name__} passed {MAX_SEEDS - 1} seeds")


RULES: dict[str, dict[str, Any]] = {
    "NodeAffinity": {"mixes": ("plain",)},
    "TaintToleration": {"mixes": ("gates",), "change_every_s": 0.6},
    "NodeUnschedulable": {"mixes": ("gates",), "change_every_s": 0.6},
    "NodePorts": {"mixes": ("ports",)},
    "InterPodAffinity": {"mixes": ("affinity",)},
    "PodTopologySpread": {"mixes": ("spread",)},
    "VolumeRestrictions": {"mixes": ("gates",), "extras": ("volumes",)},
}
"""What a scheduler without each of the plugins is tried with."""

PREEMPTING: dict[str, Any] = {
    "instances": 1,
    "mischief": 0.0,
    "extras": (),
    "nodes": 3,
    "mixes": ("priorities",),
}

QUIET: dict[str, Any] = {
    "instances": 1,
    "rates": NO_FAULTS,
    "mixes": ("plain",),
    "extras": (),
    "mischief": 0.0,
    **dict.fromkeys(("crash_every_s", "partition_every_s", "jump_every_s", "change_every_s"), 0.0),
}
"""Nothing goes wrong before the episode."""

BROKEN_SCHEDULERS: list[tuple[type[SimulatedProcess], dict[str, Any], tuple[str, ...]]] = [
    *(
        (
            blind_to(name),
            {"instances": 1, "mischief": 0.0, **pinned},
            ("rules hold at every decision",),
        )
        for name, pinned in RULES.items()
    ),
    (LosesFailedPods, {"instances": 1}, ("no pod is lost",)),
    (
        IgnoresRoom,
        {"instances": 1},
        ("rules hold at every decision",),
    ),
    (IsDeaf, {"instances": 1}, ("all that can be placed is placed once faults stop",)),
    (LeadsAlways, {"instances": 2}, ("no two schedulers lead at the same time",)),
    (Dies, {}, ("no scheduler dies by itself",)),
    (
        NeverConfirms,
        {"instances": 1},
        ("every bound pod is counted", "all that can be placed is placed once faults stop"),
    ),
    (
        Miscounts,
        {"instances": 1, "mischief": 0.0},
        ("queue and cache do not contradict themselves",),
    ),
    (
        PopsTheLeastImportantFirst,
        {"instances": 1, "mixes": ("priorities",)},
        ("the most important pod is tried first",),
    ),
    (SleepsForEver, {"instances": 1}, ("every unschedulable pod has a wake-up",)),
    (
        IgnoresBudgets,
        {
            "instances": 1,
            "mischief": 0.0,
            "extras": ("budgets",),
            "nodes": 5,
            "mixes": ("priorities",),
        },
        ("no disruption budget is violated without need",),
    ),
    *(
        (broken, {**PREEMPTING, **pinned}, (promise,))
        for broken, pinned, promise in (
            (EvictsItsEquals, {}, "only pods of lower priority are evicted"),
            (EvictsTooMany, {}, "no pod is evicted without need"),
            (EvictsTwice, {"pods": 30, "change_every_s": 0.5}, "no victim is evicted twice"),
        )
    ),
    (
        BindsBeforeVolumes,
        {"instances": 1, "mischief": 0.0, "extras": ("volumes",)},
        ("pods are bound after their claims",),
    ),
    (
        ForgetsWhatItGave,
        {"instances": 1, "mischief": 0.0, "extras": ("devices",), "mixes": ("devices",)},
        ("no device is allocated twice",),
    ),
    (
        BindsWithoutDevices,
        {"instances": 1, "mischief": 0.0, "extras": ("devices",), "mixes": ("devices",)},
        ("pods are bound with their devices",),
    ),
    (
        KnowsBetter,
        {
            "instances": 1,
            "extras": ("extender",),
            "extender_traits": ("filter", "names"),
            "extender_trouble": 0.0,
        },
        ("no node is chosen against the extender",),
    ),
    (
        KeepsGhosts,
        {"instances": 1, "mixes": ("plain",), "mischief": 0.0},
        ("the cache equals the store when all is quiet",),
    ),
    (
        PreemptsInVain,
        {
            "instances": 1,
            "mischief": 0.0,
            "extras": (),
            "nodes": 5,
            "mixes": ("plain", "priorities"),
        },
        ("preemption makes room where it says",),
    ),
    (
        IsQuadratic,
        {**QUIET, "hostile_pod": "tolerations"},
        ("no attempt costs more than its pod is large",),
    ),
    (
        HoldsRoomForTheGone,
        {**QUIET, "episode": "deleted while bound"},
        ("no room is held for a pod that is gone",),
    ),
    (
        KeepsReservations,
        {**QUIET, "extras": ("devices",), "episode": "reservation given back"},
        ("no claim stays reserved for a pod that was not bound",),
    ),
    (Spins, {}, ("the world goes on",)),
    *BROKEN_RECORDERS,
]
"""Who breaks what."""


@pytest.mark.parametrize(
    ("broken", "pinned", "properties"),
    BROKEN_SCHEDULERS,
    ids=lambda value: value.__doc__.strip() if isinstance(value, type) else "",
)
def test_a_broken_scheduler_is_caught(
    broken: type[SimulatedProcess], pinned: dict[str, Any], properties: tuple[str, ...]
) -> None:
    outcome = _first_failure(broken, **pinned)
    assert outcome.violation is not None
    assert outcome.violation.property in properties


# Writes to the store that no scheduler should make.


def _bind_again(cluster: SimulatedCluster) -> None:
    for pod in cluster.active_pods():
        if pod["spec"].get("nodeName"):
            _put(cluster, "pods", pod, {"nodeName": "elsewhere"})
            return


def _bind_to_nowhere(cluster: SimulatedCluster) -> None:
    _put(cluster, "pods", _waiting(cluster), {"nodeName": "nowhere"})


def _overcommit(cluster: SimulatedCluster) -> None:
    pod, node = _waiting(cluster), cluster.nodes()[0]["metadata"]["name"]
    containers = deepcopy(pod["spec"]["containers"])
    containers[0]["resources"] = {"requests": {"cpu": "1000"}}
    _put(cluster, "pods", pod, {"nodeName": node, "containers": containers})


def _call_unschedulable(cluster: SimulatedCluster) -> None:
    bound = next(pod for pod in cluster.active_pods() if pod["spec"].get("nodeName"))
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    status = {**bound.get("status", {}), "conditions": conditions}
    cluster.store.put("pods", deepcopy({**bound, "status": status}))


def _bind_undecided(cluster: SimulatedCluster) -> None:
    SENDER.set("s0.1")
    _put(cluster, "pods", _waiting(cluster), {"nodeName": cluster.nodes()[0]["metadata"]["name"]})


def _give_volume_away(cluster: SimulatedCluster) -> None:
    for volume in cluster.api.list(storage.VOLUMES)[0]:
        owner = volume["spec"].get("claimRef") or {}
        if owner.get("uid"):
            _put(cluster, storage.VOLUMES, volume, {"claimRef": {**owner, "uid": "another"}})
            return


def _bind_out_of_reach(cluster: SimulatedCluster) -> None:
    """The claim of a new pod is bound to a disk that is in no node."""
    cluster.api.create(storage.VOLUMES, storage.local_volume("far", "far-away"))
    cluster.api.create(storage.CLAIMS, storage.claim("far", storage.LOCAL))
    claim = cluster.api.get(storage.CLAIMS, "default", "far")
    claim = {
        **claim,
        "metadata": {
            **claim["metadata"],
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
    }
    _put(cluster, storage.CLAIMS, claim, {"volumeName": "far"})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "far"}}]
    cluster.add_node()
    pod = workloads.pod("far", ("plain",), Random(1))
    pod["spec"]["volumes"] = volumes
    made = cluster.api.create("pods", pod)
    _put(cluster, "pods", made, {"nodeName": f"n{len(cluster.nodes())}"})


def _leave_reservation(cluster: SimulatedCluster) -> None:
    """A claim is reserved for a pod that never was, and the claim controller is dead."""
    assert cluster.devices is not None
    cluster.devices.disconnect()
    claim = cluster.api.create(devices.CLAIMS, devices.claim("haunted"))
    result = {"request": "gpu", "driver": "d", "pool": "p", "device": "x"}
    ghost = {"resource": "pods", "name": "ghost", "uid": "ghost"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [ghost]}
    cluster.store.put(devices.CLAIMS, deepcopy({**claim, "status": status}))


def _break_down(_cluster: SimulatedCluster) -> None:
    raise RuntimeError("part of the world breaks")


def _waiting(cluster: SimulatedCluster) -> JsonObject:
    return next(pod for pod in cluster.active_pods() if not pod["spec"].get("nodeName"))


def _put(cluster: SimulatedCluster, resource: str, obj: JsonObject, spec: JsonObject) -> None:
    cluster.store.put(resource, deepcopy({**obj, "spec": {**obj["spec"], **spec}}))


BROKEN_CLUSTERS: list[tuple[Callable[[SimulatedCluster], None], str]] = [
    (_bind_again, "no pod is bound twice"),
    (_bind_to_nowhere, "no pod is bound to a node that is gone"),
    (_overcommit, "no node is over its allocatable"),
    (_call_unschedulable, "no bound pod is called unschedulable"),
    (_bind_undecided, "no pod is bound without a decision"),
    (_give_volume_away, "no volume is given to two claims"),
    (_bind_out_of_reach, "volumes are within reach"),
    (_leave_reservation, "no claim is left reserved for a pod that is gone"),
    (_break_down, "the world goes on"),
]


@pytest.mark.parametrize(
    ("sabotage", "broken"),
    BROKEN_CLUSTERS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_cluster_is_caught(
    sabotage: Callable[[SimulatedCluster], None], broken: str
) -> None:
    options = replace(
        draw(Random("1/options"), faults=False),
        nodes=3,
        pods=30,
        mixes=("plain",),
        extras=("volumes", "devices"),
    )

    def prepare(world: World) -> None:
        world._loop.call_later(25.0, sabotage, world.cluster)

    outcome = simulate(
        1, SimulatedProcess, options=replace(options, duration_s=40.0), prepare=prepare
    )
    assert outcome.violation is not None
    assert outcome.violation.property == broken


# Every check can fail.


def _promises() -> set[str]:
    """The first argument of everything that complains."""
    results = set()
    for path in Path(simulation_run.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            is_complaint = name in ("Violation", "complain", "_complain") or (
                name == "add" and "complaints" in ast.unparse(called)
            )
            if is_complaint and isinstance(node.args[0], ast.Constant):
                results.add(node.args[0].value)
    return results


def test_every_invariant_has_a_scheduler_that_breaks_it() -> None:
    broken = {name for _process, _pinned, names in BROKEN_SCHEDULERS for name in names}
    broken |= {name for _sabotage, name in BROKEN_CLUSTERS}
    assert _promises() == broken


def test_every_promise_is_in_the_reference() -> None:
    reference = Path(__file__).parents[2] / "docs" / "reference" / "simulation.md"
    text = reference.read_text()
    assert [name for name in sorted(_promises()) if f"| {name} |" not in text] == []
