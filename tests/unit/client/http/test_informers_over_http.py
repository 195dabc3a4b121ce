"""The whole way from socket to lister: factory, informers, REST, watch, TLS, against a server that
cuts and refuses.

What informers do in detail is proved in `tests/unit/client/informers`; here it is that the layers
fit together.
"""

from __future__ import annotations

import asyncio
import random
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.kinds import PODS
from kubesched.base.clock import SystemClock
from kubesched.base.errors import DeadlineExceeded
from kubesched.client.informers.collection import Selection
from kubesched.client.informers.factory import InformerFactory, UndeclaredKind
from kubesched.client.informers.informer import EventHandler
from kubesched.client.informers.reflector import ReflectorSettings
from kubesched.client.rest import RestClient


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


class FakeApi:
    """Pods and nodes, list and watch, over scripted connections."""

    def __init__(self, *, streams_lists: bool = True) -> None:
        self.streams_lists = streams_lists
        self.revision = 100
        self.objects: dict[str, dict[str, dict]] = {"pods": {}, "nodes": {}}
        self.history: list[tuple[int, str, bytes]] = []
        self.compacted = 0
        self.watchers: list[tuple[str, object, asyncio.Event]] = []
        self.refusals: list[tuple[str, bytes, dict[str, str]]] = []
        self.requests: list[str] = []
        self.forbidden: set[str] = set()

    def put(self, resource: str, name: str, **labels: str) -> None:
        self.revision += 1
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.revision)}
        if resource == "pods":
            metadata["namespace"] = "d"
        kind = "ADDED" if name not in self.objects[resource] else "MODIFIED"
        self.objects[resource][name] = {"metadata": {**metadata, "labels": labels}}
        self._note(resource, kind, self.objects[resource][name])

    def remove(self, resource: str, name: str) -> None:
        self.revision += 1
        gone = self.objects[resource].pop(name)
        gone["metadata"]["resourceVersion"] = str(self.revision)
        self._note(resource, "DELETED", gone)

    def _note(self, resource: str, kind: str, obj: dict) -> None:
        self.history.append((self.revision, resource, self.line(kind, obj)))
        for _, _, news in self.watchers:
            news.set()

    def line(self, kind: str, obj: dict) -> bytes:
        return encode({"type": kind, "object": obj}) + b"\n"

    def cut(self, last: bytes = b"") -> None:
        """End every watch abruptly, after these bytes."""
        for _, peer, news in self.watchers:
            if last:
                peer.writer.write(b"%x\r\n%s" % (len(last) + 99, last))
            peer.writer.close()
            news.set()

    async def script(self, peer) -> None:
        while True:
            request = await peer.read_request()
            url = urlsplit(request.target)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            resource = url.path.rsplit("/", 1)[1]
            self.requests.append(request.target)
            if resource in self.forbidden:
                body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
                await peer.answer(encode(body), status="403 Forbidden")
            elif self.refusals:
                status, body, headers = self.refusals.pop(0)
                await peer.answer(body, status=status, **headers)
            elif "watch" in query:
                await self.serve_watch(peer, resource, query)
                return
            else:
                await self.serve_list(peer, resource, query)

    async def serve_list(self, peer, resource: str, query: dict[str, str]) -> None:
        items = [self.objects[resource][name] for name in sorted(self.objects[resource])]
        start = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": str(self.revision)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        await peer.answer(encode({"metadata": metadata, "items": items[start : start + limit]}))

    async def serve_watch(self, peer, resource: str, query: dict[str, str]) -> None:
        news = asyncio.Event()
        if "sendInitialEvents" in query:
            if not self.streams_lists:
                body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "no"}
                await peer.answer(encode(body), status="422 Unprocessable Entity")
                return
            await peer.start_chunked()
            for name in sorted(self.objects[resource]):
                await peer.chunk(self.line("ADDED", self.objects[resource][name]))
            position = self.revision
            end = {"k8s.io/initial-events-end": "true"}
            mark = {"metadata": {"resourceVersion": str(position), "annotations": end}}
            await peer.chunk(self.line("BOOKMARK", mark))
        else:
            position = int(query["resourceVersion"])
            if position < self.compacted:
                body = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}
                await peer.answer(encode(body), status="410 Gone")
                return
            await peer.start_chunked()
        watcher = (resource, peer, news)
        self.watchers.append(watcher)
        try:
            while not peer.writer.is_closing():
                for revision, changed, line in self.history:
                    if revision > position and changed == resource:
                        await peer.chunk(line)
                position = self.revision
                news.clear()
                await news.wait()
        finally:
            self.watchers.remove(watcher)


@pytest.fixture
def api():
    return FakeApi()


class Setup:
    def __init__(self, transport) -> None:
        client = RestClient(
            transport, user_agent="kubesched/test", random=random.Random(5), deadline_s=5.0
        )
        self.factory = InformerFactory(
            client,
            clock=SystemClock(),
            random=random.Random(5),
            settings=ReflectorSettings(
                backoff_initial_s=0.001, backoff_max_s=0.01, steady_s=0.0, page_size=2
            ),
        )


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # the condition is another party's state
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "paged"])
async def test_listers_follow_the_server_through_cuts_and_compactions(
    serve, connect, tls, api, streams
):
    api.streams_lists = streams
    server = await serve(api.script, tls.server())
    setup = Setup(connect(server, context=tls.client()))
    for name in "abcde":
        api.put("pods", name)
    api.put("nodes", "n1")
    pods = setup.factory.informer(Pod, selection=Selection(field_selector="status.phase!=Failed"))
    nodes = setup.factory.informer(Node)
    gone = []
    pods.add_event_handler(EventHandler(on_delete=gone.append))

    def is_current() -> bool:
        have = {pod.metadata.name: pod.metadata.resource_version for pod in pods.store}
        return have == {
            name: obj["metadata"]["resourceVersion"] for name, obj in api.objects["pods"].items()
        }

    async with asyncio.TaskGroup() as group:
        setup.factory.start(group)
        setup.factory.start(group)
        await setup.factory.wait_for_sync(10.0)
        assert is_current()
        assert [node.metadata.name for node in setup.factory.of(Node).list()] == ["n1"]

        api.put("pods", "f", app="web")
        api.remove("pods", "a")
        await until(is_current)

        api.cut(last=b'{"type":"ADDED","object":{"met')  # in the middle of a line, and of a chunk
        api.put("pods", "g")
        await until(is_current)

        api.cut()
        api.remove("pods", "b")
        api.history.clear()
        api.compacted = api.revision
        await until(is_current)
        await until(lambda: len(api.watchers) == 2)
        await setup.factory.stop()

    assert any("fieldSelector=status.phase%21%3DFailed" in target for target in api.requests)
    assert len(gone) == 2
    assert len(nodes.store) == 1
    assert setup.factory.of(Pod).get("d", "f").metadata.labels == {"app": "web"}


async def test_server_that_is_busy_is_asked_again_later(serve, connect, api):
    api.refusals = [("429 Too Many Requests", b"", {"Retry_After": "0"})] * 3
    setup = Setup(connect(await serve(api.script)))
    api.put("pods", "a")
    informer = setup.factory.informer(Pod)
    async with asyncio.TaskGroup() as group:
        setup.factory.start(group)
        await setup.factory.wait_for_sync(10.0)
        await setup.factory.stop()
    assert len(informer.store) == 1


async def test_informer_that_never_syncs_is_named_with_its_reason(serve, connect, api):
    api.forbidden = {"pods"}
    setup = Setup(connect(await serve(api.script)))
    setup.factory.informer(Pod)
    setup.factory.informer(Node)
    async with asyncio.TaskGroup() as group:
        setup.factory.start(group)
        await until(lambda: setup.factory.informer(Node).has_synced)
        with pytest.raises(DeadlineExceeded, match=r"of: pods \(no\)$"):
            await setup.factory.wait_for_sync(0.2)
        await setup.factory.stop()


async def test_what_was_not_started_can_be_stopped():
    setup = Setup(None)
    setup.factory.informer(Pod)
    await setup.factory.stop()
    assert setup.factory.started() == []


def test_informers_are_shared_and_their_selection_is_fixed():
    factory = Setup(None).factory
    chosen = Selection(namespace="d")
    informer = factory.informer(Pod, selection=chosen)
    assert factory.informer(Pod) is informer
    assert factory.informer(PODS, selection=chosen) is informer
    with pytest.raises(ValueError, match="pods exists already with another selection"):
        factory.informer(Pod, selection=Selection(namespace="other"))


def test_a_lister_of_a_kind_that_is_not_watched_is_an_error():
    with pytest.raises(UndeclaredKind, match="Namespace objects are not watched"):
        Setup(None).factory.of(Namespace)
