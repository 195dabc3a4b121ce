"""The page while things happen: rollouts, restarts, several tabs, links that were used, names that attack."""

import socket
from random import Random

from page_servers import playground_server, source_server
from playwright.sync_api import expect

from kubesched.app.page_sources import recording_source, state_source
from kubesched.config.features import DEFAULT_GATES
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.testing import make_node, make_pod

TOP = {"x": 0, "y": 0, "width": 1280, "height": 640}
"""The part of a picture that the documentation shows."""
OFFLINE = ("Failed to load resource", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY")


def dump(*objects):
    state = ClusterState("a dump")
    for each in objects:
        state.put(each)
    return lambda: state_source(state, None, DEFAULT_GATES)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def test_a_rollout_is_seen_as_it_happens_and_later_in_its_recording(visit, tmp_path):
    recorded = tmp_path / "recording"
    with playground_server(tmp_path, record=str(recorded)) as server:
        page = server.value.page
        visitor = visit(page, "#/act")
        acting = visitor.page
        watching = visitor.open(page, "#/map")
        expect(watching.locator(".summary")).to_contain_text("12 pods")
        listing = visitor.open(page, "#/decisions")
        expect(listing.locator(".summary")).to_contain_text("12 decisions")
        workload = acting.locator(".workload", has_text="demo/web")
        workload.get_by_label("Replicas").fill("10")
        expect(workload.locator("code")).to_have_text(
            "kubectl scale deployment/web --namespace demo --replicas=10"
        )
        workload.get_by_role("button", name="Scale").click()
        expect(watching.locator(".summary")).to_contain_text("16 pods")
        expect(listing.locator(".summary")).to_contain_text("16 decisions")

        # Nodes come and are cordoned, from the page and by others.
        acting.get_by_label("How many").fill("2")
        acting.get_by_role("button", name="Add nodes").click()
        expect(watching.locator(".summary")).to_contain_text("11 nodes")
        api = server.value.api
        server.call(lambda: api.patch("nodes", None, "node-1", {"spec": {"unschedulable": True}}))
        watching.get_by_role("button", name="Table").click()
        expect(watching.locator("tbody tr", has_text="node-1").first).to_contain_text("cordoned")
        watching.locator("tbody tr", has_text="node-3").click()
        watching.get_by_text("Cordon or taint this node").click()
        watching.get_by_role("button", name="Taint", exact=True).click()
        expect(watching.locator(".panel")).to_contain_text("dedicated=batch:NoSchedule")
        for tab in visitor.context.pages:
            tab.close()
    look_back(visit, recorded)


def look_back(visit, recorded):
    """The recording of the rollout, at its beginning and at its end."""
    with source_server(lambda: recording_source(str(recorded), None, None)) as server:
        visitor = visit(server.value, "#/decisions")
        page = visitor.page
        expect(page.locator(".summary")).to_contain_text("16 decisions")
        expect(page.locator(".live")).to_have_text("not live")
        slider = page.get_by_label("Moment to look at")
        slider.focus()
        slider.fill("0")
        expect(page.locator("#status")).to_contain_text("as it was at")
        page.get_by_role("link", name="Map then").click()
        expect(page.locator(".summary")).not_to_contain_text("16 pods")
        assert "at=" in page.url
        page.reload()
        expect(page.locator("#status")).to_contain_text("as it was at")
        page.get_by_role("button", name="Go to the end").click()
        expect(page.locator(".summary")).to_contain_text("16 pods")
        expect(page.locator("#status")).to_be_hidden()
        visitor.go("#/decisions?q=demo/web")
        page.locator("tbody tr[data-index]").last.locator("a").first.click()
        expect(page.locator("body")).to_contain_text("as it was before attempt")


HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "n" * 253
RIGHT_TO_LEFT = "\u202eevil\u05d0\u05d1\u05d2"


def test_hostile_names_are_text(visit):
    nodes = [
        make_node(name)
        .zone(f"zone{HOSTILE}")
        .label("team", f'"><script>alert(1)</script>{HOSTILE}')
        .taint(f"{HOSTILE}key", "value")
        .build()
        for name in (HOSTILE, LONG, RIGHT_TO_LEFT, "plain\nline\0zero")
    ]
    pods = [
        make_pod(f"pod-{HOSTILE}").cpu("64").build(),
        make_pod(f"placed-{RIGHT_TO_LEFT}").cpu("1").on(HOSTILE).build(),
        make_pod("x" * 253).on(LONG).build(),
    ]
    with source_server(dump(*nodes, *pods)) as server:
        visitor = visit(server.value, "#/map?as=table")
        page = visitor.page
        rows = page.locator("tbody tr[data-index]")
        expect(rows).to_have_count(4)
        expect(page.locator("tbody")).to_contain_text(HOSTILE)
        rows.filter(has_text=HOSTILE).first.click()
        expect(page.locator(".panel h3")).to_have_text(HOSTILE)
        expect(page.locator(".panel")).to_contain_text("<script>alert(1)</script>")
        assert f"node={HOSTILE[:4]}".replace("<", "%3C").replace(" ", "+") in page.url
        page.reload()
        expect(page.locator(".panel h3")).to_have_text(HOSTILE)
        page.get_by_role("button", name="Map", exact=True).click()
        page.get_by_label("Group by").select_option("team")
        page.locator(".canvas canvas").hover()
        visitor.go("#/queue")
        page.get_by_role("link", name=f"default/pod-{HOSTILE}").click()
        expect(page.locator(".verdict")).to_contain_text("never")
        expect(page.locator(".matrix tbody")).to_contain_text(HOSTILE)
        page.keyboard.press("/")
        page.get_by_role("combobox").fill("onerror")
        expect(page.get_by_role("option").first).to_contain_text(HOSTILE)
        assert page.evaluate("document.querySelectorAll('main img, dialog img').length") == 0
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0


def test_the_page_goes_on_after_the_server_was_restarted(visit, tmp_path):
    port = free_port()
    first = tmp_path / "first"
    second = tmp_path / "second"
    with playground_server(first, nodes=4, port=port) as server:
        visitor = visit(server.value.page, "#/map")
        visitor.expected = OFFLINE
        page = visitor.page
        expect(page.locator(".summary")).to_contain_text("4 nodes")
        expect(page.locator(".live")).to_have_text("live")
    expect(page.locator(".live")).to_have_text("offline")
    expect(page.locator("#status")).to_contain_text("Connection lost")
    with playground_server(second, nodes=6, port=port):
        expect(page.locator(".summary")).to_contain_text("6 nodes")
        expect(page.locator(".live")).to_have_text("live")
        expect(page.locator("#status")).to_be_hidden()


def test_a_link_opens_once_and_a_lost_cookie_is_explained(visit, browser):
    with source_server(dump(make_node("n").build())) as server:
        link = server.value.link
        visitor = visit(server.value, "#/map?as=table")
        visitor.expected = ("401", "403", "Failed to load resource")
        page = visitor.page
        expect(page.locator("tbody")).to_contain_text("n")
        assert "token" not in page.url
        assert "as=table" in page.url
        page.goto(link)  # the same browser may follow it again: it has its cookie
        expect(page.locator(".summary")).to_contain_text("1 node")
        visitor.context.clear_cookies()
        page.goto(link)
        expect(page.locator("body")).to_contain_text("no longer valid")
        page.goto(f"{server.value.url}/")
        expect(page.locator("h2")).to_have_text("Please open the link")
        expect(page.locator(".error")).to_contain_text("terminal")
        page.goto(server.value.link)
        expect(page.locator(".summary")).to_contain_text("1 node")


def test_an_empty_cluster_has_something_to_say(visit):
    with source_server(dump()) as server:
        visitor = visit(server.value, "#/map?as=table")
        page = visitor.page
        expect(page.locator(".tablebox .empty")).to_contain_text("no nodes")
        page.get_by_role("button", name="Map", exact=True).click()
        expect(page.locator(".summary")).to_contain_text("0 nodes")
        visitor.go("#/queue")
        expect(page.locator(".tablebox .empty")).to_contain_text("No pod waits")
        visitor.go("#/decisions")
        expect(page.locator(".tablebox .empty")).to_contain_text("No decision yet")
        visitor.go("#/decision?pod=default/absent")
        visitor.expected = ("400 (Bad Request)",)
        expect(page.locator(".error")).to_contain_text("is not there")


def test_five_thousand_nodes_are_drawn_and_searched(visit, screenshots):
    nodes = [
        make_node(f"node-{i}")
        .capacity(cpu="32", memory="128Gi", pods=110)
        .zone(f"zone-{'abc'[i % 3]}")
        .build()
        for i in range(5000)
    ]
    random = Random(1)
    # Fuller towards the end of a zone, as clusters are that were extended.
    pods = [
        make_pod(f"pod-{i}")
        .cpu(f"{int(32000 * min(0.99, random.betavariate(2 + 6 * (5000 - i) / 5000, 3)))}m")
        .on(f"node-{i}")
        .build()
        for i in range(5000)
    ]
    with source_server(dump(*nodes, *pods)) as server:
        visitor = visit(server.value, "#/map")
        page = visitor.page
        expect(page.locator(".summary")).to_contain_text("5,000 nodes")
        page.wait_for_function(
            "() => { const c = document.querySelector('.canvas canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            " const seen = new Set(); for (let i = 0; i < d.length; i += 400) seen.add(d[i] << 16 | d[i+1] << 8 | d[i+2]); return seen.size > 20; }"
        )
        page.get_by_role("button", name="Got it").click()
        page.locator(".canvas canvas").hover(position={"x": 300, "y": 120})
        page.screenshot(path=screenshots / "map-5000.png", clip=TOP)
        page.get_by_role("button", name="Table").click()
        assert page.locator("tbody tr[data-index]").count() < 100  # only the rows in sight
        page.keyboard.press("/")
        page.get_by_role("combobox").fill("node-4999")
        page.get_by_role("option").first.click()
        expect(page.locator(".panel h3")).to_have_text("node-4999")


def test_a_decision_with_many_reasons_is_told_apart(visit, screenshots):
    random = Random(2)
    nodes, pods = [], []
    for i in range(60):
        node = make_node(f"node-{i}").capacity(cpu="16", memory="64Gi", pods=110)
        node = node.zone(f"zone-{'abc'[i % 3]}").label("disk", "ssd" if i % 5 else "hdd")
        if i % 10 == 7:
            node = node.taint("gpu", "true")
        if i % 20 == 3:
            node = node.unschedulable()
        nodes.append(node.build())
        pods.append(make_pod(f"old-{i}").cpu(f"{random.randint(2, 15)}").on(f"node-{i}").build())
    waiting = make_pod("trainer").cpu("9").memory("8Gi").node_selector(disk="ssd").build()
    with source_server(dump(*nodes, *pods, waiting)) as server:
        visitor = visit(server.value, "#/decision?pod=default/trainer")
        page = visitor.page
        expect(page.locator(".matrix tbody tr[data-index]").first).to_be_visible()
        for plugin in ("NodeResourcesFit", "TaintToleration", "NodeAffinity", "NodeUnschedulable"):
            expect(page.locator(".wide")).to_contain_text(plugin)
        expect(page.locator(".facts")).to_contain_text("Ahead of the next by")
        page.get_by_role("button", name="Got it").click()
        page.screenshot(path=screenshots / "decision-60.png", clip=TOP)
        page.locator(".heatmap canvas").click(position={"x": 700, "y": 10})
        expect(page.locator(".matrix tr.selected")).to_have_count(1)
