"""Pods kept as numbers are read again when, and only when, their row changed."""

from __future__ import annotations

from msgspec import structs

from kubesched.preemption.importance import NOT_STARTED
from kubesched.preemption.row_pods import PRIORITY, STARTED, RowPodsCache


def started(entry):
    return entry.numbers[:, STARTED].tolist()


def test_a_row_is_read_once(world) -> None:
    world.node("n")
    world.on("n", "a", priority=3)
    cache = RowPodsCache(world.table)
    (first,) = cache.of([0])
    assert first.numbers[:, PRIORITY].tolist() == [3]
    assert cache.of([0])[0] is first


def test_a_pod_that_comes_or_goes_is_noticed(world) -> None:
    world.node("n")
    pod = world.on("n", "a")
    cache = RowPodsCache(world.table)
    cache.of([0])
    world.on("n", "b")
    assert [p.name for p in cache.of([0])[0].pods] == ["a", "b"]
    world.cache.remove_pod(pod)
    assert [p.name for p in cache.of([0])[0].pods] == ["b"]


def test_a_pod_that_starts_is_noticed(world) -> None:
    """Nothing that counts changes, so the row is not dirty for anybody else."""
    world.node("n")
    pod = world.on("n", "a")
    cache = RowPodsCache(world.table)
    assert started(cache.of([0])[0]) == [NOT_STARTED]
    position = world.table.pod_log.end
    world.change(pod, status=structs.replace(pod.status, start_time="2026-01-01T00:00:01Z"))
    assert world.table.pod_log.end == position
    assert started(cache.of([0])[0]) == [1_767_225_601_000_000]


def test_a_cache_that_was_not_used_for_long_is_read_anew(world) -> None:
    world.node("n")
    world.on("n", "a")
    cache = RowPodsCache(world.table)
    (first,) = cache.of([0])
    world.node("m")
    for number in range(world.table.pod_log.bound + 10):
        world.cache.remove_pod(world.on("m", f"p{number}"))
    assert cache.of([0])[0] is not first


def test_an_empty_row_has_no_numbers(world) -> None:
    world.node("n")
    (entry,) = RowPodsCache(world.table).of([0])
    assert entry.numbers.shape[0] == 0
    assert list(entry.pods) == []
