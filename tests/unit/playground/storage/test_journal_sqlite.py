"""Writes on disk: what was acknowledged is there after a restart, one process at a time, failures
end it.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import stat

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import KubeschedError, ServerError
from kubesched.playground.client.local import LocalApi
from kubesched.playground.control_plane import build_registry
from kubesched.playground.storage.journal import DATABASE, SqliteJournal
from kubesched.playground.storage.store import Store


class Session:
    """One run of a cluster over a data directory."""

    def __init__(self, folder) -> None:
        self.journal = SqliteJournal(folder)
        revision, rows = self.journal.load()
        self.store = Store.restore(rows, revision, journal=self.journal)
        self.journal.start()
        registry = build_registry(self.store, clock=ManualClock(), rng=random.Random(1))
        self.api = LocalApi(registry, manager="tests")

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error) -> None:
        await self.journal.close()


def config_map(name: str, **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_everything_is_there_after_a_restart(tmp_path):
    async with Session(tmp_path) as first:
        first.api.create("configmaps", config_map("kept", x="1"))
        first.api.create("configmaps", config_map("gone"))
        first.api.patch("configmaps", "default", "kept", {"data": {"y": "2"}})
        first.api.delete("configmaps", "default", "gone")
        await first.journal.settled()
        revision = first.store.revision
        before = [entry.body for entry in first.store.collection("configmaps").entries()]
    async with Session(tmp_path) as second:
        assert second.store.revision == revision, "bootstrapping a restored cluster writes nothing"
        assert [entry.body for entry in second.store.collection("configmaps").entries()] == before
        managers = second.store.get("configmaps", "default", "kept").managers
        assert [each.name for each in managers] == ["tests"]
        assert second.store.collection("configmaps").compacted == revision, (
            "the history is gone, and known to be"
        )
        assert (
            int(second.api.create("configmaps", config_map("new"))["metadata"]["resourceVersion"])
            > revision
        )


async def test_custom_kinds_are_served_again(tmp_path):
    definition = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    async with Session(tmp_path) as first:
        first.api.create("customresourcedefinitions.apiextensions.k8s.io", definition)
        first.api.create("things.example.com", {"metadata": {"name": "t"}})
    async with Session(tmp_path) as second:
        assert second.api.get("things.example.com", None, "t")


async def test_nothing_is_settled_before_it_is_on_disk(tmp_path):
    async with Session(tmp_path) as session:
        await session.journal.settled()
        session.api.create("configmaps", config_map("c"))
        waiting = asyncio.ensure_future(session.journal.settled())
        await waiting
        reader = sqlite3.connect(tmp_path / DATABASE)
        found = reader.execute("SELECT revision FROM objects WHERE name = 'c'").fetchall()
        reader.close()
        assert found == [(session.store.revision,)]


async def test_a_directory_serves_one_process_at_a_time(tmp_path):
    async with Session(tmp_path):
        with pytest.raises(KubeschedError, match="is in use by another process"):
            SqliteJournal(tmp_path)
    async with Session(tmp_path):
        pass


async def test_the_files_are_open_to_their_owner_only(tmp_path):
    folder = tmp_path / "data"
    async with Session(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / DATABASE).stat().st_mode) == 0o600


async def test_a_disk_that_fails_acknowledges_nothing_more(tmp_path, monkeypatch, caplog):
    async with Session(tmp_path) as session:
        await session.journal.settled()

        def fail(batch) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(session.journal, "_commit", fail)
        session.api.create("configmaps", config_map("c"))
        with pytest.raises(ServerError, match="storage has failed: disk I/O error"):
            await session.journal.settled()
        with pytest.raises(ServerError, match="storage has failed"):
            await session.journal.settled()
    assert "Cannot write; changes are lost" in caplog.text


async def test_what_is_no_database_is_refused_by_name(tmp_path):
    (tmp_path / DATABASE).write_bytes(b"not a database at all" * 100)
    with pytest.raises(KubeschedError, match=r"cluster\.db cannot be used as a database"):
        SqliteJournal(tmp_path)


async def test_a_database_of_another_format_is_refused(tmp_path):
    async with Session(tmp_path):
        pass
    database = sqlite3.connect(tmp_path / DATABASE)
    database.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
    database.commit()
    database.close()
    with pytest.raises(KubeschedError, match="has format 99, this version reads format 2"):
        SqliteJournal(tmp_path)
