"""Which classes are kept: as many as fit, the most recently used."""

from __future__ import annotations

from kubesched.equivalence import ClassCache
from kubesched.equivalence.pod_classes import Recent


def test_a_class_is_found_again():
    cache = ClassCache()
    assert cache.get((b"a", 1)) is cache.get((b"a", 1))
    assert cache.get((b"a", 1)) is not cache.get((b"a", 2))


def test_the_class_of_a_signature_is_known_until_selectors_change():
    cache = ClassCache()
    recent = Recent([1], cache.get((b"a", 1)), ("default", ()))
    assert cache.recall(b"pod", [1]) is None
    cache.remember(b"pod", recent)
    assert cache.recall(b"pod", [1]) is recent
    assert cache.recall(b"pod", [2]) is None
    assert cache.recall(b"other", [1]) is None


def test_a_class_that_gave_way_is_not_recalled():
    cache = ClassCache(limit=1)
    cache.remember(b"pod", Recent([1], cache.get((b"a", 1)), ("default", ())))
    cache.get((b"b", 1))
    assert cache.recall(b"pod", [1]) is None


def test_the_class_used_least_recently_gives_way():
    cache = ClassCache(limit=2)
    for shape in (b"old", b"a", b"old", b"new"):
        cache.get((shape, None))
    assert [each.shape for each in cache.classes()] == [b"old", b"new"]
