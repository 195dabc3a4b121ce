"""How a scheduler stops: bindings under way are finished within a bound, a second signal ends it
where it stands.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from kubesched.base.errors import ServerError
from kubesched.playground.server.api_server import failure

pytestmark = pytest.mark.parametrize("cluster", ["embedded"], indirect=True)


@pytest.fixture
def slow_bindings(cluster):
    """Bindings reach the server and are answered only when the test says so."""
    arrived, may_go_on = asyncio.Event(), asyncio.Event()

    def slowly(request, answer):
        if not request.path.endswith("/binding"):
            return answer()
        arrived.set()
        return answer(), may_go_on

    cluster.intercept(slowly)
    return arrived, may_go_on


async def test_bindings_under_way_are_finished_and_no_new_ones_begun(cluster, run, slow_bindings):
    arrived, may_go_on = slow_bindings
    await cluster.add_node("n1")
    scheduler = await run()
    await cluster.add_pod("first")
    await arrived.wait()
    scheduler.send(signal.SIGTERM)
    await scheduler.says('"Asked to stop"')
    await cluster.add_pod("second")
    await scheduler.says('"Add event for unscheduled pod" pod="default/second"')
    may_go_on.set()
    assert await scheduler.ended() == 0
    assert await cluster.bound("first") == ["n1"]
    assert (await cluster.pod("second")).spec.node_name == ""
    assert (await cluster.lease())["spec"].get("holderIdentity", "") == "", scheduler.log


async def test_draining_is_bounded(cluster, run, slow_bindings):
    arrived, may_go_on = slow_bindings
    await cluster.add_node("n1")
    scheduler = await run("--drain-timeout=500ms")
    await cluster.add_pod("stuck")
    await arrived.wait()
    assert await scheduler.terminated() == 0
    assert "called off" in scheduler.log or "not everything" in scheduler.log.lower()
    assert (await cluster.lease())["spec"].get("holderIdentity", "") == "", scheduler.log
    may_go_on.set()


async def test_a_second_signal_ends_it_at_once(cluster, run, slow_bindings):
    arrived, may_go_on = slow_bindings
    await cluster.add_node("n1")
    scheduler = await run("--drain-timeout=1h")
    await cluster.add_pod("stuck")
    await arrived.wait()
    scheduler.send(signal.SIGTERM)
    await scheduler.says('"Asked to stop"')
    scheduler.send(signal.SIGINT)
    assert await scheduler.ended() == 1
    assert "Requested to terminate" not in scheduler.log
    may_go_on.set()


async def test_it_can_be_stopped_while_it_waits_for_the_cluster(cluster, run):
    def without_pods(request, answer):
        if request.path == "/api/v1/pods":
            return failure(ServerError("not yet", code=503, reason="ServiceUnavailable"))
        return answer()

    cluster.intercept(without_pods)
    scheduler = await run()
    await scheduler.says("Serving securely on")
    assert await scheduler.terminated() == 0
    assert '"Handlers synced"' not in scheduler.log
