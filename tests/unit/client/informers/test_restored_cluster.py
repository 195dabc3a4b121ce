"""A cluster restored from a backup: its revisions go back, and watches from the lost future stay
silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import msgspec
import pytest
from virtual_tests import virtual

from kubesched.api.meta import OwnerReference
from kubesched.base.errors import ConnectFailed, Forbidden, NotFound, StreamEnded
from kubesched.client.informers.factory import BLIND_AFTER_S, InformerFactory
from kubesched.client.informers.history import ClusterRestored, Witness
from kubesched.client.informers.informer import EventHandler, Informer
from kubesched.client.informers.reflector import ReflectorSettings
from kubesched.client.informers.restore import MAX_WAIT_S, Restore
from kubesched.client.informers.sharing import Sharing

SETTINGS = ReflectorSettings()
RECONNECT_S = SETTINGS.first_check_s / 2


@contextlib.asynccontextmanager
async def following(collection, story, make_clock, *others):
    restore = Restore(lambda: [informer.reflector, *others])
    informer = Informer(
        collection, name="pods", clock=make_clock(), random=random.Random(1), restore=restore
    )
    informer.add_event_handler(story.handler)
    task = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    yield informer
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class OtherKind:
    """The reflector of another kind, whose newest change the server has, or not."""

    name = "nodes"

    def __init__(self, outcome=True):
        self.newest = 0
        self.is_distrusted = False
        self.outcome = outcome

    def distrust(self):
        self.is_distrusted = True

    def has_seen(self, revision, at):
        return self.newest >= revision

    async def is_current(self):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def lists(collection):
    return sum(what in ("list", "stream") for what, _ in collection.requests)


@pytest.fixture
def shared(collection):
    """Revisions count the writes of all kinds, as etcd's do."""
    collection.is_shared = True
    collection.create("kept")
    collection.create("other")
    return collection


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
async def test_pods_are_listed_when_all_others_are_however_often_the_cluster_is_restored(
    collection, story, new_story, make_clock
):
    """Pods wait for a kind that is late; nodes are done, and notice that the cluster is restored
    again.
    """
    kinds = {name: type(collection)(is_shared=True) for name in ("pods", "nodes", "services")}
    stories = {"pods": story, "nodes": new_story(), "services": new_story()}
    pods, nodes, services = kinds.values()
    informers = []
    restore = Restore(lambda: [informer.reflector for informer in informers])
    for name, source in kinds.items():
        source.create("kept")
        source.create("other")
        informer = Informer(
            source, name=name, clock=make_clock(), random=random.Random(1), restore=restore
        )
        informer.add_event_handler(stories[name].handler)
        informers.append(informer)

    def go_back(backups):
        for name, source in kinds.items():
            stories[name].seen.clear()
            source.restore(backups[name])
            source.revision += 1000  # the new history is ahead

    def all_backups():
        return {name: source.backup() for name, source in kinds.items()}

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()) for informer in informers]
        await asyncio.sleep(1)
        backups = all_backups()
        for source in kinds.values():
            source.create("lost")
        await asyncio.sleep(1)
        go_back(backups)
        services.faults += [ConnectFailed("refused")] * 1000
        backups = all_backups()
        pods.delete("kept")  # a list shows this by what it lacks only
        before = lists(pods)
        await asyncio.sleep(RECONNECT_S)
        assert set(stories["nodes"].known) == {"kept", "other"}
        assert lists(pods) == before
        assert restore.is_under_way
        assert "lost" in story.known
        nodes.update("kept", lost="yes")
        await asyncio.sleep(1)
        go_back(backups)
        nodes.update("other")
        await asyncio.sleep(RECONNECT_S)
        assert "lost" in story.known  # still
        assert lists(pods) == before
        services.faults.clear()
        await asyncio.sleep(SETTINGS.backoff_max_s + MAX_WAIT_S)
        for name, source in kinds.items():
            assert stories[name].known == source.pods
        assert story.calls.count(("add", "other")) == 2
        assert not restore.is_under_way
        assert not any(informer.handler_error_count for informer in informers)
        for task in tasks:
            task.cancel()


@virtual
async def test_list_from_before_a_restore_that_another_kind_notices_is_not_taken_over(
    shared, story, make_clock
):
    informers, seen = [], []

    def notice(pod):
        seen.append(pod)
        if len(seen) == 1:
            restore.begin("services")
        return pod

    restore = Restore(lambda: [informer.reflector for informer in informers])
    informer = Informer(
        shared,
        name="nodes",
        clock=make_clock(),
        random=random.Random(1),
        restore=restore,
        transform=notice,
    )
    informers.append(informer)
    informer.add_event_handler(story.handler)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(RECONNECT_S)
    assert lists(shared) == 2
    assert story.calls == [("add", "kept"), ("add", "other")]
    task.cancel()


@virtual
async def test_restore_noticed_while_a_list_is_taken_over_is_not_forgotten(
    shared, story, make_clock
):
    informers = []
    restore = Restore(lambda: [informer.reflector for informer in informers])
    informer = Informer(
        shared, name="nodes", clock=make_clock(), random=random.Random(1), restore=restore
    )
    informers.append(informer)
    backup = shared.backup()
    shared.delete("kept")

    def go_back(_pod):
        if len(story.calls) == 1:  # the first of the first list
            shared.restore(backup)
            shared.revision += 1000
            shared.update("kept")  # so that the next list looks like a continuation
            story.seen.clear()
            restore.begin("pods")

    informer.add_event_handler(story.handler)
    informer.add_event_handler(EventHandler(on_add=go_back))
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(RECONNECT_S)
    assert story.known == shared.pods
    assert story.tombstones == ["default/other"]
    assert not informer.handler_error_count
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


def overtake(collection, backup, past=100):
    """The cluster is restored, and its new history goes on until it is past what the informer
    knows.
    """
    reached = collection.revision
    collection.restore(backup)
    while collection.revision <= reached + past:
        collection.update("other")


@virtual
async def test_new_history_that_is_already_ahead_is_noticed_at_the_reconnect(
    shared, story, make_clock
):
    async with following(shared, story, make_clock):
        backup = shared.backup()
        shared.update("kept", lost="yes")
        shared.create("lost")
        await asyncio.sleep(1)
        overtake(shared, backup)
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods
        assert story.known["kept"].metadata.labels is None
        # Not one event of the new history was applied to an object of the old one.
        assert story.tombstones == ["default/kept", "default/other", "default/lost"]


@virtual
@pytest.mark.parametrize("newest", ["lost", ""], ids=["newest pod", "another kind"])
async def test_restore_between_a_list_in_pages_and_its_watch_is_noticed(
    shared, story, make_clock, newest
):
    """The list is of the old history, and the watch would begin in the new one."""
    shared.supports_streaming = False
    backup = shared.backup()
    shared.create("lost")
    if not newest:
        shared.revision += 8  # a change of another kind
    list_page, is_due = shared.list_page, True

    async def answered_late(**asked):
        nonlocal is_due
        page = await list_page(**asked)
        if is_due:
            is_due = False
            if newest:
                overtake(shared, backup)
            else:
                shared.restore(backup)
        return page

    shared.list_page = answered_late
    async with following(shared, story, make_clock):
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods
        assert "lost" not in story.known


@virtual
async def test_deletion_that_was_undone_is_noticed(shared, story, make_clock):
    async with following(shared, story, make_clock):
        backup = shared.backup()
        shared.delete("kept")
        await asyncio.sleep(1)
        overtake(shared, backup)
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods


@virtual
async def test_server_that_forgot_the_newest_change_is_asked_for_the_object(
    shared, story, make_clock
):
    async with following(shared, story, make_clock):
        backup = shared.backup()
        shared.update("kept", lost="yes")
        await asyncio.sleep(1)
        overtake(shared, backup)
        shared.compacted = int(story.known["kept"].metadata.resource_version)
        await asyncio.sleep(RECONNECT_S)
        assert ("read", "kept") in shared.requests
        assert story.known == shared.pods


@virtual
async def test_list_after_an_expired_watch_shows_the_restore(shared, story, make_clock):
    async with following(shared, story, make_clock):
        backup = shared.backup()
        shared.update("kept", lost="yes")
        shared.create("lost")
        await asyncio.sleep(1)
        overtake(shared, backup)
        shared.compact()
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods
        assert story.tombstones == ["default/kept", "default/other", "default/lost"]


@virtual
async def test_object_that_an_empty_list_lacked_shows_the_restore(collection, story, make_clock):
    collection.is_shared = True
    collection.create("a")
    backup = collection.backup()
    collection.delete("a")
    async with following(collection, story, make_clock):
        reached = collection.revision
        collection.restore(backup)
        collection.revision = reached + 100
        await asyncio.sleep(RECONNECT_S)
        assert story.known == collection.pods


@virtual
async def test_pod_that_lost_its_node_shows_the_restore(shared, story, make_clock):
    """Nothing else does: every object that differs was changed again since."""
    async with following(shared, story, make_clock):
        backup = shared.backup()
        shared.place("other", "n1")
        await asyncio.sleep(1)
        assert story.known["other"].spec.node_name == "n1"
        overtake(shared, backup)
        shared.compact()
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods
        assert story.tombstones == ["default/kept", "default/other"]


@virtual
@pytest.mark.parametrize(
    ("has_changed", "requests"),
    [
        pytest.param(True, ["watch", "watch"], id="it has forgotten the newest change"),
        pytest.param(False, ["watch"], id="nothing has changed since the list"),
    ],
)
async def test_server_that_was_merely_restarted_is_not_listed_again(
    shared, story, make_clock, has_changed, requests
):
    """It has the newest change of another kind, which is not older than the last bookmark of this
    one.
    """
    nodes = OtherKind()
    shared.revision += 10
    async with following(shared, story, make_clock, nodes):
        if has_changed:
            shared.update("other")
        shared.revision += 100
        shared.send_bookmarks()
        nodes.newest = shared.revision
        await asyncio.sleep(1)
        before = len(shared.requests)
        shared.compact()
        shared.drop(StreamEnded("server restarted"))
        await asyncio.sleep(RECONNECT_S)
        reached = str(shared.revision)
        assert [what for what, _ in shared.requests[before:]] == requests
        assert shared.requests[-1] == ("watch", reached)
        shared.create("new")
        await asyncio.sleep(1)
        assert story.known == shared.pods
        assert not story.tombstones


@virtual
async def test_deletion_that_no_list_showed_and_that_was_undone_is_noticed(
    shared, story, make_clock
):
    """The newest object of the list is in both histories, and no event tells of the other one."""
    shared.update("other")
    backup = shared.backup()
    shared.delete("kept")
    async with following(shared, story, make_clock):
        assert set(story.known) == {"other"}
        reached = shared.revision
        shared.restore(backup)
        shared.revision = reached + 100
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods


@virtual
@pytest.mark.parametrize(
    ("ahead", "outcome"),
    [
        pytest.param(-1, True, id="no kind knows a change as new as the revision reached"),
        pytest.param(0, False, id="the object of the newest change has changed since"),
        pytest.param(5, ClusterRestored("it has another one"), id="another kind notices"),
    ],
)
async def test_history_that_nothing_confirms_is_listed_again(
    shared, story, make_clock, ahead, outcome
):
    """A restored cluster has the newest change of this kind, too, and another one where we know of
    none.
    """
    nodes = OtherKind(outcome)
    backup = shared.backup()
    shared.revision += 100
    async with following(shared, story, make_clock, nodes):
        nodes.newest = shared.revision + ahead
        reached = shared.revision
        shared.restore(backup)
        shared.create("unseen")
        shared.compacted = shared.revision  # it has forgotten the newest change that we know
        assert shared.revision < reached
        shared.revision = reached
        await asyncio.sleep(2 * RECONNECT_S + MAX_WAIT_S)
        assert story.known == shared.pods


@virtual
async def test_restore_between_the_look_and_the_watch_ends_the_watch(shared, story, make_clock):
    """So the watch is opened first."""
    backup, look = shared.backup(), shared.read

    async def look_before_the_restore(namespace, name):
        page = await look(namespace, name)
        reached, shared.read = shared.revision, look
        shared.restore(backup)
        shared.revision = reached
        shared.create("new")
        story.seen.clear()
        return page

    shared.create("lost")
    async with following(shared, story, make_clock):
        shared.compact()  # it has forgotten the newest change, which is looked at instead
        shared.read = look_before_the_restore
        shared.drop(StreamEnded("reset"))
        await asyncio.sleep(2 * RECONNECT_S)
        assert story.known == shared.pods
        assert set(story.known) == {"kept", "other", "new"}


@virtual
async def test_list_behind_the_last_event_shows_the_restore(shared, story, make_clock):
    """Though the objects are the same."""
    nodes, backup = OtherKind(), shared.backup()
    async with following(shared, story, make_clock, nodes):
        shared.create("brief")
        shared.delete("brief")
        await asyncio.sleep(1)
        shared.restore(backup)
        shared.faults.append(NotFound("the watch"))  # so that it lists
        story.seen.clear()
        await asyncio.sleep(2 * RECONNECT_S)
        assert nodes.is_distrusted
        assert story.known == shared.pods


@virtual
async def test_what_came_after_a_reconnect_confirms_nothing_from_before(shared, story, make_clock):
    async with following(shared, story, make_clock) as informer:
        reflector = informer.reflector
        shared.update("kept")
        await asyncio.sleep(1)
        known, before = int(reflector.resource_version), reflector._heard_at
        assert reflector.has_seen(known, before)
        assert not reflector.has_seen(known + 1, before), "it knows nothing of that revision"
        assert not reflector.has_seen(known, before + 1), "it has heard nothing since"
        shared.drop(StreamEnded("server restarted"))
        await asyncio.sleep(RECONNECT_S)
        assert reflector.has_seen(known, before)
        shared.update("kept")
        await asyncio.sleep(1)
        assert not reflector.has_seen(known, before), "its newest change may be of another history"
        assert reflector.has_seen(known, reflector._heard_at)


@virtual
async def test_change_before_the_revision_reached_shows_the_restore(shared, story, make_clock):
    """The newest change is repeated, and then comes one that we should know."""
    backup = shared.backup()
    shared.revision += 100
    async with following(shared, story, make_clock):
        shared.restore(backup)
        shared.create("unseen")
        shared.revision += 200
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods
        assert story.tombstones == ["default/kept", "default/other"]


@virtual
async def test_change_between_the_newest_one_and_a_bookmark_shows_the_restore(
    shared, story, make_clock
):
    """After the bookmark such a change would have been known."""
    async with following(shared, story, make_clock):
        shared.update("kept")
        await asyncio.sleep(1)
        backup = shared.backup()
        shared.revision += 100
        shared.send_bookmarks()
        await asyncio.sleep(1)
        shared.restore(backup)
        shared.create("unseen")
        shared.revision += 200
        await asyncio.sleep(RECONNECT_S)
        assert story.known == shared.pods


def test_object_shown_at_the_revision_reached_is_of_another_history(collection):
    """That change we would know."""
    known, shown = collection.create("a"), collection.update("a", other="yes")
    witness = Witness(11, known, is_deletion=False, are_equal=lambda one, other: one == other)
    assert not witness.agrees_with([shown], reached=11)
    with pytest.raises(ClusterRestored, match="at revision 11, and the server shows revision 12"):
        witness.agrees_with([shown], reached=12)


@virtual
async def test_object_that_was_gone_before_the_list_is_no_restore(shared, story, make_clock):
    shared.create("brief")
    shared.delete("brief")
    async with following(shared, story, make_clock):
        shared.drop(StreamEnded("server restarted"))
        await asyncio.sleep(RECONNECT_S)
        assert lists(shared) == 2, "that is what tells"
        assert story.known == shared.pods
        assert not story.tombstones


@virtual
async def test_pods_that_share_their_parts_are_compared_without_a_change(shared, story, make_clock):
    informer = Informer(
        shared,
        name="pods",
        clock=make_clock(),
        random=random.Random(1),
        transform=Sharing().share,
    )
    informer.add_event_handler(story.handler)
    owner = [OwnerReference(uid="owner")]
    for name in ("kept", "other"):
        shared.place(name, f"node-of-{name}")
        pod = shared.pods[name]
        metadata = msgspec.structs.replace(pod.metadata, owner_references=owner)
        shared.pods[name] = msgspec.structs.replace(pod, metadata=metadata)
        shared.history[-1] = (*shared.history[-1][:2], shared.pods[name])
    task = asyncio.create_task(informer.run())
    for _ in range(3):
        await asyncio.sleep(SETTINGS.check_s * 2)  # compared while quiet
        shared.drop(StreamEnded("server restarted"))
        await asyncio.sleep(RECONNECT_S)  # and repeated
        assert {pod.spec.node_name for pod in informer.store} == {"node-of-kept", "node-of-other"}
        assert not story.tombstones
    task.cancel()


@virtual
async def test_restore_behind_an_open_watch_is_noticed_after_it_was_overtaken(
    shared, story, make_clock
):
    async with following(shared, story, make_clock):
        backup = shared.backup()
        shared.update("kept", lost="yes")
        await asyncio.sleep(1)
        shared.drop = lambda _error: None
        shared.restore(backup)
        shared.revision += 1000  # other kinds
        await asyncio.sleep(2 * SETTINGS.check_s)
        assert story.known == shared.pods


@virtual
async def test_watch_that_stays_behind_is_opened_again(shared, story, make_clock):
    async with following(shared, story, make_clock):
        for stream in shared.streams:
            stream.send = lambda _data: None
        shared.update("other", news="yes")
        await asyncio.sleep(2 * SETTINGS.first_check_s + 2)
        assert story.known == shared.pods
        assert lists(shared) == 1


@virtual
async def test_watch_without_a_sign_of_life_is_opened_again(shared, story, make_clock):
    """A proxy that lost the server swallows what is new; no object that is known has changed."""
    async with following(shared, story, make_clock):
        for stream in shared.streams:
            stream.send = lambda _data: None
        shared.create("new")
        await asyncio.sleep(SETTINGS.silence_s + SETTINGS.check_s + 2)
        assert story.known == shared.pods
        assert lists(shared) == 1


@virtual
async def test_busy_watch_is_not_checked(collection, story, make_clock):
    collection.create("a")
    async with following(collection, story, make_clock) as informer:
        before = list(collection.requests)
        for number in range(100):
            collection.update("a", number=str(number))
            await asyncio.sleep(SETTINGS.first_check_s / 2)
        assert collection.requests == before
        assert informer.unconfirmed_s() <= SETTINGS.first_check_s, "every event confirms it"


@virtual
async def test_quiet_watch_stays_open_while_revisions_agree(collection, story, make_clock):
    collection.create("a")
    async with following(collection, story, make_clock) as informer:
        for _ in range(60):
            await asyncio.sleep(60)
            collection.send_bookmarks()
        assert [what for what, _ in collection.requests if what != "read"] == ["stream"]
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
