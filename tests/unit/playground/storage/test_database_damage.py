"""A damaged file is refused or holds what was written, whichever byte was hit."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from kubesched.base.errors import KubeschedError
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.storage import database as db
from kubesched.playground.storage.journal import DATABASE, SqliteJournal

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


def loaded(folder):
    """Key -> body of everything that is read back."""
    journal = SqliteJournal(folder, is_new=False)
    try:
        _, objects = journal.load()
        assert len(list(objects)) == len(OBJECTS)
        rows = journal._database.execute("SELECT resource, namespace, name, body FROM objects")
        return {tuple(key): body for *key, body in rows}
    finally:
        journal.release()


def change(folder, statement, *values):
    database = sqlite3.connect(folder / DATABASE)
    database.execute(statement, values)
    database.commit()
    database.close()


def test_a_healthy_file_is_read_back(folder):
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
    with pytest.raises(
        db.DamagedDatabase, match=r"checksum of configmaps default/c007 .* from a backup"
    ):
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
        KubeschedError, match=r"it is empty, but the keys of its cluster exist; restore .*"
    ):
        async with EmbeddedCluster(settings):
            pass


def test_a_database_of_another_format_is_refused(folder):
    change(folder, "UPDATE facts SET value = '1' WHERE name = 'format'")
    with pytest.raises(KubeschedError, match="has format 1, this version reads format 2"):
        loaded(folder)
