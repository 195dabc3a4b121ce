"""A disk without room: reads go on, writes get 507, nothing acknowledged is lost, and it passes
when there is room.

SQLite reports a database that has reached `max_page_count` exactly as it reports a full disk.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import subprocess

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import ServerError
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.handlers.exchange import ApiRequest
from kubesched.playground.storage import database as db
from kubesched.playground.storage import journal as journals
from kubesched.playground.storage.journal import DATABASE, SqliteJournal

MAPS = "/api/v1/namespaces/default/configmaps"
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch):
    monkeypatch.setattr(journals, "RETRY_S", 0.02)


class Disk:
    """Decides how much room a cluster's journal has."""

    def __init__(self, journal: SqliteJournal) -> None:
        self.journal = journal
        self.attempts = 0
        """Commits since the disk was filled."""

    def fill(self) -> None:
        commit = self.journal._commit

        def counted(batch) -> None:
            self.attempts += 1
            commit(batch)

        self.journal._commit = counted
        pages = self.journal._database.execute("PRAGMA page_count").fetchone()[0]
        self.journal._database.execute(f"PRAGMA max_page_count = {pages}")

    def make_room(self) -> None:
        self.journal._database.execute("PRAGMA max_page_count = 1000000")


@pytest.fixture
async def cluster(tmp_path):
    settings = ClusterSettings(data_dir=tmp_path)
    async with EmbeddedCluster(settings, clock=ManualClock(), rng=random.Random(1)) as made:
        await made.server._journal.settled()
        yield made
        Disk(made.server._journal).make_room()


@pytest.fixture
def disk(cluster):
    return Disk(cluster.server._journal)


async def send(cluster, method, path, body=None, query=""):
    data = json.dumps(body).encode() if body is not None else b""
    headers = {"content-type": "application/json"}
    async with asyncio.timeout(PATIENCE_S):
        response = await cluster.server.handle(ApiRequest(method, path, query, headers, data))
    return response.status, json.loads(response.body)


def config_map(name, size=200_000):
    return {"metadata": {"name": name}, "data": {"x": "y" * size}}


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - another thread is what is waited for
            await asyncio.sleep(0.01)


async def test_writes_get_507_and_reads_go_on(cluster, disk, caplog):
    assert (await send(cluster, "POST", MAPS, config_map("before")))[0] == 201
    disk.fill()
    status, answer = await send(cluster, "POST", MAPS, config_map("hit"))
    assert (status, answer["reason"]) == (507, "InsufficientStorage")
    assert "the change is kept in memory and written when there is room" in answer["message"]
    for method, path, body in (
        ("POST", MAPS, config_map("refused")),
        ("DELETE", f"{MAPS}/before", None),
        ("PUT", f"{MAPS}/before", config_map("before", 10)),
    ):
        status, answer = await send(cluster, method, path, body)
        assert status == 507
        assert answer["message"].endswith("writes are refused until there is room")
    assert (await send(cluster, "GET", f"{MAPS}/before"))[0] == 200
    assert (await send(cluster, "GET", f"{MAPS}/refused"))[0] == 404
    assert (await send(cluster, "GET", MAPS))[0] == 200
    await until(lambda: disk.attempts > 5)
    assert caplog.text.count("No space left") == 1


async def test_it_recovers_when_there_is_room(cluster, disk, tmp_path, caplog):
    disk.fill()
    assert (await send(cluster, "POST", MAPS, config_map("hit")))[0] == 507
    disk.make_room()
    await until(lambda: not disk.journal.is_full)
    assert (await send(cluster, "POST", MAPS, config_map("after")))[0] == 201
    assert caplog.text.count("until there is room") == 1
    assert caplog.text.count("There is room again") == 1
    reader = sqlite3.connect(tmp_path / DATABASE)
    names = {
        name for (name,) in reader.execute("SELECT name FROM objects WHERE resource = 'configmaps'")
    }
    reader.close()
    assert names >= {"hit", "after"}


async def test_a_watch_shows_a_change_only_when_it_is_on_disk(cluster, disk):
    headers = {"content-type": "application/json"}
    query = f"watch=true&resourceVersion={cluster.api.registry.store.revision}"
    response = await cluster.server.handle(ApiRequest("GET", MAPS, query, headers, b""))
    events = aiter(response.stream)
    disk.fill()
    assert (await send(cluster, "POST", MAPS, config_map("hit")))[0] == 507
    following = asyncio.ensure_future(anext(events))
    await until(lambda: disk.attempts > 5)
    assert not following.done()
    disk.make_room()
    async with asyncio.timeout(PATIENCE_S):
        assert b'"hit"' in await following
    response.stream.close()
    await events.aclose()


async def test_what_could_not_be_written_until_the_end_is_told(tmp_path, caplog):
    async with EmbeddedCluster(ClusterSettings(data_dir=tmp_path)) as cluster:
        journal = cluster.server._journal
        await journal.settled()
        Disk(journal).fill()
        assert (await send(cluster, "POST", MAPS, config_map("hit")))[0] == 507
    assert [r.values["changes"] for r in caplog.records if "are lost" in r.getMessage()] == [1]


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a file system needs root: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def write_until_full(path):
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def test_a_real_disk_fills_up_and_is_emptied(small_disk):
    settings = ClusterSettings(data_dir=small_disk)
    async with EmbeddedCluster(settings) as cluster:
        journal = cluster.server._journal
        assert (await send(cluster, "POST", MAPS, config_map("before")))[0] == 201
        ballast = small_disk / "ballast"
        with pytest.raises(OSError, match="No space"):
            write_until_full(ballast)
        assert (await send(cluster, "POST", MAPS, config_map("hit")))[0] == 507
        assert (await send(cluster, "POST", MAPS, config_map("refused")))[0] == 507
        assert (await send(cluster, "GET", f"{MAPS}/before"))[0] == 200
        ballast.unlink()
        await until(lambda: not journal.is_full)
        assert (await send(cluster, "POST", MAPS, config_map("after")))[0] == 201
    async with EmbeddedCluster(settings) as cluster:
        for name, status in (("before", 200), ("hit", 200), ("refused", 404), ("after", 200)):
            assert (await send(cluster, "GET", f"{MAPS}/{name}"))[0] == status


async def test_controllers_and_nodes_live_through_a_full_disk(tmp_path, caplog):
    """Everything in the process that writes meets the refusal, and goes on afterwards."""
    async with EmbeddedCluster(ClusterSettings(data_dir=tmp_path, nodes=3)) as cluster:
        journal = cluster.server._journal
        disk = Disk(journal)
        deployment = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "web"}]},
                },
            },
        }
        cluster.api.create("deployments.apps", deployment)
        await until(lambda: len(pod_names(cluster)) == 2)
        disk.fill()
        await send(cluster, "POST", MAPS, config_map("hit"))
        await until(lambda: journal.is_full)
        with pytest.raises(ServerError, match="no space left"):
            cluster.api.delete("pods", "default", pod_names(cluster)[0])
        await until(lambda: disk.attempts > 30)  # retries and heartbeats meet the refusal meanwhile
        disk.make_room()
        await until(lambda: not journal.is_full)
        cluster.api.patch("deployments.apps", "default", "web", {"spec": {"replicas": 4}})
        await until(lambda: len(pod_names(cluster)) == 4)
    assert caplog.text.count("No space left") == 1


def pod_names(cluster):
    pods, _ = cluster.api.list("pods", "default")
    return [pod["metadata"]["name"] for pod in pods]


@pytest.mark.parametrize(
    ("code", "free_bytes", "is_full"),
    [
        pytest.param(sqlite3.SQLITE_FULL, 10**9, True, id="SQLite says so"),
        pytest.param(sqlite3.SQLITE_IOERR | (4 << 8), 1000, True, id="syncing failed, no space"),
        pytest.param(sqlite3.SQLITE_IOERR | (4 << 8), 10**9, False, id="the disk is broken"),
        pytest.param(sqlite3.SQLITE_CORRUPT, 1000, False, id="the file is damaged"),
    ],
)
def test_which_failures_mean_a_full_disk(monkeypatch, tmp_path, code, free_bytes, is_full):
    class Usage:
        f_bavail, f_frsize = free_bytes, 1

    monkeypatch.setattr(db.os, "statvfs", lambda _: Usage)
    error = sqlite3.OperationalError("failed")
    error.sqlite_errorcode = code
    assert db.is_disk_full(error, tmp_path) is is_full
