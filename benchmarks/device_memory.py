"""Memory of 100,000 devices in 5,000 slices: the records, and the pools kept per node.

python benchmarks/device_memory.py
"""

from __future__ import annotations

import gc
from pathlib import Path

import msgspec

from kubesched.api.resource_v1 import ResourceSlice
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.node_pools import PoolIndex
from kubesched.plugins.dynamic_resources.structured.pools import Slices
from kubesched.testing.builders import make_node

SLICES = 5_000
DEVICES_EACH = 20
PAGE_BYTES = 4096


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def slice_of(node_name: str) -> bytes:
    """As it comes over the wire: devices with three attributes and a capacity."""
    device = {
        "attributes": {
            "model": {"string": "a100"},
            "index": {"int": 1},
            "driverVersion": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }
    return msgspec.json.encode(
        {
            "metadata": {"name": f"{node_name}-gpu", "uid": node_name, "resourceVersion": "1"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": node_name,
                "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{n}", **device} for n in range(DEVICES_EACH)],
            },
        }
    )


def main() -> None:
    names = [f"node-{number}" for number in range(SLICES)]
    bodies = [slice_of(name) for name in names]
    decoder = msgspec.json.Decoder(ResourceSlice)
    before = resident_bytes()
    records = [decoder.decode(body) for body in bodies]
    report("records", resident_bytes() - before)
    slices = Slices()
    for record in records:
        slices.add(record)
    pools = PoolIndex(slices, AllocatedState(), Features())
    nodes = [make_node(name).build() for name in names]
    before = resident_bytes()
    for node in nodes:
        pools.of(node)
    report("pools", resident_bytes() - before)


def report(what: str, taken: int) -> None:
    devices = SLICES * DEVICES_EACH
    print(f"{what}: {taken / devices:,.0f} bytes a device, {taken / 2**20:,.0f} MiB in all")


if __name__ == "__main__":
    main()
