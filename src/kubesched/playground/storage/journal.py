"""Persistence: a SQLite database in WAL mode that follows the store.

The store records every change in revision order; a separate thread commits them, in batches under
load (`synchronous=FULL`, one fsync per commit). The server answers a request only when everything
the answer may reflect is committed (`settled`), so every acknowledged write survives `kill -9`.

While the disk is full, writes are rejected with 507; writes already in flight stay in memory and
are written once there is room. Reads continue; watches show only what is on disk.

Any other disk failure is final: no further write is acknowledged, because memory is ahead of the
disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kubesched.base.errors import KubeschedError, ServerError
from kubesched.base.logs import get_logger
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.storage import database as db
from kubesched.playground.storage.store import Change

log = get_logger(__name__)

DATABASE = "cluster.db"
LOCK = "lock"


RETRY_S = 1.0
"""Seconds between attempts to write to a full disk."""


class _Waiter(NamedTuple):
    revision: int
    future: asyncio.Future[None]
    waits_for_room: bool


class SqliteJournal:
    """Persists a store in a data directory, which only one process can open at a time."""

    def __init__(self, folder: Path, *, is_new: bool = True) -> None:
        """Open the directory; with `is_new=False` it must hold a cluster's data.

        Raises:
            KubeschedError: the directory is in use, or its database is damaged or of another
                format.
        """
        self._folder = folder
        self._lock_file = _lock_folder(folder)
        try:
            self._database = db.open_database(folder / DATABASE, is_new=is_new)
        except BaseException:
            os.close(self._lock_file)
            raise
        self._pending: list[tuple[str, Change]] = []
        self._recorded = 0
        self._object_count = 0
        self._committed = 0
        self._failure: BaseException | None = None
        self.is_full = False
        """Whether the disk was full at the last write."""
        self._is_closing = False
        self._wake_up = threading.Condition()
        self._waiters: list[_Waiter] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=self._write_loop, name="embedded-journal", daemon=True
        )

    # -- reading back ------------------------------------------------------------------------------

    def load(self) -> tuple[int, Iterator[tuple[str, int, JsonObject]]]:
        """The last revision, and of all objects resource, revision and content.

        Call it once, before any change is recorded.

        Raises:
            DamagedDatabase: the file is damaged; also raised while iterating over the objects.
        """
        state, objects = db.load(self._database, self._folder / DATABASE)
        self._object_count = state.count
        return state.revision, objects

    # -- following the store -----------------------------------------------------------------------

    def start(self) -> None:
        """Start writing; call on the event loop that will wait for `settled`."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def record(self, resource: str, change: Change) -> None:
        with self._wake_up:
            self._pending.append((resource, change))
            self._recorded = change.revision
            self._wake_up.notify()

    @property
    def is_settled(self) -> bool:
        return self._committed >= self._recorded and self._failure is None

    def check_writable(self) -> None:
        """Raise `ServerError` (507) while the disk is full."""
        if self.is_full:
            raise self._full_error("writes are refused until there is room")

    async def settled(self) -> None:
        """Wait until all changes are on disk; `ServerError` if it is full or has failed."""
        if self.is_full and self._committed < self._recorded:
            raise self._full_error("earlier writes are not on disk yet")
        await self._wait(waits_for_room=False)

    async def durable(self) -> None:
        """Wait until all changes are on disk, even while full; `ServerError` if it failed."""
        await self._wait(waits_for_room=True)

    async def _wait(self, *, waits_for_room: bool) -> None:
        if self._failure is not None:
            raise ServerError(f"storage has failed: {self._failure}")
        if self._committed >= self._recorded:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(_Waiter(self._recorded, future, waits_for_room))
        await future

    def _full_error(self, consequence: str) -> ServerError:
        message = f"no space left in {self._folder}: {consequence}"
        return ServerError(message, code=507, reason="InsufficientStorage")

    async def close(self) -> None:
        """Write pending changes and release the directory."""
        with self._wake_up:
            self._is_closing = True
            self._wake_up.notify()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)
        self.release()

    def release(self) -> None:
        """Release a directory without writing to it."""
        self._database.close()
        os.close(self._lock_file)

    # -- the writer's thread -----------------------------------------------------------------------

    def _write_loop(self) -> None:
        batch: list[tuple[str, Change]] = []
        while True:
            with self._wake_up:
                while not batch and not self._pending and not self._is_closing:
                    self._wake_up.wait()
                batch += self._pending
                self._pending = []
                is_last = self._is_closing
            if not batch:
                return
            try:
                self._commit(batch)
            except BaseException as error:
                if db.is_disk_full(error, self._folder) and not is_last:
                    self._tell(self._note_full, None)
                    with self._wake_up:
                        self._wake_up.wait(RETRY_S)
                    continue
                database = str(self._folder / DATABASE)
                log.exception("Cannot write; changes are lost", file=database, changes=len(batch))
                self._tell(self._fail, error)
                return
            self._tell(self._advance, batch[-1][1].revision)
            batch = []

    def _commit(self, batch: list[tuple[str, Change]]) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            count = self._object_count
            for resource, change in batch:
                metadata = change.entry.obj["metadata"]
                key = (resource, metadata.get("namespace", ""), metadata["name"])
                if change.type == "DELETED":
                    db.remove(database, key)
                    count -= 1
                else:
                    db.put(database, key, change.revision, change.entry.body)
                    count += change.old is None
            db.write_state(database, db.State(batch[-1][1].revision, count))
            database.execute("COMMIT")
            self._object_count = count
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise

    def _tell(self, method: Callable[[Any], None], argument: object) -> None:
        """Call a method on the event loop, unless the loop is closed."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(method, argument)

    # -- back on the event loop --------------------------------------------------------------------

    def _advance(self, revision: int) -> None:
        self._committed = revision
        if self.is_full:
            self.is_full = False
            folder = str(self._folder)
            log.warning("There is room again: writes are accepted", folder=folder)
        waiting = []
        for waiter in self._waiters:
            if waiter.revision > revision:
                waiting.append(waiter)
            elif not waiter.future.done():
                waiter.future.set_result(None)
        self._waiters = waiting

    def _note_full(self, _: None) -> None:
        if self.is_full:
            return
        self.is_full = True
        log.error(
            "No space left: writes are refused until there is room, reads go on",
            folder=str(self._folder),
        )
        consequence = "the change is kept in memory and written when there is room"
        self._dismiss(
            [waiter for waiter in self._waiters if not waiter.waits_for_room],
            self._full_error(consequence),
        )

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._dismiss(self._waiters, ServerError(f"storage has failed: {error}"))

    def _dismiss(self, waiters: list[_Waiter], error: ServerError) -> None:
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]


def _lock_folder(folder: Path) -> int:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise KubeschedError(f"data directory {folder} is in use by another process") from error
    return descriptor
