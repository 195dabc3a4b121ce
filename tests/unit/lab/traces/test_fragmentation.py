"""GPU fragmentation and device booking equal their plain twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import write_openb

from kubesched.config.load import default_config
from kubesched.lab.traces.fragmentation import GpuFragmentation, PodClass, fragment, plain
from kubesched.lab.traces.gpu_share import WHOLE, devices_for
from kubesched.lab.traces.player import Cell, play_trace
from kubesched.lab.traces.reading import read_trace

LEFTS = st.lists(st.integers(0, WHOLE), min_size=1, max_size=8)
ASKED = st.one_of(st.integers(1, WHOLE), st.sampled_from([2 * WHOLE, 4 * WHOLE]))


def scalar_fragment(pods, cpu, memory, left, allowed):
    """The published definition for one node, as one would say it."""
    free = sum(left)
    if pods.gpu_milli == 0:
        return free
    share = min(pods.gpu_milli, WHOLE)
    enough = sum(1 for each in left if each >= share) * share >= pods.gpu_milli
    if not allowed or cpu < pods.milli_cpu or memory < pods.memory or not enough:
        return free
    return sum(each for each in left if each < share)


@given(LEFTS, st.one_of(st.just(0), ASKED), st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_fragment_equals_the_definition(left, milli, cpu, memory, allowed):
    pods = PodClass(5, 5, milli, None)
    array = np.array([left])
    found = fragment(
        pods,
        np.array([cpu]),
        np.array([memory]),
        array,
        array.sum(axis=1),
        np.array([allowed]),
    )
    assert found.tolist() == [scalar_fragment(pods, cpu, memory, left, allowed)]


@given(LEFTS, ASKED)
def test_devices_for_takes_the_fullest_that_fits_or_whole_ones(left, milli):
    devices = devices_for(np.array(left), milli)
    if milli < WHOLE:
        fitting = [each for each in left if each >= milli]
        assert (devices is None) == (not fitting)
        if devices is not None:
            assert left[devices[0]] == min(fitting)
            assert devices[0] == left.index(min(fitting)), "of equals the first"
    else:
        whole = [index for index, each in enumerate(left) if each == WHOLE]
        count = milli // WHOLE
        assert devices == (whole[:count] if len(whole) >= count else None)


def test_plain_fragmentation_is_the_share_on_nodes_in_use():
    free = np.array([4, 6, 10])
    assert plain(free, np.array([True, False, False])) == 0.2
    assert plain(np.zeros(2, dtype=np.int64), np.array([True, True])) == 0.0


async def test_no_device_ever_gives_more_than_it_has(tmp_path, monkeypatch):
    """The ledger matches the scheduler's sums, and fragmentation kept by row that computed
    afresh.
    """
    from kubesched.lab.traces import player

    for seed in range(3):
        trace = read_trace(write_openb(tmp_path, seed, nodes=6, pods=80))
        worlds = []
        seen = player.ReplayedCluster.__init__

        def remember(self, *args, seen=seen, worlds=worlds):
            worlds.append(self)
            seen(self, *args)

        monkeypatch.setattr(player.ReplayedCluster, "__init__", remember)

        pods = [event.pod for event in trace.arrivals]
        kept = []

        def check(_pod, worlds=worlds, pods=pods, kept=kept):
            (world,) = worlds
            if not kept:
                kept.append(GpuFragmentation(pods, world.assembly.table, world.ledger))
            fresh = GpuFragmentation(pods, world.assembly.table, world.ledger)
            assert kept[0].rate() == pytest.approx(fresh.rate(), abs=1e-12)
            table, left = world.assembly.table, world.ledger.left
            assert (left >= 0).all()
            index = table.resource_index["alibabacloud.com/gpu-milli"]
            for row in table.row_of.values():
                free = table.allocatable[index].array[row] - table.requested[index].array[row]
                assert left[row].sum() == free

        outcome = play_trace(trace, Cell(name="default", config=default_config()), on_bound=check)
        monkeypatch.undo()
        assert outcome.placed > 40, "some wait for ever in so small a cluster"
