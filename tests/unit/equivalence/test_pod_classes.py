"""Which classes are kept: as many as fit, the most recently used."""

from __future__ import annotations

from kubesched.equivalence import ClassCache


def test_a_class_is_found_again():
    cache = ClassCache()
    assert cache.get((b"a", 1)) is cache.get((b"a", 1))
    assert cache.get((b"a", 1)) is not cache.get((b"a", 2))


def test_the_class_used_least_recently_gives_way():
    cache = ClassCache(limit=2)
    for shape in (b"old", b"a", b"old", b"new"):
        cache.get((shape, None))
    assert [each.shape for each in cache.classes()] == [b"old", b"new"]
