"""A sweep: keyed cells, run by an executor unless their results are already stored."""

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
    """The bytes of a cell's result, or its error."""

    data: bytes | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a sweep."""

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
    """Yield results in cell order, each as soon as all earlier ones are done.

    Results are stored as they arrive, so an interrupted sweep can resume. Failures are not stored.

    Raises:
        KubeschedError: the executor cannot work at all, or a result cannot be written.
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
