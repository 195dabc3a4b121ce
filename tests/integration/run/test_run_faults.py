"""What a running scheduler survives: an API server that goes away and comes back, watches that
expire, errors in bursts.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
import signal
import socket
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from kubesched.base.errors import ServerError
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.server.api_server import failure

ALONE = {"leaderElection": {"leaderElect": False}}
EMBEDDED = pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
REAL = pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True
)


async def many(cluster, prefix, count):
    names = [f"{prefix}{number}" for number in range(count)]
    for name in names:
        await cluster.add_pod(name, cpu="10m")
    return names


@REAL
async def test_a_restart_of_the_api_server_in_mid_flight(cluster, run):
    for name in ("n1", "n2"):
        await cluster.add_node(name, cpu="16")
    scheduler = await run(config=ALONE)
    before = await many(cluster, "before", 40)
    await cluster.plane.server.kill()
    await cluster.plane.server.restart()
    await cluster.plane.wait_until_ready()
    after = await many(cluster, "after", 10)
    await cluster.bound(*before, *after)
    assert scheduler.process.returncode is None


@REAL
async def test_a_leader_outlives_a_short_absence_of_the_api_server(cluster, run):
    await cluster.add_node("n1", cpu="16")
    # Longer than the server takes to come back, here.
    election = {"leaderElect": True, "leaseDuration": "60s", "renewDeadline": "50s"}
    scheduler = await run(config={"leaderElection": election})
    await scheduler.says('"Successfully acquired lease"')
    await cluster.plane.server.kill()
    await cluster.plane.server.restart()
    await cluster.plane.wait_until_ready()
    await cluster.add_pod("after")
    assert await cluster.bound("after") == ["n1"]
    assert "Leaderelection lost" not in scheduler.log


@REAL
async def test_a_revision_the_server_has_forgotten_makes_the_scheduler_list_again(cluster, run):
    """While the scheduler is frozen, changes happen, etcd forgets its history, and the server its
    watch cache.
    """
    await cluster.add_node("n1", cpu="16")
    scheduler = await run(config=ALONE)
    await cluster.add_pod("before")
    await cluster.bound("before")
    scheduler.send(signal.SIGSTOP)
    await many(cluster, "meanwhile", 10)
    await cluster.admin._write(
        "DELETE", "/api/v1/namespaces/default/pods/before?gracePeriodSeconds=0", b""
    )
    await cluster.plane.server.kill()
    await compact(cluster.plane)
    await cluster.plane.server.restart()
    await cluster.plane.wait_until_ready()
    scheduler.send(signal.SIGCONT)
    await scheduler.says('"Watch cannot go on from its revision, listing again"')
    await cluster.bound(*(f"meanwhile{number}" for number in range(10)))
    await cluster.add_pod("after")
    assert await cluster.bound("after") == ["n1"]
    assert scheduler.process.returncode is None


@REAL
async def test_a_cluster_restored_to_an_older_revision_is_scheduled(cluster, run):
    """Without the comparison of revisions the leader stays blind: its watches are silent, its lease
    is renewed.
    """
    await cluster.add_node("n1", cpu="16")
    election = {"leaderElect": True, "leaseDuration": "90s", "renewDeadline": "80s"}
    scheduler = await run(config={"leaderElection": election})
    await cluster.add_pod("kept")
    await cluster.add_pod("large", cpu="20")
    await cluster.bound("kept")
    await cluster.condition("large")
    backup = await back_up(cluster.plane)
    await cluster.add_node("n2", cpu="32")
    lost = await many(cluster, "lost", 40)
    assert await cluster.bound("large") == ["n2"]
    await cluster.bound(*lost)
    await restore(cluster.plane, backup)
    assert not (await cluster.pod("large")).spec.node_name
    await cluster.add_pod("after")
    assert await cluster.bound("after") == ["n1"]
    await cluster.add_node("n3", cpu="32")
    assert await cluster.bound("large") == ["n3"]
    await scheduler.says('"The cluster went back to an older revision, listing again"')
    assert scheduler.process.returncode is None


@REAL
async def test_a_restored_cluster_whose_new_history_is_ahead_is_scheduled(cluster, run):
    """The scheduler is frozen meanwhile, so that no comparison of revisions can tell."""
    await cluster.add_node("n1", cpu="16")
    scheduler = await run(config={"leaderElection": {"leaderElect": False}})
    await cluster.add_pod("kept")
    await cluster.add_pod("large", cpu="20")
    await cluster.bound("kept")
    await cluster.condition("large")
    backup = await back_up(cluster.plane)
    await cluster.add_node("n2", cpu="32")
    assert await cluster.bound("large") == ["n2"]
    await scheduler.says('"Successfully bound pod to node" pod="default/large"')
    reached = int((await cluster.pod("large")).metadata.resource_version)
    scheduler.send(signal.SIGSTOP)
    await restore(cluster.plane, backup)
    assert not (await cluster.pod("large")).spec.node_name
    await cluster.add_node("n3", cpu="32")
    await many(cluster, "new", 40)
    assert int((await cluster.pod("new39")).metadata.resource_version) > reached + 20
    scheduler.send(signal.SIGCONT)
    assert await cluster.bound("large") == ["n3"]
    await scheduler.says('"The cluster went back to an older revision, listing again"')
    await cluster.bound(*(f"new{number}" for number in range(40)))
    assert scheduler.process.returncode is None


@asynccontextmanager
async def stopped(plane):
    """The folder of etcd's data while neither etcd nor the API server runs."""
    await plane.server.stop()
    await plane.etcd.stop()
    yield plane.folder / "etcd"
    await plane.etcd.restart()
    await plane.server.restart()
    await plane.wait_until_ready()


async def back_up(plane):
    """A snapshot of the running etcd; without `etcdctl` beside etcd, the files of a stopped one."""
    backup = plane.folder / "backup"
    program, url = etcd_of(plane)
    if (tool := program.with_name("etcdctl")).exists():
        await tell(tool, f"--endpoints={url}", "snapshot", "save", backup)
    else:
        async with stopped(plane) as data:
            shutil.copytree(data, backup)
    return backup


async def restore(plane, backup):
    """Revisions go on from the backup's, as without `--bump-revision`."""
    program, _ = etcd_of(plane)
    async with stopped(plane) as data:
        shutil.rmtree(data)
        if backup.is_file():
            tool = program.with_name("etcdutl")
            await tell(tool, "snapshot", "restore", backup, f"--data-dir={data}")
        else:
            backup.rename(data)


async def tell(*command):
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()


def etcd_of(plane):
    """The program and the URL of its clients."""
    program, *options = plane.etcd._command
    (url,) = (
        str(word).partition("=")[2] for word in options if "--listen-client-urls" in str(word)
    )
    return program, url


async def compact(plane):
    """Have etcd forget everything before now."""
    _, url = etcd_of(plane)
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/v3/kv/range", json={"key": "AA=="}) as answer:
            revision = (await answer.json())["header"]["revision"]
        body = {"revision": revision, "physical": True}
        async with session.post(f"{url}/v3/kv/compaction", json=body) as answer:
            assert answer.status == 200, await answer.text()


@EMBEDDED
async def test_answers_of_a_failing_server_are_taken_calmly(cluster, run):
    """Every third write fails; in the end everything is where it should be."""
    for name in ("n1", "n2"):
        await cluster.add_node(name, cpu="16")
    writes = 0

    def flaky(request, answer):
        nonlocal writes
        ours = request.headers.get("user-agent", "").startswith("kubesched/")
        if ours and request.method != "GET":
            writes += 1
            if writes % 3 == 0:
                return failure(ServerError("try again", code=503, reason="ServiceUnavailable"))
        return answer()

    cluster.intercept(flaky)
    scheduler = await run(config=ALONE)
    names = await many(cluster, "p", 30)
    await cluster.bound(*names)
    assert writes > 30
    assert scheduler.process.returncode is None


@EMBEDDED
async def test_a_binding_that_took_effect_without_an_answer_is_found_out(cluster, run):
    await cluster.add_node("n1")
    lost = asyncio.Event()

    def forgetful(request, answer):
        given = answer()
        if request.path.endswith("/binding") and not lost.is_set():
            lost.set()
            return failure(ServerError("lost", code=504, reason="Timeout"))
        return given

    cluster.intercept(forgetful)
    scheduler = await run(config=ALONE)
    await cluster.add_pod("a")
    await lost.wait()
    await scheduler.says('"Successfully bound pod to node"')
    assert "Error scheduling pod" not in scheduler.log


@EMBEDDED
async def test_an_expired_watch_is_begun_anew(cluster, run, tmp_path):
    """A server that remembers few changes answers 410 to one who was away, who then lists again."""
    kubeconfig = tmp_path / "forgetful.kubeconfig"
    settings = ClusterSettings(kubeconfig=kubeconfig, history_limit=10)
    async with EmbeddedCluster(settings) as forgetful:
        refused, away = asyncio.Event(), asyncio.Event()

        def judge(request, answer):
            if request.path != "/api/v1/pods":
                return answer()
            if away.is_set():
                refused.set()
                return failure(ServerError("not now", code=503, reason="ServiceUnavailable"))
            return answer()

        cluster.intercept(judge, forgetful.server)
        scheduler = await run(config=ALONE, kubeconfig=kubeconfig)
        await scheduler.says('"Handlers synced"')
        away.set()
        for connection in list(forgetful._listener._connections):
            connection.abort()
        await refused.wait()
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
        }
        forgetful.api.create("nodes", node)
        for number in range(30):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"late{number}", "namespace": "default"},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            }
            forgetful.api.create("pods", pod, "default")
        away.clear()

        async def all_bound():
            pods, _ = forgetful.api.list("pods", "default")
            return len(pods) == 30 and all(pod["spec"].get("nodeName") for pod in pods)

        await cluster.eventually(all_bound)


@EMBEDDED
async def test_a_start_without_an_api_server_waits_for_it(cluster, run):
    port, closed = cluster.embedded._listener.port, unused_port()
    kubeconfig = cluster.kubeconfig.with_name("closed.kubeconfig")
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(f":{port}", f":{closed}"))
    scheduler = await run(config=ALONE, kubeconfig=kubeconfig)
    await scheduler.says('"Starting Kubernetes Scheduler"')
    await scheduler.says('"Failed to watch"')

    async def forward(reader, writer):
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as group:
            group.create_task(pipe(reader, upstream_writer))
            group.create_task(pipe(upstream_reader, writer))

    async with await asyncio.start_server(forward, "127.0.0.1", closed):
        await cluster.add_node("n1")
        await cluster.add_pod("a")
        assert await cluster.bound("a") == ["n1"]
        assert scheduler.process.returncode is None
        await scheduler.terminated()


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def pipe(reader, writer):
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@EMBEDDED
async def test_a_bound_pod_that_moves_to_another_node_ends_the_process(cluster, run):
    """No API server does that; a cache that contradicts the cluster is repaired by a restart
    only.
    """
    for name in ("n1", "n2"):
        await cluster.add_node(name)
    scheduler = await run(config=ALONE)
    await cluster.add_pod("a")
    (node,) = await cluster.bound("a")
    await scheduler.says('"Successfully bound pod to node"')
    store = cluster.embedded.api.registry.store
    pod = copy.deepcopy(store.get("pods", "default", "a").obj)
    pod["spec"]["nodeName"] = "n2" if node == "n1" else "n1"
    store.put("pods", pod)
    assert await scheduler.ended() == 1
    assert "scheduler cache is corrupted and can badly affect scheduling" in scheduler.log
