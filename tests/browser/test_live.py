"""The page while things happen: rollouts, restarts, several tabs, links that were used, names that
attack.
"""

import re
import socket
from random import Random

from page_servers import dump, playground_server, source_server
from playwright.sync_api import expect

from kubesched.app.page_sources import recording_source
from kubesched.testing import make_node, make_pod

OFFLINE = ("Failed to load resource", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY")


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
            "kubectl scale deployment/web -n demo --replicas=10"
        )
        expect(workload.get_by_role("status").first).to_have_text("6 of 6 replicas ready")
        workload.get_by_role("button", name="Scale").click()
        expect(workload.get_by_role("status").first).to_have_text("10 of 10 replicas ready")
        expect(acting.locator(".summary")).to_have_text("9 nodes · 16 pods placed · 0 waiting")
        expect(watching.locator(".summary")).to_contain_text("16 pods")
        expect(listing.locator(".summary")).to_contain_text("16 decisions")

        # Nodes come and are cordoned, from the page and by others.
        acting.get_by_label("How many").fill("2")
        acting.get_by_role("button", name="Add nodes").click()
        expect(acting.locator(".summary")).to_contain_text("11 nodes")
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
        expect(page.locator(".live")).to_have_text("in the past")
        striped = (
            "getComputedStyle(document.querySelector('main')).backgroundImage.includes('gradient')"
        )
        assert page.evaluate(striped)
        page.get_by_role("link", name="Map then").click()
        expect(page.locator(".summary")).not_to_contain_text("16 pods")
        assert "at=" in page.url
        page.reload()
        expect(page.locator("#status")).to_contain_text("as it was at")
        page.get_by_role("button", name="Go to the end").click()
        expect(page.locator(".summary")).to_contain_text("16 pods")
        expect(page.locator("#status")).to_be_hidden()
        expect(page.locator(".live")).to_have_text("not live")
        assert not page.evaluate(striped)
        visitor.go("#/decisions?q=demo/web")
        page.locator("tbody tr[data-index]").last.locator("a").first.click()
        expect(page.locator("body")).to_contain_text("as it was before attempt")


def test_a_fix_is_applied_and_the_counts_follow(visit, tmp_path):
    """Both kinds of fixes: one with commands, one that adds nodes."""
    template = {
        "metadata": {"labels": {"app": "api"}},
        "spec": {
            "containers": [
                {"name": "main", "image": "app", "resources": {"requests": {"cpu": "3"}}}
            ]
        },
    }
    spec = {"replicas": 8, "selector": {"matchLabels": {"app": "api"}}, "template": template}
    with playground_server(tmp_path, nodes=3) as server:
        api = server.value.api
        server.call(
            lambda: api.create(
                "deployments.apps", {"metadata": {"name": "api"}, "spec": spec}, "default"
            )
        )
        visitor = visit(server.value.page, "#/queue")
        page = visitor.page
        badge = page.locator("nav .badge")
        expect(badge).to_have_text(re.compile("[1-9]"))
        for kind in ("add", "request"):
            visitor.go("#/queue")
            page.get_by_role("link", name=re.compile("what would help")).first.click()
            fix = page.locator("#fixes li", has_text=re.compile(f"^{kind} .*places (\\d+) of \\1 "))
            fix.first.get_by_role("button", name="Apply").click()
            expect(fix.first.get_by_role("status")).to_contain_text("placed since; 0 pods waiting")
            expect(badge).to_have_count(0)
            if kind == "add":
                server.call(
                    lambda: api.patch(
                        "deployments.apps", "default", "api", {"spec": {"replicas": 30}}
                    )
                )
                expect(badge).to_be_visible()
        visitor.go("#/map")
        expect(page.locator(".summary")).to_contain_text(re.compile("[4-9] nodes"))


HOSTILE = "<img src=x onerror=alert(1)>"
SCRIPT = '"><script>alert(1)</script>'
LONG = "n" * 253
RIGHT_TO_LEFT = "\u202eevil\u05d0\u05d1\u05d2"


def hostile_objects():
    """Names, labels, annotations, taints, images, owners and messages that a browser must not take
    for HTML.
    """
    nodes = [
        make_node(name)
        .zone(f"zone{HOSTILE}")
        .label("team", f"{SCRIPT}{HOSTILE}")
        .annotation(f"{HOSTILE}note", SCRIPT)
        .taint(f"{HOSTILE}key", f"value{SCRIPT}")
        .build()
        for name in (HOSTILE, LONG, RIGHT_TO_LEFT, "plain\nline\0zero")
    ]
    message = f"0/4 nodes are available: 4 {HOSTILE}{SCRIPT}. preemption: {HOSTILE}"
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    placed = make_pod(f"placed-{RIGHT_TO_LEFT}").cpu("1").on(HOSTILE)
    placed.json["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": HOSTILE,
            "uid": "u",
            "controller": True,
        }
    ]
    pods = [
        make_pod(f"pod-{HOSTILE}")
        .cpu("64")
        .label("team", HOSTILE)
        .annotation(f"{HOSTILE}note", SCRIPT)
        .node_selector(team=HOSTILE)
        .status(conditions=[condition])
        .build(),
        make_pod("gated").gate(f"{HOSTILE}gate").build(),
        make_pod("foreign").scheduler(f"scheduler{HOSTILE}").build(),
        placed.build(),
        make_pod("x" * 253).on(LONG).build(),
    ]
    return [*nodes, *pods]


def test_hostile_names_are_text(visit, tmp_path):
    with source_server(dump(*hostile_objects())) as server:
        visitor = visit(server.value, "#/map?as=table")
        page = visitor.page
        rows = page.locator("tbody tr[data-index]")

        def check(*texts):
            for text in texts:
                expect(page.locator("main")).to_contain_text(text)
            made = (
                "document.querySelectorAll('main img, main script, dialog img, "
                "#tip img, #tip script, nav img').length"
            )
            assert page.evaluate(made) == 0
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

        expect(rows).to_have_count(4)
        rows.filter(has_text=HOSTILE).first.click()
        expect(page.locator(".panel h3")).to_have_text(HOSTILE)
        check(HOSTILE, SCRIPT)
        assert f"node={HOSTILE[:4]}".replace("<", "%3C").replace(" ", "+") in page.url
        page.reload()
        expect(page.locator(".panel h3")).to_have_text(HOSTILE)
        page.get_by_role("button", name="Map", exact=True).click()
        page.get_by_label("Group by").select_option("team")
        page.locator(".canvas canvas").hover(position={"x": 60, "y": 60})
        check()
        visitor.go("#/queue")
        check(f"pod-{HOSTILE}", f"4 of 4 nodes: {HOSTILE}", f"{HOSTILE}gate", f"scheduler{HOSTILE}")
        page.get_by_role("link", name=f"pod-{HOSTILE}").first.click()
        expect(page.locator(".verdict")).to_contain_text("never")
        expect(page.locator(".matrix tbody")).to_contain_text(HOSTILE)
        expect(page.locator("#fixes li, #fixes .dim").first).to_be_visible()
        check(f"{HOSTILE}key")
        visitor.go("#/decisions")
        expect(page.locator("tbody")).to_contain_text(HOSTILE)
        check(SCRIPT)
        visitor.go("#/whatif")
        page.get_by_role("button", name="Drain nodes").click()
        page.get_by_label("Node", exact=True).fill(HOSTILE)
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".summary")).to_contain_text("left over")
        check(f"drain {HOSTILE}")
        page.locator(".panes canvas").hover(position={"x": 60, "y": 60})
        page.get_by_role("button", name="As YAML").click()
        visitor.expected = ("400 (Bad Request)",)
        page.get_by_label("Changes and objects as YAML").fill(
            f"apiVersion: kubesched/v1\nkind: Changes\ndrain: ['{HOSTILE}{SCRIPT}!']"
        )
        expect(page.locator(".result .error")).to_contain_text(SCRIPT)
        check(HOSTILE)
        page.keyboard.press("Escape")
        page.locator("h2").click()
        page.keyboard.press("/")
        page.get_by_role("combobox", name="Search nodes and pods").fill("onerror")
        expect(page.locator("dialog").get_by_role("option").first).to_contain_text(HOSTILE)
        check()
        page.keyboard.press("Escape")
        visitor.go("#/queue")
        check(HOSTILE)
        with page.expect_download() as download:
            page.get_by_role("button", name="Export").click()
        path = tmp_path / "saved.html"
        download.value.save_as(path)
        saved = visitor.context.new_page()
        saved.on("dialog", lambda dialog: visitor.errors.append(f"dialog: {dialog.message}"))
        saved.goto(path.as_uri())
        expect(saved.locator("body")).to_contain_text(HOSTILE)
        assert saved.evaluate("document.querySelectorAll('img, script').length") == 0


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
        expect(page.locator(".cards .empty")).to_contain_text("No pod waits")
        visitor.go("#/decisions")
        expect(page.locator(".tablebox .empty")).to_contain_text("No decision yet")
        visitor.go("#/decision?pod=default/absent")
        visitor.expected = ("400 (Bad Request)",)
        expect(page.locator(".error")).to_contain_text("is not there")


def test_a_decision_with_many_reasons_is_told_apart(visit):
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
        page.locator(".heatmap canvas").click(position={"x": 700, "y": 10})
        expect(page.locator(".matrix tr.selected")).to_have_count(1)
