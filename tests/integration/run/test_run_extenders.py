"""`kubesched run` with HTTP extenders, against embedded and real API servers: they decide, bind,
hang and die.
"""

from __future__ import annotations

import contextlib
import json
import socket

import aiohttp
from aiohttp import web

ALONE = {"leaderElection": {"leaderElect": False}}
GPU = "example.com/gpu"


def config(*extenders):
    listed = [{"httpTimeout": "30s", **extender} for extender in extenders]
    return {**ALONE, "extenders": listed}


def whole_nodes(*names):
    def answer(body):
        items = [n for n in body["Nodes"]["items"] if n["metadata"]["name"] in names]
        return {"Nodes": {"items": items}, "FailedNodes": {}, "Error": ""}

    return answer


async def nodes(cluster, count=3, **kwargs):
    for number in range(count):
        await cluster.add_node(f"n{number}", **kwargs)


async def test_an_extender_that_reads_whole_objects_filters_and_ranks(cluster, run, extender):
    await nodes(cluster)
    extender.answers["filter"] = whole_nodes("n1", "n2")
    extender.answers["prioritize"] = lambda _body: [{"Host": "n2", "Score": 10}]
    entry = {"urlPrefix": extender.url, "filterVerb": "filter", "prioritizeVerb": "prioritize"}
    await run(config=config({**entry, "weight": 10}))
    await cluster.add_pod("p", dnsPolicy="None", dnsConfig={"nameservers": ["192.0.2.1"]})
    assert await cluster.bound("p") == ["n2"]
    verb, body = extender.asked[0]
    assert verb == "filter"
    assert body["Pod"]["spec"]["dnsConfig"] == {"nameservers": ["192.0.2.1"]}, (
        "also what no scheduler reads"
    )
    node = body["Nodes"]["items"][0]
    assert node["metadata"]["managedFields"], "and all of it"


async def test_an_extender_binds_in_our_place(cluster, run, extender):
    await nodes(cluster, 1)

    async def bind(body):
        await cluster.create(
            f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding",
            apiVersion="v1",
            kind="Binding",
            metadata={"name": body["PodName"], "uid": body["PodUID"]},
            target={"kind": "Node", "name": body["Node"]},
        )
        return {"Error": ""}

    extender.answers["bind"] = bind
    managed = [{"name": GPU, "ignoredByScheduler": True}]
    entry = {"urlPrefix": extender.url, "bindVerb": "bind", "managedResources": managed}
    await run(config=config(entry))
    await cluster.add_pod("plain")
    await cluster.bound("plain")
    assert extender.asked == [], "of no interest to it"
    resources = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    container = {"name": "c", "image": "x", "resources": resources}
    await cluster.add_pod("gpu", containers=[container])
    assert await cluster.bound("gpu") == ["n0"], "although no node says it has any"
    (event,) = await cluster.events("gpu", "Scheduled")
    assert event["note"] == "Successfully assigned default/gpu to n0"


async def test_an_extender_chooses_victims(cluster, run, extender):
    await nodes(cluster, cpu="1")
    for name, value in (("low", 1), ("high", 100)):
        await cluster.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            apiVersion="scheduling.k8s.io/v1",
            kind="PriorityClass",
            metadata={"name": name},
            value=value,
        )
    extender.answers["preempt"] = lambda body: {
        "NodeNameToMetaVictims": {
            "n1": {
                "Pods": [
                    {"UID": pod["metadata"]["uid"]}
                    for pod in body["NodeNameToVictims"]["n1"]["Pods"]
                ]
            }
        }
    }
    await run(config=config({"urlPrefix": extender.url, "preemptVerb": "preempt"}))
    at_once = {"terminationGracePeriodSeconds": 0}
    names = [f"v{number}" for number in range(3)]
    for name in names:
        await cluster.add_pod(name, cpu="1", priorityClassName="low", **at_once)
    where = dict(zip(names, await cluster.bound(*names), strict=True))
    await cluster.add_pod("high", cpu="1", priorityClassName="high", **at_once)
    assert await cluster.bound("high") == ["n1"]
    gone = [name for name, node in where.items() if node == "n1"]
    (event,) = await cluster.events(gone[0], "Preempted")
    assert event["note"].endswith("on node n1")


async def test_while_an_extender_is_waited_for_the_process_lives_on(cluster, run, extender):
    """Health, metrics and watches: what happens meanwhile is known as soon as the attempt is
    over.
    """
    await nodes(cluster, 1)
    extender.gate.clear()
    extender.answers["filter"] = lambda body: {"NodeNames": body["NodeNames"]}
    entry = {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": True}
    scheduler = await run(config=config(entry))
    await cluster.add_pod("first")
    await extender.until_asked()
    base = f"https://127.0.0.1:{scheduler.port}"
    async with aiohttp.ClientSession() as session:
        for path in ("/healthz", "/livez", "/readyz"):
            async with session.get(base + path, ssl=False) as answer:
                assert answer.status == 200, path
    await cluster.add_node("late", labels={"late": "yes"})
    await cluster.add_pod("second", nodeSelector={"late": "yes"})
    assert not (await cluster.pod("first")).spec.node_name
    extender.gate.set()
    assert await cluster.bound("first", "second") == ["n0", "late"]
    assert await scheduler.terminated() == 1
    assert "Traceback" not in scheduler.log


async def test_a_scheduler_ends_at_once_although_an_extender_never_answers(cluster, run, extender):
    await nodes(cluster, 1)
    extender.gate.clear()
    entry = {"urlPrefix": extender.url, "filterVerb": "filter", "httpTimeout": "300s"}
    scheduler = await run(config=config(entry))
    await cluster.add_pod("p")
    await extender.until_asked()
    assert await scheduler.terminated() == 1
    assert "Traceback" not in scheduler.log
    assert not (await cluster.pod("p")).spec.node_name


async def test_a_dead_extender_is_named_in_an_event_until_it_comes_to_life(cluster, run, extender):
    await nodes(cluster, 1)
    entry = {"filterVerb": "filter", "nodeCacheCapable": True}
    async with contextlib.aclosing(Dead()) as dead:
        await run(
            config=config(
                {"urlPrefix": extender.url, "ignorable": True, **entry},
                {"urlPrefix": dead.url, **entry},
            )
        )
        await cluster.add_pod("p")
        (event, *_) = await cluster.events("p", "FailedScheduling")
        assert f'Post "{dead.url}/filter": ' in event["note"]
        assert (await cluster.condition("p")).reason == "SchedulerError"
        assert extender.asked == [], "the ignorable one comes last"
        await dead.awake()
        assert await cluster.bound("p") == ["n0"]


class Dead:
    """A port without a listener yet."""

    def __init__(self):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._runner = None

    async def awake(self):
        async def agree(request):
            body = await request.json()
            return web.Response(text=json.dumps({"NodeNames": body["NodeNames"]}))

        app = web.Application()
        app.router.add_post("/filter", agree)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def aclose(self):
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()
