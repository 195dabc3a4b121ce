"""Kubernetes audit logs: JSON lines of `audit.k8s.io/v1` events from kube-apiserver.

| Event | Becomes |
|---|---|
| create pods | the submission at `requestReceivedTimestamp`, from the response or the request |
| create pods/binding | ignored: the replay decides; a pod created with a node stays there |
| delete pods | the pod leaves then, bound or not |
| update or patch pods/status with phase Succeeded or Failed | likewise |
| update or patch pods | labels, gates and requests change, if the log has the response |
| create, update, patch or delete of nodes or other scheduling objects | a put or a removal |

Only successful requests count (`responseStatus.code` below 400), once, at the stage
ResponseComplete. Objects need the level Request or RequestResponse; events of the level Metadata
are counted in a note. Objects from before the log, such as nodes, come from `--from`.
`deletecollection` does not say what it deleted and is counted in a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import Node, Pod, PodStatus
from kubesched.api.names import key_of, object_key
from kubesched.api.times import parse_time
from kubesched.insight.state.cluster_state import DEFAULT_SCHEDULER, FINISHED, KINDS, ClusterState
from kubesched.lab.traces.rows import Row, digest_of, json_rows
from kubesched.lab.traces.trace import Arrival, Event, PodChange, Put, Remove, Trace, TraceError

KIND_OF = {kind.resource: kind for kind in KINDS}
WRITES = frozenset({"create", "update", "patch", "delete"})
API_VERSION = "audit.k8s.io/"


def is_audit_event(value: Any) -> bool:  # noqa: ANN401  # a JSON value
    return isinstance(value, dict) and str(value.get("apiVersion", "")).startswith(API_VERSION)


def read(files: Sequence[str], state: ClusterState | None = None) -> Trace:
    """Read a log; `state` is the cluster at its beginning.

    Raises:
        TraceError: a line is not an audit event, or an object in it is malformed.
    """
    log = _Log(state.copy() if state is not None else ClusterState(", ".join(files)))
    rows = [row for path in files for row in json_rows(path)]
    for row in rows:
        log.take(row)
    if not log.begins_at:
        raise TraceError(f"{', '.join(files)}: no successful writes in this log")
    return Trace(
        name=", ".join(files),
        format="audit",
        digest=digest_of(files, "audit", sorted(key_of(obj.metadata) for obj in log.state)),
        state=log.state,
        events=log.finished(),
        begins_at=log.begins_at,
        notes=[f"{count} {what}" for what, count in log.notes.items()],
        resubmits=False,
    )


class _Log:
    """The log being read."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.begins_at = 0.0
        self.notes: Counter[str] = Counter()
        self._events: list[Event] = []
        self._pods: dict[str, int] = {}
        """Key of an arrived pod -> its index in the events."""
        self._last: dict[str, Pod] = {}

    def finished(self) -> list[Event]:
        # Responses are logged on completion; order by the time of the request.
        return sorted(self._events, key=lambda event: event.time_s)

    def take(self, row: Row) -> None:
        if not is_audit_event({"apiVersion": row.get("apiVersion")}):
            raise row.error("apiVersion", "not an audit event (audit.k8s.io/v1)")
        verb, reference = row.text("verb", ""), row.get("objectRef") or {}
        if row.text("stage", "ResponseComplete") != "ResponseComplete" or not _succeeded(row):
            return
        resource, sub = reference.get("resource", ""), reference.get("subresource", "")
        kind = KIND_OF.get(resource)
        if kind is None or (reference.get("apiGroup") or "") != kind.group:
            return
        if verb == "deletecollection":
            self.notes[f"deletecollection requests of {resource} do not say what they deleted"] += 1
            return
        if verb not in WRITES or sub not in ("", "status", "resize"):
            return
        time_s = self._time(row)
        key = object_key(reference.get("namespace", ""), reference.get("name", ""))
        if resource == "pods":
            self._take_pod(row, verb, sub, key, time_s)
        elif verb == "delete":
            self._delete(row, kind.record, reference, time_s)
        else:
            obj = self._object(row, kind.record)
            if obj is not None:
                self._events.append(Put(time_s, obj))

    def _time(self, row: Row) -> float:
        text = row.text("requestReceivedTimestamp")
        try:
            time = parse_time(text)
        except ValueError as error:
            raise row.error("requestReceivedTimestamp", str(error)) from None
        if not self.begins_at:
            self.begins_at = time
        return max(0.0, time - self.begins_at)

    def _object(self, row: Row, record: type[Any]) -> Any:  # noqa: ANN401  # a record of that type
        value = row.get("responseObject") or row.get("requestObject")
        field = "responseObject" if row.get("responseObject") else "requestObject"
        if not isinstance(value, dict) or value.get("kind") in ("Status", "DeleteOptions", None):
            self.notes["writes without the object (level Metadata) were left out"] += 1
            return None
        if field == "requestObject" and row.text("verb") == "patch":
            self.notes["patches without the patched object (level Request) were left out"] += 1
            return None
        try:
            return _with_uid(codec.convert(value, record))
        except codec.MalformedObject as error:
            raise row.error(field, str(error)) from None

    def _delete(self, row: Row, record: type[Any], reference: Any, time_s: float) -> None:  # noqa: ANN401  # JSON
        meta = {"name": reference.get("name", ""), "namespace": reference.get("namespace", "")}
        obj = codec.convert({"metadata": meta}, record)
        self._events.append(Remove(time_s, obj, evicts=record is Node))

    def _take_pod(self, row: Row, verb: str, sub: str, key: str, time_s: float) -> None:
        if verb == "delete":
            self._leaves(key, time_s)
            return
        pod: Pod | None = self._object(row, Pod)
        if pod is None:
            return
        key = key_of(pod.metadata)
        if verb == "create" and not sub:
            self._arrives(pod, key, time_s)
        elif pod.status.phase in FINISHED:
            self._leaves(key, time_s)
        elif key in self._last and _differs(self._last[key], pod):
            self._last[key] = pod
            self._events.append(PodChange(time_s, pod))

    def _arrives(self, pod: Pod, key: str, time_s: float) -> None:
        spec = pod.spec
        if not spec.scheduler_name:
            pod = structs.replace(pod, spec=structs.replace(spec, scheduler_name=DEFAULT_SCHEDULER))
        self._last[key] = pod
        if pod.spec.node_name:
            self._events.append(Put(time_s, pod))
            return
        self._pods[key] = len(self._events)
        self._events.append(
            Arrival(time_s, structs.replace(pod, status=PodStatus(phase="Pending")))
        )

    def _leaves(self, key: str, time_s: float) -> None:
        place = self._pods.pop(key, None)
        pod = self._last.pop(key, None)
        if place is not None:
            arrival = self._events[place]
            assert isinstance(arrival, Arrival)
            self._events[place] = Arrival(arrival.time_s, arrival.pod, leaves_s=time_s)
            return
        namespace, _, name = key.partition("/")
        known = pod or self.state.get(Pod, namespace, name)
        if known is not None:
            self._events.append(Remove(time_s, known))


def _succeeded(row: Row) -> bool:
    status = row.get("responseStatus") or {}
    return isinstance(status, dict) and int(status.get("code", 200)) < 400


def _with_uid(obj: Any) -> Any:  # noqa: ANN401  # a record of any kind
    if obj.metadata.uid:
        return obj
    uid = f"{type(obj).__name__.lower()}/{key_of(obj.metadata)}"
    return structs.replace(obj, metadata=structs.replace(obj.metadata, uid=uid))


def _differs(old: Pod, new: Pod) -> bool:
    """Whether a field changed that neither the scheduler nor the kubelet owns."""
    spec = structs.replace(new.spec, node_name=old.spec.node_name)
    return (
        spec != old.spec
        or new.metadata.labels != old.metadata.labels
        or new.metadata.deletion_timestamp != old.metadata.deletion_timestamp
    )
