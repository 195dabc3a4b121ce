"""HTTP extenders over real sockets: their wire forms, their say in decisions, and what their
failures cost.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kubesched.api.core_v1 import Pod
from kubesched.client.pool import HttpTransport
from kubesched.playground import pki
from kubesched.testing import Cluster, make_node, make_pod

GPU = "example.com/gpu"


class FakeExtender:
    """Answers verbs as the test says and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict]] = []
        self.answers: dict[str, object] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

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
async def serving(extender: FakeExtender, tls: ssl.SSLContext | None = None):
    app = web.Application()
    app.router.add_post("/prefix/{verb}", extender.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    scheme = "http" if tls is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/prefix/"
    finally:
        await runner.cleanup()


def config(url: str, **fields) -> str:
    return config_of({"urlPrefix": url, "httpTimeout": "20s", **fields})


def config_of(*extenders) -> str:
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": extenders,
        }
    )


async def until(condition) -> None:
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110  # conditions of several parties, none of which signals
            await asyncio.sleep(0.005)


class SocketCluster(Cluster):
    connect = HttpTransport


@asynccontextmanager
async def running(settings: str):
    """A cluster whose scheduler runs on the test's own loop, beside the extender."""
    world = SocketCluster(config=settings)
    task = asyncio.create_task(world.assembly.scheduler.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait([task])
        for extender in world.assembly.frameworks["default-scheduler"].handle.extenders:
            await extender.aclose()


@asynccontextmanager
async def cluster(extender: FakeExtender, nodes: int = 3, **fields):
    async with serving(extender) as url, running(config(url, **fields)) as world:
        extender.url = url
        for number in range(nodes):
            world.add(make_node(f"n{number}").build())
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
        world.add(make_pod("p").build())
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
        world.add(make_pod("p").build())
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
        world.add(make_pod("p").build())
        await until(lambda: world.condition("p"))
        assert world.condition("p")[1].startswith(
            "0/3 nodes are available: 1 no license, 2 wrong site."
        )
        # The word about it is a change of the pod, and any change brings back what an extender
        # rejected.
        await until(lambda: world.place_in_queue("p") == "unschedulable")


async def test_priorities_are_scaled_and_weighted() -> None:
    extender = FakeExtender()
    extender.answers["prioritize"] = [{"Host": "n2", "Score": 10}, {"Host": "unknown", "Score": 10}]
    async with cluster(
        extender, prioritizeVerb="prioritize", weight=5, nodeCacheCapable=True
    ) as world:
        for number in range(3):
            world.add(make_pod(f"p{number}").cpu("100m").build())
        await until(lambda: len(world.client.bindings) == 3)
        assert set(world.client.bindings.values()) == {"n2"}


async def test_an_extender_that_fails_to_rank_changes_nothing() -> None:
    extender = FakeExtender()
    extender.answers["prioritize"] = web.Response(status=500)
    async with cluster(
        extender, prioritizeVerb="prioritize", weight=5, nodeCacheCapable=True
    ) as world:
        world.add(make_pod("p").build())
        await until(lambda: world.client.bindings)


BROKEN = {
    "an error in the answer": lambda: {"Error": "out of tokens"},
    "a status other than 200": lambda: web.Response(status=503),
    "something that is no JSON": lambda: web.Response(text="<html>"),
    "a list where an object belongs": list,
    "a node that was not asked about": lambda: {"NodeNames": ["stranger"]},
    "names that are no text": lambda: {"NodeNames": [7]},
    "brackets without end": lambda: web.Response(text="[" * 100_000),
    "half a character": lambda: web.Response(text='{"FailedNodes":{"n0":"\\ud800"}}'),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_broken_filter_fails_the_attempt_with_a_clear_word(what: str) -> None:
    extender = FakeExtender()
    extender.answers["filter"] = lambda _body: BROKEN[what]()
    async with cluster(extender, filterVerb="filter", nodeCacheCapable=True) as world:
        world.add(make_pod("p").build())
        await until(lambda: world.condition("p"))
        reason, message = world.condition("p")
        assert reason == "SchedulerError"
        assert extender.url.rstrip("/") in message or message == "out of tokens"
        await until(lambda: world.events)
        assert world.events[0] == ("Warning", "FailedScheduling", "default/p", message)
        assert world.place_in_queue("p") == "backoff"
        assert world.client.bindings == {}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_broken_filter_that_may_be_ignored_is(what: str) -> None:
    extender = FakeExtender()
    extender.answers["filter"] = lambda _body: BROKEN[what]()
    async with cluster(
        extender, filterVerb="filter", nodeCacheCapable=True, ignorable=True
    ) as world:
        world.add(make_pod("p").build())
        await until(lambda: world.client.bindings)


async def test_a_slow_extender_costs_its_timeout_and_the_attempt() -> None:
    extender = FakeExtender()
    extender.gate.clear()
    try:
        async with cluster(extender, filterVerb="filter", httpTimeout="200ms") as world:
            world.add(make_pod("p").build())
            await until(lambda: world.condition("p"))
            reason, message = world.condition("p")
            assert reason == "SchedulerError"
            assert message.startswith(f'Post "{extender.url}filter": ')
    finally:
        extender.gate.set()


async def test_an_answer_that_drips_is_cut_off_by_the_same_timeout() -> None:
    class Dripping(FakeExtender):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            self.asked.append(("filter", await request.json()))
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            while not self.gate.is_set():
                await response.write(b" ")
                await asyncio.sleep(0.01)
            return response

    extender = Dripping()
    extender.gate.clear()
    try:
        async with cluster(extender, filterVerb="filter", httpTimeout="300ms") as world:
            world.add(make_pod("p").build())
            await until(lambda: world.condition("p"))
            assert world.condition("p")[0] == "SchedulerError"
            assert extender.url in world.condition("p")[1]
    finally:
        extender.gate.set()


async def test_an_endless_answer_is_cut_off_while_it_is_read() -> None:
    """What is read is bounded by the question, not by the memory of the process."""

    class Endless(FakeExtender):
        sent = 0

        async def handle(self, request: web.Request) -> web.StreamResponse:
            self.asked.append(("filter", await request.json()))
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            while not self.gate.is_set():
                await response.write(b" " * 65536)
                self.sent += 65536
            return response

    extender = Endless()
    extender.gate.clear()
    try:
        async with cluster(extender, filterVerb="filter") as world:
            world.add(make_pod("p").build())
            await until(lambda: world.condition("p"))
            reason, message = world.condition("p")
            assert reason == "SchedulerError"
            assert "exceeds the limit of " in message
    finally:
        extender.gate.set()
    # Beyond the limit of about 1 MiB only what fits into socket buffers was sent.
    assert extender.sent < 16 * 1024 * 1024


async def test_a_dead_extender_is_an_error_that_names_it() -> None:
    async with running(config("http://127.0.0.1:1/x", filterVerb="filter")) as world:
        world.add(make_node("n0").build())
        world.add(make_pod("p").build())
        await until(lambda: world.condition("p"))
        assert world.condition("p")[1].startswith('Post "http://127.0.0.1:1/x/filter": ')


async def test_only_pods_with_managed_resources_are_of_interest() -> None:
    extender = FakeExtender()
    extender.answers["filter"] = passing("n1")
    managed = [{"name": GPU, "ignoredByScheduler": True}]
    async with cluster(
        extender, filterVerb="filter", nodeCacheCapable=True, managedResources=managed
    ) as world:
        world.add(make_pod("plain").build())
        await until(lambda: "default/plain" in world.client.bindings)
        assert extender.asked == []
        world.add(make_pod("gpu").request(GPU, 1).build())
        await until(lambda: "default/gpu" in world.client.bindings)
        assert world.client.bindings["default/gpu"] == "n1", (
            "and NodeResourcesFit leaves the resource to the extender"
        )


async def test_an_extender_binds_in_our_place() -> None:
    extender = FakeExtender()
    async with cluster(extender, bindVerb="bind") as world:
        world.add(make_pod("p").build())
        await until(lambda: extender.asked)
        await until(lambda: world.events)
        assert world.client.bindings == {}, "only the extender bound it"
        assert world.events[0][1] == "Scheduled"
    assert extender.asked[0][0] == "bind"
    assert set(extender.asked[0][1]) == {"PodName", "PodNamespace", "PodUID", "Node"}


async def test_a_failed_binding_of_an_extender_is_a_failed_attempt() -> None:
    extender = FakeExtender()
    extender.answers["bind"] = {"Error": "no such disk"}
    async with cluster(extender, bindVerb="bind") as world:
        world.add(make_pod("p").build())
        await until(lambda: world.condition("p"))
        reason, message = world.condition("p")
        assert reason == "SchedulerError"
        assert "no such disk" in message
        assert world.client.bindings == {}
        assert world.assembly.scheduler.cache.pod_count == 0, "the assumption is taken back"


async def test_where_an_ignorable_extender_fails_to_bind_we_do() -> None:
    extender = FakeExtender()
    extender.answers["bind"] = web.Response(status=500)
    async with cluster(extender, bindVerb="bind", ignorable=True) as world:
        world.add(make_pod("p").build())
        await until(lambda: world.client.bindings)
        assert [verb for verb, _ in extender.asked] == ["bind"]


async def test_extenders_see_what_those_before_them_left_ignorable_ones_last() -> None:
    first, second = FakeExtender(), FakeExtender()
    first.answers["filter"] = passing("n0", "n1")
    second.answers["filter"] = passing("n1", "n2")
    common = {"filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "20s"}
    async with serving(first) as one, serving(second) as two:
        listed = ({"urlPrefix": two, "ignorable": True, **common}, {"urlPrefix": one, **common})
        async with running(config_of(*listed)) as world:
            for number in range(3):
                world.add(make_node(f"n{number}").build())
            world.add(make_pod("p").build())
            await until(lambda: world.client.bindings)
            assert world.client.bindings == {"default/p": "n1"}
    assert sorted(first.asked[0][1]["NodeNames"]) == ["n0", "n1", "n2"]
    assert sorted(second.asked[0][1]["NodeNames"]) == ["n0", "n1"]


def passing_all(body):
    return {"NodeNames": body["NodeNames"], "Nodes": body["Nodes"]}


@pytest.mark.parametrize(
    ("cached", "chosen"),
    [
        pytest.param([True], "with-image", id="names leave what is known of nodes"),
        pytest.param([False], "big", id="whole nodes have neither pods nor images"),
        pytest.param([True, False], "big", id="nor have they if names came first"),
        pytest.param([False, True], "big", id="nor do names bring them back"),
    ],
)
async def test_what_nodes_are_ranked_by_depends_on_how_extenders_send_them_back(
    cached, chosen
) -> None:
    extender = FakeExtender()
    extender.answers["filter"] = passing_all
    async with serving(extender) as url:
        common = {"urlPrefix": url, "filterVerb": "filter", "httpTimeout": "20s"}
        listed = [{**common, "nodeCacheCapable": item} for item in cached]
        async with running(config_of(*listed)) as world:
            node = make_node("with-image").capacity(cpu="4").image("app:1", size_bytes=900 << 20)
            world.add(node.build())
            world.add(make_node("big").capacity(cpu="32").build())
            world.add(make_pod("busy").cpu("30").on("big").build())
            world.add(make_pod("p").cpu("1").image("app:1").build())
            await until(lambda: world.client.bindings)
            assert world.client.bindings == {"default/p": chosen}


@pytest.mark.parametrize(
    ("cached", "chosen"),
    [
        pytest.param(True, "empty", id="names leave the pods on nodes"),
        pytest.param(False, "big", id="whole nodes have none"),
    ],
)
async def test_pods_are_spread_over_hosts_as_extenders_send_them_back(cached, chosen) -> None:
    extender = FakeExtender()
    extender.answers["filter"] = passing_all
    async with cluster(extender, 0, filterVerb="filter", nodeCacheCapable=cached) as world:
        for name, cpu in (("big", "32"), ("empty", "4")):
            node = make_node(name).capacity(cpu=cpu).label("kubernetes.io/hostname", name)
            world.add(node.build())
        for number in range(3):
            world.add(make_pod(f"other{number}").labels(app="web").on("big").build())
        pod = make_pod("p").labels(app="web").cpu("1")
        selector = {"matchLabels": {"app": "web"}}
        pod.spread(1, "kubernetes.io/hostname", "ScheduleAnyway", selector)
        world.add(pod.build())
        await until(lambda: world.client.bindings)
        assert world.client.bindings == {"default/p": chosen}


@pytest.mark.parametrize(
    "score", [1.5, "7", True, 2**63], ids=["half a point", "text", "a truth", "65 bits"]
)
async def test_points_that_are_no_numbers_change_nothing(score: object) -> None:
    extender = FakeExtender()
    extender.answers["prioritize"] = [{"Host": "n0", "Score": score}]
    async with cluster(
        extender, prioritizeVerb="prioritize", weight=1, nodeCacheCapable=True
    ) as world:
        world.add(make_pod("p").build())
        await until(lambda: world.client.bindings)


# -- preemption ------------------------------------------------------------------------------------


def full_cluster(world) -> None:
    """Each node has a victim; without extenders that of n0 would go."""
    for number in range(3):
        victim = make_pod(f"v{number}").cpu("4").priority(number).on(f"n{number}")
        world.add(victim.build())


def keeping(*names):
    def answer(body):
        whole = body["NodeNameToVictims"]
        victims = {
            node: {
                "Pods": [{"UID": pod["metadata"]["uid"]} for pod in item["Pods"]],
                "NumPDBViolations": item["NumPDBViolations"],
            }
            for node, item in (whole or {}).items()
        }
        result = body["NodeNameToMetaVictims"] or victims
        return {"NodeNameToMetaVictims": {node: result[node] for node in names}}

    return answer


@pytest.mark.parametrize("cached", [True, False], ids=["by UID", "whole pods"])
async def test_an_extender_has_a_say_in_who_goes(cached: bool) -> None:
    extender = FakeExtender()
    extender.answers["preempt"] = keeping("n2")
    async with cluster(extender, preemptVerb="preempt", nodeCacheCapable=cached) as world:
        full_cluster(world)
        world.add(make_pod("p").cpu("4").priority(10).build())
        await until(lambda: "default/p" in world.client.bindings)
        assert world.client.bindings == {"default/p": "n2"}
    verb, body = extender.asked[0]
    assert verb == "preempt"
    assert set(body) == {"Pod", "NodeNameToVictims", "NodeNameToMetaVictims"}
    filled, empty = "NodeNameToVictims", "NodeNameToMetaVictims"
    if cached:
        filled, empty = empty, filled
    assert body[empty] is None
    assert set(body[filled]) == {"n0", "n1", "n2"}
    ((victim,), violations) = body[filled]["n1"]["Pods"], body[filled]["n1"]["NumPDBViolations"]
    assert violations == 0
    if cached:
        assert set(victim) == {"UID"}
    else:
        assert victim["metadata"]["name"] == "v1"


NONSENSE = {
    "a stranger's UID": {"n0": {"Pods": [{"UID": "stranger"}]}},
    "an unknown node": {"nowhere": {"Pods": [{"UID": "uid"}]}},
    "no victims": {"n0": {"Pods": []}},
    "violations that are no number": {"n0": {"Pods": [], "NumPDBViolations": "many"}},
    "a list": [],
    "a UID that is no text": {"n0": {"Pods": [{"UID": 7}]}},
}


@pytest.mark.parametrize("what", NONSENSE)
@pytest.mark.parametrize("ignorable", [False, True], ids=["that counts", "that may be ignored"])
async def test_a_nonsensical_choice_of_victims_evicts_no_pod_unless_it_may_be_ignored(
    what: str, ignorable: bool
) -> None:
    extender = FakeExtender()
    extender.answers["preempt"] = {"NodeNameToMetaVictims": NONSENSE[what]}
    async with cluster(
        extender, preemptVerb="preempt", nodeCacheCapable=True, ignorable=ignorable
    ) as world:
        full_cluster(world)
        world.add(make_pod("p").cpu("4").priority(10).build())
        if ignorable and what not in ("no victims", "a list"):
            await until(lambda: "default/p" in world.client.bindings)
            return
        await until(lambda: world.condition("p"))
        await until(lambda: not len(world.assembly.scheduler.background))
        assert world.client.bindings == {}
        assert {f"v{number}" for number in range(3)} == {
            pod.metadata.name for pod in world.objects(Pod) if pod.metadata.name != "p"
        }


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates() -> pki.Certificates:
    return pki.make(time.time())


def data(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def tls_settings(certificates: pki.Certificates, folder) -> dict:
    """What a configuration may say -> does the extender, which insists on a certificate of ours,
    hear of the pod?
    """
    files = {"ca.crt": certificates.ca_certificate, "c.crt": certificates.client_certificate}
    files["c.key"] = certificates.client_key
    for name, content in files.items():
        (folder / name).write_bytes(content)
    ours = {
        "certData": data(certificates.client_certificate),
        "keyData": data(certificates.client_key),
    }
    trust = {"caData": data(certificates.ca_certificate)}
    stranger = pki.make(time.time())
    return {
        "inline": (ours | trust, False, True),
        "files": (
            {
                "caFile": str(folder / "ca.crt"),
                "certFile": str(folder / "c.crt"),
                "keyFile": str(folder / "c.key"),
            },
            False,
            True,
        ),
        "data wins over files": (ours | trust | {"caFile": str(folder / "c.key")}, False, True),
        "another server name": (ours | trust | {"serverName": "kubernetes"}, False, True),
        "a wrong server name": (ours | trust | {"serverName": "elsewhere"}, False, False),
        "no authority, enableHTTPS": (ours, True, True),
        "no authority": (ours, False, False),
        "insecure": (ours | {"insecure": True}, False, True),
        "another authority": (ours | {"caData": data(stranger.ca_certificate)}, False, False),
        "no certificate of ours": (trust, False, False),
    }


@pytest.mark.parametrize(
    "what",
    [
        "inline",
        "files",
        "data wins over files",
        "another server name",
        "a wrong server name",
        "no authority, enableHTTPS",
        "no authority",
        "insecure",
        "another authority",
        "no certificate of ours",
    ],
)
async def test_https_with_certificates_on_both_sides(certificates, tmp_path, what: str) -> None:
    tls, enable_https, is_heard = tls_settings(certificates, tmp_path)[what]
    extender = FakeExtender()
    extender.answers["filter"] = lambda body: {"NodeNames": body["NodeNames"]}
    context = certificates.server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    async with serving(extender, context) as url:
        settings = config(
            url,
            filterVerb="filter",
            nodeCacheCapable=True,
            enableHTTPS=enable_https,
            tlsConfig=tls,
        )
        async with running(settings) as world:
            world.add(make_node("n0").build())
            world.add(make_pod("p").build())
            await until(lambda: world.client.bindings or world.condition("p"))
            assert bool(world.client.bindings) == is_heard
            if not is_heard:
                reason, message = world.condition("p")
                assert reason == "SchedulerError"
                assert message.startswith(f'Post "{url}filter": ')
                assert extender.asked == []


async def test_nothing_moves_under_an_attempt_that_waits() -> None:
    extender = FakeExtender()
    extender.gate.clear()
    extender.answers["filter"] = lambda body: {"NodeNames": body["NodeNames"]}
    async with cluster(extender, nodes=1, filterVerb="filter", nodeCacheCapable=True) as world:
        world.add(make_pod("p").build())
        await until(lambda: extender.asked)
        world.add(make_node("late").build())
        world.add(make_pod("taken").cpu("4").on("n0").build())
        assert world.assembly.table.node_count == 1
        assert world.assembly.scheduler.cache.pod_count == 0
        extender.gate.set()
        await until(lambda: world.client.bindings)
        assert world.client.bindings == {"default/p": "n0"}, (
            "decided on the state in which it began"
        )
        assert world.assembly.table.node_count == 2, "and what came meanwhile is known now"
        assert world.assembly.scheduler.cache.pod_count == 2
