"""Reflector and informer together: lists, watches, reconnects, tombstones, handlers, pauses.

Random histories are in `test_informer_histories`; here each claim has its own small scene.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from contextlib import asynccontextmanager

import msgspec
import pytest

from kubesched.api.codec import ListOf
from kubesched.api.meta import ListMeta
from kubesched.base.clock import ManualClock
from kubesched.base.errors import (
    ConnectFailed,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    StreamEnded,
    TooManyRequests,
    Unrecoverable,
)
from kubesched.client.informers.informer import EventHandler, Informer
from kubesched.client.informers.reflector import ReflectorSettings
from kubesched.client.informers.slices import SLICE_STEPS
from kubesched.testing import make_pod

PATIENCE_S = 60.0


class Pauses:
    """Records pauses instead of making them; the clock moves on."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.made: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.made.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)


class Scene:
    def __init__(self, collection, story, *, is_optional=False, hint="", **settings) -> None:
        self.clock = ManualClock()
        self.pauses = Pauses(self.clock)
        self.collection = collection
        self.informer: Informer = Informer(
            collection,
            name="pods",
            clock=self.clock,
            random=random.Random(1),
            sleep=self.pauses,
            settings=ReflectorSettings(**settings),
            is_optional=is_optional,
            hint=hint,
        )
        self.informer.add_event_handler(story.handler)

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.informer.run())
        try:
            await self.until(lambda: self.informer.has_synced)
            yield self
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def until(self, condition) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    if condition():
                        return
                    await asyncio.sleep(0)
        except TimeoutError:
            raise AssertionError("condition never became true") from None

    async def until_equal(self) -> None:
        """The informer has caught up with the server, over a live watch."""

        def is_equal() -> bool:
            names = {pod.metadata.name: pod for pod in self.informer.store}
            return names == self.collection.pods and len(self.collection.streams) == 1

        await self.until(is_equal)


async def test_streamed_list_then_watch_over_the_same_connection(collection, story):
    collection.create("a")
    collection.create("b")
    async with Scene(collection, story).running() as scene:
        collection.create("c")
        collection.update("a", app="web")
        collection.delete("b")
        await scene.until_equal()
    assert collection.requests == [("stream", "")]
    assert story.calls == [
        ("add", "a"),
        ("add", "b"),
        ("add", "c"),
        ("update", "a"),
        ("delete", "b"),
    ]


async def test_events_arriving_with_the_end_of_the_streamed_list_are_not_lost(collection, story):
    collection.create("a")
    scene = Scene(collection, story)
    start = collection._start_stream

    def start_and_change():
        stream = start()
        collection.create("b")
        return stream

    collection._start_stream = start_and_change
    async with scene.running():
        await scene.until_equal()
    assert story.calls == [("add", "a"), ("add", "b")]


async def test_server_without_streamed_lists_is_listed_in_pages(new_collection, story):
    collection = new_collection(supports_streaming=False)
    for number in range(7):
        collection.create(f"pod-{number}")
    async with Scene(collection, story, page_size=3).running() as scene:
        collection.create("late")
        await scene.until_equal()
        collection.drop()
        await scene.until_equal()
    assert collection.requests == [
        ("stream", ""),
        ("list", ""),
        ("list", "17:3"),
        ("list", "17:6"),
        ("watch", "16"),  # from before the newest change, which the server repeats
        ("watch", "17"),
    ]
    assert len(story.calls) == 8
    assert scene.pauses.made == []  # the watch brought news before the server ended it


async def test_silent_streamed_list_is_given_up_for_pages(collection, story):
    collection.create("a")
    start = collection._start_stream

    def start_without_end():
        stream = start()
        stream._chunks.pop()
        return stream

    collection._start_stream = start_without_end
    async with Scene(collection, story, initial_silence_s=0.02).running():
        pass
    assert collection.requests[:2] == [("stream", ""), ("list", "")]


async def test_streamed_list_that_keeps_failing_is_tried_in_pages(collection, story):
    collection.faults += [ServerError("boom"), ConnectFailed("refused")]
    async with Scene(collection, story).running():
        pass
    assert collection.requests[:3] == [("stream", ""), ("stream", ""), ("list", "")]


async def test_streamed_lists_may_fail_as_often_after_one_that_succeeded(collection, story):
    collection.faults.append(ServerError("boom"))
    async with Scene(collection, story).running() as scene:
        await scene.until_equal()
        collection.requests.clear()
        collection.faults += [ServerError("boom")]
        collection.expire()
        collection.create("a")
        collection.compact()
        await scene.until_equal()
    assert [what for what, _ in collection.requests] == ["stream", "stream"]


async def test_expired_continue_token_starts_an_unpaged_list(new_collection, story):
    collection = new_collection(supports_streaming=False, expires_continue=True)
    for number in range(5):
        collection.create(f"pod-{number}")
    async with Scene(collection, story, page_size=2).running():
        pass
    assert len(story.known) == 5
    lists = [request for request in collection.requests if request[0] == "list"]
    assert lists == [("list", ""), ("list", "15:2"), ("list", "")]


@pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(lambda c: c.drop(), id="an orderly end"),
        pytest.param(lambda c: c.drop(StreamEnded("gone")), id="a lost connection"),
        pytest.param(lambda c: c.drop(mid_event=True), id="an end in the middle of an event"),
    ],
)
async def test_watch_resumes_where_it_ended(collection, story, break_it):
    collection.create("a")
    async with Scene(collection, story).running() as scene:
        collection.create("b")
        await scene.until_equal()
        break_it(collection)
        collection.create("c")
        await scene.until_equal()
    assert collection.requests == [("stream", ""), ("watch", "11")]
    assert story.calls == [("add", "a"), ("add", "b"), ("add", "c")]


async def test_bookmarks_move_the_point_of_resumption(collection, story):
    async with Scene(collection, story).running() as scene:
        await scene.until_equal()
        collection.revision += 100  # other collections' changes
        collection.send_bookmarks()
        await scene.until(lambda: scene.informer.reflector.resource_version == "110")
        collection.drop()
        await scene.until_equal()
    assert collection.requests[-1] == ("watch", "110")


@pytest.mark.parametrize("by_event", [True, False], ids=["in the stream", "on reconnecting"])
async def test_gone_leads_to_a_new_list_with_tombstones_for_what_vanished(
    collection, story, by_event
):
    for name in ("kept", "changed", "vanished", "reborn"):
        collection.create(name)
    async with Scene(collection, story).running() as scene:
        await scene.until_equal()
        if by_event:
            collection.expire()
        else:
            collection.drop(StreamEnded("gone"))
        collection.update("changed", app="web")
        collection.delete("vanished")
        collection.delete("reborn")
        collection.create("reborn")
        collection.compact()
        await scene.until_equal()
    assert story.tombstones == ["default/reborn", "default/vanished"]
    assert story.calls[4:] == [
        ("update", "changed"),
        ("delete", "reborn"),
        ("add", "reborn"),
        ("delete", "vanished"),
    ]


async def test_repeated_events_are_delivered_once_and_resurrect_nothing(collection, story):
    async with Scene(collection, story).running() as scene:
        await scene.until_equal()
        collection.create("a")
        collection.update("a", app="web")
        collection.delete("a")
        collection.repeat(3)
        collection.create("b")
        collection.repeat(4)
        await scene.until_equal()
    assert story.calls == [("add", "a"), ("update", "a"), ("delete", "a"), ("add", "b")]


async def test_revision_from_the_future_leads_to_a_new_list(collection, story):
    collection.create("a")
    async with Scene(collection, story).running() as scene:
        await scene.until_equal()
        collection.faults.append(ServerError("Too large resource version: 99, current: 5"))
        collection.drop()
        await scene.until_equal()
    assert [what for what, _ in collection.requests] == ["stream", "watch", "stream"]


@pytest.mark.parametrize(
    ("fault", "next_requests"),
    [
        pytest.param(ServerError("boom"), ["watch"], id="a server error keeps the revision"),
        pytest.param(ConnectFailed("refused"), ["watch"], id="so does a refused connection"),
        pytest.param(Forbidden("rbac"), ["watch"], id="so do missing rights"),
        pytest.param(TooManyRequests("busy"), ["watch"], id="so does overload"),
        pytest.param(Gone("old"), ["watch", "read"], id="what is gone is looked at as it is now"),
        pytest.param(NotFound("no such kind"), ["stream"], id="any other refusal does not"),
    ],
)
async def test_what_follows_a_refused_watch(collection, story, fault, next_requests):
    collection.create("a")
    async with Scene(collection, story).running() as scene:
        collection.faults.append(fault)
        collection.drop()
        await scene.until(lambda: len(collection.requests) == 2 + len(next_requests))
        await scene.until_equal()
    assert [what for what, _ in collection.requests] == ["stream", "watch", *next_requests]
    assert story.calls == [("add", "a")]


async def test_pauses_grow_are_jittered_and_bounded(collection, story):
    collection.faults += [ConnectFailed("refused")] * 12
    async with Scene(collection, story).running() as scene:
        pass
    pauses = scene.pauses.made
    assert len(pauses) == 12
    for number, pause in enumerate(pauses):
        base = min(0.8 * 2**number, 30.0)
        assert base <= pause <= 2 * base
    assert len(set(pauses)) == 12


async def test_pause_is_at_least_what_the_server_asks_for(collection, story):
    collection.faults.append(TooManyRequests("busy", retry_after_s=17.0))
    async with Scene(collection, story).running() as scene:
        pass
    assert scene.pauses.made == [17.0]


async def test_list_that_repeats_its_continue_token_fails(collection, story):
    collection.create("a")
    collection.supports_streaming = False
    metadata = ListMeta(resource_version="11", continue_="token")
    pages = iter([ListOf(metadata=metadata), ListOf(metadata=metadata)])
    real_page = collection.list_page

    async def page(**arguments):
        return next(pages, None) or await real_page(**arguments)

    collection.list_page = page
    async with Scene(collection, story).running() as scene:
        await scene.until_equal()
    assert len(scene.pauses.made) == 1


async def test_healthy_watch_is_resumed_without_pause_and_forgives_earlier_failures(
    collection, story
):
    collection.faults += [ConnectFailed("refused")] * 5
    async with Scene(collection, story).running() as scene:
        await scene.until_equal()
        for _ in range(3):
            scene.clock.advance(60.0)
            collection.drop(StreamEnded("gone"))
            await scene.until_equal()
        assert len(scene.pauses.made) == 5
        collection.drop(StreamEnded("gone"))
        await scene.until_equal()
        assert scene.pauses.made[5] <= 1.6


async def test_short_watches_that_bring_news_are_resumed_without_pause(collection, story):
    async with Scene(collection, story).running() as scene:
        for number in range(5):
            collection.create(f"pod-{number}")
            await scene.until_equal()
            collection.drop()
            await scene.until_equal()
        assert scene.pauses.made == []
        assert len(collection.requests) == 6


async def test_short_watches_without_news_are_resumed_after_growing_pauses(collection, story):
    async with Scene(collection, story).running() as scene:
        for _ in range(3):
            collection.drop()
            await scene.until_equal()
        first, second, third = scene.pauses.made
        assert 0.8 <= first <= 1.6 <= second <= 3.2 <= third <= 6.4


async def test_last_error_tells_why_until_things_work(collection, story):
    scene = Scene(collection, story)
    collection.faults += [Forbidden("pods is forbidden")] * 50
    task = asyncio.create_task(scene.informer.run())
    await scene.until(lambda: isinstance(scene.informer.reflector.last_error, Forbidden))
    assert not scene.informer.has_synced
    collection.faults.clear()
    await scene.informer.wait_for_sync()
    assert scene.informer.reflector.last_error is None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_failing_handler_does_not_affect_others_and_is_counted(collection, story, caplog):
    def fail(*_):
        raise RuntimeError("bug in a plugin")

    scene = Scene(collection, story)
    failing = EventHandler(on_add=fail, on_update=fail, on_delete=fail)
    scene.informer._handlers = (failing, *scene.informer._handlers)
    collection.create("a")
    async with scene.running():
        collection.update("a")
        collection.delete("a")
        collection.create("b")
        await scene.until_equal()
    assert story.calls == [("add", "a"), ("update", "a"), ("delete", "a"), ("add", "b")]
    assert scene.informer.handler_error_count == 4
    assert {record.values["object"] for record in caplog.records} == {"default/a", "default/b"}


async def test_unrecoverable_error_of_a_handler_ends_the_informer(collection, story):
    def fail(*_):
        raise Unrecoverable("cache is corrupted")

    scene = Scene(collection, story)
    scene.informer.add_event_handler(EventHandler(on_update=fail))
    collection.create("a")
    task = asyncio.create_task(scene.informer.run())
    await scene.until(lambda: scene.informer.has_synced)
    collection.update("a")
    with pytest.raises(Unrecoverable, match="cache is corrupted"):
        await task


async def test_late_handler_hears_of_everything_once(collection, story, new_story):
    late = new_story()
    collection.create("a")
    async with Scene(collection, story).running() as scene:
        collection.create("b")
        await scene.until_equal()
        scene.informer.add_event_handler(late.handler)
        assert late.calls == [("add", "a"), ("add", "b")]
        collection.delete("a")
        await scene.until_equal()
    assert late.calls[2:] == [("delete", "a")]


async def test_objects_are_trimmed_before_they_are_stored_or_seen(collection, story):
    def drop_labels(pod):
        metadata = msgspec.structs.replace(pod.metadata, labels=None)
        return msgspec.structs.replace(pod, metadata=metadata)

    scene = Scene(collection, story)
    scene.informer._transform = drop_labels
    collection.create("a", app="web")
    async with scene.running():
        collection.update("a", app="other")
        await scene.until(lambda: ("update", "a") in story.calls)
        assert scene.informer.store.get("default/a").metadata.labels is None
    assert story.known["a"].metadata.labels is None


@pytest.mark.parametrize("prefers_streaming", [True, False], ids=["stream", "pages"])
async def test_listed_objects_are_trimmed_once_as_they_arrive(
    collection, story, prefers_streaming: bool
):
    """A list of untrimmed objects would need a multiple of the memory that they take when they are
    kept.
    """
    scene = Scene(collection, story, prefers_streaming=prefers_streaming, page_size=2)
    arrived: list[tuple[str, int]] = []

    def note(pod):
        arrived.append((pod.metadata.name, len(story.calls)))
        return pod

    scene.informer._transform = note
    for name in "abc":
        collection.create(name)
    async with scene.running():
        assert arrived == [("a", 0), ("b", 0), ("c", 0)], "before the first is handed on"
        collection.update("a")
        await scene.until(lambda: ("update", "a") in story.calls)
        compared = [] if prefers_streaming else [("c", 3)]  # the server repeats it, as proof
        assert arrived[3:] == [*compared, ("a", 3)]


async def test_list_is_not_kept_while_its_watch_goes_on(new_collection, story):
    scene = Scene(new_collection(), story)
    scene.collection.create("a")
    taken, replace = [], scene.informer.replace

    async def noting(objects, *, is_restored):
        taken.append(objects)
        await replace(objects, is_restored=is_restored)

    scene.informer.replace = noting
    async with scene.running():
        scene.collection.create("b")
        await scene.until(lambda: "b" in story.known)
        references = sys.getrefcount(taken[0])
        assert references == 2, "the list of all objects lives as long as the watch"


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "paged"])
async def test_flood_of_events_lets_others_run(new_collection, story, streams):
    collection = new_collection(supports_streaming=streams)
    for number in range(4 * SLICE_STEPS):
        collection.create(f"pod-{number}")
    scene = Scene(collection, story, page_size=0)
    counts = []

    async def observe():
        while not scene.informer.has_synced or len(story.calls) < 8 * SLICE_STEPS:
            counts.append(len(story.calls))
            await asyncio.sleep(0)

    observer = asyncio.create_task(observe())
    async with scene.running():
        for number in range(4 * SLICE_STEPS):
            collection.update(f"pod-{number}")
        await observer
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) <= SLICE_STEPS


async def test_a_list_is_applied_in_slices_of_many_objects(collection, story):
    informer = Scene(collection, story).informer
    pods = [make_pod(f"pod-{number}").build() for number in range(4 * SLICE_STEPS)]
    listed = {f"default/{pod.metadata.name}": pod for pod in pods}

    async def turns_of(objects):
        turns = 0
        applying = asyncio.create_task(informer.replace(objects, is_restored=False))
        while not applying.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert await turns_of(listed) == 1 + 4 + 4  # they are put, and then none of them is missing
    assert await turns_of({}) == 1 + 4
    assert len(story.calls) == 8 * SLICE_STEPS


async def test_handlers_see_the_store_already_changed(collection, story):
    scene = Scene(collection, story)
    seen = []
    scene.informer.add_event_handler(
        EventHandler(
            on_add=lambda pod: seen.append(scene.informer.lister.get("default", "a") is pod),
            on_delete=lambda pod: seen.append(scene.informer.lister.get("default", "a") is None),
        )
    )
    async with scene.running():
        collection.create("a")
        collection.delete("a")
        await scene.until(lambda: len(seen) == 2)
    assert seen == [True, True]


async def test_a_resource_that_is_not_served_is_waited_for_and_told_once(collection, story, caplog):
    """A gate of the scheduler is on, and that of the API server is off."""
    collection.create("a")
    collection.faults.extend([NotFound("no such resource")] * 5)
    async with Scene(collection, story, hint="use the flag").running() as scene:
        assert len(scene.pauses.made) >= 5, "not synced before it is served"
        await scene.until_equal()
    assert [call for call, _ in story.calls] == ["add"]
    assert caplog.text.count("Resource is not served") == 1
    assert "use the flag" in str([vars(record) for record in caplog.records])
    assert "Failed to watch" not in caplog.text


async def test_an_optional_resource_that_is_not_served_is_empty_until_it_is(
    collection, story, caplog
):
    """A custom resource without its definition: the scheduler starts, and does not wait for it."""
    collection.create("a")
    collection.faults.extend([NotFound("no such resource")] * 3)
    async with Scene(collection, story, is_optional=True).running() as scene:
        assert len(scene.pauses.made) < 3, "known to be empty at the first answer"
        await scene.until(lambda: story.calls == [("add", "a")])
        collection.faults.extend([NotFound("definition deleted")] * 3)
        collection.drop()
        await scene.until(lambda: ("delete", "a") in story.calls)
        await scene.until_equal()
    assert [call for call, _ in story.calls] == ["add", "delete", "add"]
    assert caplog.text.count("Resource is not served, taken as empty until it is") == 2
