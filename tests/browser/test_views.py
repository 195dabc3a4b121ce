"""Each view of the page over a playground: what it shows, how it is used, and that it is accessible."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from page_servers import playground_server
from playwright.sync_api import expect

VIEWS = {
    "map": "#/map",
    "table": "#/map?as=table",
    "node": "#/map?node=node-0",
    "queue": "#/queue",
    "decisions": "#/decisions",
    "decision": "#/decision?pod=default/greedy",
    "placed": "#/decision?pod=demo/POD",
    "whatif": "#/whatif",
    "act": "#/act",
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
        expect(page.locator("tbody")).to_contain_text("default/greedy")
    if view == "decisions":
        expect(page.locator("tbody")).to_contain_text("demo/web")
    if view == "decision":
        expect(page.locator(".verdict")).to_contain_text("never No node of 9")
        expect(page.locator("#fixes li").first).to_be_visible()
    if view == "placed":
        expect(page.locator(".verdict")).to_contain_text("placed")
    if view == "whatif":
        expect(page.locator(".result")).to_contain_text("default/extra")
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


def test_the_queue_tells_why_and_what_would_wake(visit, served):
    visitor = visit(served.value.page, "#/queue")
    settled(visitor, "queue")
    page = visitor.page
    greedy = page.locator("tbody tr", has_text="default/greedy")
    expect(greedy).to_contain_text("Insufficient cpu")
    expect(page.locator("tbody tr", has_text="default/held")).to_contain_text("example.com/quota")
    page.get_by_role("button", name="Gated").click()
    expect(page.locator("tbody tr[data-index]")).to_have_count(1)
    greedy_link = page.get_by_role("link", name="default/held")
    greedy_link.click()
    expect(page.locator(".verdict")).to_contain_text("waiting")


def test_a_pending_pod_is_explained_with_fixes(visit, served):
    visitor = visit(served.value.page, "#/decision?pod=default/greedy")
    settled(visitor, "decision")
    page = visitor.page
    expect(page.locator("section", has_text="Why nodes were rejected").first).to_contain_text("cpu")
    expect(page.locator("#fixes")).to_contain_text("fits")
    expect(page.locator(".matrix tbody tr[data-index]")).to_have_count(9)
    expect(page.locator(".matrix")).to_contain_text("Insufficient cpu")


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


def test_what_if_answers_while_typing(visit, served):
    visitor = visit(served.value.page, "#/whatif")
    settled(visitor, "whatif")
    page = visitor.page
    editor = page.get_by_label("Objects as YAML")
    editor.fill(editor.input_value().replace("replicas: 10", "replicas: 3"))
    expect(page.locator(".summary")).to_contain_text("3 pods placed")
    editor.fill("kind: [")
    expect(page.locator(".result .error")).to_contain_text("not valid YAML")
    visitor.expected = ("400 (Bad Request)",)
    page.get_by_label("Example").select_option("too large")
    expect(page.locator(".result")).to_contain_text("Left over")
    expect(page.locator(".result")).to_contain_text("Pending before, and still")
    expect(page.locator(".summary")).to_contain_text("1 left over · 2 still pending")
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
    visitor.go("#/decision")
    expect(visitor.page.locator(".empty")).to_contain_text("Choose a pod")


@pytest.mark.parametrize("scheme", ["light", "dark", "narrow"])
def test_views_are_accessible_and_pictured(visit, served, screenshots, scheme):
    options = {"color_scheme": "dark" if scheme == "dark" else "light"}
    if scheme == "narrow":
        options["viewport"] = {"width": 390, "height": 800}
    visitor = visit(served.value.page, **options)
    page, pod = visitor.page, a_pod(served)
    settled(visitor, "map")
    found = {}
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
    assert not any(found.values()), json.dumps(found, indent=1)
