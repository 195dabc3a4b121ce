"""The HTTPS side of a running scheduler: who sees what, readiness, metrics of a busy scheduler,
reloaded certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import resource
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving_requests import context, get

from kubesched.app.server import self_signed
from kubesched.base.errors import ServerError
from kubesched.playground.server.api_server import failure
from kubesched.scheduler.plugin_profile import HEADER

FIT = "NodeResourcesFit"
ALONE = {"leaderElection": {"leaderElect": False}}


@pytest.fixture
async def admin_certificate(cluster, tmp_path):
    """Files of an administrator's client certificate, of the authority the cluster publishes."""
    if cluster.real:
        return cluster.plane.folder / "admin.crt", cluster.plane.folder / "admin.key"
    made = cluster.embedded._certificates
    files = tmp_path / "admin.crt", tmp_path / "admin.key"
    files[0].write_bytes(made.client_certificate)
    files[1].write_bytes(made.client_key)
    return files


def delegating(cluster):
    return (
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
    )


async def test_health_is_open_and_everything_else_is_not(cluster, run):
    scheduler = await run(*delegating(cluster))
    await scheduler.says('"Successfully acquired lease"')
    assert await get(scheduler, "/healthz") == (200, "ok")
    assert await get(scheduler, "/readyz?verbose") == (
        200,
        "[+]leaderElection ok\n[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n",
    )
    assert await get(scheduler, "/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")
    status, body = await get(scheduler, "/metrics")
    assert status == 403
    message = 'forbidden: User "system:anonymous" cannot get path "/metrics"'
    assert json.loads(body)["message"].startswith(message)
    status, _ = await get(scheduler, "/healthz", headers={"Authorization": "Bearer nonsense"})
    assert status == 401


async def test_an_administrators_certificate_opens_everything(cluster, run, admin_certificate):
    await cluster.add_node("n1")
    await cluster.add_node("n2")
    scheduler = await run(*delegating(cluster))
    await cluster.add_pod("a")
    await cluster.bound("a")
    await cluster.add_pod("big", cpu="100")
    await cluster.condition("big")

    status, page = await get(scheduler, "/metrics", certificate=admin_certificate)
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(page)}
    attempts = {
        (sample.labels["result"], sample.labels["profile"]): sample.value
        for sample in families["scheduler_schedule_attempts"].samples
        if sample.name.endswith("_total")
    }
    assert attempts[("scheduled", "default-scheduler")] == 1
    assert attempts[("unschedulable", "default-scheduler")] >= 1
    for name in (
        "process_resident_memory_bytes",
        "kubernetes_build_info",
        "kubernetes_feature_enabled",
        "leader_election_master_status",
        "rest_client_requests",
        "kubesched_events_dropped",
        "scheduler_pending_pods",
        "scheduler_plugin_evaluation",
    ):
        assert name in families, name

    status, _ = await get(scheduler, "/debug/plugins")
    assert status == 403
    status, page = await get(scheduler, "/debug/plugins", certificate=admin_certificate)
    assert status == 200
    fit = {each["point"]: each for each in json.loads(page)["plugins"] if each["plugin"] == FIT}
    assert fit["Filter"]["answers"] == "kept for 2 of 2 shapes"
    status, page = await get(
        scheduler,
        "/debug/plugins",
        certificate=admin_certificate,
        headers={"Accept": "text/plain"},
    )
    assert page.split("\n")[0].split() == [*" ".join(HEADER).split()]
    status, _ = await get(scheduler, "/debug/plugins")
    assert status == 403

    status, page = await get(scheduler, "/metrics/resources", certificate=admin_certificate)
    assert status == 200
    assert 'kube_pod_resource_request{namespace="default",pod="a"' in page
    status, page = await get(scheduler, "/metrics/slis", certificate=admin_certificate)
    assert status == 200
    status, page = await get(scheduler, "/configz", certificate=admin_certificate)
    assert json.loads(page)["componentconfig"]["kind"] == "KubeSchedulerConfiguration"
    status, page = await get(scheduler, "/flagz", certificate=admin_certificate)
    assert "leader-elect-lease-duration" in page
    status, page = await get(scheduler, "/debug/pprof/goroutine", certificate=admin_certificate)
    assert "task serving" in page
    assert (await get(scheduler, "/nope", certificate=admin_certificate))[0] == 404


async def test_a_standby_is_ready_but_counts_no_pods(cluster, run, admin_certificate):
    await cluster.add_node("n1")
    leader = await run()
    await leader.says('"Successfully acquired lease"')
    standby = await run(*delegating(cluster))
    await standby.says('"Handlers synced"')
    await cluster.add_pod("a")
    await cluster.bound("a")
    assert (await get(standby, "/readyz"))[0] == 200
    assert await get(standby, "/metrics/resources", certificate=admin_certificate) == (200, "")


async def test_profiling_can_be_switched_off(cluster, run, admin_certificate):
    scheduler = await run(*delegating(cluster), config={**ALONE, "enableProfiling": False})
    await scheduler.says('"Handlers synced"')
    assert (await get(scheduler, "/debug/pprof/", certificate=admin_certificate))[0] == 404


async def test_without_leader_election_healthz_pings(cluster, run):
    scheduler = await run(config=ALONE)
    await scheduler.says('"Handlers synced"')
    assert await get(scheduler, "/healthz?verbose") == (200, "[+]ping ok\nhealthz check passed\n")


async def test_metrics_can_be_opened_renamed_away_and_left_out(cluster, run):
    scheduler = await run(
        "--authorization-always-allow-paths=/metrics",
        "--disabled-metrics=scheduler_pending_pods",
        config=ALONE,
    )
    await scheduler.says('"Handlers synced"')
    status, page = await get(scheduler, "/metrics")
    assert status == 200
    assert "scheduler_pending_pods" not in page
    assert "scheduler_cache_size" in page
    assert (await get(scheduler, "/healthz"))[0] == 403


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_it_is_alive_but_not_ready_until_it_knows_the_cluster(cluster, run):
    may_go_on = asyncio.Event()

    def without_nodes(request, answer):
        if request.path == "/api/v1/nodes" and not may_go_on.is_set():
            return failure(ServerError("not yet", code=503, reason="ServiceUnavailable"))
        return answer()

    cluster.intercept(without_nodes)
    scheduler = await run(config=ALONE)
    await scheduler.says("Serving securely on")
    assert (await get(scheduler, "/livez"))[0] == 200
    status, body = await get(scheduler, "/readyz")
    assert status == 500
    assert body == (
        "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n"
    )
    may_go_on.set()
    await scheduler.says('"Handlers synced"')
    assert (await get(scheduler, "/readyz"))[0] == 200


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_groups_need_an_api_server_that_knows_them(cluster, run):  # scenario 93 of groups
    await cluster.add_node("n1")
    await cluster.add_pod("plain")
    await cluster.add_pod("member", schedulingGroup={"podGroupName": "g"})
    waiting = await run("--feature-gates=GenericWorkload=true", config=ALONE)
    await waiting.says("podgroups")
    assert "[-]sched-handler-sync failed" in (await get(waiting, "/readyz"))[1]
    assert not (await cluster.pod("plain")).spec.node_name
    await waiting.terminated()
    await run(config=ALONE)
    assert await cluster.bound("plain", "member") == ["n1", "n1"]


async def test_a_new_certificate_is_served_without_a_restart(cluster, run, tmp_path):
    def write(pair):
        (tmp_path / "tls.key").write_bytes(pair.key)
        (tmp_path / "tls.crt").write_bytes(pair.certificate)

    async def serial():
        _reader, writer = await asyncio.open_connection(
            "127.0.0.1", scheduler.port, ssl=context(), server_hostname="localhost"
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return der

    write(self_signed.make(time.time()))
    scheduler = await run(
        f"--tls-cert-file={tmp_path}/tls.crt",
        f"--tls-private-key-file={tmp_path}/tls.key",
        config=ALONE,
    )
    await scheduler.says('"Handlers synced"')
    before = await serial()
    write(self_signed.make(time.time() + 1))
    await scheduler.says("Reloaded serving certificate")
    assert await serial() != before


SLOW, GREEDY, HALF_A_HANDSHAKE = (
    b"GET /heal",
    b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000,
    b"\x16\x03\x01\x02\x00",
)


class Attack:
    """Clients that never finish a request, never shake hands, or send far too much; who is cut
    comes again.
    """

    def __init__(self, port, *, quiet, loud):
        self._port = port
        self._tls = context()
        self._clients = [
            *(
                ("quiet", item)
                for item in itertools.islice(itertools.cycle([b"", HALF_A_HANDSHAKE]), quiet)
            ),
            *(("loud", item) for item in itertools.islice(itertools.cycle([SLOW, GREEDY]), loud)),
        ]
        self.opened = 0

    async def __aenter__(self):
        self._tasks = [
            asyncio.ensure_future(self._client(kind == "loud", beginning))
            for kind, beginning in self._clients
        ]
        return self

    async def __aexit__(self, *_error):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, shakes_hands, beginning):
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                await self._visit(shakes_hands, beginning)
            await asyncio.sleep(10)

    async def _visit(self, shakes_hands, beginning):
        async with asyncio.timeout(300):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                self._port,
                ssl=self._tls if shakes_hands else None,
                local_addr=("127.0.0.2", 0),
            )
        self.opened += 1
        try:
            writer.write(beginning)
            await reader.read()
        finally:
            writer.transport.abort()


def descriptors_for_clients(most):
    """How many connections this process can have open beside what it needs itself."""
    return min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 400)


def resident_mb(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


# 42 that it always has, up to 64 connections to the API server while that is slow, and two eighths
# of all for those who come: fewer than 142 may run out.
LOW = ("sh", "-c", 'ulimit -n 160; exec "$@"', "sh")


@pytest.mark.parametrize(
    ("wrapper", "most_open"),
    [
        pytest.param((), 1100, id="with many descriptors"),
        pytest.param(LOW, 160, id="with few descriptors"),
    ],
)
@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_thousands_of_hostile_clients_do_not_disturb_scheduling(
    cluster, run, wrapper, most_open
):
    for number in range(3):
        await cluster.add_node(f"n{number}", cpu="16")
    scheduler = await run(config=ALONE, wrapper=wrapper)
    await scheduler.says("Serving securely on")
    names = [f"p{number}" for number in range(30)]
    await cluster.add_pod("first")
    await cluster.bound("first")
    before = resident_mb(scheduler.process)
    async with Attack(scheduler.port, quiet=descriptors_for_clients(5000), loud=60) as attack:

        async def most_have_come():
            return attack.opened >= 500

        await cluster.eventually(most_have_come)
        for name in names:
            await cluster.add_pod(name)
            await cluster.bound(name)
            assert (await get(scheduler, "/livez"))[0] == 200
        opened = len(os.listdir(f"/proc/{scheduler.process.pid}/fd"))
        grown = resident_mb(scheduler.process) - before
    assert opened <= most_open
    assert grown < 200
    assert "could not be accepted" not in scheduler.log
    assert "Traceback" not in scheduler.log
    assert scheduler.process.returncode is None


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_a_port_in_use_ends_the_start(cluster, run):
    first = await run(config=ALONE)
    await first.says("Serving securely on")
    second = await run(config=ALONE, port=first.port)
    assert await second.ended() == 1
    assert '"command failed"' in second.log
    assert f"failed to listen on 127.0.0.1:{first.port}" in second.log
