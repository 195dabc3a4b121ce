"""Which classes are kept: as many as fit, the most recently used."""

from __future__ import annotations

from kubesched.equivalence import ClassCache


def test_a_class_is_found_again():
    cache = ClassCache()
    assert cache.get(b"a") is cache.get(b"a")
    assert cache.get(b"a") is not cache.get(b"b")


def test_a_pod_without_a_signature_has_no_class():
    cache = ClassCache()
    assert [cache.get(key) for key in (None, b"", None, b"")] == [None] * 4


def test_the_class_used_least_recently_gives_way():
    cache = ClassCache(limit=2)
    for key in (b"old", b"a", b"old", b"new"):
        cache.get(key)
    assert [each.key for each in cache.classes()] == [b"old", b"new"]
