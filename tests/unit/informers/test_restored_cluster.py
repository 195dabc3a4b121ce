"""A cluster restored from a backup: its revisions go back, and watches from the lost future stay silent."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from virtual_tests import virtual

from kubesched.errors import ConnectFailed, Forbidden
from kubesched.informers.factory import BLIND_AFTER_S, InformerFactory
from kubesched.informers.informer import EventHandler, Informer
from kubesched.informers.reflector import ReflectorSettings
from kubesched.informers.restore import MAX_WAIT_S, Restore

SETTINGS = ReflectorSettings()


@contextlib.asynccontextmanager
async def following(collection, story, make_clock):
    informer = Informer(collection, name="pods", clock=make_clock(), random=random.Random(1))
    informer.add_event_handler(story.handler)
    task = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    yield informer
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def lists(collection):
    return sum(what in ("list", "stream") for what, _ in collection.requests)


@virtual
async def test_informer_lists_again_within_seconds_of_the_reconnect(collection, story, make_clock):
    collection.create("kept")
    async with following(collection, story, make_clock) as informer:
        backup = collection.backup()
        collection.update("kept", lost="yes")
        collection.create("lost")
        await asyncio.sleep(1)
        assert set(story.known) == {"kept", "lost"}
        collection.restore(backup)
        collection.create("new")
        await asyncio.sleep(SETTINGS.first_check_s + 2)
        assert set(story.known) == {"kept", "new"}
        assert story.known["kept"].metadata.labels is None
        assert story.tombstones == ["default/kept", "default/lost"]
        collection.create("after")
        await asyncio.sleep(1)
        assert set(story.known) == {"kept", "new", "after"}
        assert informer.reflector.last_error is None


@virtual
async def test_other_kinds_list_at_once_and_pods_are_taken_over_last(
    collection, story, new_story, make_clock
):
    """Else pods of the new history would be placed on nodes of the old one."""
    informers = []
    restore = Restore(lambda: [informer.reflector for informer in informers])
    nodes, node_story, order = type(collection)(), new_story(), []
    for name, source, handler in (("pods", collection, story), ("nodes", nodes, node_story)):
        source.create("old")
        informer = Informer(
            source, name=name, clock=make_clock(), random=random.Random(1), restore=restore
        )
        informer.add_event_handler(handler.handler)
        informer.add_event_handler(EventHandler(on_add=lambda _, name=name: order.append(name)))
        informers.append(informer)
    backups = [collection.backup(), nodes.backup()]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()) for informer in informers]
        await asyncio.sleep(1)
        for source in (collection, nodes):
            source.create("lost")
            source.update("lost", more="yes")
        await asyncio.sleep(1)
        order.clear()
        collection.restore(backups[0])
        nodes.restore(backups[1])
        nodes.faults += [ConnectFailed("refused")] * 2  # it comes back late
        collection.create("new")
        nodes.create("new")
        await asyncio.sleep(SETTINGS.first_check_s + MAX_WAIT_S)
        assert order == ["nodes", "nodes", "pods", "pods"]
        assert set(story.known) == set(node_story.known) == {"old", "new"}

        # A kind that cannot be listed holds the pods up for a while only.
        nodes.faults += [Forbidden("no")] * 1000
        collection.create("lost")
        await asyncio.sleep(1)
        story.seen.clear()
        collection.restore(backups[0])
        await asyncio.sleep(SETTINGS.first_check_s + MAX_WAIT_S + 2)
        assert set(story.known) == {"old"}
        for task in tasks:
            task.cancel()


@virtual
async def test_revision_that_has_another_content_now_is_taken_over(collection, story, make_clock):
    collection.create("a")
    async with following(collection, story, make_clock):
        backup = collection.backup()
        collection.update("a", history="old")
        collection.create("b")
        await asyncio.sleep(1)
        collection.restore(backup)
        story.seen.clear()  # the same revision comes with another content
        collection.update("a", history="new")
        await asyncio.sleep(SETTINGS.first_check_s + 2)
        assert story.known["a"].metadata.labels == {"history": "new"}
        assert set(story.known) == {"a"}


@virtual
async def test_restore_that_leaves_the_watch_open_is_noticed_by_the_periodic_check(
    collection, story, make_clock
):
    collection.create("a")
    async with following(collection, story, make_clock):
        backup = collection.backup()
        await asyncio.sleep(5 * SETTINGS.check_s)
        collection.create("b")
        await asyncio.sleep(1)
        collection.drop = lambda _error: None
        collection.restore(backup)
        await asyncio.sleep(2 * SETTINGS.check_s)
        assert set(story.known) == {"a"}


@virtual
async def test_busy_watch_is_not_checked(collection, story, make_clock):
    collection.create("a")
    async with following(collection, story, make_clock):
        before = lists(collection)
        for number in range(100):
            collection.update("a", number=str(number))
            await asyncio.sleep(SETTINGS.first_check_s / 2)
        assert lists(collection) == before


@virtual
async def test_quiet_watch_stays_open_while_revisions_agree(collection, story, make_clock):
    collection.create("a")
    async with following(collection, story, make_clock) as informer:
        await asyncio.sleep(3600)
        assert [what for what, _ in collection.requests if what != "list"] == ["stream"]
        assert informer.unconfirmed_s() <= SETTINGS.check_s
        assert story.calls == [("add", "a")]


@virtual
async def test_informer_that_cannot_confirm_its_state_is_blind(collection, story, make_clock):
    factory = InformerFactory(None, clock=make_clock(), random=random.Random(1))
    collection.create("a")
    async with following(collection, story, make_clock) as informer:
        factory.started = lambda: [informer]
        assert factory.blind() is None
        collection.faults += [Forbidden("no")] * 3
        await asyncio.sleep(BLIND_AFTER_S - 1)
        assert factory.blind() is None
        await asyncio.sleep(2)
        assert factory.blind() == "not current for 180 s: pods (watch is silent)"
        await asyncio.sleep(SETTINGS.check_s)
        assert factory.blind() is None

        collection.faults += [ConnectFailed("refused")] * 1000
        collection.drop(ConnectFailed("refused"))
        await asyncio.sleep(BLIND_AFTER_S + SETTINGS.check_s)
        assert factory.blind() == "not current for 180 s: pods (refused)"
