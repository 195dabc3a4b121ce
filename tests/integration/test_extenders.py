"""HTTP extenders over real sockets: their wire forms, their say in decisions, and what their failures cost."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kubesched.testing import make_node, make_pod
from kubesched.testing.harness import SchedulerHarness

GPU = "example.com/gpu"


class FakeExtender:
    """Answers verbs as the test says and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict]] = []
        self.answers: dict[str, object] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        body = await request.json()
        self.asked.append((verb, body))
        await self.gate.wait()
        answer = self.answers.get(verb, {})
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, web.Response):
            return answer
        return web.Response(text=json.dumps(answer), content_type="application/json")


@asynccontextmanager
async def serving(extender: FakeExtender):
    app = web.Application()
    app.router.add_post("/prefix/{verb}", extender.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/prefix/"
    finally:
        await runner.cleanup()


def config(url: str, **fields) -> str:
    extender = {"urlPrefix": url, "httpTimeout": "2s", **fields}
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [extender],
        }
    )


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # conditions of several parties, none of which signals
            await asyncio.sleep(0.005)


@asynccontextmanager
async def cluster(extender: FakeExtender, nodes: int = 3, **fields):
    async with serving(extender) as url, SchedulerHarness(config(url, **fields)) as world:
        for number in range(nodes):
            world.add_node(make_node(f"n{number}").build())
        yield world


def passing(*names):
    return lambda body: {
        "NodeNames": [n for n in body["NodeNames"] if n in names],
        "FailedNodes": {},
    }


async def test_a_filter_decides_and_speaks_capitalised_keys() -> None:
    extender = FakeExtender()
    extender.answers["filter"] = passing("n1")
    async with cluster(extender, filterVerb="filter", nodeCacheCapable=True) as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: world.client.bindings)
        assert world.client.bindings == {"default/p": "n1"}
    verb, body = extender.asked[0]
    assert verb == "filter"
    assert set(body) == {"Pod", "Nodes", "NodeNames"}
    assert body["Nodes"] is None
    assert sorted(body["NodeNames"]) == ["n0", "n1", "n2"]
    assert body["Pod"]["metadata"]["name"] == "p"


async def test_without_a_node_cache_whole_nodes_travel() -> None:
    extender = FakeExtender()
    extender.answers["filter"] = lambda body: {
        "nodes": {"items": [n for n in body["Nodes"]["items"] if n["metadata"]["name"] == "n2"]}
    }
    async with cluster(extender, filterVerb="filter") as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: world.client.bindings)
        assert world.client.bindings == {"default/p": "n2"}
    assert extender.asked[0][1]["NodeNames"] is None
    assert extender.asked[0][1]["Nodes"]["items"][0]["status"]["allocatable"]["cpu"] == "4"


async def test_reasons_of_an_extender_are_counted_like_any_other() -> None:
    extender = FakeExtender()
    extender.answers["filter"] = lambda body: {
        "NodeNames": [],
        "FailedNodes": {"n0": "no license"},
        "FailedAndUnresolvableNodes": {"n1": "wrong site", "n2": "wrong site"},
    }
    async with cluster(extender, filterVerb="filter", nodeCacheCapable=True) as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: world.condition("p"))
        assert world.condition("p")[1].startswith(
            "0/3 nodes are available: 1 no license, 2 wrong site."
        )
        assert world.place_in_queue("p") == "unschedulable"


async def test_priorities_are_scaled_and_weighted() -> None:
    extender = FakeExtender()
    extender.answers["prioritize"] = [{"Host": "n2", "Score": 10}, {"Host": "unknown", "Score": 10}]
    async with cluster(
        extender, prioritizeVerb="prioritize", weight=5, nodeCacheCapable=True
    ) as world:
        for number in range(3):
            world.add_pod(make_pod(f"p{number}").cpu("100m").build())
        await until(lambda: len(world.client.bindings) == 3)
        assert set(world.client.bindings.values()) == {"n2"}


async def test_an_extender_that_fails_to_rank_changes_nothing() -> None:
    extender = FakeExtender()
    extender.answers["prioritize"] = web.Response(status=500)
    async with cluster(
        extender, prioritizeVerb="prioritize", weight=5, nodeCacheCapable=True
    ) as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: world.client.bindings)


BROKEN = {
    "an error in the answer": lambda: {"Error": "out of tokens"},
    "a status other than 200": lambda: web.Response(status=503),
    "something that is no JSON": lambda: web.Response(text="<html>"),
    "a list where an object belongs": list,
    "a node that was not asked about": lambda: {"NodeNames": ["stranger"]},
    "names that are no text": lambda: {"NodeNames": [7]},
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_broken_filter_fails_the_attempt_with_a_clear_word(what: str) -> None:
    extender = FakeExtender()
    extender.answers["filter"] = lambda _body: BROKEN[what]()
    async with cluster(extender, filterVerb="filter", nodeCacheCapable=True) as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: world.condition("p"))
        reason, message = world.condition("p")
        assert reason == "SchedulerError"
        assert message
        assert world.place_in_queue("p") == "backoff"
        assert world.client.bindings == {}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_broken_filter_that_may_be_ignored_is(what: str) -> None:
    extender = FakeExtender()
    extender.answers["filter"] = lambda _body: BROKEN[what]()
    async with cluster(
        extender, filterVerb="filter", nodeCacheCapable=True, ignorable=True
    ) as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: world.client.bindings)


async def test_a_dead_extender_is_an_error_that_names_it() -> None:
    async with SchedulerHarness(config("http://127.0.0.1:1/x", filterVerb="filter")) as world:
        world.add_node(make_node("n0").build())
        world.add_pod(make_pod("p").build())
        await until(lambda: world.condition("p"))
        assert "127.0.0.1:1" in world.condition("p")[1]


async def test_only_pods_with_managed_resources_are_of_interest() -> None:
    extender = FakeExtender()
    extender.answers["filter"] = passing("n1")
    managed = [{"name": GPU, "ignoredByScheduler": True}]
    async with cluster(
        extender, filterVerb="filter", nodeCacheCapable=True, managedResources=managed
    ) as world:
        world.add_pod(make_pod("plain").build())
        await until(lambda: "default/plain" in world.client.bindings)
        assert extender.asked == []
        world.add_pod(make_pod("gpu").request(GPU, 1).build())
        await until(lambda: "default/gpu" in world.client.bindings)
        assert world.client.bindings["default/gpu"] == "n1", (
            "and NodeResourcesFit leaves the resource to the extender"
        )


async def test_an_extender_binds_in_our_place() -> None:
    extender = FakeExtender()
    async with cluster(extender, bindVerb="bind") as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: extender.asked)
        await until(lambda: world.recorder.events)
        assert world.client.bindings == {}, "nobody but the extender bound it"
        assert world.recorder.events[0][1] == "Scheduled"
    assert extender.asked[0][0] == "bind"
    assert set(extender.asked[0][1]) == {"PodName", "PodNamespace", "PodUID", "Node"}


async def test_nothing_moves_under_an_attempt_that_waits() -> None:
    extender = FakeExtender()
    extender.gate.clear()
    extender.answers["filter"] = lambda body: {"NodeNames": body["NodeNames"]}
    async with cluster(extender, nodes=1, filterVerb="filter", nodeCacheCapable=True) as world:
        world.add_pod(make_pod("p").build())
        await until(lambda: extender.asked)
        world.add_node(make_node("late").build())
        world.add_pod(make_pod("taken").cpu("4").on("n0").build())
        assert world.assembly.table.node_count == 1
        assert world.assembly.scheduler.cache.pod_count == 0
        extender.gate.set()
        await until(lambda: world.client.bindings)
        assert world.client.bindings == {"default/p": "n0"}, (
            "decided on the state in which it began"
        )
        assert world.assembly.table.node_count == 2, "and what came meanwhile is known now"
        assert world.assembly.scheduler.cache.pod_count == 2
