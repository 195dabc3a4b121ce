"""Executors for the cells of a sweep: this process, local processes, or a Dask cluster.

    local           one process per core
    local:N         N processes; 1 is this process
    dask:ADDRESS    a Dask cluster (kubesched[dask])

A cell is `work(shared, cell)`, where `work` is an importable function. The shared data is sent once
per worker. A cell that raises is a failed result; the cells of a dead worker run again elsewhere.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from kubesched.base.errors import KubeschedError
from kubesched.base.version import __version__

Work = Callable[[Any, Any], bytes]
"""(shared data, cell) -> result."""

PATIENCE = 3
"""How often a pool is restarted if its workers die without finishing anything."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished cell: its index, and its result or error."""

    index: int
    result: bytes | None
    error: str = ""


class Executor(ABC):
    """Runs cells; yields results as they finish."""

    @abstractmethod
    def run(self, work: Work, shared: object, cells: Sequence[object]) -> Iterator[Done]: ...


def parse(text: str) -> Executor:
    """Raises ValueError if the text is invalid."""
    kind, _, rest = text.partition(":")
    if kind == "local":
        count = _count(rest, text) if rest else os.cpu_count() or 1
        return InProcess() if count == 1 else LocalProcesses(count)
    if kind == "dask" and rest:
        if not rest.rpartition(":")[0] or not rest.rpartition(":")[2].isdecimal():
            raise ValueError(f"{text!r}: expected the address of a Dask scheduler, HOST:PORT")
        return Dask(rest)
    raise ValueError(f"{text!r} is none of local, local:N, dask:ADDRESS")


def _count(text: str, whole: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise ValueError(f"{whole!r}: expected a number of workers from 1 to 1024")
    return int(text)


class InProcess(Executor):
    """Runs the cells in this process, one after the other."""

    def run(self, work: Work, shared: object, cells: Sequence[object]) -> Iterator[Done]:
        for index, cell in enumerate(cells):
            yield _attempt(work, shared, index, cell)


def _attempt(work: Work, shared: object, index: int, cell: object) -> Done:
    try:
        return Done(index, work(shared, cell))
    except Exception as error:  # a failed cell is a result
        named = "" if isinstance(error, KubeschedError) else f"{type(error).__name__}: "
        return Done(index, None, f"{named}{error}")


# -- local processes -------------------------------------------------------------------------------

_shared: object = None
"""The shared data of the sweep, in a worker process."""


def _set_up(blob: bytes) -> None:
    global _shared
    _shared = pickle.loads(blob)


def _blob(shared: object) -> bytes:
    try:
        return pickle.dumps(shared)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise KubeschedError(f"other processes need names that they can import: {error}") from None


def _in_worker(work: Work, index: int, cell: object) -> Done:
    return _attempt(work, _shared, index, cell)


class LocalProcesses(Executor):
    """A pool of processes; dead ones are replaced."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, work: Work, shared: object, cells: Sequence[object]) -> Iterator[Done]:
        blob = _blob(shared)
        left = dict(enumerate(cells))
        failures = 0
        while left:
            before = len(left)
            try:
                for done in self._round(work, blob, left):
                    del left[done.index]
                    yield done
            except BrokenProcessPool:
                failures = 0 if len(left) < before else failures + 1
                if failures == PATIENCE:
                    yield from (Done(index, None, "its worker process died") for index in left)
                    return

    def _round(self, work: Work, blob: bytes, cells: dict[int, object]) -> Iterator[Done]:
        # Not fork: the caller may have threads. The fork server imports the work once for all.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([work.__module__])
        count = min(self._workers, len(cells))
        with ProcessPoolExecutor(count, context, _set_up, (blob,)) as pool:
            futures: list[Future[Done]] = [
                pool.submit(_in_worker, work, index, cell) for index, cell in cells.items()
            ]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()


# -- Dask ------------------------------------------------------------------------------------------


def _on_dask(work: Work, blob: bytes, version: str, index: int, cell: object) -> Done:
    if version != __version__:
        raise KubeschedError(f"this worker has kubesched {__version__}, the sweep {version}")
    return _attempt(work, pickle.loads(blob), index, cell)


def _distributed() -> Any:  # noqa: ANN401  # a module without types
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise KubeschedError("Dask is not installed here: pip install 'kubesched[dask]'") from None


class Dask(Executor):
    """Workers of a Dask cluster, which reruns the cells of a lost worker."""

    def __init__(self, address: str) -> None:
        self._address = address

    def run(self, work: Work, shared: object, cells: Sequence[object]) -> Iterator[Done]:
        blob = _blob(shared)
        distributed = _distributed()
        try:
            client = distributed.Client(self._address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise KubeschedError(f"dask:{self._address}: {error}") from None
        with client:
            # A copy on every worker, so that losing a worker loses nothing.
            [sent] = client.scatter([blob], broadcast=True, hash=False)
            futures = {
                client.submit(
                    _on_dask, work, sent, __version__, index, cell, pure=False, retries=PATIENCE
                ): index
                for index, cell in enumerate(cells)
            }
            for future in distributed.as_completed(list(futures), loop=client.loop):
                lost = future.exception()
                if lost is None:
                    yield future.result()
                else:
                    yield Done(futures[future], None, f"{type(lost).__name__}: {lost}")
