"""Alibaba's openb trace (cluster-trace-gpu-v2023): a CSV file of nodes and one of pods.

| Column | Becomes |
|---|---|
| nodes: `sn` | the node's name |
| `cpu_milli`, `memory_mib` | allocatable cpu and memory |
| `gpu` | 1,000 units of the extended resource `alibabacloud.com/gpu-milli` per GPU |
| `model` | the label `alibabacloud.com/gpu-card-model` and the instance type (`cpu` without GPU) |
| pods: `name` | the pod's name, in namespace `trace` |
| `cpu_milli`, `memory_mib` | requests |
| `num_gpu`, `gpu_milli` | num_gpu × gpu_milli units; `GpuShare` keeps less than 1,000 on one GPU |
| `gpu_spec` | required node affinity to one of these models |
| `qos` | the label `qos`; all pods have priority 0, since the trace has none |
| `creation_time` | the submission, counted from the first |
| `scheduled_time`, `deletion_time` | the lifetime; starts at `creation_time` if never scheduled |

`pod_phase` is ignored.
"""

from __future__ import annotations

from kubesched.api.meta import RawQuantity
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.lab.traces.gpu_share import GPU_MILLI, WHOLE
from kubesched.lab.traces.objects import INSTANCE_TYPE, PodMaker, node
from kubesched.lab.traces.rows import Row, csv_rows, digest_of
from kubesched.lab.traces.trace import Arrival, Trace, TraceError

MODEL = "alibabacloud.com/gpu-card-model"
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
MOST_GPUS = 64
"""Per node; more is an error in the file."""


def read(nodes_file: str, pods_file: str) -> Trace:
    """Raises TraceError."""
    state = ClusterState(nodes_file)
    for row in csv_rows(nodes_file, NODE_COLUMNS):
        _add_node(state, row)
    if not len(state):
        raise TraceError(f"{nodes_file}: no nodes in it")
    rows = list(csv_rows(pods_file, POD_COLUMNS))
    if not rows:
        raise TraceError(f"{pods_file}: no pods in it")
    begin = min(row.number("creation_time") for row in rows)
    maker, names = PodMaker(), set[str]()
    arrivals = [_arrival(row, maker, begin, names) for row in rows]
    arrivals.sort(key=lambda arrival: arrival.time_s)
    return Trace(
        name=f"{nodes_file}, {pods_file}",
        format="openb",
        digest=digest_of([nodes_file, pods_file], "openb"),
        state=state,
        events=arrivals,
        shares_gpus=True,
    )


def _add_node(state: ClusterState, row: Row) -> None:
    name = row.text("sn")
    gpus = row.integer("gpu")
    if gpus > MOST_GPUS:
        raise row.error("gpu", f"{gpus} is more than the {MOST_GPUS} of the largest node")
    model = row.text("model", "") if gpus else ""
    labels = {MODEL: model} if model else {}
    amounts: dict[str, RawQuantity] = {
        "cpu": f"{row.integer('cpu_milli')}m",
        "memory": f"{row.integer('memory_mib')}Mi",
    }
    if gpus:
        amounts[GPU_MILLI] = gpus * WHOLE
    state.put(node(name, amounts, {**labels, INSTANCE_TYPE: model or ("gpu" if gpus else "cpu")}))
    if state.duplicate_count:
        raise row.error("sn", f"node {name} came before")


def _arrival(row: Row, maker: PodMaker, begin: float, names: set[str]) -> Arrival:
    name = row.text("name")
    if name in names:
        raise row.error("name", f"pod {name} came before")
    names.add(name)
    amounts: dict[str, RawQuantity] = {
        "cpu": f"{row.integer('cpu_milli')}m",
        "memory": f"{row.integer('memory_mib')}Mi",
    }
    if milli := _gpu_milli(row):
        amounts[GPU_MILLI] = milli
    models = [model for model in row.text("gpu_spec", "").split("|") if model]
    created = row.number("creation_time")
    ended = row.get("deletion_time")
    lifetime = None
    if ended is not None:
        began = row.number("scheduled_time", created)
        lifetime = row.number("deletion_time") - began
        if lifetime < 0:
            raise row.error("deletion_time", f"{ended} is before the pod began at {began:g}")
    qos = row.text("qos", "")
    pod = maker.pod(
        name,
        amounts,
        labels={"qos": qos} if qos else None,
        node_label=(MODEL, models) if models else None,
    )
    return Arrival(created - begin, pod, lifetime_s=lifetime)


def _gpu_milli(row: Row) -> int:
    count = row.integer("num_gpu", 0)
    milli = row.integer("gpu_milli", WHOLE) if count else 0
    if milli > WHOLE:
        raise row.error("gpu_milli", f"{milli} is more than the {WHOLE} of a GPU")
    if count > 1 and milli != WHOLE:
        raise row.error("gpu_milli", f"{milli} of {count} GPUs: only one GPU can be shared")
    return count * milli
