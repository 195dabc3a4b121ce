"""The pictures of the documentation (`scripts/screenshots`), over clusters that are the same every
time.
"""

from random import Random

from msgspec import structs
from page_servers import dump, source_server
from planning_worlds import owned
from playwright.sync_api import expect

from kubesched.api import codec
from kubesched.api.core_v1 import PodStatus
from kubesched.api.times import format_time
from kubesched.base.clock import SystemClock
from kubesched.testing import make_node, make_pod

COLOURS = """() => {
  const c = document.querySelector('.canvas canvas'), seen = new Set();
  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  for (let i = 0; i < d.length; i += 400) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
  return seen.size;
}"""
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def take(page, path, height=640):
    page.evaluate("document.querySelectorAll('.hint button').forEach(each => each.click())")
    page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": 1280, "height": height})


def shop():
    """Ten nodes with three workloads; a fourth asks for more than is left, a fifth for a label that
    no node has.
    """
    random = Random(3)
    now = SystemClock().now()

    def made(workload, node="", *, cpu, minutes=40, **selector):
        name = f"{workload}-{''.join(random.choice(LETTERS) for _ in range(5))}"
        pod = owned(name, node, owner=workload, cpu=cpu)
        metadata = structs.replace(pod.metadata, creation_timestamp=format_time(now - 60 * minutes))
        spec = structs.replace(pod.spec, node_selector=selector or None)
        status = pod.status
        if not node:
            reason = (
                "node(s) didn't match Pod's node affinity/selector"
                if selector
                else "Insufficient cpu"
            )
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": f"0/10 nodes are available: 10 {reason}.",
            }
            status = codec.convert({"conditions": [condition]}, PodStatus)
        return structs.replace(pod, metadata=metadata, spec=spec, status=status)

    for i in range(10):
        yield (
            make_node(f"node-{i}")
            .capacity(cpu="8", memory="32Gi", pods=110)
            .zone(f"zone-{'abc'[i % 3]}")
            .build()
        )
    for i in range(10):
        for workload, cpu, each in (("web", "1", 2), ("api", "2", 1), ("worker", "500m", i % 4)):
            for _ in range(each):
                yield made(workload, f"node-{i}", cpu=cpu)
    for _ in range(4):
        yield made("search", cpu="5", minutes=6)
    for _ in range(2):
        yield made("cache", cpu="1", minutes=25, disktype="ssd")
    yield make_pod("batch-7").scheduler("volcano").cpu("2").build()


def test_few_nodes(visit, screenshots):
    with source_server(dump(*shop())) as server:
        visitor = visit(server.value, "#/map")
        page = visitor.page
        expect(page.locator(".legend")).to_contain_text("default/ReplicaSet/web")
        take(page, screenshots / "page-nodes.png", 720)
        visitor.go("#/queue")
        expect(page.locator(".card")).to_have_count(3)
        take(page, screenshots / "page-queue.png", 620)
        page.get_by_role("link", name="what would help").first.click()
        expect(page.locator("#fixes li").first).to_be_visible()
        take(page, screenshots / "page-decision.png", 720)
        visitor.go('#/whatif?changes={"drain":["node-1"],"addNodes":{"node-0":1}}')
        expect(page.locator(".summary")).to_contain_text("1 node added")
        expect(page.locator(".panes canvas")).to_be_visible()
        take(page, screenshots / "page-whatif.png", 760)


def test_many_nodes(visit, screenshots):
    random = Random(1)
    objects = []
    for i in range(5000):
        node = make_node(f"node-{i}").capacity(cpu="32", memory="128Gi", pods=110)
        objects.append(node.zone(f"zone-{'abc'[i % 3]}").build())
        # Fuller towards the end of a zone, as clusters are that were extended.
        share = min(0.99, random.betavariate(2 + 6 * (5000 - i) / 5000, 3))
        objects.append(make_pod(f"pod-{i}").cpu(f"{int(32000 * share)}m").on(f"node-{i}").build())
    with source_server(dump(*objects)) as server:
        visitor = visit(server.value, "#/map")
        page = visitor.page
        expect(page.locator(".summary")).to_contain_text("5,000 nodes")
        page.wait_for_function(f"() => ({COLOURS})() > 20")
        page.locator(".canvas canvas").hover(position={"x": 300, "y": 120})
        take(page, screenshots / "page-map.png")
        page.get_by_role("button", name="Table").click()
        assert page.locator("tbody tr[data-index]").count() < 100  # only the rows in sight
        page.keyboard.press("/")
        page.get_by_role("combobox", name="Search nodes and pods").fill("node-4999")
        page.locator("dialog").get_by_role("option").first.click()
        expect(page.locator(".panel h3")).to_have_text("node-4999")
