"""Sweeps: order, storage, failures, workers that die; with processes and with a real Dask
cluster.
"""

import os
import signal
from pathlib import Path

import pytest
from dask_cluster import dask_cluster
from sweep_work import killing_always, killing_once, slow, squared

from kubesched.base.errors import KubeschedError
from kubesched.lab.sweeps.executors import Dask, InProcess, LocalProcesses, parse
from kubesched.lab.sweeps.store import ResultStore, key_of_cell
from kubesched.lab.sweeps.sweep import Keyed, run_sweep

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def keyed(cells):
    return [Keyed(key_of_cell(cell=cell), cell) for cell in cells]


def data_of(results):
    return [result.data for result in results]


@pytest.mark.parametrize("executor", [InProcess(), LocalProcesses(2)], ids=["here", "processes"])
def test_results_come_in_the_order_of_the_cells_and_failures_do_not_stop_others(executor):
    cells = [1, "bad", 2, "broken", 3]
    results = list(run_sweep(squared, "x", keyed(cells), executor, ResultStore(None)))
    assert data_of(results) == [b"x:1", None, b"x:4", None, b"x:9"]
    assert [result.error for result in results if result.error] == [
        "cell is bad",
        "ValueError: defect",
    ]


def test_what_is_stored_is_not_run_again(tmp_path):
    store = ResultStore(str(tmp_path))
    seen = []

    def work(shared, cell):
        seen.append(cell)
        if cell == 2 and len(seen) == 2:
            raise KubeschedError("not now")
        return str(cell).encode()

    first = list(run_sweep(work, None, keyed([1, 2, 3]), InProcess(), store))
    assert data_of(first) == [b"1", None, b"3"]
    progress = []
    again = list(run_sweep(work, None, keyed([1, 2, 3]), InProcess(), store, progress.append))
    assert data_of(again) == [b"1", b"2", b"3"]
    assert seen == [1, 2, 3, 2]
    assert [(each.done, each.total) for each in progress] == [(2, 3), (3, 3)]


def test_keys_tell_inputs_apart():
    keys = {key_of_cell(a=1), key_of_cell(a=2), key_of_cell(b=1), key_of_cell(a=1, b=1)}
    assert len(keys) == 4
    assert key_of_cell(a=1, b=2) == key_of_cell(b=2, a=1)


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(KubeschedError, match="file"):
        ResultStore(str(tmp_path / "file"))


def test_a_process_that_dies_has_its_cells_run_again(tmp_path):
    cells = keyed(range(6))
    results = list(
        run_sweep(killing_once, str(tmp_path), cells, LocalProcesses(2), ResultStore(None))
    )
    assert data_of(results) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (tmp_path / "killed").exists()


def test_cells_that_always_kill_their_process_fail(tmp_path):
    cells = keyed(range(2))
    results = list(run_sweep(killing_always, None, cells, LocalProcesses(2), ResultStore(None)))
    assert {result.error for result in results} == {"its worker process died"}


@pytest.mark.parametrize(
    "text", ["", "locally", "local:0", "local:x", "dask", "dask-local:2", "ssh:a", "dask:host"]
)
def test_executors_that_do_not_exist(text):
    with pytest.raises(ValueError, match=r"expected|none of"):
        parse(text)


def test_executors_by_name():
    assert isinstance(parse("local:1"), InProcess)
    assert isinstance(parse("local:2"), LocalProcesses)
    assert isinstance(parse("dask:tcp://127.0.0.1:1"), Dask)


@pytest.fixture
def dask(monkeypatch):
    """A cluster of two worker processes, which find the work of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "shared"))
    with dask_cluster() as executor:
        yield executor


@pytest.mark.slow
def test_a_dask_worker_killed_in_the_middle_changes_nothing(tmp_path, dask):
    """Two worker processes, of which one is killed after some cells are done."""
    cells = keyed(range(60))
    done, killed = [], []

    def kill_one_worker(progress):
        done.append(progress.done)
        if progress.done == 10:
            killed.append(min(int(each.name) for each in tmp_path.iterdir()))
            os.kill(killed[0], signal.SIGKILL)

    results = list(run_sweep(slow, str(tmp_path), cells, dask, ResultStore(None), kill_one_worker))
    expected = list(run_sweep(slow, str(tmp_path), cells, InProcess(), ResultStore(None)))
    assert data_of(results) == data_of(expected)
    with pytest.raises(ProcessLookupError):
        os.kill(killed[0], 0)
    assert done[-1] == 60


def test_failures_on_dask_are_reported(dask):
    results = list(run_sweep(squared, "x", keyed([1, "bad"]), dask, ResultStore(None)))
    assert data_of(results) == [b"x:1", None]
    assert results[1].error == "cell is bad"
