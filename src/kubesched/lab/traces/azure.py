"""Azure's packing trace of 2020: the tables `vm` and `vmType`, as SQLite or CSV files.

| Field | Becomes |
|---|---|
| vm: `vmId` | the pod `vm-<vmId>` |
| `tenantId` | the label `tenant` |
| `vmTypeId` | requests, from the row of `vmType` for the selected machine |
| `priority` | 0, high: pod priority 1000; 1, low: pod priority 0, which may be evicted |
| `starttime` | the submission, days × 86,400; negative times (before the trace) are second 0 |
| `endtime` | the lifetime, from `starttime` or second 0; NULL: stays |
| vmType: `machineId` | the hardware: `--machine`, or the one that can host most requests |
| `core`, `memory` | requests: 1.0, the whole machine, is 1,000 cpu and 1 TiB |
| `ssd`, `hdd`, `nic` | requests of `packing.azure/…`, 1,000,000 for the whole machine |

The trace has no machines: `--nodes N` sets their number, all alike. Requests for VM types that the
machine cannot host are left out and counted.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from kubesched.api.meta import RawQuantity
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.lab.traces.objects import INSTANCE_TYPE, PodMaker, node
from kubesched.lab.traces.rows import Row, csv_rows, digest_of
from kubesched.lab.traces.trace import Arrival, Trace, TraceError

SQLITE = b"SQLite format 3\x00"
DAY_S = 86_400.0
CPU_MILLI, MEMORY_BYTES, PARTS = 1_000_000, 2**40, 1_000_000
"""Value of 1.0 for cpu, memory, and the other resources."""
EXTENDED = ("ssd", "hdd", "nic")
PRIORITIES = {0: 1000, 1: 0}
VM_COLUMNS = ("vmId", "vmTypeId", "priority", "starttime", "endtime")
TYPE_COLUMNS = ("vmTypeId", "machineId", "core", "memory")


def read(files: Sequence[str], node_count: int | None, machine: str | None = None) -> Trace:
    """Read one SQLite file, or the CSV files of the two tables in any order.

    Raises:
        TraceError: a file cannot be read, the number of nodes is missing, or no VM type runs on the
            machine.
    """
    if node_count is None:
        raise TraceError(
            f"{files[0]}: the packing trace has no machines: say how many with --nodes"
        )
    tables = _of_sqlite(files[0]) if len(files) == 1 else _of_csv(files)
    vms, types = list(tables["vm"]), list(tables["vmType"])
    machine = machine or _most_useful(vms, types, files)
    by_type = {row.text("vmTypeId"): row for row in types if row.text("machineId") == machine}
    if not by_type:
        raise TraceError(f"{files[0]}: no VM type runs on machine {machine}")
    hosted = [row for row in vms if row.text("vmTypeId") in by_type]
    maker = PodMaker()
    amounts = {name: _amounts(row) for name, row in by_type.items()}
    _check_ids(hosted)
    arrivals = [_arrival(row, maker, amounts[row.text("vmTypeId")]) for row in hosted]
    arrivals.sort(key=lambda arrival: arrival.time_s)
    notes = [f"machine {machine} is played: {len(by_type)} VM types run on it"]
    if left_out := len(vms) - len(hosted):
        notes.append(f"{left_out} requests for VM types that it cannot host were left out")
    return Trace(
        name=", ".join(files),
        format="azure",
        digest=digest_of(files, "azure", node_count, machine),
        state=_nodes(files[0], machine, node_count),
        events=arrivals,
        notes=notes,
    )


def _of_sqlite(path: str) -> dict[str, Iterable[Row]]:
    if not Path(path).is_file():
        raise TraceError(f"{path}: No such file or directory")
    rows: dict[str, Iterable[Row]] = {}
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            for table, needed in (("vm", VM_COLUMNS), ("vmType", TYPE_COLUMNS)):
                rows[table] = list(_table(connection, path, table, needed))
    except sqlite3.Error as error:
        raise TraceError(f"{path}: {error}") from None
    return rows


def _table(
    connection: sqlite3.Connection, path: str, table: str, needed: Sequence[str]
) -> Iterator[Row]:
    cursor = connection.execute(f'SELECT rowid AS "_row", * FROM "{table}" ORDER BY rowid')
    columns = [column[0] for column in cursor.description]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise TraceError(f"{path}: table {table}: no column {', '.join(missing)}")
    for values in cursor:
        yield Row(f"{path}: table {table}", values[0], dict(zip(columns, values, strict=True)))


def _of_csv(files: Sequence[str]) -> dict[str, Iterable[Row]]:
    if len(files) != 2:
        raise TraceError(f"{', '.join(files)}: the packing trace needs the tables vm and vmType")
    first = next(csv_rows(files[0], ()), None)
    names = ("vmType", "vm") if first is not None and first.get("machineId") else ("vm", "vmType")
    needed = {"vm": VM_COLUMNS, "vmType": TYPE_COLUMNS}
    return {name: csv_rows(path, needed[name]) for name, path in zip(names, files, strict=True)}


def _most_useful(vms: Sequence[Row], types: Sequence[Row], files: Sequence[str]) -> str:
    """The machine that can host most requests; the first if several are equal."""
    wanted = Counter(row.text("vmTypeId") for row in vms)
    hosted = Counter[str]()
    for row in types:
        hosted[row.text("machineId")] += wanted[row.text("vmTypeId")]
    if not hosted:
        raise TraceError(f"{files[0]}: no VM types in it")
    return hosted.most_common(1)[0][0]


def _nodes(source: str, machine: str, count: int) -> ClusterState:
    state = ClusterState(source)
    amounts: dict[str, RawQuantity] = {"cpu": f"{CPU_MILLI}m", "memory": MEMORY_BYTES}
    amounts.update({f"packing.azure/{name}": PARTS for name in EXTENDED})
    for index in range(count):
        state.put(node(f"machine-{index}", amounts, {INSTANCE_TYPE: machine}))
    return state


def _amounts(row: Row) -> dict[str, RawQuantity]:
    amounts: dict[str, RawQuantity] = {
        "cpu": f"{_share(row, 'core', CPU_MILLI)}m",
        "memory": _share(row, "memory", MEMORY_BYTES),
    }
    for name in EXTENDED:
        if parts := _share(row, name, PARTS):
            amounts[f"packing.azure/{name}"] = parts
    return amounts


def _check_ids(vms: Sequence[Row]) -> None:
    known: set[str] = set()
    for row in vms:
        name = row.text("vmId")
        if name in known:
            raise row.error("vmId", f"{name} came before")
        known.add(name)


def _share(row: Row, column: str, whole: int) -> int:
    share = row.number(column, 0.0)
    if not 0 <= share <= 1:
        raise row.error(column, f"{share:g} is not a share of a machine")
    return round(share * whole)


def _arrival(row: Row, maker: PodMaker, amounts: dict[str, RawQuantity]) -> Arrival:
    priority = row.integer("priority")
    if priority not in PRIORITIES:
        raise row.error("priority", f"{priority} is neither 0 (high) nor 1 (low)")
    began = max(0.0, row.number("starttime") * DAY_S)
    lifetime = None
    if row.get("endtime") is not None:
        lifetime = row.number("endtime") * DAY_S - began
        if lifetime < 0:
            raise row.error("endtime", f"{row.get('endtime')} is before the VM began")
    tenant = row.text("tenantId", "")
    pod = maker.pod(
        f"vm-{row.text('vmId')}",
        amounts,
        priority=PRIORITIES[priority],
        labels={"tenant": tenant} if tenant else None,
    )
    return Arrival(began, pod, lifetime_s=lifetime)
