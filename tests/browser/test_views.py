"""Each view of the page over a playground: what it shows, how it is used, and that it is
accessible.
"""

import json
import re
import shlex

import pytest
from axe_playwright_python.sync_playwright import Axe
from page_servers import dump, playground_server, source_server
from playwright.sync_api import expect

from kubesched.api.times import format_time
from kubesched.base.clock import SystemClock
from kubesched.insight.page import nodes
from kubesched.testing import make_node, make_pod

VIEWS = {
    "map": "#/map",
    "table": "#/map?as=table",
    "node": "#/map?node=node-0",
    "queue": "#/queue",
    "decisions": "#/decisions",
    "decision": "#/decision?pod=default/greedy",
    "placed": "#/decision?pod=demo/POD",
    "whatif": "#/whatif",
    "drained": '#/whatif?changes={"drain":["node-0"]}',
    "yaml": "#/whatif?yaml=apiVersion: kubesched/v1%0Akind: Changes%0Adrain: [node-0]",
    "act": "#/act",
}
CONTAINERS = {
    "containers": [
        {"name": "main", "image": "example.com/app", "resources": {"requests": {"cpu": "1"}}}
    ]
}
GREEDY = {
    "metadata": {"name": "greedy"},
    "spec": {
        "containers": [
            {"name": "main", "image": "example.com/app", "resources": {"requests": {"cpu": "64"}}}
        ]
    },
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with playground_server(tmp_path_factory.mktemp("playground")) as server:
        server.call(lambda: server.value.api.create("pods", GREEDY, "default"))
        gated = {
            "metadata": {"name": "held"},
            "spec": {
                "schedulingGates": [{"name": "example.com/quota"}],
                "containers": GREEDY["spec"]["containers"],
            },
        }
        server.call(lambda: server.value.api.create("pods", gated, "default"))
        foreign = {
            "metadata": {"name": "foreign"},
            "spec": {**GREEDY["spec"], "schedulerName": "volcano"},
        }
        server.call(lambda: server.value.api.create("pods", foreign, "default"))
        picky = {
            "metadata": {"name": "picky"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "picky"}},
                "template": {
                    "metadata": {"labels": {"app": "picky"}},
                    "spec": {**CONTAINERS, "nodeSelector": {"disktype": "ssd"}},
                },
            },
        }
        server.call(lambda: server.value.api.create("deployments.apps", picky, "default"))
        yield server


def a_pod(served, app="web"):
    pods, _ = served.call(lambda: served.value.api.list("pods", "demo"))
    return next(
        each["metadata"]["name"] for each in pods if each["metadata"]["name"].startswith(app)
    )


def settled(visitor, view):
    """Wait until a view shows what it loads."""
    page = visitor.page
    if view in ("map", "table", "node"):
        expect(page.locator(".summary")).to_contain_text("9 nodes")
    if view == "table":
        expect(page.locator("tbody tr[data-index]").first).to_be_visible()
    if view == "node":
        expect(page.locator(".panel h3")).to_have_text("node-0")
    if view == "queue":
        expect(page.locator(".card", has_text="greedy")).to_be_visible()
        expect(page.locator(".card", has_text="3 pods")).to_be_visible()
    if view == "decisions":
        expect(page.locator("tbody")).to_contain_text("demo/web")
    if view == "decision":
        expect(page.locator(".verdict")).to_contain_text("never No node of 9")
        expect(page.locator("#fixes li").first).to_be_visible()
    if view == "placed":
        expect(page.locator(".verdict")).to_contain_text("placed")
    if view == "whatif":
        expect(page.locator(".result")).to_contain_text("Choose a change")
        expect(page.locator(".panes canvas")).to_be_visible()
    if view in ("drained", "yaml"):
        expect(page.locator(".summary")).to_contain_text("moved")
        expect(page.locator(".panes canvas")).to_be_visible()
    if view == "act":
        expect(page.locator(".workload").first).to_be_visible()
        expect(page.locator(".command").first).to_be_visible()


def test_the_map_shows_every_node_and_opens_one(visit, served):
    visitor = visit(served.value.page)
    page = visitor.page
    settled(visitor, "map")
    expect(page.locator(".hint")).to_contain_text("Every square is a node")
    page.get_by_role("button", name="Got it").click()
    expect(page.locator(".hint")).to_have_count(0)
    canvas = page.locator(".canvas canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".panel h3")).to_contain_text("node-")
    name = page.locator(".panel h3").inner_text()
    assert f"node={name}" in page.url
    page.reload()  # the address holds the state
    expect(page.locator(".panel h3")).to_have_text(name)
    expect(page.locator(".hint")).to_have_count(0)


def test_a_click_on_the_map_opens_the_node_under_it(visit, served):
    visitor = visit(served.value.page, "#/map?group=none")
    settled(visitor, "map")
    page = visitor.page
    canvas = page.locator(".canvas canvas")
    box = canvas.bounding_box()
    # The tip names the node under the pointer; a click must open that one.
    page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => done(true)))")
    page.mouse.move(box["x"] + box["width"] / 2 - 20, box["y"] + 90)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    expect(page.locator("#tip")).to_be_visible()
    name = page.locator("#tip .name").inner_text()
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".panel h3")).to_have_text(name)


PAINTED = """() => {
  const canvas = document.querySelector('.canvas canvas'), { width, height } = canvas;
  const data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  let [left, right, top, bottom] = [width, 0, height, 0];
  for (let y = 0; y < height; y += 2) for (let x = 0; x < width; x += 2)
   if (data[(y * width + x) * 4 + 3]) {
    left = Math.min(left, x); right = Math.max(right, x);
    top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  return [(right - left) / width, (bottom - top) / height];
}"""
"""The shares of the canvas's width and height that are painted."""


def test_few_nodes_fill_the_map_with_their_pods_inside(visit, served):
    visitor = visit(served.value.page, "#/map")
    settled(visitor, "map")
    page = visitor.page
    page.get_by_role("button", name="Got it").click()
    expect(page.locator(".legend")).to_contain_text("demo/Deployment/web")
    wide, tall = page.evaluate(PAINTED)
    assert wide > 0.9, wide
    assert tall > 0.7, tall
    # Pods of the first node are drawn below its name, how far depends on the fonts.
    box, tip = page.locator(".canvas canvas").bounding_box(), page.locator("#tip")
    told = []
    for below in range(20, 200, 4):
        page.mouse.move(box["x"] + 40, box["y"] + below)
        told.append(tip.inner_text())
    assert any("demo/" in text and "requests" in text for text in told), set(told)


def test_views_are_there_while_nodes_are_loading(visit, served):
    visitor = visit(served.value.page, "#/queue")
    settled(visitor, "queue")
    page = visitor.page
    held = []
    page.route("**/api/nodes*", lambda route: held.append(route))  # Playwright marks the function
    page.evaluate("location.hash = '#/map'; location.reload()")
    expect(page.locator(".summary")).to_contain_text("Loading nodes")
    expect(page.locator("nav")).to_contain_text("Queue")
    page.wait_for_timeout(50)
    for route in held:
        route.continue_()
    page.unroute("**/api/nodes*")
    settled(visitor, "map")


def test_the_table_says_what_the_map_says(visit, served):
    visitor = visit(served.value.page, "#/map?as=table")
    settled(visitor, "table")
    page = visitor.page
    rows = page.locator("tbody tr[data-index]")
    expect(rows).to_have_count(9)
    page.get_by_role("button", name="Node", exact=True).click()
    expect(rows.first).to_contain_text("node-0")
    page.get_by_role("button", name="Node", exact=True).click()
    expect(rows.first).to_contain_text("node-8")
    rows.first.click()
    expect(page.locator(".panel h3")).to_have_text("node-8")


def test_nodes_are_grouped_by_any_label(visit, served):
    visitor = visit(served.value.page, "#/map")
    settled(visitor, "map")
    page = visitor.page
    page.get_by_label("Group by").select_option("kubernetes.io/arch")
    expect(page).to_have_url(re.compile("group=kubernetes.io"))
    page.get_by_label("Colour by").select_option("memory")
    expect(page.locator(".legend")).to_contain_text("memory requested")


def test_the_queue_tells_why_and_what_would_wake_by_workload(visit, served):
    visitor = visit(served.value.page, "#/queue")
    settled(visitor, "queue")
    page = visitor.page
    greedy, picky = (
        page.locator(".card", has_text="greedy"),
        page.locator(".card", has_text="picky"),
    )
    expect(greedy.locator(".why")).to_have_text("9 of 9 nodes: too little cpu free.")
    expect(greedy.locator(".next")).to_contain_text("Tried again when a pod leaves")
    expect(greedy).to_contain_text("Wants 64 cores")
    expect(picky).to_contain_text("3 pods")
    expect(picky.locator(".why")).to_have_text(
        "9 of 9 nodes: labels do not match its node selector or affinity."
    )
    picky.locator("summary").click()
    expect(picky.locator("details li")).to_have_count(3)
    held = page.locator(".card", has_text="held")
    expect(held).to_contain_text("example.com/quota")
    expect(held.locator(".next")).to_have_text("Tried when its gates are removed.")
    expect(page.locator(".card.other")).to_contain_text("For the scheduler volcano.")
    expect(page.get_by_role("heading", name="Of other schedulers")).to_be_visible()
    expect(page.locator(".summary")).to_have_text("5 pods waiting, 1 of other schedulers")
    page.get_by_role("button", name="Gated").click()
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_role("link", name="held", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("waiting")


def test_waiting_times_are_those_of_the_pods_whatever_the_browsers_clock_says(visit):
    """A pod of six minutes that was tried 42 seconds ago waits for six minutes."""
    created = SystemClock().now() - 360
    pods = [make_pod(name).cpu("64") for name in ("young", "aged")]
    for seconds, pod in zip((created, created - 3600), pods, strict=True):
        pod.json["metadata"]["creationTimestamp"] = format_time(seconds)
        tried = format_time(SystemClock().now() - 42)
        pod.status(
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Too many pods.",
                    "lastTransitionTime": tried,
                }
            ]
        )
    objects = [make_node("n").build(), *(pod.build() for pod in pods)]
    with source_server(dump(*objects)) as server:
        visitor = visit(server.value, "#/map")
        page = visitor.page
        expect(page.locator(".summary")).to_contain_text("1 node")
        page.clock.set_system_time("2020-01-01T00:00:00Z")
        visitor.go("#/queue")
        expect(page.locator(".card", has_text="young")).to_contain_text("Waiting 6 min")
        expect(page.locator(".card", has_text="aged")).to_contain_text(
            re.compile("Waiting 6[67] min")
        )
        expect(page.locator(".card").first.locator(".why")).to_have_text(
            "1 of 1 nodes: no room for another pod."
        )


def test_a_pending_pod_is_explained_with_fixes_first(visit, served):
    visitor = visit(served.value.page, "#/decision?pod=default/greedy")
    settled(visitor, "decision")
    page = visitor.page
    expect(page.locator(".why").first).to_contain_text(
        "9 of 9 nodes: too little cpu free (wants 64"
    )
    expect(page.locator("section", has_text="Why nodes were rejected").first).to_contain_text("cpu")
    expect(page.locator(".matrix tbody tr[data-index]")).to_have_count(9)
    expect(page.locator(".matrix")).to_contain_text("Insufficient cpu")
    fixes, matrix = page.locator("#fixes").bounding_box(), page.locator(".matrix").bounding_box()
    assert page.locator(".verdict").bounding_box()["y"] < fixes["y"] < matrix["y"]
    expect(page.locator("#fixes li").first).to_contain_text("places 1 of 1 pending pod")
    expect(page.locator("#fixes").get_by_role("button", name="Apply").first).to_be_visible()
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#fixes").get_by_role("button", name="Copy").first.click()
    expect(page.locator("#fixes").get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("kubectl ")


def test_a_command_quotes_what_a_shell_would_read_otherwise(visit, served):
    visitor = visit(served.value.page, "#/map")
    settled(visitor, "map")
    words = ["cordon", "a; rm -rf '/'", "", "$HOME", "demo/web-1"]
    made = visitor.page.evaluate(
        "async words => (await import('./static/act.js')).kubectl(...words).commands", words
    )
    assert [shlex.split(each) for each in made] == [["kubectl", *words]]


def test_without_a_pod_the_latest_decision_is_shown(visit, served):
    visitor = visit(served.value.page, "#/decision")
    page = visitor.page
    expect(page.locator(".verdict")).to_be_visible()
    expect(page).to_have_url(re.compile("pod="))
    visitor.go("#/decisions")
    settled(visitor, "decisions")
    latest = page.locator("tbody tr[data-index] a").first.inner_text()
    visitor.go("#/decision")
    expect(page.locator("h2")).to_contain_text(latest.split("/")[1])


def test_a_placed_pod_is_explained_and_shown_on_the_map(visit, served):
    pod = a_pod(served)
    visitor = visit(served.value.page, f"#/decision?pod=demo/{pod}")
    settled(visitor, "placed")
    page = visitor.page
    expect(page.locator(".facts")).to_contain_text("Total score")
    expect(page.locator(".matrix")).to_contain_text("NodeResourcesFit")
    page.get_by_role("link", name="Show on the map").click()
    expect(page.locator(".legend")).to_contain_text("Total score")
    expect(page.locator(".bar .chip")).to_contain_text(pod)


def test_an_attempt_is_explained_as_it_was(visit, served):
    visitor = visit(served.value.page, "#/decisions?q=demo/web")
    settled(visitor, "decisions")
    page = visitor.page
    page.locator("tbody tr[data-index] a").first.click()
    expect(page.locator(".verdict")).to_be_visible()
    expect(page.locator("body")).to_contain_text("as it was before attempt")
    expect(page.locator("body")).to_contain_text("nodes fit")


def test_decisions_are_filtered(visit, served):
    visitor = visit(served.value.page, "#/decisions")
    settled(visitor, "decisions")
    page = visitor.page
    page.get_by_label("Outcome").select_option("unschedulable")
    expect(page.locator("tbody")).not_to_contain_text("demo/web")
    expect(page.locator("tbody")).to_contain_text("default/greedy")
    page.get_by_label("Filter by pod or node").fill("no such pod")
    expect(page.locator(".tablebox .empty")).to_be_visible()


def test_what_if_by_forms_shows_now_and_then(visit, served):
    visitor = visit(served.value.page, "#/whatif")
    settled(visitor, "whatif")
    page = visitor.page
    summary, chips = page.locator(".summary"), page.locator(".chips .chip")
    page.get_by_role("button", name="Drain nodes").click()
    page.get_by_label("Node", exact=True).fill("node-1")
    page.get_by_role("button", name="Show").click()
    expect(summary).to_contain_text("moved")
    expect(chips).to_have_text(re.compile("drain node-1"))
    expect(page.get_by_role("heading", name="Moved")).to_be_visible()
    label = page.locator(".panes canvas").get_attribute("aria-label")
    assert re.search(r"[1-9]\d* pods? moved", label), label
    page.get_by_role("button", name="Scale").click()
    page.get_by_label("Workload").fill("deployment/demo/web")
    page.get_by_label("Replicas").fill("9")
    page.get_by_role("button", name="Show").click()
    expect(summary).to_contain_text("pods placed")
    page.get_by_role("button", name="Add nodes").click()
    page.get_by_label("How many").fill("2")
    page.get_by_label("Like").fill("node-0")
    page.get_by_role("button", name="Show").click()
    expect(summary).to_contain_text("2 nodes added")
    page.get_by_role("button", name="Change a request").click()
    page.get_by_label("Workload").fill("deployment/demo/web")
    page.get_by_label("Request", exact=True).fill("1500m")
    page.get_by_role("button", name="Show").click()
    expect(chips).to_have_count(4)
    expect(page.locator(".result")).to_contain_text("How full the cluster would be")
    page.reload()  # the address holds the changes
    expect(chips).to_have_count(4)
    expect(summary).to_contain_text("2 nodes added")
    page.get_by_role("button", name="As YAML").click()
    editor = page.get_by_label("Changes and objects as YAML")
    text = editor.input_value()
    for part in (
        'drain: ["node-1"]',
        '"deployment/demo/web":9',
        'addNodes: {"node-0":2}',
        '"cpu":"1500m"',
    ):
        assert part in text, text
    page.get_by_role("button", name="Drain nodes").click()
    page.get_by_role("button", name="Without: drain node-1").click()
    expect(chips).to_have_count(3)
    page.get_by_role("button", name="Another configuration").click()
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".result")).to_contain_text("Placed differently by this configuration")


def test_what_if_says_why_it_does_not_draw_a_large_cluster(visit, served, monkeypatch):
    monkeypatch.setattr(nodes, "MAX_DRAWN", (0, 0))
    visitor = visit(served.value.page, "#/whatif")
    result = visitor.page.locator(".result")
    expect(result).to_contain_text("No picture: more than 200 nodes or 5,000 pods")
    visitor.page.get_by_role("button", name="Drain nodes").click()
    visitor.page.get_by_label("Node", exact=True).fill("node-1")
    visitor.page.get_by_role("button", name="Show").click()
    expect(visitor.page.get_by_role("heading", name="Moved")).to_be_visible()
    expect(result).to_contain_text("No picture: more than 200 nodes or 5,000 pods")
    expect(visitor.page.locator(".panes")).to_have_count(0)


def test_a_node_on_the_map_leads_to_what_if(visit, served):
    visitor = visit(served.value.page, "#/map?node=node-0")
    settled(visitor, "node")
    page = visitor.page
    page.get_by_role("link", name="What if it were drained?").click()
    expect(page.locator(".chips .chip")).to_have_text(re.compile("drain node-0"))
    expect(page.locator(".summary")).to_contain_text("nothing left over")


def test_what_if_answers_while_typing(visit, served):
    visitor = visit(served.value.page, "#/whatif")
    settled(visitor, "whatif")
    page = visitor.page
    page.get_by_role("button", name="As YAML").click()
    editor = page.get_by_label("Changes and objects as YAML")
    editor.fill(editor.input_value().replace("replicas: 10", "replicas: 3"))
    expect(page.locator(".summary")).to_contain_text("3 pods placed")
    visitor.expected = ("400 (Bad Request)",)
    editor.fill("kind: [")
    expect(page.locator(".result .error")).to_contain_text("not valid YAML")
    editor.fill("apiVersion: kubesched/v1\nkind: Changes\ndrian: [node-1]")
    expect(page.locator(".result .error")).to_contain_text("did you mean drain?")
    page.get_by_label("Example").select_option("10 replicas")
    editor.fill(editor.input_value().replace("replicas:", "replcias:"))
    expect(page.locator(".result .error")).to_contain_text("did you mean replicas?")
    page.get_by_label("Example").select_option("too large")
    expect(page.locator(".result")).to_contain_text("Left over")
    expect(page.locator(".result")).to_contain_text("Pending before, and still")
    expect(page.locator(".summary")).to_contain_text("1 left over · 5 still pending")
    page.get_by_label("Example").select_option("another configuration")
    expect(page.locator(".result")).to_contain_text("this configuration")
    page.reload()
    expect(editor).to_have_value(re.compile("KubeSchedulerConfiguration"))


def test_the_search_finds_nodes_and_pods(visit, served):
    visitor = visit(served.value.page, "#/queue")
    settled(visitor, "queue")
    page = visitor.page
    page.keyboard.press("/")
    page.get_by_role("combobox").fill("greedy")
    expect(page.get_by_role("option").first).to_contain_text("default/greedy")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("never")
    page.keyboard.press("/")
    page.get_by_role("combobox").fill("node-3")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".panel h3")).to_have_text("node-3")


def test_every_view_can_be_saved_as_one_file(visit, served, tmp_path):
    visitor = visit(served.value.page, "#/map?as=table")
    settled(visitor, "table")
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="Export").click()
    path = tmp_path / "saved.html"
    download.value.save_as(path)
    text = path.read_text()
    assert "<script" not in text
    assert "node-8" in text
    saved = visitor.context.new_page()
    requests = []
    saved.on("request", lambda request: requests.append(request.url))
    saved.goto(path.as_uri())
    expect(saved.locator("tbody tr")).to_have_count(9)
    assert [each for each in requests if not each.startswith(("file:", "data:"))] == []


def test_a_view_that_does_not_exist_says_so(visit, served):
    visitor = visit(served.value.page, "#/nonsense")
    expect(visitor.page.locator("h2")).to_have_text("Not found")


CUT = """() => [...document.querySelectorAll('main *, header *, #status *')].filter(each => {
  if (each.closest('.hidden, datalist, option, select, textarea, input, canvas')) return false;
  const style = getComputedStyle(each);
  return style.overflowX === 'hidden' && each.scrollWidth > each.clientWidth + 1
    && each.clientWidth > 0 && each.innerText;
}).map(each => `${each.tagName}.${each.className}: ${each.innerText.slice(0, 60)}`)"""
"""Elements whose text does not fit and cannot be scrolled to."""


@pytest.mark.parametrize("scheme", ["light", "dark", "narrow"])
def test_views_are_accessible_and_pictured(visit, served, screenshots, scheme):
    options = {"color_scheme": "dark" if scheme == "dark" else "light"}
    if scheme == "narrow":
        options["viewport"] = {"width": 400, "height": 800}
    visitor = visit(served.value.page, **options)
    page, pod = visitor.page, a_pod(served)
    settled(visitor, "map")
    found, cut = {}, {}
    for view, fragment in VIEWS.items():
        visitor.go(fragment.replace("POD", pod))
        settled(visitor, view)
        violations = Axe().run(page).response["violations"]
        found[view] = [
            (rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in violations
        ]
        page.evaluate("document.querySelectorAll('.hint button').forEach(each => each.click())")
        page.screenshot(path=screenshots / f"{view}-{scheme}.png")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{view} is {wide} pixels too wide"
        if scheme == "narrow":
            cut[view] = page.evaluate(CUT)
    assert not any(found.values()), json.dumps(found, indent=1)
    assert not any(cut.values()), json.dumps(cut, indent=1)
