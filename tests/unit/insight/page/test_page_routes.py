"""What the page answers, over a socket as a browser asks: access, views, what-if, actions, and the
event stream.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from functools import partial

import aiohttp
import pytest
from page_columns import unpack
from planning_worlds import owned
from yarl import URL

from kubesched.app.page_sources import state_source
from kubesched.base.clock import SystemClock
from kubesched.base.http_server.limits import Limits
from kubesched.config.features import DEFAULT_GATES
from kubesched.insight.explain.fixes.search import FixSearch
from kubesched.insight.page import nodes, routes, serving
from kubesched.insight.page.actions import _here_document
from kubesched.insight.page.routes import Pages
from kubesched.insight.page.serving import serve_page
from kubesched.insight.page.source import View
from kubesched.insight.page.updates import Updates
from kubesched.insight.page.what_if import WhatIf
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.plugins.registry import in_tree_registry
from kubesched.testing import make_node, make_pod

KEY = b"k" * 32
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {containers: [{name: a, image: b, resources: {requests: {cpu: "1"}}}]}
"""


def small_state():
    state = ClusterState("test")
    for i in range(3):
        state.put(
            make_node(f"n{i}").capacity(cpu="2", memory="4Gi", pods=10).zone("ab"[i % 2]).build()
        )
    state.put(make_pod("placed").cpu("1").on("n0").build())
    state.put(make_pod("large").cpu("64").build())
    state.put(make_pod("gated").gate("example.com/wait").build())
    return state


@contextlib.asynccontextmanager
async def visiting(source=None, *, enters=True):
    """A client with a cookie, and the page it visits."""
    source = source or state_source(small_state(), None, DEFAULT_GATES)
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        serve_page(source, key=KEY, clock=SystemClock()) as page,
        aiohttp.ClientSession(page.url, cookie_jar=jar) as client,
    ):
        if enters:
            async with client.get(f"/?token={page.access.token}") as response:
                assert response.status == 200
        yield client, page


async def get_json(client, path, **options):
    async with client.get(path, **options) as response:
        return response.status, json.loads(await response.read())


async def get_bytes(client, path):
    async with client.get(path) as response:
        assert response.status == 200
        return await response.read()


async def post(client, page, path, body, **headers):
    sent = {"Origin": page.url, "Content-Type": "application/json", **headers}
    async with client.post(path, data=json.dumps(body), headers=sent) as response:
        return response.status, json.loads(await response.read())


async def test_without_a_cookie_there_is_a_page_but_no_data():
    async with visiting(enters=False) as (client, _page):
        async with client.get("/") as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert response.headers["X-Frame-Options"] == "DENY"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        status, answer = await get_json(client, "/api/nodes")
        assert status == 401
        assert "link" in answer["message"]
        async with client.get("/?token=wrong") as response:
            assert response.status == 403
            assert "Set-Cookie" not in response.headers


async def test_a_used_link_does_not_open_the_page_again():
    async with visiting(enters=False) as (client, page):
        token = page.access.token
        async with client.get(f"/?token={token}") as response:
            assert "HttpOnly" in response.headers["Set-Cookie"]
        client.cookie_jar.clear()
        async with client.get(f"/?token={token}") as response:
            assert response.status == 403


CHANGES = "apiVersion: kubesched/v1\nkind: Changes\n{}\n"


async def test_changes_of_the_forms_are_planned_together():
    state = ClusterState("test")
    for i in range(3):
        state.put(make_node(f"n{i}").capacity(cpu="2", memory="4Gi", pods=10).build())
    for i in range(3):
        state.put(owned(f"web-{i}", f"n{i}", cpu="1"))
    text = CHANGES.format(
        "drain: [n0]\naddNodes: {n1: 1}\nscale: {replicaset/default/web: 4}\n"
        'requests: {replicaset/default/web: {cpu: "2"}}'
    )
    async with visiting(state_source(state, None, DEFAULT_GATES)) as (client, page):
        status, answer = await post(client, page, "/api/whatif", {"yaml": text})
        assert status == 200, answer
        assert answer["plan"]["nodesAdded"] == ["n1-new-1"]
        now, then = answer["before"], answer["after"]
        assert {each["pod"]: (each["node"], each["cpu"]) for each in now["pods"]} == {
            f"default/web-{i}": (f"n{i}", 1000) for i in range(3)
        }
        # Each pod wants a node of its own, and three of the four nodes are left.
        assert sorted(each["node"] for each in then["pods"]) == ["n1", "n1-new-1", "n2"]
        assert {each["cpu"] for each in then["pods"]} == {2000}
        assert {each["workload"] for each in then["pods"]} == {"ReplicaSet/web"}
        assert next(each for each in then["nodes"] if each["name"] == "n0")["flags"] & 1
        assert sum(len(each["pods"]) for each in answer["plan"]["unplaced"]) == 1
        again = CHANGES.format("placeAgain: true")
        status, answer = await post(client, page, "/api/whatif", {"yaml": again})
        assert len(answer["plan"]["moved"]) == 3


async def test_other_requests_are_answered_while_fixes_are_searched(monkeypatch):
    begun, may_end = threading.Event(), threading.Event()

    def search(_self):
        begun.set()
        assert may_end.wait(60)
        return []

    monkeypatch.setattr(FixSearch, "fixes", search)
    async with visiting() as (client, _page):
        explaining = asyncio.create_task(get_bytes(client, "/api/explain?pod=default/large&fix=1"))
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            for path in ("/api/queue", "/api/placements", "/api/meta"):
                assert (await get_json(client, path))[0] == 200
            plain = await get_bytes(client, "/api/explain?pod=default/large")
            assert unpack(plain)[0]["explanation"]["fixes"] is None
            assert not explaining.done()
        finally:
            may_end.set()
        assert unpack(await explaining)[0]["explanation"]["fixes"] == []


async def test_nodes_are_listed_with_their_pods_while_a_screen_has_room(monkeypatch):
    async with visiting() as (client, _page):
        _, answer = await get_json(client, "/api/placements")
        assert [(each["pod"], each["node"], each["cpu"]) for each in answer["pods"]] == [
            ("default/placed", "n0", 1000)
        ]
        assert [each["zone"] for each in answer["nodes"]] == ["a", "b", "a"]
        monkeypatch.setattr(nodes, "MAX_DRAWN", (2, 100))
        assert (await get_json(client, "/api/placements"))[1] is None


PLUGIN_CONFIG = """\
---
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {{{point}: {{enabled: [{{name: "{name}"}}]}}}}
"""


@pytest.mark.parametrize("point", ["multiPoint", "filter", "score", "placementScore"])
async def test_a_question_about_a_configuration_imports_no_module(tmp_path, monkeypatch, point):
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    text = POD + PLUGIN_CONFIG.format(point=point, name="never_imported:Anything")
    async with visiting() as (client, page):
        status, answer = await post(client, page, "/api/whatif", {"yaml": text})
    assert status == 400
    assert (
        f'plugins.{point}.enabled[0]: plugin "never_imported:Anything" is not loaded'
        in (answer["message"])
    )
    assert "never_imported" not in sys.modules


async def test_a_question_does_not_import_what_is_installed_but_not_used(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    info = tmp_path / "installed-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kubesched.plugins]\nUnused = never_imported:Unused\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = in_tree_registry()
    registry.add_installed()
    assert "Unused" in registry.names()
    text = POD + PLUGIN_CONFIG.format(point="filter", name="Unused")
    async with visiting() as (client, page):
        status, answer = await post(client, page, "/api/whatif", {"yaml": text})
    assert status == 400
    assert "Unused" in answer["message"]
    assert "never_imported" not in sys.modules


async def test_a_question_that_ends_in_an_exit_fails_alone(monkeypatch):
    def leave(*_args):
        raise SystemExit("leaving")

    monkeypatch.setattr(WhatIf, "answer", leave)
    monkeypatch.setattr(Pages, "_meta", leave)
    async with visiting() as (client, page):
        assert (await post(client, page, "/api/whatif", {"yaml": POD}))[0] == 500
        assert (await get_json(client, "/api/meta"))[0] == 500
        assert (await get_json(client, "/api/queue"))[0] == 200


async def test_foreign_names_and_foreign_pages_are_refused():
    async with visiting() as (client, page):
        status, _ = await get_json(client, "/api/meta", headers={"Host": "evil.example:80"})
        assert status == 421
        status, answer = await post(
            client, page, "/api/whatif", {"yaml": POD}, Origin="http://evil.example"
        )
        assert status == 403
        assert "Origin" in answer["message"]
        async with client.delete("/api/nodes") as response:
            assert response.status == 405


async def test_nodes_queue_and_a_decision():
    async with visiting() as (client, _page):
        async with client.get("/api/nodes") as response:
            header, columns = unpack(await response.read())
        assert header["resources"] == ["cpu", "memory", "pods"]
        assert columns["requested cpu"].sum() == 1000
        _, queue = await get_json(client, "/api/queue")
        assert {row["pod"]: row["place"] for row in queue["pods"]} == {
            "default/large": "active",
            "default/gated": "gated",
        }
        async with client.get("/api/explain?pod=default/large&fix=1") as response:
            header, columns = unpack(await response.read())
        assert header["explanation"]["verdict"] == "Never"
        assert header["explanation"]["fixes"]
        assert header["feasible"] == 0
        assert [each["plugin"] for each in header["rejections"]] == ["NodeResourcesFit"]
        assert columns["rejection 0"].tolist() == [0, 0, 0]
        async with client.get("/api/explain?pod=default/placed") as response:
            header, columns = unpack(await response.read())
        names = columns["name"].tobytes().decode().split("\0")
        totals = sum(columns[f"weighted {plugin}"] for plugin in header["plugins"])
        assert totals.tolist() == columns["total"].tolist()
        assert header["explanation"]["chosen"]["node"] in names


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/explain?pod=nothing", 400),
        ("/api/explain?pod=default/absent", 400),
        ("/api/node?name=absent", 404),
        ("/api/labels?key=absent", 400),
        ("/api/nodes?at=yesterday", 400),
        ("/api/nodes?at=5", 400),
        ("/api/absent", 404),
        ("/static/absent.js", 404),
        ("/static/..%2faccess.py", 404),
    ],
)
async def test_mistakes_get_a_message(path, status):
    async with visiting() as (client, _page):
        actual, answer = await get_json(client, path)
        assert actual == status
        assert answer["message"]


async def test_what_if_places_pods_and_compares_configurations():
    async with visiting() as (client, page):
        for _ in range(2):  # the second uses a cluster that was loaded ahead
            status, answer = await post(client, page, "/api/whatif", {"yaml": POD})
            assert status == 200
            assert [each["pod"] for each in answer["plan"]["placed"]] == ["default/new"]
        node = (
            "apiVersion: v1\nkind: Node\nmetadata: {name: big}\n"
            "status: {allocatable: {cpu: 128, pods: 10}}\n"
        )
        status, answer = await post(client, page, "/api/whatif", {"yaml": node})
        assert [each["node"] for each in answer["plan"]["placed"]] == ["big"]
        assert answer["plan"]["nodesAdded"] == ["big"]
        config = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: "
            "MostAllocated, "
            "resources: [{name: cpu, weight: 1}]}}}]}]\n---\n"
        )
        status, answer = await post(client, page, "/api/whatif", {"yaml": config + POD})
        assert status == 200, answer
        (difference,) = answer["differences"]
        assert difference["pod"] == "default/new"
        assert difference["before"] != difference["after"] == "n0"
        before, after = (
            {each["pod"]: each["node"] for each in answer[key]["pods"]}
            for key in ("before", "after")
        )
        assert before == {"default/placed": "n0"}
        assert after == {"default/placed": "n0", "default/new": "n0"}
        for text, said in (
            ("kind: [", "not valid YAML"),
            ("a: b", "apiVersion: missing"),
            (POD + "---\n" + POD, "already"),
            (
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: "
                "900000}",
                "at most",
            ),
            (
                POD.replace("containers", "contaners"),
                "spec.contaners: unknown field; did you mean containers?",
            ),
            (
                "apiVersion: v1\nkind: Node\nmetadata: {nane: a}",
                "metadata.nane: unknown field; did you mean name?",
            ),
            (CHANGES.format("drian: [n0]"), "did you mean drain?"),
            (CHANGES.format("drain: [absent]"), 'there is no node "absent"'),
            (CHANGES.format("drain: n0"), "$.drain"),
            (CHANGES.format("addNodes: {n0: 0}"), "$.addNodes"),
            (CHANGES.format("addNodes: {'': 1}"), "$.addNodes"),
            (CHANGES.format("scale: {web: 3}"), "expected KIND/NAME"),
            (CHANGES.format("scale: {deployment/default/web: 99999}"), "$.scale"),
            (
                CHANGES.format("requests: {deployment/web: {cpu: much}}"),
                "requests: deployment/web: cpu",
            ),
            (CHANGES.format("requests: {deployment/web: {cpu: 1}}"), "$.requests"),
        ):
            status, answer = await post(client, page, "/api/whatif", {"yaml": text})
            assert status == 400
            assert said in answer["message"]


async def test_a_time_beyond_all_numbers_is_refused():
    async with visiting() as (client, page):
        request = {"yaml": POD, "at": 10**400}
        status, answer = await post(client, page, "/api/whatif", request)
        assert (status, answer["message"]) == (400, "at: not a time in seconds since the epoch")


async def test_a_dump_cannot_be_changed_and_does_not_stream():
    async with visiting() as (client, page):
        status, _ = await post(client, page, "/api/act", {"action": "cordon", "node": "n0"})
        assert status == 403
        async with client.get("/api/events") as response:
            assert response.status == 204


async def test_search_finds_pods_by_part_of_their_name():
    async with visiting() as (client, _page):
        _, answer = await get_json(client, "/api/pods?contains=PLA")
        assert answer["pods"] == [["default/placed", "n0"]]


async def test_many_questions_at_once_are_answered_or_refused_but_never_lost():
    async with visiting() as (client, page):
        answers = await asyncio.gather(
            *(post(client, page, "/api/whatif", {"yaml": POD}) for _ in range(20))
        )
        statuses = {status for status, _ in answers}
        assert statuses <= {200, 503}
        assert 200 in statuses


async def test_a_reader_that_does_not_read_is_dropped(monkeypatch):
    monkeypatch.setattr(serving, "LIMITS", Limits(send_s=0.2, sweep_s=0.1))
    monkeypatch.setattr(routes, "Updates", partial(Updates, period_s=0.001))
    state = ClusterState("test")
    for i in range(1500):
        state.put(make_node(f"n{i}").build())
    assembly = in_memory_scheduler(state).assembly
    source = state_source(state, None, DEFAULT_GATES)
    source.is_live = True
    source.view = View(assembly=assembly, state=lambda: state, explainer=None)
    async with visiting(source) as (client, page):
        cookies = client.cookie_jar.filter_cookies(URL(page.url))
        cookie = "; ".join(f"{each.key}={each.value}" for each in cookies.values())
        host, port = page.url.removeprefix("http://").split(":")
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect((host, int(port)))
            head = f"GET /api/events HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n"
            stalled.sendall(head.encode())
            async with asyncio.timeout(60):
                _, open_streams = await get_json(client, "/api/meta")
                while not open_streams["readers"]:
                    _, open_streams = await get_json(client, "/api/meta")
                # Every row changes, again and again: in the end more than the sockets' buffers
                # hold.
                while open_streams["readers"]:
                    for row in range(1500):
                        assembly.table.pod_log.append(row)
                    await asyncio.sleep(0.005)
                    _, open_streams = await get_json(client, "/api/meta")


@pytest.mark.parametrize("line", ["EOF", "EOF_", "x"])
def test_no_line_of_a_manifest_reaches_the_shell(line, tmp_path):
    evil = tmp_path / "evil"
    text = f"kind: Pod\ntext: |\n  $(touch {evil}) `touch {evil}`\n{line}\ntouch {evil}\nEOF_x\n"
    command = _here_document(text)
    shown = command.replace("kubectl create -f -", "cat", 1)
    ran = subprocess.run(["sh", "-c", shown], capture_output=True, check=True, text=True)
    assert ran.stdout == text
    assert not evil.exists()
