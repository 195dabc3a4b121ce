"""Random server histories: whatever the server does, the informer ends equal to it and its story
was consistent.

The machine interleaves changes, faults and turns of the event loop. `Story` objects at every call
to anything that contradicts what it was told before; at the end the faults stop and store and
server must agree.
"""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from self_checks import check_store

from kubesched.base.clock import ManualClock
from kubesched.base.errors import (
    ConnectFailed,
    DeadlineExceeded,
    Gone,
    ServerError,
    StreamEnded,
    TooManyRequests,
)
from kubesched.client.informers.informer import Informer
from kubesched.client.informers.reflector import ReflectorSettings

NAMES = st.sampled_from("abcde")
ACTIONS = st.sampled_from(["change", "change", "delete", "recreate"])


def make_machine(new_collection, new_story):
    class History(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.loop = asyncio.new_event_loop()

        @initialize(
            streams=st.booleans(), page_size=st.integers(1, 3), seed=st.integers(0, 2**32 - 1)
        )
        def start(self, streams, page_size, seed):
            clock = ManualClock()

            async def pause(seconds: float) -> None:
                clock.advance(seconds)
                await asyncio.sleep(0)

            self.collection = new_collection(supports_streaming=streams, is_shared=True)
            self.backup = self.collection.backup()
            self.story = new_story()
            self.informer = Informer(
                self.collection,
                name="pods",
                clock=clock,
                random=random.Random(seed),
                sleep=pause,
                settings=ReflectorSettings(page_size=page_size),
            )
            self.informer.add_event_handler(self.story.handler)
            self.task = self.loop.create_task(self.informer.run())

        def turn(self, count: int) -> None:
            for _ in range(count):
                self.loop.run_until_complete(asyncio.sleep(0))

        def do(self, action: str, name: str) -> None:
            exists = name in self.collection.pods
            if exists and action != "change":
                self.collection.delete(name)
                if action == "recreate":
                    self.collection.create(name)
            elif exists:
                self.collection.update(name, value=str(self.collection.revision % 3))
            else:
                self.collection.create(name)

        @rule(action=ACTIONS, name=NAMES, turns=st.integers(0, 6))
        def change(self, action, name, turns):
            self.do(action, name)
            self.turn(turns)

        @rule(
            changes=st.lists(st.tuples(ACTIONS, NAMES), min_size=1, max_size=6),
            compact=st.booleans(),
            turns=st.integers(0, 10),
        )
        def outage(self, changes, compact, turns):
            """The server goes away, things change meanwhile, and it may not remember them when it
            is back.
            """
            self.collection.drop(StreamEnded("reset"))
            for action, name in changes:
                self.do(action, name)
            if compact:
                self.collection.compact()
            self.turn(turns)

        @rule()
        def make_backup(self):
            self.backup = self.collection.backup()

        @precondition(lambda self: self.collection.may_restore)
        @rule(
            changes=st.lists(st.tuples(ACTIONS, NAMES), max_size=6),
            others=st.sampled_from([0, 1, 1000]),
            compact=st.booleans(),
            turns=st.integers(0, 10),
        )
        def restore(self, changes, others, compact, turns):
            """The server comes back from a backup, and its new history is ahead of ours when we
            look again.
            """
            reached = self.collection.revision
            self.collection.restore(self.backup)
            self.collection.revision = reached + others
            for action, name in changes:
                self.do(action, name)
            if compact:
                self.collection.compact()
            self.story.seen.clear()  # what comes back may be known from before
            self.story.was_restored = True
            self.turn(turns)

        @rule(
            error=st.sampled_from([None, StreamEnded("reset"), DeadlineExceeded("late")]),
            mid_event=st.booleans(),
            turns=st.integers(0, 6),
        )
        def drop_watches(self, error, mid_event, turns):
            self.collection.drop(error, mid_event=mid_event)
            self.turn(turns)

        @rule(expire=st.booleans(), turns=st.integers(0, 6))
        def compact(self, expire, turns):
            self.collection.compact()
            if expire:
                self.collection.expire()
            self.turn(turns)

        @rule(
            fault=st.sampled_from(
                [
                    ConnectFailed("refused"),
                    Gone("too old resource version"),
                    ServerError("boom"),
                    StreamEnded("reset"),
                    TooManyRequests("busy", retry_after_s=1.0),
                ]
            ),
            count=st.integers(1, 3),
        )
        def refuse_next_requests(self, fault, count):
            self.collection.faults += [fault] * count

        @rule(count=st.integers(1, 5))
        def repeat_events(self, count):
            self.collection.repeat(count)

        @rule()
        def bookmark(self):
            self.collection.send_bookmarks()

        @rule(turns=st.integers(1, 30))
        def let_time_pass(self, turns):
            self.turn(turns)

        @rule()
        def expire_next_continue_token(self):
            self.collection.expires_continue = True

        @invariant()
        def story_and_store_agree(self):
            if hasattr(self, "informer"):
                assert self.informer.handler_error_count == 0
                assert {pod.metadata.name: pod for pod in self.informer.store} == self.story.known
                check_store(self.informer.store)

        def teardown(self) -> None:
            try:
                if hasattr(self, "task"):
                    self.settle()
                    self.task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        self.loop.run_until_complete(self.task)
            finally:
                self.loop.close()

        def settle(self) -> None:
            self.collection.faults.clear()
            self.collection.create("last")
            for _ in range(500):
                self.turn(1)
                if self.informer.has_synced and self.story.known == self.collection.pods:
                    break
            assert self.story.known == self.collection.pods
            assert not self.task.done()
            self.story_and_store_agree()

    return History


@pytest.mark.slow
def test_any_history_ends_with_store_equal_to_server(new_collection, new_story, caplog):
    caplog.set_level(logging.ERROR)
    machine = make_machine(new_collection, new_story)
    machine.TestCase.settings = settings(
        max_examples=100,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    machine.TestCase("runTest").debug()
