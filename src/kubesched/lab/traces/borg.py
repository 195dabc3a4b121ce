"""Google's Borg trace of 2019 (clusterdata v3): the tables `machine_events` and `instance_events`.

JSON lines as exported by BigQuery (zero fields may be missing, large integers may be strings), or
CSV, where nested fields are columns such as `capacity.cpus` or `capacity_cpus`, or hold an object.
Event types are numbers or names.

| Field | Becomes |
|---|---|
| machines: `machine_id` | the node `m-<machine_id>` |
| `capacity.cpus`, `capacity.memory` | allocatable: 1.0, the largest, is 1,000 cpu and 1 TiB |
| `type` | ADD and UPDATE put the node, REMOVE removes it with its pods |
| `switch_id`, `platform_id` | the labels `switch` and instance type |
| instances: `collection_id`, `instance_index` | the pod `c-<collection_id>-<index>` |
| further submissions of an instance | the suffixes `-2`, `-3` |
| `priority` | the pod's priority |
| `resource_request` | requests, as last updated before the pod was scheduled |
| SUBMIT | the submission; SCHEDULE of an instance that was never submitted counts as one |
| SCHEDULE to EVICT, FAIL, FINISH, KILL or LOST | the lifetime |
| those without a SCHEDULE before | the pod leaves then, if it is still waiting |
| `alloc_collection_id` | tasks in an alloc instance are left out: its own pod has their room |

Left out: constraints (their attributes are obfuscated), QUEUE and ENABLE, updates of running
instances. Times are microseconds; 0 is before the trace, 2^63−1 after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kubesched.api.core_v1 import Node
from kubesched.api.meta import RawQuantity
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.lab.traces.objects import INSTANCE_TYPE, PodMaker, node
from kubesched.lab.traces.rows import Row, csv_rows, digest_of, json_rows
from kubesched.lab.traces.trace import Arrival, Event, Put, Remove, Trace, TraceError

CPUS_MILLI, MEMORY_BYTES = 1_000_000, 2**40
"""Value of 1.0."""
INSTANCE_EVENTS = (
    *("SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST"),
    *("UPDATE_PENDING", "UPDATE_RUNNING"),
)
MACHINE_EVENTS = ("EVENT_TYPE_UNKNOWN", "ADD", "REMOVE", "UPDATE")
ENDS = frozenset({"EVICT", "FAIL", "FINISH", "KILL", "LOST"})
AFTER_THE_TRACE = 2**63 - 1
_NO_ALLOC = 0


def is_machine_table(columns: Sequence[str]) -> bool:
    return "machine_id" in columns and "collection_id" not in columns


def is_instance_table(columns: Sequence[str]) -> bool:
    return "collection_id" in columns


def read(machine_files: Sequence[str], instance_files: Sequence[str]) -> Trace:
    """Raises TraceError."""
    files = [*machine_files, *instance_files]
    state = ClusterState(", ".join(machine_files))
    events = _machines(machine_files, state)
    notes = Counter[str]()
    events += _Instances(notes).read(instance_files)
    # If a task ends when its machine is removed, the task goes first; one that starts then finds
    # the machine gone.
    events.sort(key=lambda event: (event.time_s, isinstance(event, Arrival)))
    return Trace(
        name=", ".join(files),
        format="borg",
        digest=digest_of(files, "borg"),
        state=state,
        events=events,
        notes=[f"{count} {what}" for what, count in notes.items()],
    )


def _rows(files: Sequence[str], needed: Sequence[str]) -> Iterator[Row]:
    for path in files:
        yield from csv_rows(path, needed) if ".csv" in path else json_rows(path)


def _event_type(row: Row, names: Sequence[str]) -> str:
    value = row.text("type", "0")
    if value.isdecimal() and int(value) < len(names):
        return names[int(value)]
    if value not in names:
        raise row.error("type", f"{value!r} is none of {', '.join(names)}")
    return value


def _time_s(row: Row) -> float | None:
    """None for events after the end of the trace."""
    time = row.integer("time", 0)
    return None if time == AFTER_THE_TRACE else time / 1e6


def _machines(files: Sequence[str], state: ClusterState) -> list[Event]:
    events: list[Event] = []
    known: dict[str, Row] = {}
    rows = list(_rows(files, ("time", "machine_id", "type")))
    rows.sort(key=lambda row: row.integer("time", 0))
    for row in rows:
        kind, time = _event_type(row, MACHINE_EVENTS), _time_s(row)
        name = f"m-{row.integer('machine_id', least=-1)}"
        if time is None:
            continue
        if kind == "REMOVE":
            if known.pop(name, None) is None:
                raise row.error("type", f"REMOVE of machine {name}, which was not added")
            events.append(Remove(time, _node(name, row)))
            continue
        if kind == "EVENT_TYPE_UNKNOWN":
            raise row.error("type", "an unknown event")
        if row.get("capacity.cpus") is None and name in known:
            continue  # another field was updated
        known[name] = row
        machine = _node(name, row)
        if time == 0:
            state.put(machine)
        else:
            events.append(Put(time, machine))
    return events


def _node(name: str, row: Row) -> Node:
    labels = {INSTANCE_TYPE: row.text("platform_id", "unknown")}
    if switch := row.text("switch_id", ""):
        labels["switch"] = switch
    return node(name, _amounts(row, "capacity"), labels)


def _amounts(row: Row, what: str) -> dict[str, RawQuantity]:
    cpus = row.number(f"{what}.cpus", 0.0)
    memory = row.number(f"{what}.memory", 0.0)
    for column, value in (("cpus", cpus), ("memory", memory)):
        if not 0 <= value <= 1000:
            raise row.error(f"{what}.{column}", f"{value:g} is not a share of a machine")
    return {"cpu": f"{round(cpus * CPUS_MILLI)}m", "memory": round(memory * MEMORY_BYTES)}


@dataclass(slots=True)
class _Instance:
    """One submission being read."""

    name: str
    submitted_s: float
    amounts: dict[str, RawQuantity]
    priority: int
    scheduled_s: float | None = None
    ended_s: float | None = None


@dataclass(slots=True)
class _Instances:
    """Turns instance events into arrivals."""

    notes: Counter[str]
    _open: dict[tuple[int, int], _Instance] = field(default_factory=dict)
    _closed: list[_Instance] = field(default_factory=list)
    _submissions: Counter[tuple[int, int]] = field(default_factory=Counter)

    def read(self, files: Sequence[str]) -> list[Event]:
        rows = list(_rows(files, ("time", "type", "collection_id")))
        if not rows:
            raise TraceError(f"{', '.join(files)}: no instance events")
        # At equal times, events follow an instance's life cycle: it ends, then is submitted again.
        rows.sort(key=lambda row: row.integer("time", 0))
        for row in rows:
            self._take(row)
        self._closed += self._open.values()
        maker = PodMaker()
        return [
            Arrival(
                pod.submitted_s,
                maker.pod(pod.name, pod.amounts, priority=pod.priority),
                lifetime_s=(
                    pod.ended_s - pod.scheduled_s
                    if pod.ended_s is not None and pod.scheduled_s is not None
                    else None
                ),
                leaves_s=pod.ended_s if pod.scheduled_s is None else None,
            )
            for pod in self._closed
        ]

    def _take(self, row: Row) -> None:
        kind, time = _event_type(row, INSTANCE_EVENTS), _time_s(row)
        if row.integer("alloc_collection_id", _NO_ALLOC, least=-1) > _NO_ALLOC:
            self.notes["events of tasks inside alloc instances were left out"] += 1
            return
        if row.get("constraint"):
            self.notes["events have constraints on machines, which were left out"] += 1
        key = (row.integer("collection_id"), row.integer("instance_index", 0, least=-1))
        known = self._open.get(key)
        if kind in ENDS:
            if known is not None:
                known.ended_s = time
                self._closed.append(self._open.pop(key))
            return
        if time is None:
            return
        if kind == "SUBMIT" or (kind == "SCHEDULE" and known is None):
            if known is None:
                known = self._open[key] = self._submitted(key, row, time)
        elif kind == "UPDATE_PENDING" and known is not None and known.scheduled_s is None:
            known.amounts = _amounts(row, "resource_request")
        if kind == "SCHEDULE" and known is not None:
            known.scheduled_s = time

    def _submitted(self, key: tuple[int, int], row: Row, time: float) -> _Instance:
        self._submissions[key] += 1
        number = self._submissions[key]
        name = f"c-{key[0]}-{key[1]}" + (f"-{number}" if number > 1 else "")
        priority = row.integer("priority", 0)
        return _Instance(name, time, _amounts(row, "resource_request"), priority)
