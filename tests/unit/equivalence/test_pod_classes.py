"""Which classes are kept: those seen twice, as many as there is room for, and without thrashing."""

from __future__ import annotations

from kubesched.equivalence import ClassCache
from kubesched.equivalence.pod_classes import BYTES_LIMIT, BYTES_PER_ROW


def test_a_class_is_made_at_second_sight():
    cache = ClassCache()
    assert cache.get(b"a") is None
    made = cache.get(b"a")
    assert made is not None
    assert cache.get(b"a") is made


def test_a_pod_without_a_signature_has_no_class():
    cache = ClassCache()
    assert [cache.get(key) for key in (None, b"", None, b"")] == [None] * 4


def test_a_class_that_is_not_used_gives_way():
    cache = ClassCache(limit=2)
    for key in (b"old", b"old", b"a", b"a"):
        cache.get(key)
    for _ in range(20):
        cache.get(b"a")
    for key in (b"new", b"new"):
        cache.get(key)
    assert [each.key for each in cache.classes()] == [b"a", b"new"]


def test_with_more_classes_in_turn_than_fit_those_that_are_here_stay():
    cache = ClassCache(limit=4)
    keys = [bytes([number]) for number in range(6)]
    for _ in range(3):
        for key in keys:
            cache.get(key)
    kept = cache.classes()
    for _ in range(5):
        served = [cache.get(key) for key in keys]
    assert cache.classes() == kept
    assert sum(each is not None for each in served) == 4


def test_a_large_table_leaves_room_for_fewer_classes():
    rows = BYTES_LIMIT // BYTES_PER_ROW // 3
    cache = ClassCache()
    for number in range(8):
        for _ in range(2):
            cache.get(bytes([number]), rows)
    assert len(cache.classes()) == 3
