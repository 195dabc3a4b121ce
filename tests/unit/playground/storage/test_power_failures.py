"""Power fails in the middle of a commit, and disks rot: a data directory keeps what was
acknowledged, or is refused.

SQLite's own files are taken before and after each commit, and what lies between them is made from
both, sector by sector: the state of the disk in the middle of the write-ahead log, or of a
checkpoint. The -shm file is never kept, as after a crash. Rot alters a closed database at random
places. Each seed is one history; KUBESCHED_DISK_SEEDS sets how many.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from kubesched.base.errors import KubeschedError
from kubesched.playground.storage import database as db
from kubesched.playground.storage.journal import DATABASE, SqliteJournal
from kubesched.playground.storage.store import Change, Entry

SEEDS = range(1, 1 + int(os.environ.get("KUBESCHED_DISK_SEEDS", "12")))
COMMITS = 12
SECTOR_BYTES = 512

Objects = dict[db.Key, bytes]


class Disk(NamedTuple):
    """The files of a data directory that survive a crash."""

    database: bytes
    log: bytes


class Commit(NamedTuple):
    """One acknowledged commit: the disk and the objects before and after it."""

    before: Disk
    after: Disk
    known: Objects
    acknowledged: Objects


def files_of(folder: Path) -> Disk:
    log = folder / f"{DATABASE}-wal"
    return Disk((folder / DATABASE).read_bytes(), log.read_bytes() if log.exists() else b"")


def put_back(disk: Disk, folder: Path) -> Path:
    folder.mkdir()
    (folder / DATABASE).write_bytes(disk.database)
    if disk.log:
        (folder / f"{DATABASE}-wal").write_bytes(disk.log)
    return folder


def history(folder: Path, random: Random) -> list[Commit]:
    """Commits of random changes, with small checkpoints in between."""
    journal = SqliteJournal(folder)
    journal.load()
    journal._database.execute(f"PRAGMA wal_autocheckpoint={random.choice((2, 5, 20, 1000))}")
    objects: Objects = {}
    entries: dict[str, Entry] = {}
    made: list[Commit] = []
    revision = 1
    for _ in range(COMMITS):
        known, before = dict(objects), files_of(folder)
        batch = []
        for _ in range(random.randint(1, 8)):
            revision += 1
            batch.append(("configmaps", changed(random, revision, objects, entries)))
        journal._commit(batch)
        made.append(Commit(before, files_of(folder), known, dict(objects)))
    journal.release()
    return made


def changed(random: Random, revision: int, objects: Objects, entries: dict[str, Entry]) -> Change:
    name = f"c{random.randrange(12)}"
    key = ("configmaps", "default", name)
    old = entries.get(name)
    if old is not None and random.random() < 0.3:
        del objects[key], entries[name]
        return Change("DELETED", Entry(old.obj, revision), old)
    data = {"x": "y" * random.choice((1, 300, 6_000)), "n": str(revision)}
    obj = {"metadata": {"name": name, "namespace": "default"}, "data": data}
    entry = entries[name] = Entry(obj, revision)
    objects[key] = entry.body
    return Change("ADDED" if old is None else "MODIFIED", entry, old)


def read_back(folder: Path) -> Objects:
    journal = SqliteJournal(folder, is_new=False)
    try:
        _revision, rows = journal.load()
        for _row in rows:
            pass
        rows = journal._database.execute("SELECT resource, namespace, name, body FROM objects")
        return {tuple(key): body for *key, body in rows}
    finally:
        journal.release()


def mixed(old: bytes, new: bytes, random: Random, *, is_prefix: bool) -> bytes:
    """A file on its way from old to new: sectors up to some point were written, or any of them."""
    size = max(len(old), len(new))
    point = random.randrange(size + 1) if is_prefix else size
    chosen = bytearray(old.ljust(size, b"\0"))
    for start in range(0, size, SECTOR_BYTES):
        if is_prefix or random.random() < 0.5:
            end = min(start + SECTOR_BYTES, point, len(new))
            chosen[start:end] = new[start:end]
    return bytes(chosen[: max(len(old), point) if is_prefix else size])


@pytest.mark.parametrize("seed", SEEDS)
def test_power_fails_while_a_commit_is_written(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    for number, commit in enumerate(history(tmp_path / "data", random)):
        if not commit.before.database:
            continue
        log = mixed(commit.before.log, commit.after.log, random, is_prefix=random.random() < 0.5)
        folder = put_back(Disk(commit.before.database, log), tmp_path / f"crash{number}")
        assert read_back(folder) in (commit.known, commit.acknowledged)


@pytest.mark.parametrize("seed", SEEDS)
def test_power_fails_while_acknowledged_changes_move_to_the_database(
    seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    for number, commit in enumerate(history(tmp_path / "data", random)):
        before, after = commit.before, commit.after
        database = mixed(before.database, after.database, random, is_prefix=random.random() < 0.5)
        folder = put_back(Disk(database, after.log), tmp_path / f"crash{number}")
        assert read_back(folder) == commit.acknowledged


def test_checkpoints_happen_in_these_histories(tmp_path: Path) -> None:
    moved = 0
    for seed in SEEDS:
        commits = history(tmp_path / f"data{seed}", Random(seed))
        moved += sum(item.before.database != item.after.database for item in commits)
    assert moved >= len(SEEDS)


def rotten(database: bytes, random: Random) -> bytes:
    """Flipped bits, lost sectors, a lost end, or a sector in the place of another."""
    data = bytearray(database)
    place = random.randrange(len(data))
    start = place - place % SECTOR_BYTES
    match random.choice(("bits", "sector", "end", "swap")):
        case "bits":
            for _ in range(random.randint(1, 4)):
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        case "sector":
            data[start : start + SECTOR_BYTES] = bytes(SECTOR_BYTES)
        case "end":
            del data[place:]
        case "swap":
            other = random.randrange(len(data) // SECTOR_BYTES) * SECTOR_BYTES
            data[start : start + SECTOR_BYTES] = database[other : other + SECTOR_BYTES]
    return bytes(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_rots(seed: int, tmp_path: Path) -> None:
    """Refused with instructions, or read back as it was."""
    random = Random(seed)
    acknowledged = history(tmp_path / "data", random)[-1].acknowledged
    whole = files_of(tmp_path / "data")
    assert not whole.log
    for number in range(6):
        damaged = Disk(rotten(whole.database, random), b"")
        folder = put_back(damaged, tmp_path / f"rotten{number}")
        refusal = ""
        try:
            assert read_back(folder) == acknowledged
        except KubeschedError as error:
            refusal = str(error)
        assert not refusal or "restore" in refusal
