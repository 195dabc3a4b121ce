"""Devices per node: offered by the newest slices, taken by claims."""

from kubesched.api import codec
from kubesched.api.resource_v1 import ResourceClaim, ResourceSlice
from kubesched.insight.page.nodes import device_columns, device_version, live_rows
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.testing import make_node

DRIVER = "gpu.example.com"


def slice_of(node, generation, *devices):
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
        "devices": [{"name": each} for each in devices],
    }
    meta = {"name": f"{node}-{generation}"}
    return codec.convert({"metadata": meta, "spec": spec}, ResourceSlice)


def claim_of(name, node, device, **more):
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": device, **more}
    status = {"allocation": {"devices": {"results": [result]}}}
    meta = {"name": name, "namespace": "default"}
    return codec.convert({"metadata": meta, "status": status}, ResourceClaim)


def columns_of(*objects):
    state = ClusterState("test")
    for each in objects:
        state.put(each)
    assembly = in_memory_scheduler(state).assembly
    rows = live_rows(assembly.table)
    resources, columns = device_columns(assembly, rows)
    names = [assembly.table.names[row] for row in rows]
    return resources, {
        key: dict(zip(names, values.tolist(), strict=True)) for key, values in columns.items()
    }


def test_devices_are_counted_per_node_and_driver():
    resources, columns = columns_of(
        make_node("a").build(),
        make_node("b").build(),
        slice_of("a", 1, "old"),
        slice_of("a", 2, "gpu-0", "gpu-1"),
        slice_of("b", 1, "gpu-0"),
        slice_of("gone", 1, "gpu-0"),
        claim_of("x", "a", "gpu-1"),
        claim_of("shared", "a", "gpu-1", shareID="s"),
        claim_of("admin", "b", "gpu-0", adminAccess=True),
        claim_of("stale", "a", "old"),
    )
    assert resources == [f"devices {DRIVER}"]
    assert columns[f"allocatable devices {DRIVER}"] == {"a": 2, "b": 1}
    assert columns[f"requested devices {DRIVER}"] == {"a": 1, "b": 0}


def test_a_cluster_without_devices_has_no_such_columns():
    assert columns_of(make_node("a").build()) == ([], {})


def test_the_version_changes_with_claims():
    state = ClusterState("test")
    scheduler = in_memory_scheduler(state)
    before = device_version(scheduler.assembly)
    scheduler.listers.put(claim_of("x", "a", "gpu-1"))
    assert device_version(scheduler.assembly) != before
