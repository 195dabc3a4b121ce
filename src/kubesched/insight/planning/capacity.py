"""Counts how many more replicas of a workload fit, and explains what stops the next one.

The scheduling cycle of `run` places replicas one by one: PreFilter, Filter, Score, Reserve and
Permit, with each pod assumed on its node. Replicas skip the queue, since all are alike and each is
tried once, and the binding, which changes no decision. Replicas without claims also skip Reserve
and Permit unless a third-party plugin takes part there. Counting ends with the first pod that fits
nowhere; nothing is evicted for it. Pods of a pod group are counted gang by gang (`gangs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from kubesched.api.core_v1 import Node, PersistentVolumeClaim, Pod
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.config.defaults import without_extenders
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.states import min_count
from kubesched.framework.nodes.pods import PodInfo, label_key_of
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.registry import Registry
from kubesched.framework.runtime import Framework
from kubesched.insight.planning.gangs import GangCount, group_to_count
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.planning.model import Capacity, Part, Stop
from kubesched.insight.planning.stops import stop_of, zone_of
from kubesched.insight.planning.workloads import SCALED, TEMPLATED, Workloads
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.collector import collector_paused
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.insight.state.replacements import with_volume_claims
from kubesched.playground.apimachinery.objects import ChangeType
from kubesched.playground.controllers.statefulset.identity import POD_INDEX_LABEL, POD_NAME_LABEL
from kubesched.plugins.dynamic_resources import DynamicResources
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.scheduler.algorithm import ScheduleResult
from kubesched.scheduler.scheduling_cycle import Assumed

IDLE_WITHOUT_CLAIMS = {VolumeBinding.name, DynamicResources.name}
"""Plugins whose Reserve does nothing for a pod without claims."""
DEFAULT_LIMIT = 1_000_000
"""Maximum number of replicas, so that counting pods without requests ends."""


def count_capacity(
    state: ClusterState,
    manifests: Sequence[Manifest],
    config: KubeSchedulerConfiguration | None = None,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    registry: Registry | None = None,
    limit: int = DEFAULT_LIMIT,
    seed: int = 0,
) -> Capacity:
    """Count replicas of these workloads over a state, after trying its pending pods.

    Configured extenders are not asked; a note names them.

    Raises:
        PlanError: the manifests hold no workload, or an uncountable or invalid one.
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    config, notes = without_extenders(config or default_config(gates))
    with PlannedCluster(state, config, gates=gates, registry=registry, seed=seed) as world:
        world.settle()
        templates = _templates(state, world, manifests, seed)
        with collector_paused():
            counted = _Count(world, templates, limit).result(state)
    counted.notes[:0] = notes
    return counted


class _Template:
    """One workload's pod as its controller creates it, and copies of it."""

    def __init__(
        self,
        manifest: Manifest,
        pod: Pod,
        per_replica: int,
        *,
        has_claims: bool,
    ) -> None:
        """`has_claims`: each pod has its own, of a StatefulSet's templates or ephemeral volumes."""
        self.manifest = manifest
        self.per_replica = per_replica
        self.pod = pod
        self._has_claims = has_claims
        self._first = PodInfo(pod)
        self._first.label_key = label_key_of(pod)
        self._is_ordinal = manifest.kind == "StatefulSet"
        self._placed: dict[str, PodInfo] = {}
        """The pod as placed on a node, by node."""
        base = pod.metadata.name.rpartition("-")[0]
        self._base = base if manifest.kind in TEMPLATED else pod.metadata.name
        self._key = f"{pod.metadata.namespace}/{self._base}"

    def copy(self, world: PlannedCluster, number: int) -> PodInfo:
        """The pod with a number, counted from 0; its claims are made."""
        pod = self.pod
        name = f"{self._base}-{number}"
        meta = structs.replace(pod.metadata, name=name, uid=f"{pod.metadata.uid}-{number}")
        if self._is_ordinal:
            own = {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(number)}
            meta = structs.replace(meta, labels={**(meta.labels or {}), **own})
        if self._has_claims:
            return PodInfo(with_volume_claims(world, pod, structs.replace(pod, metadata=meta)))
        info = PodInfo(structs.replace(pod, metadata=meta))
        if not self._is_ordinal:
            info.class_key, info.shape_key = self._first.class_key, self._first.shape_key
            info.share_derived(self._first.derived, self._first.label_key or label_key_of(pod))
        return info

    @property
    def is_plain(self) -> bool:
        """Whether its pods differ in names only and need no Reserve."""
        first = self._first
        return not (
            self._is_ordinal
            or first.claims
            or first.pod.spec.resource_claims
            or first.requests.scalars  # may be backed by a device class
        )

    def stand_in(self) -> PodInfo:
        """A pod that represents all copies in decisions, with its own name and uid."""
        return self._first

    def placed(self, number: int, node_name: str) -> PodInfo:
        """The copy with that number on a node; plain templates only."""
        placed = self._placed.get(node_name)
        if placed is None:
            placed = self._placed[node_name] = self._first.assumed_on(node_name)
        return placed.twin(f"{placed.uid}-{number}", f"{self._key}-{number}")

    def learn(self, info: PodInfo) -> None:
        """Share the scheduler's results for this pod with later copies."""
        if not self._has_claims and not self._is_ordinal:
            self._first.class_key, self._first.shape_key = info.class_key, info.shape_key


def _templates(
    state: ClusterState, world: PlannedCluster, manifests: Sequence[Manifest], seed: int
) -> list[_Template]:
    """The pod of each workload. Other objects of the files (claims, services) are added."""
    made: list[Any] = []

    def listen(change: ChangeType, obj: Any) -> None:  # noqa: ANN401  # of any kind
        if change == "ADDED":
            made.append(obj)

    workloads = Workloads(state, world.clock, seed, listen, world.gates)
    counted = [
        manifest for manifest in manifests if manifest.kind == "Pod" or manifest.kind in TEMPLATED
    ]
    if not counted:
        raise PlanError(
            "there is no pod and no workload in the files whose replicas could be counted"
        )
    templates = []
    for manifest in manifests:
        if manifest.kind == "DaemonSet":
            raise PlanError(
                f"{manifest}: a DaemonSet has one pod per node, whatever the room; "
                "'kubesched plan' shows where it fits"
            )
        made.clear()
        workloads.create(manifest, replicas=1)
        workloads.run()
        pods = [obj for obj in made if isinstance(obj, Pod)]
        for obj in made:
            if not isinstance(obj, Pod):
                world.put(obj)
        if manifest not in counted:
            continue
        if not pods:
            raise PlanError(f"{manifest}: makes no pod (is it paused or suspended?)")
        _check_profile(world, manifest, pods[0])
        per_replica = _wanted(manifest) if len(counted) > 1 else 1
        has_claims = any(isinstance(obj, PersistentVolumeClaim) for obj in made)
        templates.append(_Template(manifest, pods[0], per_replica, has_claims=has_claims))
    return templates


def _wanted(manifest: Manifest) -> int:
    """Number of pods in the manifest."""
    spec = manifest.obj.get("spec") or {}
    field = "replicas" if manifest.kind in SCALED else "parallelism"
    wanted = spec.get(field, 1) if manifest.kind != "Pod" else 1
    if wanted < 1:
        raise PlanError(f"{manifest}: spec.{field}: there is no proportion with {wanted} of them")
    return int(wanted)


def _check_profile(world: PlannedCluster, manifest: Manifest, pod: Pod) -> None:
    name = pod.spec.scheduler_name
    if name not in world.assembly.frameworks:
        field = "spec" if manifest.kind == "Pod" else "spec.template.spec"
        known = ", ".join(world.assembly.frameworks)
        raise PlanError(
            f"{manifest}: {field}.schedulerName: "
            f'no profile of the configuration is called "{name}" (there is {known})'
        )


class _Count:
    """Counts in rounds; each round places every template's share of pods."""

    def __init__(self, world: PlannedCluster, templates: Sequence[_Template], limit: int) -> None:
        self._world = world
        self._templates = templates
        self._limit = limit
        self._before: list[int] = world.assembly.table.pod_count.array.tolist()
        """Pods by row when counting began."""
        self._cycle_number = world.assembly.scheduler.queue.scheduling_cycle
        self._signatures: dict[int, bytes | None] = {}
        self._group = group_to_count(
            world, [each.pod for each in templates for _ in range(each.per_replica)]
        )

    def _gang_size(self) -> int:
        if self._group is None:
            return 0
        if len(self._templates) == 1:
            return min_count(self._group)
        return sum(template.per_replica for template in self._templates)

    def _count_gangs(self, group: PodGroup) -> tuple[int, Stop | None]:
        makers: list[Callable[[int], PodInfo]] = []
        for template in self._templates:
            count = self._gang_size() if len(self._templates) == 1 else template.per_replica
            makers += [partial(self._copy_of, template, count, at) for at in range(count)]
        gangs = GangCount(self._world, group, makers)
        for number in range(self._limit):
            stopped = gangs.place(number)
            if stopped is not None:
                return number, stopped
        return self._limit, None

    def _copy_of(self, template: _Template, count: int, at: int, gang: int) -> PodInfo:
        return template.copy(self._world, gang * count + at)

    def result(self, state: ClusterState) -> Capacity:
        pending = sum(not self._world.where(pod) for pod in self._world.objects(Pod))
        replicas, stopped = self._count() if self._group is None else self._count_gangs(self._group)
        world = self._world
        zones: Counter[str] = Counter()
        by_node = self._by_node()
        for name, count in by_node.items():
            zones[zone_of(world.find(Node, "", name))] += count
        return Capacity(
            source=state.source,
            parts=[
                Part(
                    kind=template.manifest.kind,
                    name=key_of(
                        structs.replace(template.pod.metadata, name=template.manifest.name)
                    ),
                    per_replica=template.per_replica,
                )
                for template in self._templates
            ],
            replicas=replicas,
            gang=self._gang_size(),
            pods=sum(by_node.values()),
            is_limited=stopped is None,
            zones=dict(sorted(zones.items())),
            nodes=by_node,
            next=stopped,
            pending=pending,
            notes=[f"left out, as the scheduler would: {problem}" for problem in world.problems],
        )

    def _by_node(self) -> dict[str, int]:
        """Number of copies by node."""
        table = self._world.assembly.table
        names, counts = table.names, table.pod_count.array.tolist()
        added = zip(names, self._before, counts, strict=False)
        return dict(sorted((name, now - then) for name, then, now in added if now > then))

    def _count(self) -> tuple[int, Stop | None]:
        numbers = [0] * len(self._templates)
        places = [self._placing(at, template) for at, template in enumerate(self._templates)]
        for replica in range(self._limit):
            for at, template in enumerate(self._templates):
                for _ in range(template.per_replica):
                    # The first goes through the queue, where a PreEnqueue plugin may hold it back.
                    place = places[at] if numbers[at] else partial(self._place, at, template)
                    if not place(numbers[at]):
                        return replica, stop_of(self._world, self._untried(template, numbers[at]))
                    numbers[at] += 1
        return self._limit, None

    def _placing(self, at: int, template: _Template) -> Callable[[int], bool]:
        """Returns a function that places the copy with a given number, except the first."""
        framework = self._framework_of(template)
        others = {plugin.name for plugin in (*framework.reserve, *framework.permit)}
        if template.is_plain and others <= IDLE_WITHOUT_CLAIMS:
            return self._placing_shortly(at, template, framework)
        return partial(self._place, at, template)

    def _framework_of(self, template: _Template) -> Framework:
        return self._world.assembly.frameworks[template.pod.spec.scheduler_name]

    def _untried(self, template: _Template, number: int) -> Pod:
        """The failed pod under a new uid, since an eviction may be prepared for the old one."""
        pod = template.copy(self._world, number).pod
        meta = structs.replace(pod.metadata, uid=f"{pod.metadata.uid}/next")
        pod = structs.replace(pod, metadata=meta)
        self._world.listers.put(pod)  # preemption looks it up
        return pod

    def _placing_shortly(
        self, at: int, template: _Template, framework: Framework
    ) -> Callable[[int], bool]:
        """A fast `_place` for pods that need no Reserve: decide, then count the copy on its node.

        Copies are counted in the table only: the cache tracks pods for later events, and none
        follow.
        """
        schedule = self._world.assembly.scheduler.cycle.algorithm.schedule
        add_pod = self._world.assembly.table.add_pod
        stand_in, placed = template.stand_in(), template.placed

        def place(number: int) -> bool:
            state = CycleState()
            self._cycle_number += 1
            state.cycle, state.signature = self._cycle_number, self._signatures[at]
            result = schedule(framework, state, stand_in)
            if not isinstance(result, ScheduleResult):
                return False
            node_name = result.node_name
            add_pod(placed(number, node_name), node_name)
            return True

        return place

    def _place(self, at: int, template: _Template, number: int) -> bool:
        world = self._world
        queued = self._queued(at, template.copy(world, number))
        if queued is None:
            return False
        framework = self._framework_of(template)
        framework.attempt_begins()
        state = CycleState()
        self._cycle_number += 1
        state.cycle, state.signature = self._cycle_number, queued.signature
        outcome = world.assembly.scheduler.cycle.run(framework, state, queued, framework.now())
        if not isinstance(outcome, Assumed):
            return False
        template.learn(queued.pod_info)
        return True

    def _queued(self, at: int, info: PodInfo) -> QueuedPodInfo | None:
        """The pod as the queue returns it; None if a PreEnqueue plugin holds it back.

        Only the first pod of each template goes through the queue; the others look the same to it.
        """
        if at in self._signatures:
            queued = QueuedPodInfo(info, self._world.clock.monotonic())
            queued.signature = self._signatures[at]
            return queued
        queue = self._world.assembly.scheduler.queue
        queue.add(info.pod)
        first = queue.pop_specific_pod(info.pod)
        if first is not None:
            queue.done(info.uid)
            self._signatures[at] = first.signature
        return first
