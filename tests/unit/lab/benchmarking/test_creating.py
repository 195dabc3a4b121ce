"""Making a workload's objects: all of them, at their rate, and an error that names the one that was
refused.
"""

import json

import pytest

from kubesched.base.clock import SystemClock
from kubesched.base.errors import AlreadyExists, KubeschedError, TransportError
from kubesched.lab.benchmarking.end_to_end.creating import CREATORS, Creator


class Server:
    """Takes what is posted; `fault` is raised for objects of that name."""

    account = ""

    def __init__(self, refused="", fault=None):
        self.posted, self.put, self.refused, self.fault = [], [], refused, fault

    async def post_raw(self, path, body):
        made = json.loads(body)
        if made["metadata"]["name"] == self.refused:
            raise self.fault
        self.posted.append((path, made["metadata"]["name"]))

    async def get_raw(self, path):
        return json.dumps({"spec": {"serviceAccountName": self.account}}).encode()

    async def put_raw(self, path, body):
        made = json.loads(body)
        if made["metadata"]["name"] == self.refused:
            raise self.fault
        self.put.append((path, made))


def pods(count):
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": f"pod-{n}"}}
        for n in range(count)
    ]


async def test_every_object_is_posted_once_to_its_collection():
    server = Server()
    await Creator(server, SystemClock()).create_all(pods(100))
    assert sorted(server.posted) == sorted(
        ("/api/v1/namespaces/ns/pods", f"pod-{n}") for n in range(100)
    )


async def test_objects_are_sent_at_their_rate():
    sent, clock = {}, SystemClock()

    class Timed(Server):
        async def post_raw(self, path, body):
            sent[json.loads(body)["metadata"]["name"]] = clock.monotonic()

    began = clock.monotonic()
    await Creator(Timed(), clock).create_all(pods(CREATORS), per_second=400.0)
    for number in range(CREATORS):
        assert sent[f"pod-{number}"] - began > (number - 1) / 400


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(TransportError("no answer"), id="no answer"),
        pytest.param(AlreadyExists("there is one"), id="it exists"),
    ],
)
async def test_a_refused_object_is_named(fault):
    with pytest.raises(ExceptionGroup) as failed:
        await Creator(Server("pod-7", fault), SystemClock()).create_all(pods(20))
    (error,) = failed.value.exceptions
    assert isinstance(error, KubeschedError)
    assert str(error) == f"cannot create Pod ns/pod-7: {fault}"


async def test_what_may_exist_may_exist():
    creator = Creator(Server("pod-0", AlreadyExists("there is one")), SystemClock())
    await creator.create(pods(1)[0], may_exist=True)


async def test_an_unknown_kind_is_refused():
    strange = {"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "x"}}
    with pytest.raises(KubeschedError, match=r"Thing x: example.test/v1 is not known here"):
        await Creator(Server(), SystemClock()).create(strange)


async def test_creation_stops_when_something_else_has_gone_wrong():
    server = Server()

    def check():
        raise KubeschedError("the scheduler ended")

    with pytest.raises(ExceptionGroup):
        await Creator(server, SystemClock()).create_all(pods(500), check=check)
    assert len(server.posted) < 500


async def test_an_object_is_replaced_whole_then_its_status():
    server, (pod,) = Server(), pods(1)
    await Creator(server, SystemClock()).replace(pod, ())
    path = "/api/v1/namespaces/ns/pods/pod-0"
    assert server.put == [
        (f"{path}?fieldValidation=Strict", pod),
        (f"{path}/status?fieldValidation=Strict", pod),
    ]


async def test_a_pod_keeps_the_service_account_that_the_server_gave_it():
    server, (pod,) = Server(), pods(1)
    server.account = "default"
    await Creator(server, SystemClock()).replace(pod | {"spec": {"containers": []}}, ())
    _, sent = server.put[0]
    assert sent["spec"] == {"serviceAccountName": "default", "containers": []}


async def test_a_named_subresource_is_replaced_in_the_objects_place():
    server, (pod,) = Server(), pods(1)
    await Creator(server, SystemClock()).replace(pod, ("resize",))
    assert [path.partition("?")[0].rpartition("/")[2] for path, _ in server.put] == [
        "resize",
        "status",
    ]


async def test_a_refused_replacement_is_named():
    fault = TransportError("no answer")
    with pytest.raises(KubeschedError, match="cannot update Pod ns/pod-0: no answer"):
        await Creator(Server("pod-0", fault), SystemClock()).replace(pods(1)[0], ())
