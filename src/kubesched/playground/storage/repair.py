"""Repairs a damaged data directory: `kubesched up --data-dir DIR --repair`.

The readable objects are copied to a new file; the damaged file is kept beside it. New revisions
start far above the old ones, so that clients cannot confuse the repaired history with the old one:
their watches end with 410 and they list again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubesched.base.errors import KubeschedError
from kubesched.playground.storage import database as db
from kubesched.playground.storage.journal import DATABASE, lock_folder

REVISION_GAP: Final = 1_000_000
_SIDE_FILES: Final = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Result of a repair."""

    path: Path
    damaged_copy: Path | None
    """Path of the damaged file; None if nothing was damaged."""
    kept: int = 0
    lost: tuple[str, ...] = ()
    """Objects known to be lost."""

    def __str__(self) -> str:
        if self.damaged_copy is None:
            return f"{self.path} is not damaged"
        names = "".join(f"\n  lost: {name}" for name in self.lost)
        return (
            f"{self.path}: {self.kept} objects kept; the damaged file is {self.damaged_copy}{names}"
        )


def repair(folder: Path) -> RepairReport:
    """Repair the database of a data directory that is not in use.

    Raises:
        KubeschedError: the directory is in use, or its format is unknown to this version.
    """
    path = folder / DATABASE
    descriptor = lock_folder(folder)
    try:
        if _is_sound(path):
            return RepairReport(path, None)
        rows, lost, revision = _salvage(path)
        fresh = path.with_name(f"{DATABASE}.new")
        fresh.unlink(missing_ok=True)
        _write(fresh, rows, revision + REVISION_GAP)
        copy = _move_aside(path)
        fresh.replace(path)
        return RepairReport(path, copy, len(rows), tuple(lost))
    finally:
        os.close(descriptor)


def _is_sound(path: Path) -> bool:
    try:
        with contextlib.closing(db.open_database(path, is_new=False)) as database:
            _, objects = db.load(database, path)
            for _ in objects:
                pass
    except db.DamagedDatabase:
        return False
    return True


def _salvage(path: Path) -> tuple[dict[db.Key, db.Row], list[str], int]:
    """Intact rows, the names of damaged rows, and the highest revision seen.

    A damaged page ends a scan, so rows behind it are read by scanning backwards.
    """
    rows: dict[db.Key, db.Row] = {}
    damaged: dict[str, None] = {}
    state: db.State | None = None
    with contextlib.suppress(*db.READ_ERRORS), contextlib.closing(db.connect(path)) as database:
        has_checksums = _has_checksums(database)
        for is_backwards in (False, True):
            with contextlib.suppress(*db.READ_ERRORS):
                for row in db.rows_of(database, is_backwards=is_backwards):
                    if _is_usable(row, has_checksums=has_checksums):
                        rows[row.key] = row
                    else:
                        damaged[str(row)] = None
        with contextlib.suppress(*db.READ_ERRORS):
            state = db.read_state(database)
    revision = max([row.revision for row in rows.values()], default=1)
    lost = sorted(damaged)
    if state is not None:
        revision = max(revision, state.revision)
        unreadable = state.count - len(rows) - len(lost)
        if unreadable > 0:
            lost.append(f"{unreadable} objects whose names cannot be read")
    return rows, lost, revision


def _has_checksums(database: sqlite3.Connection) -> bool:
    columns = database.execute("PRAGMA table_info(objects)").fetchall()
    return any(column[1] == "checksum" for column in columns)


def _is_usable(row: db.Row, *, has_checksums: bool) -> bool:
    if has_checksums and not row.is_intact:
        return False
    try:
        row.decoded()
    except ValueError:
        return False
    return True


def _write(path: Path, rows: dict[db.Key, db.Row], revision: int) -> None:
    with contextlib.closing(db.connect(path)) as database:
        path.chmod(0o600)
        database.execute("PRAGMA synchronous=FULL")
        db.create_tables(database, db.State(revision, len(rows)))
        database.execute("BEGIN IMMEDIATE")
        for row in rows.values():
            db.put(database, row.key, row.revision, row.body)
        database.execute("COMMIT")


def _move_aside(path: Path) -> Path:
    for number in range(1, 1000):
        copy = path.with_name(f"{DATABASE}.damaged-{number}")
        if not copy.exists():
            break
    else:
        raise KubeschedError(f"{path.parent} holds too many damaged copies; remove some")
    if not path.exists():
        path.touch(mode=0o600)
    path.replace(copy)
    for suffix in _SIDE_FILES:
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.replace(copy.with_name(copy.name + suffix))
    return copy
