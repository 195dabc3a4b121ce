"""The server of a sequence's extenders: it answers over HTTP, keeps what it was asked, and binds
where it is to bind.
"""

import json

import aiohttp
import msgspec
import pytest

from kubesched.base.errors import Conflict, NotFound
from kubesched.lab.conformance.extender_server import extender_server
from kubesched.lab.conformance.extenders import HOST
from kubesched.lab.conformance.sequences import ExtenderPolicy

POD = {"metadata": {"namespace": "default", "name": "a"}, "spec": {"priority": 10}}


class Client:
    """Has one pod; takes bindings, or refuses them."""

    def __init__(self, error=None, pod=POD):
        self.posted = []
        self._error = error
        self._pod = pod

    async def get_raw(self, path):
        if self._pod is None:
            raise NotFound("no such pod")
        assert path == "/api/v1/namespaces/default/pods/a"
        return msgspec.json.encode(self._pod)

    async def post_raw(self, path, body):
        if self._error is not None:
            raise self._error
        self.posted.append((path, msgspec.json.decode(body)))
        return b"{}"


async def asked(server, path, question):
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}{path}", data=json.dumps(question)) as answer,
    ):
        return answer.status, json.loads(await answer.read())


@pytest.fixture
async def serve():
    async def play(client, *policies):
        context = extender_server(client, policies)
        server = await context.__aenter__()
        opened.append(context)
        return server

    opened = []
    yield play
    for context in opened:
        await context.__aexit__(None, None, None)


async def test_questions_are_answered_and_kept(serve):
    server = await serve(
        Client(), ExtenderPolicy("x0", "s"), ExtenderPolicy("x1", "s", reverses=True)
    )
    question = {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]}
    assert (await asked(server, "/x0/filter", question))[1]["NodeNames"] == ["n1", "n2"]
    assert (await asked(server, "/x1/filter", question))[1]["NodeNames"] == ["n2", "n1"]
    assert server.asked_about("default/a") == {"x0 filter n1 n2", "x1 filter n1 n2"}
    assert server.asked_about("default/b") == set()


async def test_its_address_is_part_of_configurations_but_not_of_messages(serve):
    server = await serve(Client(), ExtenderPolicy("x0", "s"))
    configured = server.configured({"extenders": [{"urlPrefix": f"{HOST}/x0"}]})
    assert configured == {"extenders": [{"urlPrefix": f"{server.url}/x0"}]}
    assert server.impersonal(f"failed at {server.url}/x0/filter") == f"failed at {HOST}/x0/filter"


async def test_a_pod_is_bound_before_the_scheduler_is_told(serve):
    client = Client()
    server = await serve(client, ExtenderPolicy("x0", "s"))
    question = {"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    assert await asked(server, "/x0/bind", question) == (200, {})
    ((path, binding),) = client.posted
    assert path == "/api/v1/namespaces/default/pods/a/binding"
    assert binding["metadata"]["uid"] == "u"
    assert binding["target"]["name"] == "n1"


async def test_what_the_api_server_says_of_a_binding_is_passed_on(serve):
    server = await serve(Client(Conflict("already bound")), ExtenderPolicy("x0", "s"))
    question = {"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    assert await asked(server, "/x0/bind", question) == (200, {"Error": "already bound"})


async def test_whether_a_pod_is_bound_follows_from_the_api_servers_pod(serve):
    """Not from a watch, which may not have seen the pod yet when the scheduler binds it."""
    meek = {**POD, "spec": {"priority": -1}}
    question = {"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    refuses = ExtenderPolicy("x0", "s", unbound=100)
    for pod, answer in [(meek, {"Error": "x0 does not bind a"}), (POD, {}), (None, {})]:
        server = await serve(Client(pod=pod), refuses)
        assert await asked(server, "/x0/bind", question) == (200, answer)


async def test_without_extenders_nothing_is_served():
    async with extender_server(Client(), ()) as server:
        assert server.url == ""
        assert server.configured({"a": 1}) == {"a": 1}
        assert server.impersonal("text") == "text"
