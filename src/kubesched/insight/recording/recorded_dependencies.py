"""Attaches a recorder to a running scheduler: opens it, and wraps calls and timers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar, cast

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.meta import Record
from kubesched.api.names import key_of, object_key
from kubesched.base.clock import Clock
from kubesched.base.version import __version__
from kubesched.config.features import FeatureGates
from kubesched.config.output import to_plain
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.extenders import Extender, ExtenderFilterResult, Victims
from kubesched.framework.handle import DirectBindingClient, SchedulerClient
from kubesched.framework.waiting_pods import CallLater, Timer
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.recording.segments import FolderStorage, Header, MemoryStorage, Storage
from kubesched.insight.recording.writer import Limits, RecordingWriter
from kubesched.scheduler.factory import Dependencies
from kubesched.scheduler.flight import in_call

T = TypeVar("T")
R = TypeVar("R", bound=Record)

RING_BYTES = 32 << 20
"""Maximum size of an in-memory recording."""


EXTENDER_VERBS = ("filter", "prioritize", "preempt")
"""Verbs under which extender answers are recorded."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorder and the parts of its run."""

    recorder: Recorder
    storage: Storage
    seed: int

    def close(self) -> None:
        """Write remaining records, within a time limit."""
        self.recorder.stop()
        self.storage.close()


def open_recording(
    folder: str | None,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
    *,
    limits: Limits,
    clock: Clock,
    random: Random,
    max_in_unschedulable_s: float = 300.0,
    classes: bool = True,
    threaded: bool = True,
    flush_at: int | None = None,
    storage: Storage | None = None,
) -> Recording:
    """Start a run in a folder, in memory (without a folder), or in the given storage.

    Without a thread, records are written at the end, or whenever `flush_at` records are pending. A
    disk failure ends the recording, even in the first segment.

    Raises:
        RecordingError: the folder cannot be used, or another process records there.
    """
    if folder is not None:
        storage = locked = FolderStorage(folder)
        locked.lock()
    elif storage is None:
        storage = MemoryStorage()
    seed = random.getrandbits(63)
    header = Header(
        number=0,
        run=0,
        made_by=__version__,
        wall_time=clock.now(),
        time=clock.monotonic(),
        attempts=0,
        seed=seed,
        config=to_plain(config, gates.reference),
        feature_gates={name: on for name, _stage, on in gates.states()},
        reference_version=gates.reference.version,
        emulated_version=gates.versions.emulated,
        min_compatibility_version=gates.versions.min_compatibility,
        max_in_unschedulable_s=max_in_unschedulable_s,
        classes=classes,
    )
    recorder = Recorder(RecordingWriter(storage, limits, header), clock, flush_at=flush_at)
    recorder.flush()  # creates the first segment, or reports the failure at once
    if threaded:
        recorder.start()
    return Recording(recorder, storage, seed)


def recorded_dependencies(dependencies: Dependencies, recording: Recording) -> Dependencies:
    """The same dependencies, with every input of decisions passing through the recorder."""
    recorder, extenders = recording.recorder, dependencies.extenders
    return replace(
        dependencies,
        random=Random(recording.seed),
        jitter=dependencies.random,
        call_later=recorded_timers(recorder, dependencies.call_later),
        plugin_client=RecordedCalls(dependencies.client, recorder),
        extenders=lambda configured, table: [
            cast("Extender", RecordedExtender(extender, recorder))
            for extender in extenders(configured, table)
        ],
        flight=recorder,
    )


class RecordedCalls:
    """The plugins' client; records when each call returns. The binding cycle reports bindings."""

    def __init__(self, calls: SchedulerClient, recorder: Recorder) -> None:
        self._calls = calls
        self._recorder = recorder
        self.bind_pod = calls.bind_pod
        if isinstance(calls, DirectBindingClient):
            self.start_binding = calls.start_binding

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        await self._recorded(
            "patch", key_of(pod.metadata), self._calls.patch_pod_status(pod, patch)
        )

    async def delete_pod(self, pod: Pod) -> None:
        await self._recorded("delete", key_of(pod.metadata), self._calls.delete_pod(pod))

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        key = f"{kind.__name__}/{object_key(namespace, name)}"
        return await self._recorded("get", key, self._calls.get(kind, namespace, name))

    async def create(self, obj: R) -> R:
        return await self._recorded("create", object_name(obj), self._calls.create(obj))

    async def update(self, obj: R) -> R:
        return await self._recorded("update", object_name(obj), self._calls.update(obj))

    async def update_status(self, obj: R) -> R:
        call = self._calls.update_status(obj)
        return await self._recorded("update status", object_name(obj), call)

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        key = f"{kind.__name__}/{object_key(namespace, name)}"
        call = self._calls.patch_status(kind, namespace, name, patch)
        return await self._recorded("patch status", key, call)

    async def delete(self, obj: Record) -> None:
        await self._recorded("delete object", object_name(obj), self._calls.delete(obj))

    async def _recorded(self, verb: str, key: str, call: Awaitable[T]) -> T:
        return await recorded(self._recorder, verb, key, call)


def object_name(obj: Any) -> str:  # noqa: ANN401  # a record of any kind
    """Kind and key; for a generated name, its prefix."""
    metadata = obj.metadata
    name = object_key(metadata.namespace, metadata.name or metadata.generate_name)
    return f"{type(obj).__name__}/{name}"


async def recorded(recorder: Recorder, verb: str, key: str, call: Awaitable[T]) -> T:
    """Await a call and record its outcome, right before the caller continues."""
    token = in_call.set(True)
    try:
        result = await call
    except Exception as error:
        recorder.call_done(verb, key, error, None)
        raise
    finally:
        in_call.reset(token)
    recorder.call_done(verb, key, None, result)
    return result


class RecordedExtender:
    """Records an extender's answers."""

    def __init__(self, extender: Extender, recorder: Recorder) -> None:
        self._extender = extender
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # all that is not asked over the network
        return getattr(self._extender, name)

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderFilterResult:
        return await self._recorded("filter", pod, self._extender.filter(pod, nodes))

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        return await self._recorded("prioritize", pod, self._extender.prioritize(pod, nodes))

    async def process_preemption(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        asked = self._extender.process_preemption(pod, victims)
        return await self._recorded("preempt", pod, asked)

    async def _recorded(self, verb: str, pod: Pod, call: Awaitable[T]) -> T:
        key = f"{self._extender.name} {key_of(pod.metadata)}"
        return await recorded(self._recorder, verb, key, call)


def recorded_timers(recorder: Recorder, call_later: CallLater) -> CallLater:
    """A `call_later` that records callbacks when they run."""

    def later(delay: float, callback: Callable[[], None]) -> Timer:
        number = recorder.new_timer()

        def fire() -> None:
            recorder.timer_fired(number)
            callback()

        return call_later(delay, fire)

    return later
