"""Which classes and answers are kept: as many as fit, the most recently used."""

from __future__ import annotations

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.classes import pod_classes
from kubesched.scheduler.classes.pod_classes import ClassCache
from kubesched.testing import make_pod

POD = PodInfo(make_pod("p").label("app", "web").build())


def test_a_class_is_found_again():
    cache = ClassCache(NodeTable())
    web = cache.get(POD, b"a web", b"a")
    assert cache.get(POD, b"a web", b"a") is web
    assert cache.get(POD, b"a db", b"a") is not web
    assert web.label_key == ("default", (("app", "web"),))


def test_the_class_used_least_recently_gives_way():
    cache = ClassCache(NodeTable(), limit=2)
    old, first = cache.get(POD, b"old", b"a"), cache.get(POD, b"first", b"a")
    cache.get(POD, b"old", b"a")
    cache.get(POD, b"new", b"a")
    assert cache.get(POD, b"old", b"a") is old
    assert cache.get(POD, b"first", b"a") is not first


def test_the_answers_used_least_recently_give_way_when_memory_is_used_up(monkeypatch):
    table = NodeTable(capacity=8)
    monkeypatch.setattr(pod_classes, "BYTES_LIMIT", 2 * 8 * pod_classes.BYTES_PER_ROW)
    cache = ClassCache(table)
    old, first = cache.answers(b"old"), cache.answers(b"first")
    assert cache.answers(b"old") is old
    new = cache.answers(b"new")
    assert cache.all_answers() == [old, new]
    assert cache.answers(b"first") is not first


def test_classes_of_large_pods_give_way_earlier(monkeypatch):
    monkeypatch.setattr(pod_classes, "SIGNATURES_BYTES_LIMIT", 100)
    cache = ClassCache(NodeTable())
    old, small = cache.get(POD, b"o" * 60, b"a"), cache.get(POD, b"small", b"a")
    cache.get(POD, b"n" * 60, b"a")
    assert cache.get(POD, b"small", b"a") is small
    assert cache.get(POD, b"o" * 60, b"a") is not old


def test_answers_of_large_pods_give_way_earlier(monkeypatch):
    """Answers hold needs and reasons by name, and shapes outlive their classes."""
    monkeypatch.setattr(pod_classes, "SIGNATURES_BYTES_LIMIT", 100)
    cache = ClassCache(NodeTable())
    old, small = cache.answers(b"o" * 60), cache.answers(b"small")
    new = cache.answers(b"n" * 60)
    assert cache.all_answers() == [small, new]
    assert cache.answers(b"o" * 60) is not old
    cache.clear()
    kept = [cache.answers(shape * 50) for shape in (b"a", b"b")]
    assert cache.all_answers() == kept
