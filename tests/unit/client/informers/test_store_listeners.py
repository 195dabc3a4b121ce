"""Listeners of a store hear of every change, in order, until they stop listening."""

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta
from kubesched.client.informers.lister import Lister
from kubesched.client.informers.store import Store


def pod(name, version):
    return Pod(metadata=ObjectMeta(namespace="default", name=name, resource_version=version))


def test_every_change_is_told_with_what_was_there_before():
    store, heard = Store(), []
    Lister(store).subscribe(lambda old, new: heard.append((old, new)))
    first, second = pod("a", "1"), pod("a", "2")
    store.put("default/a", first)
    store.put("default/a", second)
    store.remove("default/a")
    store.remove("default/a")
    assert heard == [(None, first), (first, second), (second, None)]


def test_a_listener_that_stopped_hears_nothing_more_and_the_others_do():
    store, heard, still = Store(), [], []
    stop = store.subscribe(lambda old, new: heard.append(new))
    store.subscribe(lambda old, new: still.append(new))
    store.put("default/a", pod("a", "1"))
    stop()
    store.put("default/b", pod("b", "2"))
    assert len(heard) == 1
    assert len(still) == 2


def test_a_listener_may_stop_while_it_is_being_told():
    store, heard = Store(), []
    stops = []

    def once(old, new):
        heard.append(new)
        stops.pop()()

    stops.append(store.subscribe(once))
    store.subscribe(lambda old, new: heard.append(new))
    store.put("default/a", pod("a", "1"))
    assert len(heard) == 2


def test_the_store_is_current_when_listeners_are_told():
    store, seen = Store(), []
    store.subscribe(lambda old, new: seen.append((store.get("default/a"), store.version)))
    store.put("default/a", pod("a", "1"))
    store.remove("default/a")
    assert seen == [(pod("a", "1"), 1), (None, 2)]
