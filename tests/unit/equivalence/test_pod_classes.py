"""The cache of classes: bounded by number, and by what the pods of its classes name."""

from kubesched.equivalence import pod_classes
from kubesched.equivalence.pod_classes import ClassCache


def test_many_large_classes_are_not_kept(monkeypatch):
    monkeypatch.setattr(pod_classes, "SHAPES_BYTES_LIMIT", 100)
    cache = ClassCache(limit=50)
    for n in range(10):
        cache.get((bytes([n]) * 40, None))
        cache.get((bytes([n]), None))
    assert [pod_class.shape[0] for pod_class in cache.classes()] == [7, 8, 8, 9, 9]
    cache.clear()
    for n in range(60):
        cache.get((bytes([n]), None))
    assert len(cache.classes()) == 50
