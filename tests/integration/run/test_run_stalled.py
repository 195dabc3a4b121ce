"""A plugin that blocks the scheduling loop: lease, pages and signals go on, and the log names the
plugin.
"""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from serving_requests import get

QUICK = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
STALL_S = 7.0
"""More than twice the lease's duration: the standby would have taken over."""
PLUGIN = """
import time

from kubesched.framework.interfaces import FilterPlugin


class Sleeper(FilterPlugin):
    name = "Sleeper"

    def filter(self, state, pod, node_info):
        if "sleep" in (pod.metadata.labels or {}):
            time.sleep(float(pod.metadata.labels["sleep"]))
        return None
"""
HASTE = """
from kubesched.app import stopping

stopping.EXIT_S = {exit_s}
"""


@pytest.fixture
async def sleeper(cluster, run, tmp_path):
    """Start a scheduler with a plugin that sleeps as a pod's label says."""
    await cluster.add_node("n1")

    async def start(*flags, elect=True, exit_s=None, **settings):
        """`exit_s` replaces the time that a process gets to end by itself."""
        haste = "" if exit_s is None else HASTE.format(exit_s=exit_s)
        (tmp_path / "sleeping.py").write_text(PLUGIN + haste)
        config = {
            "leaderElection": {"leaderElect": elect, **QUICK, **settings},
            "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "sleeping:Sleeper"}]}}}],
        }
        environment = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
        return await run(*flags, config=config, environment=environment)

    return start


async def add_sleeping_pod(cluster, name, seconds):
    container = {"name": "c", "image": "x"}
    await cluster.create(
        "/api/v1/namespaces/default/pods",
        apiVersion="v1",
        kind="Pod",
        metadata={"name": name, "labels": {"sleep": str(seconds)}},
        spec={"containers": [container]},
    )


async def test_the_lease_is_kept_through_a_stall_and_the_plugin_is_named(cluster, sleeper):
    leader = await sleeper()
    await leader.says('"Successfully acquired lease"')
    standby = await sleeper()
    await standby.says('"Handlers synced"')
    held = (await cluster.lease())["spec"]
    await add_sleeping_pod(cluster, "slow", STALL_S)
    line = await leader.says('"The scheduling loop is blocked"')
    assert 'plugin="Sleeper"' in line
    assert 'extensionPoint="Filter"' in line
    await leader.says("time.sleep(float(")  # the stack
    # The pages answer while the loop is blocked.
    assert (await get(leader, "/livez"))[0] == 200
    assert (await get(leader, "/readyz"))[0] == 200
    assert await cluster.bound("slow") == ["n1"]
    await leader.says('"The scheduling loop goes on"')
    lease = (await cluster.lease())["spec"]
    assert lease["holderIdentity"] == held["holderIdentity"]
    assert lease["leaseTransitions"] == held["leaseTransitions"]
    assert '"Successfully acquired lease"' not in standby.log


async def test_a_process_frozen_in_a_stall_binds_nothing_when_it_thaws(cluster, sleeper):
    leader = await sleeper()
    await leader.says('"Successfully acquired lease"')
    standby = await sleeper()
    await standby.says('"Handlers synced"')
    await add_sleeping_pod(cluster, "slow", 4.0)
    await leader.says('"The scheduling loop is blocked"')
    leader.send(signal.SIGSTOP)
    try:
        await standby.says('"Successfully acquired lease"')
        await cluster.bound("slow")
    finally:
        leader.send(signal.SIGCONT)
    assert await leader.ended() == 1
    assert '"Leaderelection lost"' in leader.log
    assert '"Successfully bound pod to node"' not in leader.log
    await standby.says('"Successfully bound pod to node"')


@pytest.mark.parametrize("elect", [True, False], ids=["elected", "alone"])
async def test_sigterm_ends_a_process_whose_loop_is_blocked(cluster, sleeper, elect):
    leader = await sleeper("--drain-timeout=1s", elect=elect, exit_s=4.0)
    await leader.says('"Handlers synced"')
    await add_sleeping_pod(cluster, "slow", 3600)
    await leader.says('"The scheduling loop is blocked"')
    leader.send(signal.SIGTERM)

    async def is_unready():
        return (await get(leader, "/readyz"))[0] == 500

    await cluster.eventually(is_unready)
    assert await leader.ended() == 1
    assert '"The process does not stop by itself, ending it"' in leader.log


async def test_a_second_signal_ends_a_blocked_process_at_once(cluster, sleeper):
    leader = await sleeper("--drain-timeout=1h")
    await leader.says('"Handlers synced"')
    await add_sleeping_pod(cluster, "slow", 3600)
    await leader.says('"The scheduling loop is blocked"')
    leader.send(signal.SIGTERM)
    await asyncio.sleep(0.2)
    leader.send(signal.SIGTERM)
    assert await leader.ended() == 1
