"""Typed verbs: what goes out for each of them, what comes back, and which failures are repeated.

A transport that answers from a script stands in for the server; real sockets are in `http/`.
"""

from __future__ import annotations

import random
from collections import deque
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from kubesched.api import protobuf
from kubesched.api.codec import Preserved
from kubesched.api.coordination_v1 import Lease, LeaseSpec
from kubesched.api.core_v1 import ConfigMap, Node, PersistentVolume, Pod
from kubesched.api.kinds import Kind
from kubesched.api.meta import DeleteOptions, ObjectMeta
from kubesched.api.status import MAX_RETRY_AFTER_S
from kubesched.app.scheduling_calls import CarefulCalls
from kubesched.base.clock import ManualClock
from kubesched.base.errors import (
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    StreamEnded,
    TooManyRequests,
    TransportError,
    WriteRefused,
)
from kubesched.base.rate_limit import TokenBucket
from kubesched.client import patch as patches
from kubesched.client.event_series import EventEntry, Reporter
from kubesched.client.exchange import BufferedResponse
from kubesched.client.leader_election import LeaseClient
from kubesched.client.rest import RestClient, user_agent
from kubesched.client.retry import RetryPolicy, parse_retry_after


class ScriptedTransport:
    """Gives the prepared answers in order and remembers the requests."""

    def __init__(self) -> None:
        self.answers: deque = deque()
        self.requests: list = []
        self.deadlines: list[float] = []

    def will(self, *answers) -> None:
        self.answers += answers

    async def request(self, request):
        self.requests.append(request)
        self.deadlines.append(request.deadline_s)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        pass


def ok(body: object = None, status: int = 200) -> BufferedResponse:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body or {})
    return BufferedResponse(status, [], data)


def refusal(code: int, reason: str = "", **headers: str) -> BufferedResponse:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "m"}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return BufferedResponse(code, raw, msgspec.json.encode(body))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def transport():
    return ScriptedTransport()


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def client(transport, clock, pauses):
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    return RestClient(
        transport,
        user_agent=user_agent("test"),
        clock=clock,
        random=random.Random(3),
        sleep=sleep,
        deadline_s=30.0,
    )


POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "d", "uid": "u"}}


def sent(transport) -> tuple[str, str, dict[str, list[str]]]:
    request = transport.requests[-1]
    parts = urlsplit(request.target)
    return request.method, parts.path, parse_qs(parts.query, strict_parsing=bool(parts.query))


# What goes out and comes back.


async def test_get_names_the_object_and_decodes_it(client, transport):
    transport.will(ok(POD))
    pod = await client.get(Pod, "p", "d")
    assert (pod.metadata.name, pod.metadata.uid) == ("p", "u")
    assert sent(transport) == ("GET", "/api/v1/namespaces/d/pods/p", {})
    assert transport.requests[0].headers["User-Agent"].startswith("kubesched/")
    assert transport.requests[0].headers["User-Agent"].endswith("/test")
    assert transport.requests[0].headers["Accept"] == "application/json"


async def test_cluster_scoped_and_grouped_kinds_have_their_own_paths(client, transport):
    transport.will(ok({"metadata": {"name": "n"}}), ok({"metadata": {"name": "l"}}))
    await client.get(Node, "n")
    assert sent(transport)[1] == "/api/v1/nodes/n"
    await client.get(Lease, "l", "kube-system")
    assert sent(transport)[1] == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l"


async def test_kinds_outside_the_table_can_be_brought_along(client, transport):
    widgets = Kind("example.test", "v2", "widgets", ConfigMap)
    transport.will(ok({"metadata": {"name": "w"}}))
    await client.get(widgets, "w", "d")
    assert sent(transport)[1] == "/apis/example.test/v2/namespaces/d/widgets/w"


async def test_names_are_escaped(client, transport):
    transport.will(ok(POD), ok(status=201))
    await client.get(Pod, "a/../b?c", "d e")
    assert transport.requests[0].target == "/api/v1/namespaces/d%20e/pods/a%2F..%2Fb%3Fc"
    await client.bind("d e", "a/b", 'u"', "n")
    assert transport.requests[1].target == "/api/v1/namespaces/d%20e/pods/a%2Fb/binding"
    assert msgspec.json.decode(transport.requests[1].body)["metadata"]["uid"] == 'u"'


async def test_list_pages_carry_selectors_and_tokens(client, transport):
    transport.will(ok({"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [POD]}))
    page = await client.list_page(
        Pod, "d", label_selector="a=b,c!=d", field_selector="spec.nodeName=", limit=2
    )
    assert sent(transport) == (
        "GET",
        "/api/v1/namespaces/d/pods",
        {"labelSelector": ["a=b,c!=d"], "fieldSelector": ["spec.nodeName="], "limit": ["2"]},
    )
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "t")
    assert page.items[0].metadata.name == "p"


async def test_list_joins_its_pages(client, transport):
    transport.will(
        ok({"metadata": {"resourceVersion": "7", "continue": "t1"}, "items": [POD, POD]}),
        ok({"metadata": {"resourceVersion": "7", "continue": "t2"}, "items": [POD]}),
        ok({"metadata": {"resourceVersion": "7"}, "items": None}),
    )
    result = await client.list(Pod, page_size=2)
    assert len(result.items) == 3
    assert result.metadata.resource_version == "7"
    assert [parse_qs(urlsplit(r.target).query).get("continue") for r in transport.requests] == [
        None,
        ["t1"],
        ["t2"],
    ]


async def test_list_whose_token_expired_starts_over_without_pages(client, transport):
    transport.will(
        ok({"metadata": {"resourceVersion": "7", "continue": "t1"}, "items": [POD]}),
        refusal(410, "Expired"),
        ok({"metadata": {"resourceVersion": "9"}, "items": [POD, POD]}),
    )
    result = await client.list(Pod, page_size=1)
    assert (len(result.items), result.metadata.resource_version) == (2, "9")
    assert sent(transport) == ("GET", "/api/v1/pods", {})


async def test_watch_asks_for_bookmarks_and_a_life_span(client, transport):
    event = msgspec.json.encode({"type": "ADDED", "object": POD}) + b"\n"
    transport.will(BufferedResponse(200, [], event))
    watch = client.watch(Pod, field_selector="status.phase!=Failed", resource_version="5")
    async with watch:
        assert [event.object.metadata.name async for event in watch] == ["p"]
    method, path, query = sent(transport)
    assert (method, path) == ("GET", "/api/v1/pods")
    assert query == {
        "watch": ["true"],
        "allowWatchBookmarks": ["true"],
        "fieldSelector": ["status.phase!=Failed"],
        "resourceVersion": ["5"],
        "timeoutSeconds": ["300"],
    }
    request = transport.requests[0]
    assert request.stream
    assert request.first_byte_s < request.deadline_s
    assert request.deadline_s > 300


async def test_streamed_list_is_asked_for_as_the_server_wants_it(client, transport):
    transport.will(refusal(422, "Invalid"))
    with pytest.raises(Invalid):
        async with client.watch(Pod, send_initial_events=True):
            raise AssertionError("entered a refused watch")
    query = sent(transport)[2]
    assert query["sendInitialEvents"] == ["true"]
    assert query["resourceVersionMatch"] == ["NotOlderThan"]


async def test_create_posts_to_the_collection(client, transport):
    transport.will(ok({"metadata": {"name": "c", "namespace": "d", "uid": "new"}}, status=201))
    made = await client.create(
        ConfigMap(metadata=ObjectMeta(name="c", namespace="d"), data={"k": "v"})
    )
    assert made.metadata.uid == "new"
    assert sent(transport) == ("POST", "/api/v1/namespaces/d/configmaps", {})
    body = msgspec.json.decode(transport.requests[0].body)
    assert (body["kind"], body["apiVersion"], body["data"]) == ("ConfigMap", "v1", {"k": "v"})


async def test_update_and_update_status_put_to_the_object(client, transport):
    transport.will(ok(POD), ok(POD))
    pod = Pod(metadata=ObjectMeta(name="p", namespace="d", resource_version="4"))
    await client.update(pod)
    assert sent(transport)[:2] == ("PUT", "/api/v1/namespaces/d/pods/p")
    await client.update_status(pod)
    assert sent(transport)[:2] == ("PUT", "/api/v1/namespaces/d/pods/p/status")


PV = {
    "kind": "PersistentVolume",
    "apiVersion": "v1",
    "metadata": {"name": "v", "resourceVersion": "4", "managedFields": [{"manager": "x"}]},
    "spec": {"capacity": {"storage": "1Gi"}, "somethingNew": {"kept": True}},
}


async def test_update_merged_keeps_what_the_record_does_not_know(client, transport):
    transport.will(ok(PV), ok(PV))
    volume = msgspec.convert(PV, PersistentVolume)
    changed = msgspec.structs.replace(
        volume, metadata=msgspec.structs.replace(volume.metadata, labels={"a": "b"})
    )
    await client.update_merged(changed)
    assert sent(transport)[:2] == ("PUT", "/api/v1/persistentvolumes/v")
    body = msgspec.json.decode(transport.requests[1].body)
    assert body["spec"] == PV["spec"]
    assert body["metadata"] == {**PV["metadata"], "labels": {"a": "b"}}


async def test_update_merged_conflicts_if_the_object_moved_on(client, transport):
    transport.will(ok(PV))
    stale = PersistentVolume(metadata=ObjectMeta(name="v", resource_version="3"))
    with pytest.raises(Conflict, match="persistentvolumes"):
        await client.update_merged(stale)
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    ("patch", "content_type", "body"),
    [
        (patches.merge_patch({"a": None}), "application/merge-patch+json", {"a": None}),
        (
            patches.strategic_merge_patch({"status": {}}),
            "application/strategic-merge-patch+json",
            {"status": {}},
        ),
    ],
    ids=["merge", "strategic"],
)
async def test_each_patch_kind_has_its_content_type(client, transport, patch, content_type, body):
    transport.will(ok(POD))
    await client.patch(Pod, "p", "d", patch, subresource="status")
    assert sent(transport) == (
        "PATCH",
        "/api/v1/namespaces/d/pods/p/status",
        {},
    )
    request = transport.requests[0]
    assert request.headers["Content-Type"] == content_type
    assert msgspec.json.decode(request.body) == body


async def test_delete_sends_options_only_if_there_are_any(client, transport):
    transport.will(ok(), ok(), ok())
    await client.delete(Pod, "p", "d")
    assert (*sent(transport)[:2], transport.requests[0].body) == (
        "DELETE",
        "/api/v1/namespaces/d/pods/p",
        b"",
    )
    await client.delete(Pod, "p", "d", DeleteOptions(grace_period_seconds=0))
    body = msgspec.json.decode(transport.requests[1].body)
    assert (body["kind"], body["gracePeriodSeconds"]) == ("DeleteOptions", 0)
    await client.delete_collection(Pod, "d", label_selector="a=b")
    assert sent(transport) == (
        "DELETE",
        "/api/v1/namespaces/d/pods",
        {"labelSelector": ["a=b"]},
    )


async def test_bind_sends_exactly_what_kube_scheduler_sends(client, transport):
    transport.will(ok({"kind": "Status", "status": "Success"}, status=201))
    await client.bind("d", "p", "u", "node-1")
    assert sent(transport) == ("POST", "/api/v1/namespaces/d/pods/p/binding", {})
    assert msgspec.json.decode(transport.requests[0].body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "target": {"kind": "Node", "name": "node-1"},
    }
    assert transport.requests[0].headers["Content-Type"] == "application/json"


async def test_raw_requests_reach_any_path(client, transport):
    transport.will(ok(b'{"major":"1"}'), ok(b"{}"))
    assert await client.get_raw("/version", {"a": "b"}) == b'{"major":"1"}'
    assert sent(transport) == ("GET", "/version", {"a": ["b"]})
    await client.post_raw("/apis/authentication.k8s.io/v1/tokenreviews", b"{}")
    assert sent(transport)[0] == "POST"


async def test_refusals_become_their_exceptions(client, transport):
    transport.will(refusal(404, "NotFound"))
    with pytest.raises(NotFound, match="m"):
        await client.get(Pod, "p", "d")


async def test_answer_of_the_wrong_shape_is_a_transport_error(client, transport):
    transport.will(ok({"metadata": {"name": 5}}))
    with pytest.raises(TransportError, match=r"cannot be understood.*metadata\.name"):
        await client.get(Pod, "p", "d")


# Repetition.


async def test_read_is_repeated_after_server_errors_and_lost_connections(client, transport, pauses):
    transport.will(
        refusal(503, "ServiceUnavailable"),
        StreamEnded("gone", sent=True),
        ConnectFailed("refused"),
        ok(POD),
    )
    assert (await client.get(Pod, "p", "d")).metadata.name == "p"
    assert len(pauses) == 3
    for number, pause in enumerate(pauses):
        assert 0.1 * 2**number <= pause <= 0.2 * 2**number


@pytest.mark.parametrize(
    ("fault", "is_repeated"),
    [
        pytest.param(ConnectFailed("refused"), True, id="it was never sent"),
        pytest.param(StreamEnded("gone", sent=False), True, id="it was sent only in part"),
        pytest.param(DeadlineExceeded("stuck", sent=False), True, id="it was never accepted"),
        pytest.param(refusal(429), True, id="the server was too busy"),
        pytest.param(StreamEnded("gone", sent=True), False, id="not if it may have arrived"),
        pytest.param(DeadlineExceeded("late", sent=True), False, id="not if it may still act"),
        pytest.param(refusal(500, "InternalError"), False, id="not after a server error"),
        pytest.param(refusal(503), False, id="not after unavailability"),
        pytest.param(TransportError("nonsense"), False, id="not after nonsense"),
        pytest.param(refusal(409, "Conflict"), False, id="not after a conflict"),
    ],
)
async def test_write_is_repeated_only_if_it_had_no_effect(client, transport, fault, is_repeated):
    transport.will(fault, ok(POD))
    pod = Pod(metadata=ObjectMeta(name="p", namespace="d"))
    if is_repeated:
        await client.create(pod)
    else:
        with pytest.raises((TransportError, ServerError, Conflict)):
            await client.create(pod)
    assert len(transport.requests) == 1 + is_repeated


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
async def test_refusals_for_good_are_not_repeated(client, transport, code):
    transport.will(refusal(code))
    with pytest.raises((Exception,), match="m"):
        await client.get(Pod, "p", "d")
    assert len(transport.requests) == 1


async def test_pause_the_server_asks_for_is_kept_with_jitter(client, transport, pauses):
    transport.will(refusal(429, Retry_After="3"), refusal(503, Retry_After="2"), ok(POD))
    await client.get(Pod, "p", "d")
    assert 3.0 <= pauses[0] <= 3.3
    assert 2.0 <= pauses[1] <= 2.2
    assert transport.deadlines == pytest.approx([30.0, 30.0 - pauses[0], 30.0 - sum(pauses)])


async def test_pause_longer_than_the_deadline_is_not_waited_for(client, transport, pauses):
    transport.will(refusal(429, Retry_After="60"))
    with pytest.raises(TooManyRequests) as caught:
        await client.get(Pod, "p", "d")
    assert caught.value.retry_after_s == 60.0
    assert pauses == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param("7", 7.0, id="seconds"),
        pytest.param(" 0 ", 0.0, id="zero seconds"),
        pytest.param("61", MAX_RETRY_AFTER_S, id="capped"),
        pytest.param("9" * 400, MAX_RETRY_AFTER_S, id="float() makes these digits infinite"),
        pytest.param("9" * 5000, MAX_RETRY_AFTER_S, id="int() refuses this many digits"),
        pytest.param("Thu, 01 Jan 2026 00:00:12 GMT", 12.0, id="date"),
        pytest.param("Thu, 01 Jan 2026 00:00:12 -0000", 12.0, id="date without a time zone"),
        pytest.param("Wed, 31 Dec 2025 23:00:00 GMT", 0.0, id="past date"),
        pytest.param("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_S, id="distant date"),
        pytest.param("Fri, 99 Foo 2026 99:99:99 GMT", None, id="impossible date"),
        pytest.param("inf", None, id="infinity"),
        pytest.param("nan", None, id="not a number"),
        pytest.param("²", None, id="digit that is not ASCII"),
        pytest.param("٣", None, id="Arabic digit"),
        pytest.param("-5", None, id="negative"),
        pytest.param("1.5", None, id="fraction"),
        pytest.param("", None, id="empty"),
    ],
)
def test_retry_after_takes_ascii_digits_and_dates_and_is_capped(clock, header, seconds):
    assert parse_retry_after(header, clock.now()) == seconds


@pytest.mark.parametrize("value", ["²", "inf", "9" * 400])
async def test_absurd_retry_after_neither_raises_nor_stalls(client, transport, pauses, value):
    answer = refusal(429)
    answer.headers["retry-after"] = value
    transport.will(answer, ok(POD))
    if value.isascii() and value.isdigit():
        with pytest.raises(TooManyRequests) as caught:
            await client.get(Pod, "p", "d")
        assert caught.value.retry_after_s == MAX_RETRY_AFTER_S
    else:
        await client.get(Pod, "p", "d")
        assert sum(pauses) < 1.0


async def test_attempts_are_bounded(client, transport, pauses):
    transport.will(*[ConnectFailed("refused")] * 9)
    with pytest.raises(ConnectFailed):
        await client.get(Pod, "p", "d")
    assert len(transport.requests) == RetryPolicy().max_attempts


async def test_writes_without_permission_are_neither_sent_nor_repeated(transport, clock, pauses):
    client = RestClient(
        transport, user_agent="t", clock=clock, random=random.Random(3), may_write=lambda: False
    )
    with pytest.raises(WriteRefused):
        await client.bind("d", "p", "u", "n")
    with pytest.raises(WriteRefused):
        await client.delete(Pod, "p", "d")
    assert transport.requests == []
    assert pauses == []
    transport.will(ok(POD))
    await client.get(Pod, "p", "d")


async def test_binding_is_sent_once_whatever_happens(client, transport):
    for fault in (ConnectFailed("refused"), refusal(429), refusal(500)):
        transport.will(fault)
        with pytest.raises((ConnectFailed, TooManyRequests, ServerError)):
            await client.bind("d", "p", "u", "n")
    assert len(transport.requests) == 3


async def test_watch_is_sent_once(client, transport):
    transport.will(refusal(410, "Expired"))
    with pytest.raises(Gone):
        async with client.watch(Pod):
            raise AssertionError("entered a refused watch")
    assert len(transport.requests) == 1


async def test_every_attempt_counts_against_the_rate_limit(transport, clock):
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    client = RestClient(
        transport,
        user_agent="t",
        limiter=TokenBucket(1.0, 1, clock=clock, sleep=sleep),
        clock=clock,
        random=random.Random(3),
        sleep=sleep,
    )
    transport.will(ok(POD), ok(status=201), refusal(500), ok(POD))
    await client.get(Pod, "p", "d")
    await client.bind("d", "p", "u", "n")
    await client.get(Pod, "p", "d")
    limit_waits = [waits[0], waits[1], waits[3]]
    assert limit_waits == pytest.approx([1.0, 1.0, 1.0 - waits[2]])
    assert transport.deadlines[1] == pytest.approx(29.0)  # waiting is part of the deadline


# Adapters.


async def test_lease_client_keeps_the_lease_whole(client, transport):
    lease = {"metadata": {"name": "l", "namespace": "k", "resourceVersion": "1"}, "spec": {"x": 1}}
    transport.will(ok(lease), ok(lease), ok(lease, status=201))
    leases = LeaseClient(client, namespace="k", name="l")
    result = await leases.get()
    assert isinstance(result, Preserved)
    changed = result.with_record(
        msgspec.structs.replace(result.record, spec=LeaseSpec(holder_identity="me"))
    )
    await leases.update(changed)
    assert sent(transport)[:2] == (
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/k/leases/l",
    )
    assert msgspec.json.decode(transport.requests[1].body)["spec"] == {
        "x": 1,
        "holderIdentity": "me",
    }
    await leases.create(result.record)
    assert sent(transport)[:2] == ("POST", "/apis/coordination.k8s.io/v1/namespaces/k/leases")


async def test_scheduling_calls_are_kube_schedulers(client, transport):
    calls = CarefulCalls(client)
    pod = msgspec.convert(POD, Pod)
    transport.will(ok(status=201), ok(POD), ok(), ok(PV), ok(PV))
    await calls.bind_pod(pod, "n")
    assert sent(transport)[1].endswith("/pods/p/binding")
    await calls.patch_pod_status(pod, {"status": {"nominatedNodeName": None}})
    assert sent(transport)[:2] == ("PATCH", "/api/v1/namespaces/d/pods/p/status")
    assert transport.requests[-1].body == b'{"status":{"nominatedNodeName":null}}'
    await calls.delete_pod(pod)
    assert (sent(transport)[0], transport.requests[-1].body) == ("DELETE", b"")
    await calls.update(msgspec.convert(PV, PersistentVolume))
    assert [r.method for r in transport.requests[-2:]] == ["GET", "PUT"]


# Protobuf, for what is written once per pod.

PROTOBUF = "application/vnd.kubernetes.protobuf"
ABOUT = ("Pod", "ns", "web", "u1", "v1", "42", "")
EVENT = EventEntry(
    (Reporter("sched", "host", is_legacy=False), "Normal", "Why", "", ABOUT, None, ""),
    "note",
    7.0,
    1,
)
EVENT.name = "web.17f"


@pytest.fixture
def fluent(transport, clock):
    return RestClient(
        transport,
        user_agent="test",
        clock=clock,
        random=random.Random(3),
        prefers_protobuf=True,
    )


async def test_bindings_and_events_go_out_as_protobuf_if_that_is_preferred(fluent, transport):
    transport.will(ok(status=201), ok(status=201))
    await fluent.bind("ns", "web", "u1", "node-7")
    await fluent.create_event(EVENT)
    binding, event = transport.requests
    assert binding.body == protobuf.encode_binding("ns", "web", "u1", "node-7")
    assert event.body == EVENT.to_protobuf()
    assert binding.headers["Content-Type"] == event.headers["Content-Type"] == PROTOBUF
    assert event.target == "/apis/events.k8s.io/v1/namespaces/ns/events"


async def test_a_server_without_protobuf_gets_json_from_then_on(fluent, transport):
    transport.will(refusal(415, "UnsupportedMediaType"), *[ok(status=201)] * 3)
    await fluent.bind("ns", "web", "u1", "node-7")
    await fluent.bind("ns", "db", "u2", "node-7")
    await fluent.create_event(EVENT)
    types = [request.headers["Content-Type"] for request in transport.requests]
    assert types == [PROTOBUF, *["application/json"] * 3]
    assert msgspec.json.decode(transport.requests[1].body)["target"]["name"] == "node-7"


async def test_an_event_tells_too_that_there_is_no_protobuf(fluent, transport):
    transport.will(refusal(415, "UnsupportedMediaType"), *[ok(status=201)] * 2)
    await fluent.create_event(EVENT)
    await fluent.bind("ns", "web", "u1", "node-7")
    types = [request.headers["Content-Type"] for request in transport.requests]
    assert types == [PROTOBUF, *["application/json"] * 2]


async def test_names_that_protobuf_has_no_room_for_go_out_as_json(fluent, transport):
    transport.will(ok(status=201), ok(status=201))
    await fluent.bind("ns", "w" * 200, "u1", "node-7")
    await fluent.bind("ns", "web", "u1", "node-7")
    types = [request.headers["Content-Type"] for request in transport.requests]
    assert types == ["application/json", PROTOBUF]


def protobuf_answer(code: int, body: bytes) -> BufferedResponse:
    return BufferedResponse(code, [(b"Content-Type", PROTOBUF.encode())], body)


async def test_a_refusal_in_protobuf_is_the_same_error_as_in_json(fluent, transport):
    status = b"\x1a\x04mine\x22\x08Conflict\x30\x99\x03"
    body = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12" + bytes([len(status)]) + status
    transport.will(protobuf_answer(409, body))
    with pytest.raises(Conflict, match="mine") as failed:
        await fluent.bind("ns", "web", "u1", "node-7")
    assert (failed.value.code, failed.value.reason) == (409, "Conflict")


async def test_a_refusal_that_is_no_protobuf_still_counts_by_its_code(fluent, transport):
    transport.will(protobuf_answer(404, b"what?"))
    with pytest.raises(NotFound, match="cannot be understood"):
        await fluent.bind("ns", "web", "u1", "node-7")
