"""Watches over HTTP: start, stream and end.

resourceVersion absent or 0   existing objects as ADDED, then changes
resourceVersion N             changes after N; an ERROR event with 410 if N left the history
sendInitialEvents=true        existing objects, a bookmark that marks their end, then changes
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from kubesched.api.field_errors import forbidden
from kubesched.base.clock import Clock
from kubesched.base.errors import ApiError, Gone
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import invalid_options, status_of
from kubesched.playground.apimachinery.objects import JsonObject, encode
from kubesched.playground.handlers.exchange import Query
from kubesched.playground.handlers.reading import (
    parse_resource_version,
    selection,
    too_large_version,
)
from kubesched.playground.handlers.routes import Call
from kubesched.playground.handlers.tables import table_of
from kubesched.playground.registry.representation import encode_watch_event, encoder_for
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.storage.store import Entry
from kubesched.playground.storage.watch import Watch, WatchEvent

BOOKMARK_INTERVAL_S = 60.0
# As upstream, a watch without a timeout ends after one to two times this time.
MIN_WATCH_S = 1800.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

# Objects per chunk of the initial state; other tasks run between chunks.
INITIAL_CHUNK = 500


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """A validated watch request."""

    revision: int | None
    """Start revision; None starts with the existing objects."""
    sends_initial_end: bool
    wants_bookmarks: bool
    timeout_s: float


def parse_watch_request(registry: RestStorage, query: Query, rng: random.Random) -> WatchRequest:
    match, version = query.get("resourceVersionMatch"), query.get("resourceVersion")
    bookmarks = query.flag("allowWatchBookmarks")
    initial = query.get("sendInitialEvents")
    if query.has("sendInitialEvents"):
        if match != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise invalid_options("ListOptions", forbidden("resourceVersionMatch", detail))
        if initial == "true" and not bookmarks:
            detail = "sendInitialEvents requires setting allowWatchBookmarks to true"
            raise invalid_options("ListOptions", forbidden("allowWatchBookmarks", detail))
    elif match:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise invalid_options("ListOptions", forbidden("resourceVersionMatch", detail))
    wanted = parse_resource_version(version) if version else 0
    current = registry.store.revision
    if wanted > current:
        raise too_large_version(wanted, current)
    timeout_s = query.integer("timeoutSeconds")
    lasting = float(timeout_s) if timeout_s else MIN_WATCH_S * (1 + rng.random())
    starts_with_state = initial == "true" or (wanted == 0 and initial != "false")
    revision = None if starts_with_state else wanted or current
    return WatchRequest(revision, initial == "true", bookmarks, lasting)


class WatchStream:
    """One watch of one client. It starts with this object's creation, not with the first read."""

    def __init__(
        self,
        call: Call,
        request: WatchRequest,
        *,
        clock: Clock,
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        registry, target = call.registry, call.target
        self._registry = registry
        self._target = target
        self._request = request
        self._clock = clock
        self._settled = settled
        self._matches = selection(target, call.query)
        self._encode = _event_encoder(call)
        self._start = request.revision if request.revision is not None else registry.store.revision
        self._deadline = clock.monotonic() + request.timeout_s
        self._failure: Gone | None = None
        self._watch: Watch | None = None
        try:
            self._watch = Watch(
                registry.store,
                target.resource.storage_key,
                self._start,
                namespace=target.namespace,
                matches=self._matches,
            )
        except Gone as error:
            # Upstream: once a watch is accepted, even its first failure is an event and not a
            # status code.
            self._failure = error
        self._initial = self._initial_chunks() if request.revision is None else []

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    async def aclose(self) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The encoded events until the timeout; an ERROR event if the history was lost."""
        try:
            async for chunk in self._chunks():
                # A watch shows only durable changes, which no crash can undo.
                if self._settled is not None:
                    await self._settled()
                yield chunk
        finally:
            self.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        watch, request = self._watch, self._request
        if watch is None:
            assert self._failure is not None
            yield _error_event(self._failure)
            return
        for chunk in self._initial:
            yield chunk
        self._initial = []
        if request.sends_initial_end:
            yield self._bookmark(self._start, initial_end=True)
        while not watch.is_closed and (remaining := self._deadline - self._clock.monotonic()) > 0:
            try:
                batch = await watch.next_batch(min(BOOKMARK_INTERVAL_S, remaining))
            except Gone as error:
                yield _error_event(error)
                return
            if batch:
                yield self.encode_batch(batch)
            elif request.wants_bookmarks and not watch.is_closed:
                yield self._bookmark(self._registry.store.revision)

    def encode_batch(self, batch: Sequence[WatchEvent]) -> bytes:
        return b"".join([self._encode(event_type, entry) for event_type, entry, _ in batch])

    def _initial_chunks(self) -> list[bytes]:
        collection = self._registry.store.collection(self._target.resource.storage_key)
        entries = [
            entry
            for entry in collection.entries(self._target.namespace)
            if self._matches is None or self._matches(entry.obj)
        ]
        return [
            b"".join(
                [self._encode("ADDED", entry) for entry in entries[first : first + INITIAL_CHUNK]]
            )
            for first in range(0, len(entries), INITIAL_CHUNK)
        ]

    def _bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        resource = self._target.resource
        metadata: JsonObject = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        bookmark = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return self._encode("BOOKMARK", Entry(bookmark, revision))


def _error_event(error: ApiError) -> bytes:
    return encode_watch_event("ERROR", encode(status_of(error)))


def _event_encoder(call: Call) -> Callable[[str, Entry], bytes]:
    resource, view = call.target.resource, call.accepted.view
    if view == "Table":
        return _TableEvents(call.registry, resource, call.query.get("includeObject"))
    omits = call.request.omits_managed_fields
    encode_entry = encoder_for(resource, metadata_only=bool(view), omits_managed_fields=omits)

    def encode_event(event_type: str, entry: Entry) -> bytes:
        return encode_watch_event(event_type, encode_entry(entry))

    return encode_event


class _TableEvents:
    """Watch events as one-row tables; as upstream, only the first has column definitions."""

    def __init__(self, registry: RestStorage, resource: ResourceInfo, include_object: str) -> None:
        self._registry = registry
        self._resource = resource
        self._include_object = include_object
        self._is_first = True

    def __call__(self, event_type: str, entry: Entry) -> bytes:
        metadata = {"resourceVersion": str(entry.revision)}
        is_bookmark = event_type == "BOOKMARK"  # an object without a name has no cells
        shown = [] if is_bookmark else [entry]
        table = table_of(self._registry, self._resource, shown, metadata, self._include_object)
        if is_bookmark:
            table["rows"] = [{"cells": [], "object": entry.obj}]
        if not self._is_first:
            table["columnDefinitions"] = None
        self._is_first = False
        return encode_watch_event(event_type, encode(table))
