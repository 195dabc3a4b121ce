"""One run from its seed: build the world, inject faults, stop them, check that it recovers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kubesched.config.features import defaults, from_map
from kubesched.framework.interfaces import Plugin
from kubesched.framework.registry import Registry
from kubesched.insight.state.virtual_loop import VirtualLoop
from kubesched.lab.simulation import episodes, extenders
from kubesched.lab.simulation.audit import AUDITOR, Decisions, SilentAuditor, make_auditor
from kubesched.lab.simulation.checkers import Checkers
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.extenders import SimulatedExtender
from kubesched.lab.simulation.faults import Network
from kubesched.lab.simulation.gangs import GroupChecks, make_gang_auditor
from kubesched.lab.simulation.liveness import wait_until_settled
from kubesched.lab.simulation.options import Options, playable
from kubesched.lab.simulation.plugins import (
    DOORKEEPER,
    HELD_S,
    TROUBLEMAKER,
    Door,
    Mischief,
    make_doorkeeper,
    make_troublemaker,
)
from kubesched.lab.simulation.probes import Probes
from kubesched.lab.simulation.processes import Processes, ProcessFactory
from kubesched.lab.simulation.stage import Stage
from kubesched.lab.simulation.trace import Complaints, Trace
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.plugins.registry import in_tree_registry

_CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: {leader_elect}
{extenders}profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{plugins}]
"""

TIGHT_NODES = 2
GANGS = 0.3
"""How often a group is created instead of a pod, where there are groups."""
START_S = 1.0
"""Time before the first fault; the informers' first lists may already be affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fixed scenario: creations in order, as (seconds to wait, resource, object)."""

    name: str
    steps: tuple[tuple[float, str, JsonObject], ...]
    duration_s: float = 20.0
    extras: tuple[str, ...] = ()
    """Subset of `options.EXTRAS`."""


class World:
    """The state of one run. Must be built inside the virtual loop."""

    def __init__(
        self,
        loop: VirtualLoop,
        group: asyncio.TaskGroup,
        seed: int,
        options: Options,
        make_process: ProcessFactory,
        trace: Trace,
    ) -> None:
        self._loop = loop
        self._group = group
        self.options = options
        self.trace = trace
        self.scenario: Scenario | None = None
        self._random = Random(f"{seed}/world")
        self.complaints = Complaints()
        self._decisions: Decisions = {}
        gates = defaults(options.reference)
        if options.gates:
            gates = from_map(dict.fromkeys(options.gates, True), gates.versions)
        self.cluster = SimulatedCluster(
            loop, Random(f"{seed}/cluster"), trace, options.extras, gates
        )
        self.network = Network(options.rates, Random(f"{seed}/network"), trace, focus=options.focus)
        self.network.holds_leases_only = options.instances > 1
        self.mischief = Mischief(options.mischief, Random(f"{seed}/mischief"), trace)
        self.extender = SimulatedExtender(
            self.cluster, Random(f"{seed}/extender"), trace, options.extender_trouble
        )
        self._door = Door()
        self.processes = Processes(
            make_process,
            self.cluster,
            self.network,
            loop,
            trace,
            self.complaints,
            seed=str(seed),
            config=self._config(),
            gates=gates,
            registry=self._registry(),
            honest=_honest_registry(trace),
            extender=self.extender,
            mischief=lambda: self.mischief.count,
            disk=options.disk,
        )
        self.processes.drift = options.drift
        self.checkers = Checkers(
            self.cluster,
            self.processes,
            self.complaints,
            trace.census,
            has_one_writer=options.instances == 1,
            decisions=self._decisions,
        )
        if self.cluster.has_groups:
            self.checkers.groups = GroupChecks(self.cluster)
        self.checkers.are_writes_held = bool(options.rates.hold) and options.instances == 1
        # Nodes are relabelled, so an extender may change its answer about victims.
        self._had_broken_answers = bool(
            options.mischief
            or (
                self._has_extender
                and (options.extender_trouble or "preempt" in options.extender_traits)
            )
        )
        self._stage = Stage(
            self.cluster,
            self.processes,
            self.network,
            self._door,
            Random(f"{seed}/stage"),
            trace,
            self.extender,
            self._restore_to,
            self.complaints.add,
        )
        self._probes = Probes(
            self.cluster, Random(f"{seed}/probes"), trace, has_extender=self._has_extender
        )
        loop.before_time_passes = self.checkers.instant_is_over

    def _config(self) -> bytes:
        names = [AUDITOR]
        if self.options.mischief:
            names.append(TROUBLEMAKER)
        if self.options.episode:
            names.append(DOORKEEPER)
        plugins = ", ".join(f"{{name: {name}}}" for name in names)
        elect = "true" if self.options.instances > 1 else "false"
        asked = extenders.config(self.options.extender_traits) if self._has_extender else ""
        return _CONFIG.format(leader_elect=elect, plugins=plugins, extenders=asked).encode()

    @property
    def _has_extender(self) -> bool:
        return "extender" in self.options.extras

    def _registry(self) -> Registry:
        """Shared by all processes: loading and checking plugins costs as much as an attempt."""
        registry = in_tree_registry()
        for name, plugin in self._plugins().items():
            registry.register(name, lambda plugin=plugin: plugin)  # type: ignore[misc]  # bound per plugin
        return registry

    def _plugins(self) -> dict[str, type[Plugin]]:
        """The simulation's own plugins."""
        auditor = make_auditor(self._decisions)
        made: dict[str, type[Plugin]] = {AUDITOR: auditor}
        if self.cluster.has_groups:
            made[AUDITOR] = make_gang_auditor(auditor, self.complaints.add)
        if self.options.mischief:
            made[TROUBLEMAKER] = make_troublemaker(self.mischief)
        if self.options.episode:
            made[DOORKEEPER] = make_doorkeeper(self._door)
        return made

    @property
    def virtual_s(self) -> float:
        return self._loop.time()

    # Phases of a run.

    async def run(self) -> None:
        """Raises `Violation` if an invariant does not hold."""
        keepers = self.start()
        await asyncio.sleep(START_S)
        await self._trouble()
        self.heal()
        await self.settle()
        if self.options.probes and self.options.mischief:
            await self._ambush()
        for _ in range(self.options.probes):
            self._probes.strike()
            await self.settle()
        for _ in range(2 if self.cluster.has_groups else 0):
            self._probes.add_group()
            await self.settle()
        if self.options.episode in playable(self.options):
            await episodes.play(self._stage, self.options.episode)
            self._had_broken_answers = False  # not since the cluster became quiet
            await self.settle()
        if self.options.further_episode:
            await episodes.play(self._stage, self.options.further_episode)
            await self.settle()
        self.stop(keepers)

    async def _ambush(self) -> None:
        """The only helpful event arrives while a pod is held at Permit and then rejected."""
        self.mischief.is_in_ambush = True
        self.cluster.add_pod(("plain",))
        await asyncio.sleep(HELD_S / 2)
        self._probes.strike()
        await asyncio.sleep(HELD_S)
        self.mischief.is_in_ambush = False
        await self.settle()

    def start(self) -> list[asyncio.Task[None]]:
        """Start nodes and schedulers; pods come later."""
        nodes = self.options.nodes
        for _ in range(min(nodes, TIGHT_NODES) if "tight" in self.options.extras else nodes):
            self.cluster.add_node()
        return [
            self._group.create_task(self.processes.keep_running(slot))
            for slot in range(self.options.instances)
        ]

    async def _trouble(self) -> None:
        """Create pods and inject faults for as long as the options say."""
        options = self.options
        async with asyncio.TaskGroup() as group:
            pods = group.create_task(self._create())
            troubles = [
                group.create_task(self._every(mean_s, action))
                for mean_s, action in (
                    (options.change_every_s, self.cluster.change_something),
                    (options.crash_every_s, self.processes.crash_one),
                    (options.partition_every_s, self._partition),
                    (options.jump_every_s, self._jump),
                    (options.freeze_every_s, self._freeze),
                    (options.restore_every_s, self._restore),
                )
                if mean_s > 0
            ]
            await asyncio.sleep(options.duration_s)
            await pods
            for task in troubles:
                task.cancel()

    async def _create(self) -> None:
        if self.scenario is None:
            await self._create_pods()
            return
        for wait_s, resource, obj in self.scenario.steps:
            await asyncio.sleep(wait_s)
            self.cluster.api.create(resource, obj)

    async def _create_pods(self) -> None:
        """Create pods in bursts, during the first part of the fault phase."""
        left = self.options.pods
        while left > 0:
            for _ in range(min(left, self._random.choice((1, 1, 2, 5)))):
                if self.cluster.has_groups and self._random.random() < GANGS:
                    size = self._random.randint(1, 4)
                    self.cluster.add_group(self._mixes, size)
                    left -= size
                    continue
                self.cluster.add_pod(self._mixes, replicas="replicas" in self.options.extras)
                left -= 1
            mean_s = self.options.duration_s / (2 * self.options.pods)
            await asyncio.sleep(self._random.expovariate(1 / mean_s))

    @property
    def _mixes(self) -> tuple[str, ...]:
        """The mixes of pods; budgets only matter among pods of different priority."""
        added = {"volumes": "volumes", "budgets": "priorities", "devices": "devices"}
        wanted = (mix for extra, mix in added.items() if extra in self.options.extras)
        return tuple(dict.fromkeys((*self.options.mixes, *wanted)))

    async def _every(self, mean_s: float, action: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / mean_s))
            action()

    def _partition(self) -> None:
        self.processes.partition_one(self._random.uniform(1.0, 25.0))

    def _freeze(self) -> None:
        self.processes.freeze_one(self._random.uniform(0.5, 40.0))

    def _restore(self) -> None:
        self._restore_to(None)

    def _restore_to(self, revision: int | None) -> bool:
        bound_before = self._bound()
        if not self.cluster.restore(revision):
            return False
        self.processes.restart_deceived(bound_before - self._bound())
        self.trace.census.tally("time", "restored to an older revision")
        self.network.epoch += 1
        self.checkers.history_is_broken = True
        return True

    def _bound(self) -> set[str]:
        pods = self.cluster.pods()
        return {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}

    def _jump(self) -> None:
        if self._random.random() < 0.7:
            self.processes.jump_one()
        else:
            seconds = self._random.uniform(1.0, 25.0)
            self.trace.add("freeze", f"{seconds:.3f} s")
            self.trace.census.tally("time", "world frozen")
            self._loop.stall(seconds)

    def heal(self) -> None:
        """Stop all faults."""
        self.trace.add("heal", "faults stop")
        self.network.heal()
        self.mischief.rate = 0.0
        self.processes.mend()
        if self.checkers.groups is not None:
            self.checkers.groups.heal()
        if self._has_extender:
            self.extender.trouble = 0.0
            self.cluster.touch_nodes()
        if self.cluster.storage is not None:
            self.cluster.storage.controllers.is_slow = False
        if self.cluster.devices is not None:
            self.cluster.devices.controllers.is_slow = False
            self.cluster.devices.restore_shared_claims()
        while any(pod["spec"].get("schedulingGates") for pod in self.cluster.pods()):
            self.cluster.ungate_one()

    async def settle(self) -> None:
        await wait_until_settled(
            self._loop,
            self.cluster,
            self.processes,
            self.checkers,
            self.trace,
            extender_traits=self.options.extender_traits if self._has_extender else None,
            had_broken_answers=self._had_broken_answers,
        )
        self.checkers.history_is_broken = False

    def stop(self, keepers: list[asyncio.Task[None]]) -> None:
        self._loop.before_time_passes = lambda: None
        for part in (self.cluster.storage, self.cluster.devices):
            if part is not None:
                part.disconnect()
        for task in keepers:
            task.cancel()


def _honest_registry(trace: Trace) -> Registry:
    """The same plugins as they should be, without mischief and checks."""
    registry = in_tree_registry()
    mischief = Mischief(0.0, Random(1), trace)
    for plugin in (SilentAuditor, make_troublemaker(mischief), make_doorkeeper(Door())):
        registry.register(plugin.name, lambda plugin=plugin: plugin)  # type: ignore[misc]  # as above
    return registry
