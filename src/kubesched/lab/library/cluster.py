"""A cluster in five lines: objects, the exact scheduler over them, and virtual time.

    import kubesched as ks

    cluster = ks.Cluster(ks.nodes(1_000, cpu=32, memory="128Gi", zones=3))
    result = cluster.schedule(ks.pods(5_000, cpu="500m", memory="1Gi"))
    result.placements.to_pandas()

Decisions take no time. A pod waits for room and for the backoff after failed attempts; it runs as
soon as it is bound. The answers are those of the commands: `explain`, `plan` and `capacity` are the
same code.
"""

from __future__ import annotations

import heapq
import math
import weakref
from asyncio import Task
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.names import key_of
from kubesched.base.errors import KubeschedError
from kubesched.config.defaults import without_extenders
from kubesched.config.features import FeatureGates, from_flags
from kubesched.config.load import default_config, load_file
from kubesched.config.load import load as load_text
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.interfaces import Plugin
from kubesched.framework.registry import Registry
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.state.cluster import registry_with
from kubesched.insight.state.cluster_state import ClusterState, completed
from kubesched.insight.state.collector import collector_paused
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.insight.state.replacements import Replacements, pods_on
from kubesched.lab.library.objects import InputError, Source, manifests_of, records_of
from kubesched.lab.library.results import Placement, Result, Sample, sample_of
from kubesched.playground.apimachinery.objects import ChangeType
from kubesched.scheduler.classes import Best
from kubesched.scheduler.scheduling_cycle import Assumed

if TYPE_CHECKING:  # imported where they are used: a cluster alone needs no playground, no CEL
    from kubesched.insight.explain import Explanation
    from kubesched.insight.planning.model import Capacity, Plan
    from kubesched.insight.planning.workloads import Workloads

SAMPLES = 240
"""Number of samples of utilisation that a run keeps."""

Config = KubeSchedulerConfiguration | str | PathLike[str] | None
"""A record, YAML text, or the path of a file; None for the defaults."""


def configuration(config: Config, gates: FeatureGates) -> KubeSchedulerConfiguration:
    """Raises InputError if it is none, ConfigError with all problems."""
    if config is None or isinstance(config, KubeSchedulerConfiguration):
        return config or default_config(gates)
    if not isinstance(config, str | PathLike):
        raise InputError(f"config: {config!r} is no file, YAML text or record")
    text = str(config)
    if "\n" in text:
        return load_text(text.encode(), gates=gates, imports=True)
    return load_file(text, gates)


def gates_from(text: str) -> FeatureGates:
    """Raises InputError if it is no text, ConfigError if a gate is unknown."""
    if not isinstance(text, str):
        raise InputError(f"feature_gates: 'A=true,B=false' is the form, not {text!r}")
    return from_flags(text, "", [], [])


class Cluster:
    """Objects and a scheduler."""

    def __init__(
        self,
        *sources: Source,
        config: Config = None,
        plugins: Sequence[type[Plugin]] = (),
        feature_gates: str = "",
        seed: int = 0,
        controllers: bool = False,
    ) -> None:
        """`plugins` are classes that the configuration may name beside the installed ones.

        With `controllers`, workloads (Deployments, Jobs …) make pods, and pods of a controller that
        are evicted come again. Without, workloads are refused and evicted pods are gone.

        Raises:
            InputError: an object is malformed.
            ConfigError: the configuration is invalid, or names plugins that do not exist.
        """
        self._gates = gates_from(feature_gates)
        self._config = configuration(config, self._gates)
        self._plugins = plugins
        self._seed = seed
        self._has_controllers = controllers
        state, workloads = ClusterState("memory"), []
        for source in sources:
            for obj in records_of(source):
                if isinstance(obj, Manifest):
                    workloads.append(obj)
                    continue
                state.put(obj)
                if state.duplicate_count:
                    named: Any = obj
                    name = f"{type(obj).__name__} {key_of(named.metadata)}"
                    raise InputError(f"{name}: there are two of it")
        self._world = self._make_world(state)
        self._apply(workloads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the scheduler; a cluster that nothing refers to any more ends by itself."""
        self._end()

    def _check_open(self) -> None:
        if not self._end.alive:
            raise InputError("the cluster is closed")

    def _make_world(self, state: ClusterState, before: _World | None = None) -> _World:
        config, self._notes = without_extenders(self._config)
        world = _World(
            state, config, self._gates, self._registry(), self._seed, self._has_controllers, before
        )
        self._end = weakref.finalize(self, world.close)
        return world

    def _registry(self) -> Registry | None:
        return registry_with(self._plugins) if self._plugins else None

    # -- objects -----------------------------------------------------------------------------------

    def add(self, *sources: Source, after: float = 0.0, runs_for: float | None = None) -> None:
        """Create objects now, or `after` that many seconds of virtual time.

        Pods end `runs_for` seconds after they were bound; without it they stay.

        Raises:
            InputError: an object is malformed, or workloads are given without controllers.
            PlanError: an object of that kind and name exists.
        """
        self._check_open()
        for value in (after, runs_for or 0.0):
            if not isinstance(value, float | int) or not value >= 0:  # nan is neither
                raise InputError("add: after and runs_for are seconds from 0 on")
        objects = [
            obj if isinstance(obj, Manifest) else completed(obj)
            for source in sources
            for obj in records_of(source)
        ]
        if after:
            self._world.at(after, partial(self._put, objects, runs_for))
        else:
            self._put(objects, runs_for)

    def _put(self, objects: Sequence[Any], runs_for: float | None) -> None:
        for obj in objects:
            if runs_for is not None and isinstance(obj, Pod):
                self._world.lifetimes[obj.metadata.uid] = runs_for
        self._world.add(*(obj for obj in objects if not isinstance(obj, Manifest)))
        self._apply([obj for obj in objects if isinstance(obj, Manifest)])

    def _apply(self, workloads: Sequence[Manifest]) -> None:
        if workloads and not self._has_controllers:
            raise InputError(
                f"{workloads[0]}: nothing makes its pods: use Cluster(controllers=True)"
            )
        for manifest in workloads:
            self._world.apply(manifest, self._seed)

    def delete(self, name: str, *, after: float = 0.0) -> None:
        """Delete a node (with its pods) or a pod: `node/NAME`, `pod/NAME`, `pod/NAMESPACE/NAME`.

        Raises:
            InputError: it does not exist, or is neither.
        """
        if after:
            self._world.at(after, partial(self.delete, name))
            return
        kind, _, rest = str(name).partition("/")
        world = self._world
        if kind == "node" and (node := world.find(Node, "", rest)) is not None:
            for pod in pods_on(world, rest):
                world.delete(pod)
            world.delete(node)
        elif kind == "pod":
            world.delete(self._pod(rest))
        else:
            raise InputError(f"{name}: there is none; nodes and pods can be deleted")

    def _pod(self, name: str) -> Pod:
        namespace, _, rest = str(name).rpartition("/")
        pod = self._world.find(Pod, namespace or "default", rest)
        if pod is None:
            raise InputError(f"pod {namespace or 'default'}/{rest} does not exist")
        return pod

    def node_of(self, pod: str) -> str:
        """The node of the pod `NAME` or `NAMESPACE/NAME`; empty if it is pending."""
        return self._world.where(self._pod(pod))

    @property
    def now(self) -> float:
        """Seconds of virtual time since the cluster began."""
        return self._world.now_s

    # -- scheduling --------------------------------------------------------------------------------

    def schedule(
        self,
        *sources: Source,
        config: Config = None,
        plugins: Sequence[type[Plugin]] = (),
        runs_for: float | None = None,
    ) -> Result:
        """Add pods and schedule until nothing can change; pods that run for a time do not end.

        A `config` or `plugins` replace the scheduler: it starts anew over the same objects.

        Raises:
            KubeschedError: as the constructor and `add`.
        """
        if config is not None or plugins:
            self._replace_scheduler(config, plugins)
        self.add(*sources, runs_for=runs_for)
        world = self._world
        with collector_paused():
            world.settle()
        world.sample()
        return world.result(self._notes)

    def run(self, until: float) -> Result:
        """Let virtual time pass until that second: pods come, run, end and are tried again.

        Raises:
            InputError: the moment is in the past, or the cluster is closed.
        """
        self._check_open()
        world = self._world
        if not isinstance(until, float | int) or not world.now_s <= until < math.inf:
            raise InputError(f"run: until={until} is no second from {world.now_s} on")
        with collector_paused():
            world.run_until(until)
        return world.result(self._notes)

    def _replace_scheduler(self, config: Config, plugins: Sequence[type[Plugin]]) -> None:
        before = self._world
        if before.has_agenda:
            raise InputError("schedule: a scheduler with pods to come cannot be replaced")
        if config is not None:
            self._config = configuration(config, self._gates)
        if plugins:
            self._plugins = plugins
        self._end()
        self._world = self._make_world(self.state(), before)

    def state(self) -> ClusterState:
        """All objects as they are now, for `Cluster`, `explain` and the like."""
        state = ClusterState("memory")
        for obj in self._world.stored():
            state.put(obj)
        return state

    # -- answers -----------------------------------------------------------------------------------

    def explain(self, pod: str, *, fix: bool = False) -> Explanation:
        """Why a pod is where it is, or pending; with `fix`, what would help (`kubesched explain`).

        Raises:
            InputError: the pod does not exist.
        """
        from kubesched.insight.explain.sources import explainer_of

        found, registry = self._pod(pod), self._registry()
        explainer = explainer_of(self.state(), self._config, gates=self._gates, registry=registry)
        return explainer.explain(found, fix=fix)

    def plan(
        self,
        *manifests: Source,
        scale: Sequence[str] = (),
        add_nodes: Sequence[str] = (),
        delete: Sequence[str] = (),
        drain: Sequence[str] = (),
        remove_nodes: Sequence[str] = (),
        force: bool = False,
    ) -> Plan:
        """What would come of these changes (`kubesched plan`, same spellings); nothing changes.

        Raises:
            PlanError: a change is invalid; the message gives the cause.
        """
        from kubesched.insight.planning.existing_workloads import Scale
        from kubesched.insight.planning.nodes import NewNodes
        from kubesched.insight.planning.plan import Changes, make_plan

        for names in (scale, add_nodes, delete, drain, remove_nodes):
            if isinstance(names, str):
                raise InputError(f"plan: [{names!r}] is needed, a list")
        changes = Changes(
            manifests=[found for part in manifests for found in manifests_of(part)],
            scale=[_parsed(Scale.parse, text) for text in scale],
            add_nodes=[_parsed(NewNodes.parse, text) for text in add_nodes],
            delete=delete,
            drain=drain,
            remove_nodes=remove_nodes,
            force=force,
        )
        return make_plan(
            self.state(),
            changes,
            self._config,
            gates=self._gates,
            registry=self._registry(),
            seed=self._seed,
        )

    def capacity(self, *manifests: Source, limit: int = 1_000_000) -> Capacity:
        """How many more replicas of these workloads or pods fit (`kubesched capacity`).

        Raises:
            PlanError: there is nothing to count, or it is invalid.
            InputError: as `add`, or a limit below 0.
        """
        from kubesched.insight.planning.capacity import count_capacity

        if not isinstance(limit, int) or limit < 0:
            raise InputError(f"capacity: limit: a number from 0 on is needed, not {limit!r}")
        return count_capacity(
            self.state(),
            [found for part in manifests for found in manifests_of(part)],
            self._config,
            gates=self._gates,
            registry=self._registry(),
            limit=limit,
            seed=self._seed,
        )


def _parsed(parse: Callable[[str], Any], text: str) -> Any:  # noqa: ANN401  # what `parse` makes
    try:
        return parse(text)
    except (KubeschedError, ValueError) as error:
        raise InputError(f"{text!r}: {error}") from None


class _Due(NamedTuple):
    """An action at a moment of virtual time."""

    time: float
    number: int
    act: Callable[[], None]


@dataclass(slots=True)
class _Story:
    """A pod that was pending when it was added, and its placement."""

    pod: Pod
    came_s: float
    bound: Placement | None = None


class _World(PlannedCluster):
    """Records the outcome for each pod, and keeps the agenda of future actions."""

    def __init__(
        self,
        state: ClusterState,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        registry: Registry | None,
        seed: int,
        has_controllers: bool,
        before: _World | None,
    ) -> None:
        """`before` is the world that this one replaces: its time goes on."""
        self.lifetimes: dict[str, float] = before.lifetimes if before is not None else {}
        """Uid -> seconds that the pod runs once bound."""
        self._stories: dict[str, _Story] = {}
        """Uid -> story of every pod that was not bound when it came."""
        self._samples: list[Sample] = []
        self._agenda: list[_Due] = []
        self._number = 0
        clock = before.clock if before is not None else None
        super().__init__(state, config, gates=gates, registry=registry, seed=seed, clock=clock)
        self._state = state
        self._began: float = self.clock.monotonic() if before is None else before._began
        self._workloads: Workloads | None = None
        self._replacements = Replacements(self, seed) if has_controllers else None
        self._ends = False
        self.on_bound, self.on_deleted, self.on_idle = self._came, self._left, self._controllers
        for pod in self.objects(Pod):
            if not pod.spec.node_name:
                self._stories[pod.metadata.uid] = _Story(pod, self.now_s)

    @property
    def now_s(self) -> float:
        return self.clock.monotonic() - self._began

    @property
    def has_agenda(self) -> bool:
        return bool(self._agenda) or self._workloads is not None

    def stored(self) -> list[Any]:
        return self.listers.everything()

    # -- time --------------------------------------------------------------------------------------

    def at(self, after_s: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, _Due(self.now_s + after_s, self._number, act))

    def run_until(self, moment_s: float) -> None:
        start = self.now_s
        step = (moment_s - start) / SAMPLES
        due_sample = start
        while True:
            due = min(self._agenda[0].time if self._agenda else moment_s, moment_s)
            while due_sample <= due and due_sample < moment_s:
                self.advance_to(self._began + due_sample)
                self.sample()
                due_sample += step or moment_s
            self.advance_to(self._began + due)
            while self._agenda and self._agenda[0].time <= due:
                heapq.heappop(self._agenda).act()
            if due >= moment_s and not (self._agenda and self._agenda[0].time <= moment_s):
                break
        self.settle_now()
        self.sample()

    def settle_now(self) -> None:
        """Try pods and run controllers until nothing can change at this moment."""
        changes = -1
        while changes != self.changes:
            changes = self.changes
            self.advance_to(self.clock.monotonic())
            self.on_idle()

    def sample(self) -> None:
        self._samples.append(sample_of(self.assembly, self.now_s))

    # -- changes -----------------------------------------------------------------------------------

    def add(self, *objects: Any) -> None:  # noqa: ANN401  # of whichever kinds
        super().add(*objects)
        for obj in objects:
            if isinstance(obj, Pod) and not obj.spec.node_name:
                self._stories[obj.metadata.uid] = _Story(obj, self.now_s)

    def bind(self, assumed: Assumed) -> Task[None]:
        info = assumed.info
        story = self._stories.get(info.pod_info.uid)
        if story is not None:
            node = assumed.node_name
            second, margin = "", np.nan
            if story.pod.spec.scheduling_group is None:  # a group is placed by many decisions
                second, margin = self._runner_up(node, assumed.result.feasible_nodes)
            story.bound = Placement(
                node=node,
                attempts=info.attempts,
                wait_s=self.now_s - story.came_s,
                runner_up=second,
                margin=margin,
                feasible=assumed.result.feasible_nodes,
            )
        return super().bind(assumed)

    def _runner_up(self, node: str, feasible: int) -> tuple[str, float]:
        """The best of the other nodes, and by how much the chosen one was better.

        Not the totals themselves: the engine leaves out what plugins give to all nodes alike.
        """
        algorithm, table = self.assembly.scheduler.cycle.algorithm, self.assembly.table
        ranking = algorithm.ranking
        if ranking is None or feasible < 2:
            return "", np.nan
        row = table.row_of[node]
        if isinstance(ranking, Best) and len(ranking.totals) == len(ranking.passing):
            rows, chosen = None, row  # totals of all rows, 0 where infeasible
        else:
            rows = np.flatnonzero(ranking.passing) if isinstance(ranking, Best) else ranking.rows
            chosen = int(np.flatnonzero(rows == row)[0])
        totals = ranking.totals
        others = totals.astype(np.int64)
        others[chosen] = -1
        second = int(others.argmax())
        return (
            table.names[second if rows is None else int(rows[second])],
            float(totals[chosen] - others[second]),
        )

    def _came(self, pod: Pod) -> None:
        lifetime = self.lifetimes.get(pod.metadata.uid)
        if lifetime is not None:
            self.at(lifetime, partial(self._end, pod))
        if self._workloads is not None:
            self._workloads.bound(pod)

    def _end(self, pod: Pod) -> None:
        meta = pod.metadata
        known = self.find(Pod, meta.namespace, meta.name)
        if known is not None and known.metadata.uid == meta.uid:
            self._ends = True
            self.delete(known)
            self._ends = False

    def _left(self, pod: Pod) -> None:
        story = self._stories.get(pod.metadata.uid)
        if story is not None and story.bound is not None:
            how = "ended" if self._ends else "evicted"
            story.bound = story.bound._replace(left=how)
        if self._ends:
            return
        if self._workloads is not None and self._workloads.owns(pod):
            self._workloads.deleted(pod)
        elif self._replacements is not None:
            self._replacements.replace(pod)

    # -- controllers -------------------------------------------------------------------------------

    def apply(self, manifest: Manifest, seed: int) -> None:
        from kubesched.insight.planning.workloads import Workloads

        if self._workloads is None:
            self._workloads = Workloads(self._state, self.clock, seed, self._made, self.gates)
        self._workloads.create(manifest)

    def _controllers(self) -> float | None:
        return self._workloads.run() if self._workloads is not None else None

    def _made(self, change: ChangeType, obj: Any) -> None:  # noqa: ANN401  # a record of any kind
        known = self.find(type(obj), obj.metadata.namespace, obj.metadata.name)
        if change == "ADDED" and known is None:
            self.add(obj)
        elif change == "DELETED":
            self.delete(obj)

    # -- the result --------------------------------------------------------------------------------

    def result(self, notes: Sequence[str]) -> Result:
        placements = []
        for uid, story in self._stories.items():
            meta = story.pod.metadata
            placed = story.bound
            if placed is None:
                pod = self.find(Pod, meta.namespace, meta.name)
                if pod is None or pod.metadata.uid != uid:
                    continue
                placed = self._pending(pod, story)
            placements.append((key_of(meta), placed))
        problems = [f"left out, as the scheduler would: {problem}" for problem in self.problems]
        return Result(self.assembly, placements, self._samples, [*notes, *problems])

    def _pending(self, pod: Pod, story: _Story) -> Placement:
        conditions = pod.status.conditions or ()
        told = next((c.message for c in conditions if c.type == "PodScheduled"), "")
        queued = self.assembly.scheduler.queue.get_pod(pod.metadata.namespace, pod.metadata.name)
        attempts = queued.attempts if queued is not None else 0
        return Placement(attempts=attempts, wait_s=self.now_s - story.came_s, reason=told)
