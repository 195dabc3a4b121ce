"""A sweep: cells with keys, run by an executor, except those whose results are stored already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kubesched.lab.sweeps.executors import Executor, Work
from kubesched.lab.sweeps.store import ResultStore


@dataclass(frozen=True, slots=True)
class Keyed:
    """A cell and the hash of everything its result depends on."""

    key: str
    cell: object


@dataclass(frozen=True, slots=True)
class Result:
    """What a cell came to: its bytes, or what went wrong."""

    data: bytes | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is."""

    done: int
    failed: int
    total: int


def run_sweep(
    work: Work,
    shared: object,
    cells: Sequence[Keyed],
    executor: Executor,
    store: ResultStore,
    progress: Callable[[Progress], None] = lambda _progress: None,
) -> Iterator[Result]:
    """The results in the order of the cells, each as soon as those before it are there.

    Results are stored as they come, so a sweep that is interrupted goes on where it stopped.
    Failures are not stored.

    Raises:
        ExecutorError: the executor cannot work at all.
        StoreError: a result cannot be written.
    """
    results: dict[int, Result] = {}
    for index, cell in enumerate(cells):
        data = store.get(cell.key)
        if data is not None:
            results[index] = Result(data)
    missing = [index for index in range(len(cells)) if index not in results]
    failed, given = 0, 0
    progress(Progress(len(results), failed, len(cells)))
    if missing:
        running = executor.run(work, shared, [cells[index].cell for index in missing])
        for done in running:
            index = missing[done.index]
            results[index] = Result(done.result, done.error)
            if done.result is not None:
                store.put(cells[index].key, done.result)
            failed += done.result is None
            progress(Progress(len(results), failed, len(cells)))
            while given in results:
                yield results[given]
                given += 1
    yield from (results[index] for index in range(given, len(cells)))
