"""Several schedulers, one lease: only the leader schedules, another follows, and a lost lease ends
the old one.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time

import pytest
from msgspec import structs

from kubesched.api.coordination_v1 import Lease
from kubesched.testing.control_plane import find_assets

QUICK = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
LEASE_S = 3.0


def electing(**more):
    return {"leaderElection": {"leaderElect": True, **QUICK, **more}}


async def test_a_standby_takes_over_when_the_leader_is_killed(cluster, run):
    await cluster.add_node("n1")
    leader = await run(config=electing())
    await leader.says('"Successfully acquired lease"')
    standby = await run(config=electing())
    await standby.says('"Handlers synced"')
    await cluster.add_pod("first")
    await cluster.bound("first")
    assert "Attempting to schedule pod" not in standby.log

    leader.send(signal.SIGKILL)
    killed_at = time.time()
    await leader.ended()
    await cluster.add_pod("second")
    await standby.says('"Successfully acquired lease"')
    acquired = (await cluster.lease())["spec"]
    assert await cluster.bound("second") == ["n1"]
    assert acquired["leaseTransitions"] == 1
    # The lease says when it was taken, by a clock of this machine.
    taken_at = _seconds(acquired["acquireTime"])
    assert taken_at - killed_at < LEASE_S + 2.0
    await standby.says('pod="default/second" node="n1"')


async def test_a_leader_that_steps_down_is_followed_at_once(cluster, run):
    await cluster.add_node("n1")
    leader = await run(config=electing())
    await leader.says('"Successfully acquired lease"')
    standby = await run(config=electing())
    await standby.says('"Handlers synced"')
    assert await leader.terminated() == 0, leader.log
    await cluster.add_pod("a")
    await cluster.bound("a")
    await standby.says('pod="default/a" node="n1"')


async def test_a_leader_whose_lease_is_taken_stops_and_exits_with_1(cluster, run):
    await cluster.add_node("n1")
    leader = await run(config=electing())
    await leader.says('"Successfully acquired lease"')
    await _take_lease(cluster, "another-scheduler")
    assert await leader.ended() == 1
    assert '"Leaderelection lost"' in leader.log
    assert (await cluster.lease())["spec"]["holderIdentity"] == "another-scheduler"
    await cluster.add_pod("a")
    assert (await cluster.pod("a")).spec.node_name == ""


async def test_a_frozen_leader_writes_nothing_when_it_thaws(cluster, run):
    await cluster.add_node("n1")
    leader = await run(config=electing())
    await leader.says('"Successfully acquired lease"')
    standby = await run(config=electing())
    await standby.says('"Handlers synced"')
    leader.send(signal.SIGSTOP)
    try:
        await standby.says('"Successfully acquired lease"')
        await cluster.add_pod("a")
        await cluster.bound("a")
    finally:
        leader.send(signal.SIGCONT)
    assert await leader.ended() == 1
    assert '"Leaderelection lost"' in leader.log
    assert '"Successfully bound pod to node"' not in leader.log


async def test_a_standby_may_leave_its_caches_empty_until_it_leads(cluster, run):
    await cluster.add_node("n1")
    leader = await run(config=electing())
    await leader.says('"Successfully acquired lease"')
    standby = await run(config={**electing(), "delayCacheUntilActive": True})
    await standby.says('"Attempting to acquire leader lease')
    assert '"Handlers synced"' not in standby.log
    await leader.terminated()
    await standby.says('"Successfully acquired lease"')
    await standby.says('"Handlers synced"')
    await cluster.add_pod("a")
    await cluster.bound("a")


async def test_lease_name_and_namespace_can_be_chosen(cluster, run):
    scheduler = await run(config=electing(resourceName="second-scheduler"))
    await scheduler.says('lock="kube-system/second-scheduler"')
    await scheduler.says('"Successfully acquired lease"')
    assert (await cluster.lease("second-scheduler"))["spec"]["holderIdentity"]


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_a_leader_that_cannot_renew_stops_before_its_lease_can_be_taken(cluster, run):
    await cluster.add_node("n1")
    leader = await run(config=electing())
    await leader.says('"Successfully acquired lease"')
    [serving] = [task for task in asyncio.all_tasks() if task.get_name() == "embedded/api server"]
    serving.cancel()
    await cluster.embedded._listener.close(0.0)
    assert await leader.ended() == 1
    assert '"Leaderelection lost"' in leader.log


@pytest.mark.parametrize("cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
async def test_kube_scheduler_and_kubesched_follow_each_other(cluster, run, tmp_path):
    """The same Lease, the same wire form: either waits for the other and takes over from it."""
    await cluster.add_node("n1")
    config = tmp_path / "go.yaml"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
                **electing(),
            }
        )
    )

    async def start_go():
        with (tmp_path / "go.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                str(find_assets().kube_scheduler),
                f"--config={config}",
                "--secure-port=0",
                stderr=log,
            )

    async def holder():
        async with asyncio.timeout(300):
            while True:
                spec = (await cluster.lease())["spec"] if await _exists(cluster) else {}
                if spec.get("holderIdentity"):
                    return spec["holderIdentity"]
                await asyncio.sleep(0.1)

    go = await start_go()
    try:
        first = await holder()
        ours = await run(config=electing())
        await ours.says(f'"New leader elected" identity="{first}"')
        await cluster.add_pod("a")
        await cluster.bound("a")
        assert "Attempting to schedule pod" not in ours.log
        go.kill()
        await go.wait()
        await ours.says('"Successfully acquired lease"')
        await cluster.add_pod("b")
        await cluster.bound("b")
        await ours.says('pod="default/b" node="n1"')
        go = await start_go()
        await asyncio.sleep(0)
        assert await ours.terminated() == 0
        await holder()
        await cluster.add_pod("c")
        await cluster.bound("c")
    finally:
        if go.returncode is None:
            go.terminate()
        await go.wait()


async def _exists(cluster):
    listed = json.loads(await cluster.admin.get_raw("/apis/coordination.k8s.io/v1/leases"))["items"]
    return "kube-scheduler" in [lease["metadata"]["name"] for lease in listed]


async def _take_lease(cluster, identity):
    from kubesched.base.errors import Conflict

    while True:
        lease = await cluster.admin.get_preserved(Lease, "kube-scheduler", "kube-system")
        spec = structs.replace(lease.record.spec, holder_identity=identity)
        try:
            changed = lease.with_record(structs.replace(lease.record, spec=spec))
            await cluster.admin.update_preserved(changed)
            return
        except Conflict:
            continue


def _seconds(text):
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()
