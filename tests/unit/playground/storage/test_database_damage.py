"""A damaged file is refused or holds what was written, whichever byte was hit; a repair keeps what can be read."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from kubesched.base.errors import KubeschedError
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.storage import database as db
from kubesched.playground.storage.journal import DATABASE, SqliteJournal
from kubesched.playground.storage.repair import REVISION_GAP, repair

OBJECTS = {
    ("configmaps", "default", f"c{number:03}"): json.dumps(
        {"metadata": {"name": f"c{number:03}", "namespace": "default"}, "data": {"x": "y" * 200}}
    ).encode()
    for number in range(60)
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A database of several pages, closed properly."""
    folder = tmp_path_factory.mktemp("healthy")
    database = db.open_database(folder / DATABASE, is_new=True)
    for revision, (key, body) in enumerate(OBJECTS.items(), start=2):
        db.put(database, key, revision, body)
    db.write_state(database, db.State(1 + len(OBJECTS), len(OBJECTS)))
    database.close()
    return folder


@pytest.fixture
def folder(healthy, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(healthy, copy)
    return copy


def loaded(folder, *, is_partial=False):
    """Key -> body of everything that is read back."""
    journal = SqliteJournal(folder, is_new=False)
    try:
        _, objects = journal.load()
        assert len(list(objects)) == len(OBJECTS) or is_partial
        return {row.key: row.body for row in db.rows_of(journal._database)}
    finally:
        journal.release()


def change(folder, statement, *values):
    database = sqlite3.connect(folder / DATABASE)
    database.execute(statement, values)
    database.commit()
    database.close()


def test_a_healthy_file_is_read_back(folder):
    assert loaded(folder) == OBJECTS
    report = repair(folder)
    assert str(report) == f"{folder / DATABASE} is not damaged"
    assert loaded(folder) == OBJECTS


def test_whichever_byte_is_flipped_nothing_wrong_is_read(healthy, folder):
    content = (healthy / DATABASE).read_bytes()
    refused = []
    for position in range(0, len(content), 97):
        damaged = bytearray(content)
        damaged[position] ^= 0x41
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / DATABASE).write_bytes(damaged)
        try:
            assert loaded(folder) == OBJECTS, position
        except KubeschedError as error:
            refused.append(str(error))
    assert all(DATABASE in message for message in refused)
    assert len(refused) > len(content) // 97 // 2, "most of the file is data"


def test_an_object_whose_bytes_changed_is_named(folder):
    change(folder, "UPDATE objects SET body = replace(body, 'y', 'z') WHERE name = 'c007'")
    with pytest.raises(db.DamagedDatabase, match=r"checksum of configmaps default/c007 .*--repair"):
        loaded(folder)


def test_an_object_that_vanished_is_noticed(folder):
    change(folder, "DELETE FROM objects WHERE name = 'c007'")
    with pytest.raises(db.DamagedDatabase, match="it holds 59 of 60 objects"):
        loaded(folder)


def test_a_revision_that_changed_is_noticed(folder):
    change(folder, "UPDATE facts SET value = replace(value, '61 60', '51 60') WHERE name = 'state'")
    with pytest.raises(db.DamagedDatabase, match="the last revision cannot be read"):
        loaded(folder)


@pytest.mark.parametrize("content", [b"", None])
async def test_an_empty_file_beside_keys_does_not_start_an_empty_cluster(tmp_path, content):
    settings = ClusterSettings(data_dir=tmp_path)
    async with EmbeddedCluster(settings):
        pass
    (tmp_path / DATABASE).unlink()
    if content is not None:
        (tmp_path / DATABASE).write_bytes(content)
    with pytest.raises(
        KubeschedError, match=r"it is empty, but the keys of its cluster exist; .*--repair"
    ):
        async with EmbeddedCluster(settings):
            pass
    assert repair(tmp_path).kept == 0
    async with EmbeddedCluster(settings) as cluster:
        assert cluster.api.get("namespaces", None, "default")


def test_a_repair_keeps_every_intact_object_and_names_the_others(folder):
    change(folder, "UPDATE objects SET body = 'nonsense' WHERE name IN ('c007', 'c008')")
    report = repair(folder)
    assert report.kept == 58
    assert report.lost == ("configmaps default/c007", "configmaps default/c008")
    assert report.damaged_copy is not None
    assert report.damaged_copy.exists()
    kept = loaded(folder, is_partial=True)
    assert kept == {key: body for key, body in OBJECTS.items() if key[2] not in ("c007", "c008")}


def test_after_a_repair_revisions_are_beyond_all_that_were_given_out(folder):
    change(folder, "UPDATE facts SET value = 'x' WHERE name = 'state'")
    repair(folder)
    journal = SqliteJournal(folder, is_new=False)
    revision, _ = journal.load()
    journal.release()
    assert revision == 61 + REVISION_GAP


def test_objects_on_both_sides_of_a_damaged_page_are_kept(healthy, folder):
    content = bytearray((healthy / DATABASE).read_bytes())
    page = (
        content.index(b'"name":"c030"') if b'"name":"c030"' in content else content.index(b"c030")
    )
    start = page // 4096 * 4096
    content[start : start + 4096] = b"\xff" * 4096
    (folder / DATABASE).write_bytes(content)
    report = repair(folder)
    kept = loaded(folder, is_partial=True)
    assert 0 < len(kept) == report.kept < 60
    names = sorted(name for _, _, name in kept)
    assert names[0] == "c000"
    assert names[-1] == "c059"
    assert all(OBJECTS[key] == body for key, body in kept.items())
    assert report.lost == (f"{60 - len(kept)} objects whose names cannot be read",)


def test_repairs_do_not_overwrite_each_other(folder):
    for number in (1, 2):
        change(folder, "UPDATE objects SET body = 'nonsense' WHERE name = ?", f"c00{number}")
        assert repair(folder).damaged_copy == folder / f"{DATABASE}.damaged-{number}"


def test_a_directory_in_use_is_not_repaired(folder):
    journal = SqliteJournal(folder)
    try:
        with pytest.raises(KubeschedError, match="is in use by another process"):
            repair(folder)
    finally:
        journal.release()


def test_a_database_without_checksums_is_upgraded(tmp_path):
    database = sqlite3.connect(tmp_path / DATABASE)
    database.executescript(
        """
        CREATE TABLE objects (resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
            revision INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID;
        CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
        INSERT INTO facts VALUES ('format', '1'), ('revision', '99');
        """
    )
    for revision, (key, body) in enumerate(OBJECTS.items(), start=2):
        database.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", (*key, revision, body))
    database.commit()
    database.close()
    assert loaded(tmp_path) == OBJECTS
    journal = SqliteJournal(tmp_path)
    assert journal.load()[0] == 99
    journal.release()
    change(tmp_path, "UPDATE objects SET revision = 1000 WHERE name = 'c001'")
    with pytest.raises(db.DamagedDatabase, match="c001"):
        loaded(tmp_path)
