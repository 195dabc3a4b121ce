"""Events over REST go to the right place in the right form; only a server without the group is told
apart.
"""

from __future__ import annotations

import json
import random

import pytest

from kubesched.client.event_series import EventEntry, Reporter
from kubesched.client.rest import RestClient
from kubesched.client.retry import RetryPolicy


class Answer:
    """A finished response."""

    def __init__(self, status: int, body: object) -> None:
        self.status = status
        self.headers = {"content-type": "application/json"}
        self._body = json.dumps(body).encode()

    async def read(self, max_bytes: int = 0) -> bytes:
        return self._body

    def close(self) -> None: ...


class RecordingTransport:
    """Remembers requests and gives the same answer to all."""

    def __init__(self, status: int = 200) -> None:
        self.requests = []
        self._status = status

    async def request(self, request):
        self.requests.append(request)
        if self._status >= 400:
            return Answer(self._status, {"kind": "Status", "code": self._status, "message": "no"})
        return Answer(self._status, json.loads(request.body or b"{}"))

    async def aclose(self) -> None: ...


def client(transport: RecordingTransport) -> RestClient:
    return RestClient(
        transport,
        user_agent="test",
        random=random.Random(1),
        policy=RetryPolicy(max_attempts=1),
    )


ABOUT = ("Pod", "ns", "web-1", "u1", "v1", "42", "")


@pytest.mark.parametrize(
    ("is_legacy", "version", "path"),
    [
        (False, "events.k8s.io/v1", "/apis/events.k8s.io/v1/namespaces/ns/events"),
        (True, "v1", "/api/v1/namespaces/ns/events"),
    ],
)
async def test_events_are_posted_and_patched_where_their_form_lives(is_legacy, version, path):
    transport = RecordingTransport()
    reporter = Reporter("sched", "host", is_legacy=is_legacy)
    event = EventEntry((reporter, "Normal", "Why", "", ABOUT, None, ""), "note", 1.0, 0x17F)
    event.give_name(random.Random(1))
    event.count = 2
    await client(transport).create_event(event, is_series=False)
    await client(transport).patch_event(event)
    created, patched = transport.requests
    assert (created.method, created.target) == ("POST", path)
    assert json.loads(created.body)["apiVersion"] == version
    assert (patched.method, patched.target) == ("PATCH", f"{path}/web-1.17f")
    assert patched.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert json.loads(patched.body) == event.series_change()
