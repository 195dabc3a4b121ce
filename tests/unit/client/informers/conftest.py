"""A collection on an imaginary API server, with every misbehaviour informers must survive."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from virtual_time import in_virtual_time, make_clock  # noqa: F401  # fixtures

from kubesched.api.codec import ListOf
from kubesched.api.core_v1 import Pod, PodSpec
from kubesched.api.meta import ListMeta, ObjectMeta
from kubesched.base.errors import Gone, Invalid, StreamEnded
from kubesched.client.informers.informer import DeletedFinalStateUnknown, EventHandler
from kubesched.client.watch import Watch

MAX_RESTORES = 8


class FakeStream:
    """The server's end of one watch; stands in for a `Response`."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012  # a protocol's attribute, never changed

    def __init__(self, collection: FakeCollection, after: int = 0) -> None:
        self.collection = collection
        self.after = after
        """Only events beyond this revision are sent, as API servers have it, also if it lies in the
        future.
        """
        self.is_open = True
        self._chunks: deque[bytes] = deque()
        self._arrival = asyncio.Event()
        self._end: Exception | None = None

    def send(self, data: bytes) -> None:
        if self.is_open:
            self._chunks.append(data)
            self._arrival.set()

    def end(self, error: Exception | None = None) -> None:
        """No more comes; None is the server's orderly end."""
        if self.is_open:
            self.is_open = False
            self._end = error
            self._arrival.set()
            self.collection.streams.remove(self)

    def close(self) -> None:
        self.end()

    def iter_chunks(self) -> FakeStream:
        return self

    def __aiter__(self) -> FakeStream:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if not self.is_open:
                raise self._end or StopAsyncIteration
            self._arrival.clear()
            await self._arrival.wait()
        # Everything that has arrived comes in one piece, as TCP likes to deliver it.
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data


def page_of(pods: list[Pod], revision: str, token: str = "") -> ListOf[Pod]:
    return ListOf(items=pods, metadata=ListMeta(resource_version=revision, continue_=token))


def encode_event(type_: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


@dataclass
class FakeCollection:
    """Pods with revisions, a history of events, and a queue of faults for the next requests."""

    supports_streaming: bool = True
    revision: int = 10
    pods: dict[str, Pod] = field(default_factory=dict)
    history: list[tuple[int, str, Pod]] = field(default_factory=list)
    compacted: int = 0
    streams: list[FakeStream] = field(default_factory=list)
    faults: deque[Exception] = field(default_factory=deque)
    requests: list[tuple[str, str]] = field(default_factory=list)
    expires_continue: bool = False
    uid_count: int = 0
    snapshots: dict[str, list[Pod]] = field(default_factory=dict)
    restores: int = 0
    is_shared: bool = False
    """Whether other kinds write, too, so that no two histories have a change of this kind at the
    same revision.
    """

    # Changes.

    def create(self, name: str, **labels: str) -> Pod:
        self.uid_count += 1
        return self._store("ADDED", name, f"uid-{self.uid_count}", labels)

    def update(self, name: str, **labels: str) -> Pod:
        return self._store("MODIFIED", name, self.pods[name].metadata.uid, labels)

    def _next_revision(self) -> None:
        self.revision += 1
        while self.is_shared and self.revision % MAX_RESTORES != self.restores:
            self.revision += 1

    def place(self, name: str, node_name: str) -> None:
        pod = self.pods[name]
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        self.pods[name] = msgspec.structs.replace(pod, spec=spec)
        self.update(name)

    def _store(self, type_: str, name: str, uid: str, labels: dict[str, str]) -> Pod:
        self._next_revision()
        metadata = ObjectMeta(
            name=name,
            namespace="default",
            uid=uid,
            resource_version=str(self.revision),
            labels=labels or None,
        )
        spec = self.pods[name].spec if name in self.pods else PodSpec()
        pod = self.pods[name] = Pod(metadata=metadata, spec=spec)
        self._emit(type_, pod)
        return pod

    def delete(self, name: str) -> None:
        self._next_revision()
        pod = self.pods.pop(name)
        metadata = msgspec.structs.replace(pod.metadata, resource_version=str(self.revision))
        self._emit("DELETED", msgspec.structs.replace(pod, metadata=metadata))

    def _emit(self, type_: str, pod: Pod) -> None:
        self.history.append((self.revision, type_, pod))
        for stream in list(self.streams):
            if self.revision > stream.after:
                stream.send(encode_event(type_, pod))

    # Misbehaviour.

    def backup(self) -> FakeCollection:
        """The state that a later `restore` brings back."""
        return dataclasses.replace(self, pods=dict(self.pods), history=list(self.history))

    @property
    def may_restore(self) -> bool:
        return self.restores < MAX_RESTORES - 1

    def restore(self, backup: FakeCollection) -> None:
        """The cluster goes back to an older revision and goes on from there; every watch ends."""
        assert self.may_restore
        self.restores += 1
        self.revision, self.compacted = backup.revision, backup.compacted
        self.pods, self.history = dict(backup.pods), list(backup.history)
        self.drop(StreamEnded("server restarted"))

    def compact(self) -> None:
        """Forget the past: watches from before now are refused."""
        self.history.clear()
        self.compacted = self.revision

    def drop(self, error: Exception | None = None, *, mid_event: bool = False) -> None:
        """End every watch, in order or with an error, possibly in the middle of an event."""
        for stream in list(self.streams):
            if mid_event:
                stream.send(b'{"type":"ADDED","object":{"metad')
            stream.end(error)

    def expire(self) -> None:
        """Every watch gets an ERROR event."""
        status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
        for stream in list(self.streams):
            stream.send(encode_event("ERROR", status))

    def repeat(self, count: int) -> None:
        """Deliver the last events once more."""
        for _, type_, pod in self.history[-count:]:
            for stream in list(self.streams):
                stream.send(encode_event(type_, pod))

    def bookmark(self, **annotations: str) -> bytes:
        metadata = {"resourceVersion": str(self.revision), "annotations": annotations or None}
        return encode_event("BOOKMARK", {"kind": "Pod", "metadata": metadata})

    def send_bookmarks(self) -> None:
        for stream in list(self.streams):
            stream.send(self.bookmark())

    # ListerWatcher.

    async def list_page(self, *, limit: int, continue_token: str) -> ListOf[Pod]:
        await asyncio.sleep(0)
        self.requests.append(("list", continue_token))
        if self.faults:
            raise self.faults.popleft()
        if continue_token and self.expires_continue:
            self.expires_continue = False
            raise Gone("continue token expired")
        # Pages of one consistent read: the token names the revision and how far we got.
        revision, _, start = (continue_token or f"{self.revision}:0").partition(":")
        if int(revision) < self.compacted:
            raise Gone("continue token expired")
        if not continue_token:
            self.snapshots[revision] = [self.pods[name] for name in sorted(self.pods)]
        snapshot = self.snapshots[revision]
        end = int(start) + limit if limit else len(snapshot)
        token = f"{revision}:{end}" if end < len(snapshot) else ""
        return page_of(snapshot[int(start) : end], revision, token)

    async def read(self, namespace: str, name: str) -> ListOf[Pod]:
        await asyncio.sleep(0)
        self.requests.append(("read", name))
        if self.faults:
            raise self.faults.popleft()
        pods = [copy.deepcopy(self.pods[name])] if name in self.pods else []
        return page_of(pods, str(self.revision))

    def watch(
        self, *, resource_version: str, timeout_s: float, send_initial_events: bool
    ) -> Watch[Pod]:
        async def start() -> FakeStream:
            await asyncio.sleep(0)
            self.requests.append(("stream" if send_initial_events else "watch", resource_version))
            if self.faults:
                raise self.faults.popleft()
            stream = (
                self._start_stream()
                if send_initial_events
                else self._start_watch(int(resource_version))
            )
            await asyncio.sleep(0)  # things happen while the answer is on its way
            return stream

        return Watch(Pod, start)

    def _start_stream(self) -> FakeStream:
        if not self.supports_streaming:
            raise Invalid("sendInitialEvents is forbidden for watch")
        stream = FakeStream(self)
        self.streams.append(stream)
        for name in sorted(self.pods):
            stream.send(encode_event("ADDED", self.pods[name]))
        stream.send(self.bookmark(**{"k8s.io/initial-events-end": "true"}))
        return stream

    def _start_watch(self, revision: int) -> FakeStream:
        if revision < self.compacted:
            raise Gone(f"too old resource version: {revision} ({self.compacted})")
        stream = FakeStream(self, after=revision)
        self.streams.append(stream)
        for event_revision, type_, pod in self.history:
            if event_revision > revision:
                stream.send(encode_event(type_, pod))
        return stream


class Story:
    """A handler that believes nothing: every call must fit what it was told before."""

    def __init__(self) -> None:
        self.known: dict[str, Pod] = {}
        self.calls: list[tuple[str, str]] = []
        self.seen: set[tuple[str, str]] = set()
        self.was_restored = False
        """What is deleted may come back: a list from before the restore may end after it."""
        self.tombstones: list[str] = []

    @property
    def handler(self) -> EventHandler[Pod]:
        return EventHandler(on_add=self.on_add, on_update=self.on_update, on_delete=self.on_delete)

    def _note(self, what: str, pod: Pod) -> None:
        self.calls.append((what, pod.metadata.name))
        if what != "delete":
            revision = (pod.metadata.uid, pod.metadata.resource_version)
            assert revision not in self.seen, f"{revision} delivered twice"
            self.seen.add(revision)

    def on_add(self, pod: Pod) -> None:
        assert pod.metadata.name not in self.known
        self.known[pod.metadata.name] = pod
        self._note("add", pod)

    def on_update(self, old: Pod, new: Pod) -> None:
        assert self.known[new.metadata.name] is old
        assert old.metadata.uid == new.metadata.uid
        assert int(old.metadata.resource_version) < int(new.metadata.resource_version)
        self.known[new.metadata.name] = new
        self._note("update", new)

    def on_delete(self, gone: Pod | DeletedFinalStateUnknown[Pod]) -> None:
        if isinstance(gone, DeletedFinalStateUnknown):
            assert gone.obj is self.known[gone.obj.metadata.name]
            self.tombstones.append(gone.key)
            gone = gone.obj
        known = self.known.pop(gone.metadata.name)
        assert known.metadata.uid == gone.metadata.uid
        if self.was_restored:
            self.seen.discard((known.metadata.uid, known.metadata.resource_version))
        self._note("delete", gone)


@pytest.fixture
def collection() -> FakeCollection:
    return FakeCollection()


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def new_collection() -> Callable[..., FakeCollection]:
    return FakeCollection


@pytest.fixture
def new_story() -> Callable[[], Story]:
    return Story


@pytest.fixture
def lost() -> StreamEnded:
    return StreamEnded("server went away")
