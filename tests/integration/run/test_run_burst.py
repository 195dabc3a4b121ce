"""Many pods at once while the leader dies: two replicas, a real control plane, its audit log as
judge.
"""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from audited_bindings import bindings

from kubesched.api.core_v1 import Pod

PODS = int(os.environ.get("KUBESCHED_BURST_PODS", "1000"))
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.parametrize("cluster", ["audited"], indirect=True),
    pytest.mark.timeout(900 + PODS / 5),
]
AT_ONCE = 20
ELECTION = {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"}


async def test_a_burst_is_bound_once_although_the_leader_is_killed(cluster, run, tmp_path):
    for number in range(-(-PODS // 100)):
        await cluster.add_node(f"n{number}", cpu="32")
    config = {"leaderElection": {"leaderElect": True, **ELECTION}}
    leader = await run(config=config)
    await leader.says('"Successfully acquired lease"')
    standby = await run(config=config)
    await standby.says('"Handlers synced"')
    names = [f"p{number}" for number in range(PODS)]
    waiting = iter(names)

    async def create():
        for name in waiting:
            await cluster.add_pod(name, cpu="10m")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(create())
        await leader.says('"Successfully bound pod to node"')
        leader.send(signal.SIGKILL)

    async def all_bound():
        waiting = await cluster.admin.list_page(Pod, field_selector="spec.nodeName=", limit=1)
        return not waiting.items

    await cluster.eventually(all_bound, 60 + PODS / 10)
    assert bindings(tmp_path) == dict.fromkeys(names, 1)
    per_node: dict[str, int] = {}
    for pod in (await cluster.admin.list(Pod)).items:
        per_node[pod.spec.node_name] = per_node.get(pod.spec.node_name, 0) + 1
    assert max(per_node.values()) <= 110
    assert (await cluster.lease())["spec"]["leaseTransitions"] == 1
    assert standby.process.returncode is None
