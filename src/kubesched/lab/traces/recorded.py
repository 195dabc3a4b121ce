"""Recordings (`kubesched run --record DIR`) as traces: the last playable run of a folder.

It is modelled, under its own settings and others:

| Record | Becomes |
|---|---|
| the first checkpoint | the state at second 0 |
| a pod was added without a node | its submission; it leaves when the recording deleted it |
| a pod was added with a node | it exists |
| a pod's own fields changed (labels, gates, requests, deletion in progress) | the same change |
| a pod was bound, or got a condition or a nomination | nothing: the model decides |
| a pod was deleted | it leaves, bound or not |
| other objects were added, changed or deleted | the same; device claims keep the model's status |
| a binding, or a plugin's patch or deletion of a pod, returned | the same call returns there |
| an attempt began; the queue was flushed | the model takes a turn there ([player](player.py)) |

By default `kubesched replay` plays its configuration, feature gates and seed first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from statistics import median

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Pod, PodStatus
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import ResourceClaim, ResourceClaimStatus
from kubesched.config.load import load
from kubesched.insight.recording.reader import Objects, RecordingReader, Run
from kubesched.insight.recording.recorded_dependencies import EXTENDER_VERBS
from kubesched.insight.recording.records import (
    Attempt,
    CallDone,
    Changed,
    Decision,
    QueueFlushed,
    Reached,
    SavedScheduler,
    SchedulingBegan,
    Stored,
)
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.lab.traces.trace import (
    Arrival,
    CallReturned,
    Event,
    Flush,
    OwnSettings,
    PodChange,
    Put,
    Remove,
    Trace,
    TraceError,
    Turn,
)
from kubesched.playground.registry.binding import TOPOLOGY_LABELS
from kubesched.scheduler.flight import BINDING_DONE


def read(folder: str) -> Trace:
    """Raises RecordingError, TraceError."""
    return of_reader(RecordingReader.of_folder(folder))


def of_reader(reader: RecordingReader) -> Trace:
    playable = [part for run in reader.runs() if (part := run.playable()) is not None]
    if not playable:
        raise TraceError(
            f"{reader.name}: no segment in it begins with the state of the scheduler, "
            "so nothing can be played"
        )
    conversion = _Conversion(playable[-1], reader.name)
    conversion.read()
    return conversion.trace(reader.notes)


class _Conversion:
    """Converts one run."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name
        self._header = run.segments[0].header
        self._objects = Objects(run.segments[0].name)
        self._known: dict[str, Pod] = {}
        """Pods by key, as recorded."""
        self._events: list[Event] = []
        self._state: ClusterState | None = None
        self._digest = hashlib.sha256()
        self._left_out: Counter[str] = Counter()
        """Inputs of the recorded scheduler that a model does not have."""
        self._placements: dict[str, str] = {}
        self._pods: dict[str, str] = {}
        """Keys of decided pods, by UID."""
        self._decided_s: dict[str, float] = {}
        """Pod UID -> when its last attempt was decided."""
        self._durations: dict[str, list[float]] = {}
        """Verb -> how long calls took."""
        self._schedules_from_s = 0.0
        self._assumed: dict[str, str] = {}

    def read(self) -> None:
        for entry in self._run.entries():
            self._digest.update(msgspec.msgpack.encode(entry, enc_hook=repr))
            if isinstance(entry, Stored):
                self._objects.store(entry)
                continue
            if isinstance(entry, SavedScheduler):
                self._assumed = entry.state.assumed
            if self._state is None:
                self._begin()
            time_s = max(0.0, entry.time - self._header.time)
            if isinstance(entry, Changed):
                self._change(entry, time_s)
            elif isinstance(entry, Attempt):
                self._events.append(Turn(time_s))
            elif isinstance(entry, Decision):
                self._pods[entry.uid] = entry.pod
                self._decided_s[entry.uid] = time_s
                if entry.node:
                    self._placements[entry.uid] = entry.node
            elif isinstance(entry, SchedulingBegan):
                self._schedules_from_s = time_s
            elif isinstance(entry, CallDone):
                self._call_done(entry, time_s)
            elif isinstance(entry, Reached):
                if entry.point == BINDING_DONE:
                    self._binding_done(entry, time_s)
            elif isinstance(entry, QueueFlushed):
                self._events.append(Flush(time_s))
        if self._state is None:
            self._begin()

    def _binding_done(self, entry: Reached, time_s: float) -> None:
        if entry.outcome is not None:
            self._left_out["bindings that failed"] += 1
        if entry.uid in self._placements:
            self._returned("bind", entry.uid, self._pods[entry.uid], time_s)

    def _call_done(self, entry: CallDone, time_s: float) -> None:
        if entry.verb in EXTENDER_VERBS:
            self._left_out["answers of extenders"] += 1
            return
        if entry.error is not None:
            self._left_out["calls of plugins that failed"] += 1
        if entry.verb in ("patch", "delete"):
            actor, _, pod = entry.key.rpartition(" ")
            self._returned(entry.verb, actor, pod, time_s)

    def _returned(self, verb: str, actor: str, pod: str, time_s: float) -> None:
        """A call returned; it began about when the attempt of its actor was decided."""
        self._events.append(CallReturned(time_s, verb, pod))
        if actor in self._decided_s:
            self._durations.setdefault(verb, []).append(time_s - self._decided_s[actor])

    def _begin(self) -> None:
        self._state = ClusterState(f"recording {self._name}")
        for obj in self._objects:
            if isinstance(obj, Pod):
                self._known[key_of(obj.metadata)] = obj
                node_name = self._assumed.get(obj.metadata.uid)
                if node_name is not None:  # already bound; the watch showed it later
                    obj = structs.replace(obj, spec=structs.replace(obj.spec, node_name=node_name))
            self._state.put(obj)

    def trace(self, missing: Sequence[str]) -> Trace:
        """`missing` lists unreadable parts of the recording."""
        header, state, last = self._header, self._state, self._run.segments[-1]
        if state is None:
            raise TraceError(f"{last.name}: breaks off at byte {last.torn_at}, before its log")
        gates = header.gates()
        notes = list(missing)
        if last.torn_at is not None:
            notes.append(f"{last.name} breaks off at byte {last.torn_at}")
        if not header.is_origin:
            notes.append(
                f"begins with attempt {header.attempts + 1}: "
                "what was before it was deleted to stay within the limit"
            )
        return Trace(
            name=self._name,
            format="recording",
            digest=self._digest.hexdigest(),
            state=state,
            events=self._events,
            begins_at=header.wall_time,
            schedules_from_s=self._schedules_from_s,
            notes=notes,
            resubmits=False,
            own=OwnSettings(
                config=load(msgspec.json.encode(header.config), gates=gates),
                gates=gates,
                seed=header.seed,
                max_in_unschedulable_s=header.max_in_unschedulable_s,
                placements=self._placements,
                usual_s={verb: median(took_s) for verb, took_s in self._durations.items()},
                monotonic_s=header.time,
                left_out=", ".join(
                    f"{count} {name}" for name, count in sorted(self._left_out.items())
                ),
            ),
        )

    def _change(self, entry: Changed, time_s: float) -> None:
        obj = self._objects.change(entry)
        if isinstance(obj, Pod):
            self._change_pod(entry.op, obj, time_s)
        elif entry.op in "dt":
            self._events.append(Remove(time_s, obj, evicts=False))
        elif isinstance(obj, ResourceClaim):
            if entry.op == "a":
                unallocated = structs.replace(obj, status=ResourceClaimStatus())
                self._events.append(Put(time_s, unallocated))
        else:
            self._events.append(Put(time_s, obj))

    def _change_pod(self, op: str, pod: Pod, time_s: float) -> None:
        key = key_of(pod.metadata)
        if op in "dt":
            self._known.pop(key, None)
            self._events.append(Remove(time_s, pod))
        elif op == "a":
            self._known[key] = pod
            if pod.spec.node_name:
                self._events.append(Put(time_s, pod))
            else:
                self._events.append(Arrival(time_s, _as_submitted(pod)))
        else:
            old = self._known[key]
            self._known[key] = pod
            if old.metadata.uid != pod.metadata.uid:  # deleted and re-created between two lists
                self._events.append(Remove(time_s, old))
                self._change_pod("a", pod, time_s)
            elif _differs(old, pod):
                self._events.append(PodChange(time_s, pod))


def _as_submitted(pod: Pod) -> Pod:
    status = PodStatus(
        phase="Pending",
        nominated_node_name=pod.status.nominated_node_name,
        resource_claim_statuses=pod.status.resource_claim_statuses,
    )
    return structs.replace(pod, status=status)


def _differs(old: Pod, new: Pod) -> bool:
    """Whether a field changed that the scheduler does not write, or a running pod's status."""
    if old.spec.node_name != new.spec.node_name:
        old = structs.replace(old, spec=structs.replace(old.spec, node_name=new.spec.node_name))
    if new.spec.node_name and old.status != new.status:
        return True
    return (
        old.spec != new.spec
        or old.status.resource_claim_statuses != new.status.resource_claim_statuses
        or _labels(old) != _labels(new)
        or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        or old.metadata.finalizers != new.metadata.finalizers
    )


def _labels(pod: Pod) -> dict[str, str]:
    """Labels without those that an API server adds on binding."""
    labels = pod.metadata.labels or {}
    return {key: value for key, value in labels.items() if key not in TOPOLOGY_LABELS}
