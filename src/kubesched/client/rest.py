"""Typed verbs of the Kubernetes API.

Builds paths, queries and bodies, and decodes responses into records, for every kind in
`kubesched.api.kinds` and any other `Kind`. `retry` retries and limits the rate, the transport moves
bytes, and the informers keep objects current.

Verbs take a record type or a `Kind`. They raise `kubesched.base.errors.ApiError` if the server
rejects a request and `TransportError` without a usable response. Records know only some fields of a
kind; use `get_preserved` and `update_merged` to write objects back without losing the rest.
"""

from __future__ import annotations

import asyncio
import platform
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from kubesched.api import codec, protobuf
from kubesched.api.codec import ListOf, MalformedObject, Preserved
from kubesched.api.kinds import PODS, Kind, kind_of
from kubesched.api.meta import DeleteOptions, ObjectMeta, Record
from kubesched.api.status import conflict
from kubesched.base.clock import Clock, SystemClock
from kubesched.base.errors import Gone, TransportError, UnsupportedMediaType
from kubesched.base.rate_limit import Sleep, TokenBucket
from kubesched.base.version import __version__
from kubesched.client.event_series import EventEntry
from kubesched.client.patch import CONTENT_TYPES, Patch, strategic_merge_patch
from kubesched.client.retry import Caller, Done, Rest, RetryPolicy
from kubesched.client.transport import (
    DEFAULT_DEADLINE_S,
    HeaderBlock,
    Request,
    Response,
    StartedRequest,
    Transport,
)
from kubesched.client.watch import Watch, log_malformed

R = TypeVar("R", bound=Record)
T = TypeVar("T")

DEFAULT_PAGE_SIZE = 500

WATCH_FIRST_BYTE_S = 30.0
"""A watch's headers come at once, except that a streamed list waits for a fresh server cache."""

WATCH_GRACE_S = 30.0
"""How much longer than requested a watch may live before we cut it."""

_SAFE_PATH = re.compile(r"[A-Za-z0-9._-]+/pods/[A-Za-z0-9._-]+")


def user_agent(component: str = "", reference: str = "") -> str:
    """`kubesched/<version> (<os>/<architecture>) kubernetes/<reference>/<component>`.

    As in client-go, which has the commit where we have the release that is stood in for.
    """
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = f"kubesched/{__version__} ({platform.system().lower()}/{machine})"
    if reference:
        name += f" kubernetes/{reference}"
    return f"{name}/{component}" if component else name


class RestClient:
    """The API server's verbs.

    Several clients may share one transport, each with its own name and rate limit.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        user_agent: str,
        limiter: TokenBucket | None = None,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        random: random.Random,
        sleep: Sleep = asyncio.sleep,
        deadline_s: float = DEFAULT_DEADLINE_S,
        prefers_protobuf: bool = False,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        """`deadline_s` bounds every call, all its attempts included; watches have their own.

        With `prefers_protobuf` bindings and events, which are written per pod, are sent in the
        encoding that is cheapest for the server, unless it does not support it. `may_write` is
        called right before each write is sent; `WriteRefused` if it returns False.
        """
        self._caller = Caller(
            transport,
            limiter=limiter,
            policy=policy or RetryPolicy(),
            clock=clock or SystemClock(),
            random=random,
            sleep=sleep,
            may_write=may_write,
        )
        self._deadline_s = deadline_s
        common = {"Accept": "application/json", "User-Agent": user_agent}
        self._read_headers = HeaderBlock(common)
        self._write_headers = HeaderBlock({**common, "Content-Type": "application/json"})
        self._protobuf_headers = HeaderBlock(
            {
                "Accept": f"{protobuf.CONTENT_TYPE},application/json",
                "User-Agent": user_agent,
                "Content-Type": protobuf.CONTENT_TYPE,
            }
        )
        self._speaks_protobuf = prefers_protobuf
        self._patch_headers = {
            content_type: HeaderBlock({**common, "Content-Type": content_type})
            for content_type in CONTENT_TYPES
        }

    @property
    def under_way(self) -> int:
        """Requests sent or waiting for a connection; watches count until they are open."""
        return self._caller.under_way

    def may_write(self) -> bool:
        """False if a write would raise `WriteRefused`."""
        return self._caller.may_write is None or self._caller.may_write()

    # Reading.

    async def get(self, kind: type[R] | Kind[R], name: str, namespace: str = "") -> R:
        kind = _kind(kind)
        body = await self._read(kind.object_path(name, namespace))
        return _decoded(body, kind.record, codec.decode)

    async def get_preserved(
        self, kind: type[R] | Kind[R], name: str, namespace: str = ""
    ) -> Preserved[R]:
        """The object with every field the server sent, for writing it back."""
        kind = _kind(kind)
        body = await self._read(kind.object_path(name, namespace))
        return _decoded(body, kind.record, codec.decode_preserved)

    async def list_page(
        self,
        kind: type[R] | Kind[R],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
    ) -> ListOf[R]:
        """One page of a list, all of it with `limit` 0; `metadata.continue_` is the next token.

        Invalid objects are logged and left out: one of them must not hide all others.
        """
        kind = _kind(kind)
        body = await self._read(
            kind.collection_path(namespace),
            {
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "limit": str(limit) if limit else "",
                "continue": continue_token,
                "resourceVersion": resource_version,
                "resourceVersionMatch": resource_version_match,
            },
        )
        return _decoded(body, kind.record, _decode_list)

    async def list(
        self,
        kind: type[R] | Kind[R],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> ListOf[R]:
        """The whole list, fetched in pages of one consistent read."""

        async def page(limit: int, token: str) -> ListOf[R]:
            return await self.list_page(
                kind,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
                continue_token=token,
            )

        current = await page(page_size, "")
        items = current.items
        while current.metadata.continue_:
            try:
                current = await page(page_size, current.metadata.continue_)
            except Gone:
                # It took longer than the server keeps revisions; without pages nothing can expire.
                return await page(0, "")
            items += current.items
        return msgspec.structs.replace(current, items=items)

    def watch(
        self,
        kind: type[R] | Kind[R],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_s: float = 300.0,
        send_initial_events: bool = False,
    ) -> Watch[R]:
        """Changes from a revision on; `send_initial_events`: first the state, then a bookmark.

        Entering the watch sends the request, once and without retries: callers have to handle
        broken watches anyway.
        """
        kind = _kind(kind)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(timeout_s))),
        }
        if send_initial_events:
            query["sendInitialEvents"] = "true"
            query["resourceVersionMatch"] = "NotOlderThan"
        request = Request(
            method="GET",
            target=_target(kind.collection_path(namespace), query),
            headers=self._read_headers,
            stream=True,
            idempotent=True,
            first_byte_s=WATCH_FIRST_BYTE_S,
            deadline_s=timeout_s + WATCH_GRACE_S,
        )
        return Watch(kind.record, lambda: self._caller.send_once(request))

    # Writing.

    async def create(self, obj: R) -> R:
        """Create; returns the object as stored by the server."""
        kind = kind_of(type(obj))
        target = kind.collection_path(_metadata(obj).namespace)
        body = await self._write("POST", target, codec.encode(obj))
        return _decoded(body, kind.record, codec.decode)

    async def create_event(self, event: EventEntry, *, is_series: bool = False) -> None:
        """Create without decoding the response."""
        make = partial(self._event, event, is_series=is_series)
        request = make()
        await self._or_in_json(
            request, self._caller.send(request), lambda: self._caller.send(make())
        )

    def start_event(self, event: EventEntry, done: Done) -> StartedRequest:
        """`create_event` without a task: `done` is as in `retry.Caller.start`; `rest` retries."""
        request = self._event(event, is_series=False)
        return self._caller.start(request, done, partial(self._finish_event, request, event))

    async def _finish_event(self, request: Request, event: EventEntry, rest: Rest) -> None:
        sent = self._caller.send(request, first=rest)
        await self._or_in_json(request, sent, partial(self.create_event, event))

    def _event(self, event: EventEntry, *, is_series: bool) -> Request:
        target = kind_of(event.record).collection_path(event.namespace)
        message = event.to_protobuf() if self._speaks_protobuf and not is_series else None
        if message is not None:
            return self._post(target, message, self._protobuf_headers)
        body = codec.encode(event.to_record(is_series=is_series))
        return self._post(target, body, self._write_headers)

    async def patch_event(self, event: EventEntry) -> None:
        """Write the recurrences; raises `NotFound` if the server has expired the event."""
        change = strategic_merge_patch(event.series_change())
        await self.patch(event.record, event.name, event.namespace, change)

    async def create_preserved(self, obj: R) -> Preserved[R]:
        kind = kind_of(type(obj))
        target = kind.collection_path(_metadata(obj).namespace)
        body = await self._write("POST", target, codec.encode(obj))
        return _decoded(body, kind.record, codec.decode_preserved)

    async def update(self, obj: R, *, subresource: str = "") -> R:
        """Replace the object by exactly this record; `Conflict` if it changed meanwhile.

        This removes fields that the record type lacks: use `update_merged` for such kinds.
        """
        kind, metadata = kind_of(type(obj)), _metadata(obj)
        path = kind.object_path(metadata.name, metadata.namespace, subresource)
        body = await self._write("PUT", path, codec.encode(obj))
        return _decoded(body, kind.record, codec.decode)

    async def update_status(self, obj: R) -> R:
        return await self.update(obj, subresource="status")

    async def update_preserved(self, obj: Preserved[R]) -> Preserved[R]:
        """Write a whole object back; `Conflict` if it changed meanwhile."""
        kind, metadata = kind_of(type(obj.record)), _metadata(obj.record)
        path = kind.object_path(metadata.name, metadata.namespace)
        body = await self._write("PUT", path, obj.raw)
        return _decoded(body, kind.record, codec.decode_preserved)

    async def update_merged(self, changed: R) -> R:
        """Write a changed record back without losing the fields it does not know.

        Reads the object first; `Conflict` if it is no longer at the record's revision.
        """
        kind, metadata = kind_of(type(changed)), _metadata(changed)
        current = await self.get_preserved(kind, metadata.name, metadata.namespace)
        if _metadata(current.record).resource_version != metadata.resource_version:
            raise conflict(
                kind.plural,
                metadata.name,  # without the namespace, as in the server's message
                "the object has been modified; please apply your changes to the latest version and "
                "try again",
                kind.group,
            )
        return (await self.update_preserved(current.with_record(changed))).record

    async def patch(
        self,
        kind: type[R] | Kind[R],
        name: str,
        namespace: str,
        patch: Patch,
        *,
        subresource: str = "",
    ) -> R:
        """Change part of an object."""
        kind = _kind(kind)
        target = kind.object_path(name, namespace, subresource)
        body = await self._write(
            "PATCH", target, patch.body, self._patch_headers[patch.content_type]
        )
        return _decoded(body, kind.record, codec.decode)

    async def delete(
        self,
        kind: type[R] | Kind[R],
        name: str,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> None:
        """Request an object's deletion; grace period and finalizers may delay it."""
        path = _kind(kind).object_path(name, namespace)
        await self._write("DELETE", path, b"" if options is None else codec.encode(options))

    async def delete_collection(
        self,
        kind: type[R] | Kind[R],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        options: DeleteOptions | None = None,
    ) -> None:
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        target = _target(_kind(kind).collection_path(namespace), query)
        await self._write("DELETE", target, b"" if options is None else codec.encode(options))

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Assign a pod to a node; `Conflict` if the pod was replaced, bound, or is being deleted.

        Sent once: the scheduler itself decides what a failed binding means.
        """
        make = partial(self._binding, namespace, name, uid, node_name)
        request = make()
        # The response is a Status, despite the published schema; only success matters.
        await self._or_in_json(
            request, self._caller.send_once(request), lambda: self._caller.send_once(make())
        )

    def start_binding(
        self, namespace: str, name: str, uid: str, node_name: str, done: Done
    ) -> StartedRequest:
        """`bind` without a task: `done` is as in `retry.Caller.start`."""
        request = self._binding(namespace, name, uid, node_name)
        finish = partial(self._finish_binding, request, namespace, name, uid, node_name)
        return self._caller.start(request, done, finish)

    async def _finish_binding(
        self, request: Request, namespace: str, name: str, uid: str, node_name: str, rest: Rest
    ) -> None:
        again = partial(self.bind, namespace, name, uid, node_name)
        await self._or_in_json(request, rest(), again)

    def _binding(self, namespace: str, name: str, uid: str, node_name: str) -> Request:
        """The body is built by hand because this request limits pods scheduled per second."""
        path = f"{namespace}/pods/{name}"
        if _SAFE_PATH.fullmatch(path):
            target = f"/api/v1/namespaces/{path}/binding"
        else:
            target = PODS.object_path(name, namespace, "binding")
        if self._speaks_protobuf:
            message = protobuf.encode_binding(namespace, name, uid, node_name)
            if message is not None:
                return self._post(target, message, self._protobuf_headers)
        encode = codec.encode
        body = (
            b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":%b,"namespace":%b,"uid":%b},"target":{"kind":"Node","name":%b}}'
            % (encode(name), encode(namespace), encode(uid), encode(node_name))
        )
        return self._post(target, body, self._write_headers)

    def _post(self, target: str, body: bytes, headers: HeaderBlock) -> Request:
        return Request(
            method="POST", target=target, headers=headers, body=body, deadline_s=self._deadline_s
        )

    async def _or_in_json(
        self, request: Request, sent: Awaitable[Any], again: Callable[[], Awaitable[Any]]
    ) -> None:
        """Await a request; if the server does not support protobuf, switch to JSON."""
        try:
            await sent
        except UnsupportedMediaType:
            if request.headers is not self._protobuf_headers:
                raise
            self._speaks_protobuf = False
            await again()

    # Raw requests.

    async def get_raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """GET any path (`/version`, discovery); returns the response body."""
        return await self._read(path, query)

    async def post_raw(self, path: str, body: bytes) -> bytes:
        """POST JSON to any path (reviews and other kinds that are not stored)."""
        return await self._write("POST", path, body)

    async def put_raw(self, path: str, body: bytes) -> bytes:
        """PUT JSON to any path (objects that are replaced regardless of revision)."""
        return await self._write("PUT", path, body)

    async def _read(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        response = await self._caller.send(
            Request(
                method="GET",
                target=_target(path, query or {}),
                headers=self._read_headers,
                deadline_s=self._deadline_s,
                idempotent=True,
            )
        )
        return await response.read()

    async def _write(
        self, method: str, target: str, body: bytes, headers: HeaderBlock | None = None
    ) -> bytes:
        response: Response = await self._caller.send(
            Request(
                method=method,
                target=target,
                headers=headers or self._write_headers,
                body=body,
                deadline_s=self._deadline_s,
            )
        )
        return await response.read()


def _kind(kind: type[R] | Kind[R]) -> Kind[R]:
    return kind if isinstance(kind, Kind) else kind_of(kind)


def _metadata(obj: Record) -> ObjectMeta:
    metadata = getattr(obj, "metadata", None)
    if not isinstance(metadata, ObjectMeta):
        raise TypeError(f"{type(obj).__name__} is not an object of its own")
    return metadata


def _target(path: str, query: Mapping[str, str]) -> str:
    """Path and query; empty values are left out."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def _decode_list(body: bytes, record: type[R]) -> ListOf[R]:
    return codec.decode_list(body, record, on_malformed=log_malformed)


def _decoded(body: bytes, record: type[R], decode: Callable[[bytes, type[R]], T]) -> T:
    try:
        return decode(body, record)
    except MalformedObject as error:
        raise TransportError(f"server sent an object that cannot be understood: {error}") from error
