"""Device selectors and slices as large and as costly as a real API server admits them."""

from __future__ import annotations

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.parametrize("cluster", ["real"], indirect=True),
]
RESOURCE = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"
DEVICES = 128
"""As many as a slice may hold."""
NUMBERS = f"[{','.join(map(str, range(60)))}]"
COSTLY = (
    f'device.attributes["{DRIVER}"].index == {DEVICES - 1} && '
    f"{NUMBERS}.all(a, {NUMBERS}.all(b, [1, 2, 3, 4, 5, 6, 7, 8, 9].exists(c, c == 9)))"
)
"""A quarter of the cost that is admitted: lists of 120 numbers pass, those of 150 do not."""
ELECTION = {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"}


async def add_slice(cluster, node):
    devices = [
        {"name": f"gpu-{number}", "attributes": {"index": {"int": number}}}
        for number in range(DEVICES)
    ]
    await cluster.create(
        f"{RESOURCE}/resourceslices",
        apiVersion="resource.k8s.io/v1",
        kind="ResourceSlice",
        metadata={"name": f"slice-{node}"},
        spec={
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    )


async def add_claim(cluster, name, expression):
    await cluster.create(
        f"{RESOURCE}/namespaces/default/resourceclaims",
        apiVersion="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata={"name": name},
        spec={
            "devices": {
                "requests": [
                    {
                        "name": "one",
                        "exactly": {
                            "deviceClassName": "all",
                            "selectors": [{"cel": {"expression": expression}}],
                        },
                    }
                ]
            }
        },
    )


async def test_a_costly_selector_delays_others_and_stops_none(cluster, run):
    for node in ("n1", "n2"):
        await cluster.add_node(node)
        await add_slice(cluster, node)
    await cluster.create(
        f"{RESOURCE}/deviceclasses",
        apiVersion="resource.k8s.io/v1",
        kind="DeviceClass",
        metadata={"name": "all"},
        spec={"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    )
    await add_claim(cluster, "costly", COSTLY)
    scheduler = await run(config={"leaderElection": {"leaderElect": True, **ELECTION}})
    await scheduler.says('"Successfully acquired lease"')
    claims = [{"name": "gpu", "resourceClaimName": "costly"}]
    await cluster.add_pod("greedy", resourceClaims=claims)
    await cluster.add_pod("plain")
    await cluster.bound("plain", "greedy", patience_s=240)
    assert scheduler.process.returncode is None
    assert "Leaderelection lost" not in scheduler.log
    assert (await cluster.lease())["spec"]["leaseTransitions"] == 0
