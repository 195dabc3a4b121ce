"""Plays a workload's operations on a control plane with a running scheduler, and measures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, TypeVar

from kubesched.api import codec
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.names import key_of, key_of_manifest
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError, NotFound
from kubesched.insight.state.memory import MemoryListers
from kubesched.lab.benchmarking import operations as ops
from kubesched.lab.benchmarking.device_claims import allocated_claims
from kubesched.lab.benchmarking.end_to_end.creating import Creator
from kubesched.lab.benchmarking.end_to_end.decision_profile import DecisionProfile
from kubesched.lab.benchmarking.end_to_end.measuring import UsageLog, measurement, until_settled
from kubesched.lab.benchmarking.end_to_end.metric_pages import MetricPage
from kubesched.lab.benchmarking.end_to_end.observing import BindingObserver
from kubesched.lab.benchmarking.end_to_end.planes import Plane
from kubesched.lab.benchmarking.end_to_end.volumes import Provisioner
from kubesched.lab.benchmarking.results import RunResult
from kubesched.lab.benchmarking.templates import Manifest
from kubesched.lab.contestants import RunningScheduler

Start = Callable[[], contextlib.AbstractAsyncContextManager[RunningScheduler]]
T = TypeVar("T")

Report = Callable[[str], None]

_POLL_S = 0.2
CLAIM_WORKERS = 5
"""Pods whose claims are released concurrently, as in scheduler_perf's claim controller."""


class Release(Enum):
    """When the measured pods are created."""

    AS_CREATED = "as-created"
    """While the scheduler runs, as in scheduler_perf: creation competes with scheduling."""
    DRAINED = "drained"
    """Before the scheduler starts: measures how fast it drains a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the measured pods are created."""

    release: Release = Release.AS_CREATED
    pods_per_s: float = 0.0
    """Create measured pods at this rate; 0: as fast as possible."""
    stall_s: float = 120.0
    """A workload fails if nothing is bound for this long."""


class Driver:
    """One workload on one plane."""

    def __init__(
        self,
        plane: Plane,
        observer: BindingObserver,
        start_scheduler: Start,
        pace: Pace,
        clock: Clock,
        report: Report,
    ) -> None:
        self._plane = plane
        self._observer = observer
        self._start = start_scheduler
        self._pace = pace
        self._clock = clock
        self._report = report
        self._creator = Creator(plane.client, clock)
        self._names = ops.Names()
        self._namespaces: set[str] = {"default"}
        self._pods: dict[str, Mapping[str, str]] = {}  # key -> labels, of all expected pods
        self.scheduler: RunningScheduler | None = None
        self._stack = contextlib.AsyncExitStack()
        self._beside: list[asyncio.Task[None]] = []
        self._stretch: _Stretch | None = None
        self.log: UsageLog | None = None
        self.measurements: list[RunResult] = []

    async def play(self, steps: Sequence[ops.Op]) -> None:
        """Run all operations; the scheduler starts before the first pod and stops at the end."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._stop_scheduler)
            stack.push_async_callback(self._stop_beside)
            for number, step in enumerate(steps, 1):
                self._report(f"{number}/{len(steps)} {_told(step)}")
                self._check()
                for namespace in step.namespaces_used():
                    await self._ensure_namespace(namespace)
                await self._play(step)

    async def _play(self, step: ops.Op) -> None:
        match step:
            case ops.CreateNodes() | ops.CreateNamespaces() | ops.CreateAny():
                manifests = list(step.manifests(self._names))
                await self._create(manifests)
                if any(manifest["kind"] == "StorageClass" for manifest in manifests):
                    provisioner = Provisioner(self._plane.client, self._clock)
                    await self._maybe_beside(provisioner.run(), True)
            case ops.CreateResourceDriver():
                nodes = (await self._plane.client.list(Node)).items
                await self._create(list(step.manifests(node.metadata.name for node in nodes)))
            case ops.AllocResourceClaims():
                await self._allocate_claims(step.namespace)
            case ops.CreatePods():
                await self._create_pods(step, [step])
            case ops.CreatePodSets():
                await self._create_pods(step.create_pods_op, list(step.sets()))
            case ops.DeletePods():
                await self._maybe_beside(self._delete_pods(step), step.skip_wait_to_completion)
            case ops.UpdateAny():
                await self._maybe_beside(self._update(step), step.skip_wait_to_completion)
            case ops.Churn():
                await self._ensure_scheduler()
                await self._maybe_beside(self._churn(step), True)
            case ops.Barrier():
                await self._wait_at(step)
            case ops.Sleep():
                await asyncio.sleep(step.duration)
            case ops.StartCollectingMetrics():
                await self._begin_stretch(step)
            case ops.StopCollectingMetrics():
                await self._end_stretch()
            case _:
                raise KubeschedError(f"cannot play {_told(step)}")

    def _check(self) -> None:
        self._plane.check()
        if self.scheduler is not None:
            self.scheduler.check()
        for task in self._beside:
            if task.done() and not task.cancelled():
                task.result()

    # The scheduler.

    async def _ensure_scheduler(self) -> None:
        if self.scheduler is None:
            # Set before it is ready: its cost counts from the first binding, possibly earlier.
            self.scheduler = await self._stack.enter_async_context(self._start())
            await self.scheduler.until_ready()

    async def _stop_scheduler(self) -> None:
        self.scheduler = None
        await self._stack.aclose()

    # Creating.

    async def _ensure_namespace(self, name: str) -> None:
        if name and name not in self._namespaces:
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self._creator.create(made, may_exist=True)
            self._namespaces.add(name)

    async def _create(self, manifests: Iterable[Manifest], per_second: float = 0.0) -> None:
        await self._creator.create_all(manifests, per_second=per_second, check=self._check)

    async def _allocate_claims(self, namespace: str) -> None:
        listers = MemoryListers()
        kinds: tuple[type[Any], ...] = (Node, ResourceSlice, DeviceClass, ResourceClaim)
        for kind in kinds:
            for obj in (await self._plane.client.list(kind)).items:
                listers.of(kind).put(obj)
        for claim in allocated_claims(listers, namespace, Random(1)):
            listers.of(ResourceClaim).put(claim)
            name, namespace = claim.metadata.name, claim.metadata.namespace
            path = kind_of(ResourceClaim).object_path(name, namespace)
            await self._plane.client.put_raw(f"{path}/status", codec.encode(claim))

    def _expect(self, manifests: Iterable[Manifest]) -> list[str]:
        keys = []
        for manifest in manifests:
            if manifest["kind"] == "Pod":
                keys.append(key_of_manifest(manifest))
                self._pods[keys[-1]] = manifest["metadata"].get("labels") or {}
        return keys

    async def _create_pods(self, how: ops.CreatePods, sets: Sequence[ops.CreatePods]) -> None:
        if how.steady_state:
            await self._ensure_scheduler()
            if how.collect_metrics:
                self._stretch = await self._new_stretch(False)
                self._stretch.namespaces = tuple(pod_set.namespace for pod_set in sets)
            await self._keep_up(how, sets)
            if how.collect_metrics:
                await self._end_stretch()
            return
        manifests = [manifest for pod_set in sets for manifest in pod_set.manifests(self._names)]
        keys = self._expect(manifests)
        if how.collect_metrics:
            await self._measure(manifests, keys)
            return
        await self._ensure_scheduler()
        await self._create(manifests)
        if not how.skip_wait_to_completion:
            await self._until_bound(keys, "the pods created")

    async def _until_bound(self, keys: Sequence[str], what: str) -> None:
        await self._observer.until_bound(
            keys, stall_s=self._pace.stall_s, check=self._check, what=what
        )

    async def _keep_up(self, how: ops.CreatePods, sets: Sequence[ops.CreatePods]) -> None:
        """Create pods, delete them once all are bound, and repeat for a while.

        Claims of deleted pods are released in the background, like the claim controller does.
        """
        ends_at = self._clock.monotonic() + how.duration
        workers = asyncio.Semaphore(CLAIM_WORKERS)

        async def release(namespace: str, name: str) -> None:
            async with workers:
                await self._creator.claims.delete_of(namespace, name)

        async def in_batches(pods: ops.CreatePods) -> None:
            while self._clock.monotonic() < ends_at:
                manifests = list(pods.manifests(self._names))
                names = [made["metadata"]["name"] for made in manifests if made["kind"] == "Pod"]
                await self._create(manifests)
                keys = [f"{pods.namespace}/{name}" for name in names]
                await self._until_bound(keys, "pods that are kept up")
                await self._creator.delete_pods(pods.namespace)
                for name in names:
                    releases.create_task(release(pods.namespace, name))

        async with asyncio.TaskGroup() as releases, asyncio.TaskGroup() as group:
            for pods in sets:
                group.create_task(in_batches(pods))

    # Measuring.

    async def _measure(self, manifests: list[Manifest], keys: list[str]) -> None:
        """Measure the pods of one operation, from their creation to their last event."""
        is_drained = self._pace.release is Release.DRAINED
        if is_drained:
            await self._stop_scheduler()
            await self._create(manifests)
        else:
            await self._ensure_scheduler()
        stretch = await self._new_stretch(is_drained)
        if is_drained:
            await self._ensure_scheduler()
        else:
            await self._create(manifests, self._pace.pods_per_s)
        await self._until_bound(keys, "the measured pods")
        await self._finish(stretch, keys)

    async def _begin_stretch(self, step: ops.StartCollectingMetrics) -> None:
        await self._ensure_scheduler()
        self._stretch = await self._new_stretch(False)
        self._stretch.namespaces = step.namespaces
        self._stretch.labels = step.label_selector

    async def _end_stretch(self) -> None:
        if (stretch := self._stretch) is None:
            raise KubeschedError("measuring ends before it has begun")
        self._stretch = None
        keys = [
            key
            for key, moment in self._observer.moments.items()
            if moment >= stretch.began_at
            and _is_among(key, self._pods.get(key, {}), stretch.namespaces, stretch.labels)
        ]
        await self._finish(stretch, keys)

    async def _new_stretch(self, is_drained: bool) -> _Stretch:
        page = None
        if not is_drained:
            assert self.scheduler is not None, "the scheduler is at work"
            page = MetricPage((await self.scheduler.get("/metrics")).decode())
        # Events about earlier pods may still be in flight and must not count here.
        events, _ = await until_settled(
            self._plane, self._clock, len(self._observer.moments), before=0
        )
        assert self.log is not None, "the usage log is running"
        self.log.note()
        stretch = _Stretch(self._clock.monotonic(), page, events, is_drained)
        if self.scheduler is not None and self.scheduler.contestant.tells_decisions:
            stretch.profiling = asyncio.ensure_future(stretch.profile.take(self.scheduler))
            self._beside.append(stretch.profiling)
        return stretch

    async def _finish(self, stretch: _Stretch, keys: Sequence[str]) -> None:
        self._report(f"{len(keys)} pods bound; waiting for the last event to be written")
        events, settled_at = await until_settled(
            self._plane, self._clock, len(keys), stretch.events_before
        )
        assert self.scheduler is not None, "the scheduler outlives a stretch"
        assert self.log is not None, "the usage log is running"
        self.log.note()
        if stretch.profiling is not None:
            stretch.profile.is_over = True
            await stretch.profiling
        moments = self._observer.moments
        self.measurements.append(
            measurement(
                moments={key: moments[key] for key in keys},
                began_at=stretch.began_at,
                counts_from_first=stretch.is_drained,
                log=self.log,
                pages=(stretch.page, MetricPage((await self.scheduler.get("/metrics")).decode())),
                events=events,
                settled_at=settled_at,
                profile=stretch.profile,
            )
        )

    # Waiting.

    async def _wait_at(self, step: ops.Barrier) -> None:
        keys = [
            key
            for key, labels in self._pods.items()
            if _is_among(key, labels, step.namespaces, step.label_selector)
        ]
        if step.stage_requirement == "Scheduled":
            await self._until_bound(keys, "the pods a barrier waits for")
        else:
            await self._until_tried(set(keys))

    async def _until_tried(self, keys: set[str]) -> None:
        """Wait until each is bound or reported unschedulable in its status."""
        deadline = self._clock.monotonic() + self._pace.stall_s
        while True:
            listed = await self._plane.client.list(Pod, field_selector="spec.nodeName=")
            left = [
                key_of(pod.metadata)
                for pod in listed.items
                if not any(c.type == "PodScheduled" for c in pod.status.conditions or ())
            ]
            left = [key for key in left if key in keys]
            if not left:
                return
            if self._clock.monotonic() > deadline:
                raise KubeschedError(
                    f"a barrier waits for pods to be tried: {len(left)} of {len(keys)} "
                    "were not within "
                    f"{self._pace.stall_s:.0f} s; one of them is {min(left)}"
                )
            self._check()
            await asyncio.sleep(_POLL_S)

    # Background changes.

    async def _maybe_beside(self, work: Coroutine[Any, Any, None], is_beside: bool) -> None:
        task = asyncio.ensure_future(work)
        if is_beside:
            self._beside.append(task)
        else:
            await task

    async def _stop_beside(self) -> None:
        tasks, self._beside = self._beside, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _delete_pods(self, step: ops.DeletePods) -> None:
        wanted = [
            key
            for key, labels in self._pods.items()
            if _is_among(key, labels, (step.namespace,), step.label_selector)
        ]
        async for key in self._paced(wanted, step.delete_pods_per_second):
            namespace, _, name = key.partition("/")
            with contextlib.suppress(NotFound):
                await self._plane.client.delete(Pod, name, namespace)
            await self._creator.claims.delete_of(namespace, name)
            self._pods.pop(key, None)

    async def _update(self, step: ops.UpdateAny) -> None:
        manifests = list(step.manifests(self._names))
        async for manifest in self._paced(manifests, step.update_per_second):
            await self._creator.replace(manifest, step.subresources)

    async def _churn(self, step: ops.Churn) -> None:
        pause_s, turn = step.interval_milliseconds / 1000, 0
        while step.mode == "recreate" or not step.number or turn < step.number:
            made: list[Manifest] = []
            for _ in range(max(1, step.number) if step.mode == "recreate" else 1):
                for manifest in step.manifests_of(turn, self._names):
                    await self._creator.create(manifest)
                    made.append(manifest)
                turn += 1
                await asyncio.sleep(pause_s)
            if step.mode == "recreate":
                for manifest in made:
                    await self._creator.delete(manifest)
                    await asyncio.sleep(pause_s)

    async def _paced(self, items: Sequence[T], per_second: float) -> AsyncIterator[T]:
        began = self._clock.monotonic()
        for number, item in enumerate(items):
            if per_second:
                await asyncio.sleep(max(0.0, began + number / per_second - self._clock.monotonic()))
            yield item


@dataclass(slots=True)
class _Stretch:
    """The state at the beginning of a measured interval."""

    began_at: float
    page: MetricPage | None
    events_before: int
    is_drained: bool
    profile: DecisionProfile = field(default_factory=DecisionProfile)
    """Empty if the scheduler was not running yet, or its profile does not resolve decisions."""
    profiling: asyncio.Task[None] | None = None
    namespaces: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def _is_among(
    key: str, labels: Mapping[str, str], namespaces: Sequence[str], wanted: Mapping[str, str]
) -> bool:
    """Whether a pod is in one of the namespaces (any if empty) and has the labels."""
    namespace = key.partition("/")[0]
    return (not namespaces or namespace in namespaces) and wanted.items() <= labels.items()


def _told(step: ops.Op) -> str:
    count = getattr(step, "count", None)
    return step.opcode if count is None else f"{step.opcode} {count}"
