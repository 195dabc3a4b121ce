"""The SQLite file of a data directory: its schema, and detection of damage.

Each object is stored with a checksum over its key, revision and body. The last revision and the
number of objects are stored with a checksum too, which detects rows lost with a damaged page.
SQLite checks its write-ahead log itself and drops everything after a damaged frame: that loses the
last commits, and cannot be detected here.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kubesched.base.errors import KubeschedError
from kubesched.playground.apimachinery.objects import JsonObject, decode

FORMAT: Final = "2"

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body BLOB NOT NULL,
    checksum INTEGER,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_PUT: Final = (
    "INSERT OR REPLACE INTO objects (resource, namespace, name, revision, body, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_REMOVE: Final = "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?"
_FACT: Final = "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)"
_ROWS: Final = "SELECT resource, namespace, name, revision, body, checksum FROM objects"

_ENVIRONMENT_ERRORS: Final = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)

_READ_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""Errors of reading a damaged file; SQLite's messages may quote bytes that are not UTF-8."""

MIN_FREE_BYTES: Final = 1024 * 1024

Key = tuple[str, str, str]
"""Resource, namespace, name."""


class DamagedDatabase(KubeschedError):
    """The file is damaged."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} cannot be used as a database: {problem}; restore {path.parent} from a"
            " backup, or delete it to start a new cluster"
        )


@dataclass(frozen=True, slots=True)
class State:
    """The last revision, and the number of objects at that revision."""

    revision: int = 1
    count: int = 0


def checksum(key: Key, revision: int, body: bytes) -> int:
    """CRC-32 of all columns of a row. Detects accidental damage, not tampering."""
    return zlib.crc32(body, zlib.crc32("\0".join((*key, str(revision))).encode()))


def open_database(path: Path, *, is_new: bool) -> sqlite3.Connection:
    """Open or create the file; with `is_new=False` it must exist and hold data.

    Raises:
        KubeschedError: the file cannot be used, or is damaged.
    """
    with contextlib.ExitStack() as on_error:
        try:
            database = _connect(path)
            on_error.callback(database.close)
            path.chmod(0o600)
            has_tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
            if not has_tables and not is_new:
                raise DamagedDatabase(path, "it is empty, but the keys of its cluster exist")
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            if has_tables:
                _check_format(database, path)
            else:
                _create_tables(database)
        except _READ_ERRORS as error:
            if _is_from_environment(error):
                raise KubeschedError(f"{path} cannot be used as a database: {error}") from error
            raise DamagedDatabase(path, str(error)) from error
        on_error.pop_all()
    return database


def _connect(path: Path) -> sqlite3.Connection:
    # Only one thread at a time uses the connection: the loader before `start`, then the writer.
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    # Damaged text must fail its checksum, not end the scan.
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    return database


def _is_from_environment(error: Exception) -> bool:
    """Whether the cause is permissions, space or another process, not the file's content."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _ENVIRONMENT_ERRORS


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Whether a write failed for lack of space; fsync reports that as an I/O error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_IOERR:
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES
    return code == sqlite3.SQLITE_FULL


def _create_tables(database: sqlite3.Connection) -> None:
    database.executescript(_SCHEMA)
    database.execute("BEGIN IMMEDIATE")
    database.execute(_FACT, ("format", FORMAT))
    write_state(database, State())
    database.execute("COMMIT")


def _check_format(database: sqlite3.Connection, path: Path) -> None:
    """Check the file's structure and format version."""
    problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise DamagedDatabase(path, problem)
    stated = _fact(database, "format")
    if stated is None:
        raise DamagedDatabase(path, "its format is not recorded")
    if stated != FORMAT:
        raise KubeschedError(f"{path} has format {stated}, this version reads format {FORMAT}")


def load(
    database: sqlite3.Connection, path: Path
) -> tuple[State, Iterator[tuple[str, int, JsonObject]]]:
    """The recorded state, and of all objects resource, revision and content, verified on the way.

    Raises:
        DamagedDatabase: the file is damaged; also raised while iterating over the objects.
    """
    try:
        state = _read_state(database)
    except _READ_ERRORS as error:
        raise DamagedDatabase(path, str(error)) from error
    if state is None:
        raise DamagedDatabase(path, "the last revision cannot be read")
    return state, _objects(database, path, state.count)


def _objects(
    database: sqlite3.Connection, path: Path, expected: int
) -> Iterator[tuple[str, int, JsonObject]]:
    count = 0
    try:
        for resource, namespace, name, revision, body, stated in database.execute(_ROWS):
            count += 1
            key = str(resource), str(namespace), str(name)
            what = f"{resource} {namespace}/{name}" if namespace else f"{resource} {name}"
            # In a damaged row every column may have any type.
            is_typed = isinstance(revision, int) and isinstance(body, bytes)
            if not is_typed or stated != checksum(key, revision, body):
                raise DamagedDatabase(path, f"the checksum of {what} does not match")
            try:
                obj = decode(body)
            except msgspec.DecodeError as error:
                raise DamagedDatabase(path, f"{what} cannot be decoded: {error}") from error
            if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
                raise DamagedDatabase(path, f"{what} cannot be decoded: it has no metadata")
            yield resource, revision, obj
    except _READ_ERRORS as error:
        raise DamagedDatabase(path, str(error)) from error
    if count != expected:
        raise DamagedDatabase(path, f"it holds {count} of {expected} objects")


def put(database: sqlite3.Connection, key: Key, revision: int, body: bytes) -> None:
    database.execute(_PUT, (*key, revision, body, checksum(key, revision, body)))


def remove(database: sqlite3.Connection, key: Key) -> None:
    database.execute(_REMOVE, key)


def write_state(database: sqlite3.Connection, state: State) -> None:
    text = f"{state.revision} {state.count}"
    database.execute(_FACT, ("state", f"{text} {zlib.crc32(text.encode())}"))


def _read_state(database: sqlite3.Connection) -> State | None:
    """The recorded state, or None if it is missing or damaged."""
    text, _, recorded = (_fact(database, "state") or "").rpartition(" ")
    if not text or recorded != str(zlib.crc32(text.encode())):
        return None
    revision, count = text.split()
    return State(int(revision), int(count))


def _fact(database: sqlite3.Connection, name: str) -> str | None:
    row = database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])
