"""An event broadcaster before a server that is a dictionary and applies patches; faults are
injected per request.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

import msgspec

from kubesched.api.codec import encode
from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta
from kubesched.base.errors import (
    AlreadyExists,
    NotFound,
)
from kubesched.client.events import EventBroadcaster


class EventServer:
    """Keeps events by name; `faults` are raised by the next requests, before or after they took
    effect.
    """

    def __init__(self) -> None:
        self.events: dict[str, dict] = {}
        self.requests: list[tuple[str, str]] = []
        self.times: list[float] = []
        self.faults: list[tuple[str, Exception]] = []
        self.delay_s = 0.001
        self.under_way: Counter[str] = Counter()
        self.most_under_way = 0

    async def create_event(self, event, *, is_series) -> None:
        body = msgspec.json.decode(encode(event.to_record(is_series=is_series)))

        def apply() -> None:
            if body["metadata"]["name"] in self.events:
                raise AlreadyExists("it exists")
            self.events[body["metadata"]["name"]] = body

        await self._request("create", event.name, apply)

    def start_event(self, event, done):
        rest = partial(self.create_event, event, is_series=False)
        return asyncio.get_running_loop().call_soon(done, rest).cancel

    async def patch_event(self, event) -> None:
        change = event.series_change()

        def apply() -> None:
            if event.name not in self.events:
                raise NotFound("it does not")
            self.events[event.name] |= msgspec.json.decode(encode(change))

        await self._request("patch", event.name, apply)

    async def _request(self, verb: str, name: str, apply) -> None:
        self.requests.append((verb, name))
        self.times.append(asyncio.get_running_loop().time())
        when, fault = self.faults.pop(0) if self.faults else ("", None)
        self.under_way[name] += 1
        self.most_under_way = max(self.most_under_way, self.under_way.total())
        assert self.under_way[name] == 1, "one event, one write at a time"
        try:
            await asyncio.sleep(self.delay_s)
            if when == "before":
                raise fault
            apply()
            if when == "after":
                raise fault
        finally:
            self.under_way[name] -= 1

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.requests]


class Stage:
    """A running broadcaster with its server."""

    def __init__(self, clock, **options) -> None:
        self.server = EventServer()
        self.broadcaster = EventBroadcaster(
            self.server, clock=clock, rng=random.Random(1), host_name="host", **options
        )
        self.recorder = self.broadcaster.recorder("default-scheduler")
        self.task: asyncio.Task[None] | None = None

    def say(
        self, pod: Pod, note: str = "note", *, related: object = None, reason: str = "Why"
    ) -> None:
        self.recorder.event(pod, related, "Warning", reason, "Scheduling", note)

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    @property
    def only_event(self) -> dict:
        (event,) = self.server.events.values()
        return event

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.broadcaster.dropped)

    @property
    def cached_count(self) -> int:
        return len(self.broadcaster._cache)


@contextlib.asynccontextmanager
async def running(clock, **options) -> AsyncIterator[Stage]:
    stage = Stage(clock, **options)
    stage.task = asyncio.create_task(stage.broadcaster.run())
    try:
        yield stage
    finally:
        await stage.stop()


def pod(name: str = "web-1", *, version: str = "7", namespace: str = "ns") -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=f"uid-{name}", resource_version=version
        )
    )


async def settle(seconds: float = 1.0) -> None:
    await asyncio.sleep(seconds)
