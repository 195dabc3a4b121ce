"""How quick the page is, in a real Chromium, and what it costs the scheduler.

    python -P benchmarks/page.py [paint] [pan] [what-if] [stream] [scripts]     (default: all)

    paint     first paint of the map at 5,000 nodes, from the navigation to the first frame that
              shows nodes
    pan       100,000 nodes: tasks longer than 50 ms while panning and zooming, as the browser's
              PerformanceObserver counts them
    what-if   from the last key to the answer on the screen, at 1,000 nodes with 10,000 pods
    stream    CPU time of the event stream per second at 500 pods per second with one reader, as a
              share of one core
    scripts   compressed size of all scripts

The browser is `$KUBESCHED_BROWSER` or the chromium on PATH. Browser and server share the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import threading
from statistics import median
from time import perf_counter, thread_time

from kubesched.app.page_sources import state_source
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.insight.page.assets import assets
from kubesched.insight.page.serving import serve_page
from kubesched.insight.page.source import Source, View
from kubesched.insight.page.updates import Updates
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.scheduler.decisions import DecisionRing, Outcome
from kubesched.testing import make_node, make_pod

KEY = b"k" * 32
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HAS_COLOURS = """() => {
  const canvas = document.querySelector('.canvas canvas');
  if (!canvas || !canvas.width) return 0;
  const context = canvas.getContext('2d'), seen = new Set();
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < data.length; i += 400)
    seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return seen.size > 20;
}"""


def cluster(node_count: int, pods_per_node: int) -> ClusterState:
    state = ClusterState("benchmark")
    for i in range(node_count):
        node = make_node(f"node-{i}").capacity(cpu="32", memory="128Gi", pods=110)
        state.put(node.zone(f"zone-{'abc'[i % 3]}").label("rack", f"rack-{i % 97}").build())
        for j in range(pods_per_node):
            pod = make_pod(f"pod-{i}-{j}").cpu(f"{(i * 7919 + j) % 2500 + 100}m").memory("1Gi")
            state.put(pod.on(f"node-{i}").build())
    return state


@contextlib.contextmanager
def served(state: ClusterState):
    """The page over the state, on a thread of its own."""
    ready, stop = threading.Event(), None
    found = []

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        loop.append(asyncio.get_running_loop())
        async with serve_page(state_source(state, None, DEFAULT_GATES), key=KEY) as page:
            found.append(page)
            ready.set()
            await stop.wait()

    loop: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop[0].call_soon_threadsafe(stop.set)
        thread.join()


@contextlib.contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    path = os.environ.get("KUBESCHED_BROWSER") or shutil.which("chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path, args=list(FLAGS), timeout=120_000
        )
        try:
            yield launched
        finally:
            launched.close()


def paint() -> None:
    with served(cluster(5000, 1)) as page, browser() as chromium:
        tab = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
        tab.goto(page.link)
        tab.wait_for_function(HAS_COLOURS)
        times = []
        for _ in range(5):
            tab.goto("about:blank")
            tab.goto(f"{page.url}/#/map", wait_until="commit")
            tab.wait_for_function(HAS_COLOURS, polling="raf")
            times.append(tab.evaluate("performance.now()"))
            paints = tab.evaluate(
                "Object.fromEntries(performance.getEntriesByType('paint').map(each => "
                "[each.name, each.startTime]))"
            )
    print(
        f"first paint, 5,000 nodes: map {median(times):.0f} ms (of "
        f"{' '.join(f'{each:.0f}' for each in times)}), "
        f"first contentful paint {paints.get('first-contentful-paint', 0):.0f} ms"
    )


def pan() -> None:
    with served(cluster(100_000, 0)) as page, browser() as chromium:
        tab = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
        tab.goto(page.link)
        tab.wait_for_function(
            "() => document.querySelector('.summary')?.textContent.includes('100,000')",
            timeout=120_000,
        )
        tab.wait_for_timeout(1000)
        tab.evaluate(
            "() => { window.long = []; new PerformanceObserver(list => "
            "window.long.push(...list.getEntries().map(each => each.duration)))"
            ".observe({type: 'longtask'}); window.frames_ = []; let last = performance.now(); "
            "const tick = () => { const now = performance.now();"
            " window.frames_.push(now - last); last = now; requestAnimationFrame(tick); }; "
            "requestAnimationFrame(tick); }"
        )
        box = tab.locator(".canvas canvas").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for _ in range(2):
            tab.mouse.move(x, y)
            for _ in range(20):
                tab.mouse.wheel(0, -120)
            tab.mouse.down()
            for step in range(40):
                tab.mouse.move(x + 8 * step, y + 3 * step)
            tab.mouse.up()
            for _ in range(25):
                tab.mouse.wheel(0, 120)
        tab.wait_for_timeout(500)
        long, frames = tab.evaluate("[window.long, window.frames_]")
    frames.sort()
    print(
        f"100,000 nodes, panning and zooming: {len(long)} tasks over 50 ms"
        f" (longest {max(long, default=0):.0f} ms); {len(frames)} frames, "
        f"median {median(frames):.0f} ms, 95th percentile {frames[int(len(frames) * 0.95)]:.0f} ms"
    )


def what_if() -> None:
    with served(cluster(1000, 10)) as page, browser() as chromium:
        tab = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
        tab.goto(f"{page.link}#/whatif")
        tab.wait_for_function("() => document.querySelector('.result')?.dataset.done")
        editor = tab.get_by_label("Objects as YAML")
        times = []
        for replicas in range(11, 16):
            tab.wait_for_timeout(1500)  # the user reads, and the next cluster is loaded
            done = int(tab.locator(".result").get_attribute("data-done"))
            text = editor.input_value()
            changed = text.replace(f"replicas: {replicas - 1}", f"replicas: {replicas}")
            times.append(
                tab.evaluate(
                    "([text, done]) => new Promise(resolve => { const editor = "
                    "document.getElementById('yaml'), result = document.querySelector('.result');"
                    " const began = performance.now(); editor.value = text; "
                    "editor.dispatchEvent(new Event('input'));"
                    " new MutationObserver(() => { if (Number(result.dataset.done) > done) "
                    "requestAnimationFrame(() => resolve(performance.now() - began)); })"
                    ".observe(result, {attributes: true}); })",
                    [changed, done],
                )
            )
    print(
        f"what if, 1,000 nodes, 10,000 pods: {median(times):.0f} ms after the last key "
        f"(of {' '.join(f'{each:.0f}' for each in times)})"
    )


def stream() -> None:
    state = cluster(5000, 0)
    assembly = in_memory_scheduler(state).assembly
    ring = DecisionRing()
    view = View(assembly=assembly, state=lambda: state, explainer=None)
    source = Source(
        kind="scheduler",
        title="benchmark",
        view=view,
        config=default_config(),
        gates=DEFAULT_GATES,
        is_live=True,
        ring=ring,
    )
    seconds, rate = 10, 500

    async def read() -> tuple[float, int, int]:
        updates = Updates(source)
        events = updates.events(str(updates.place()))
        spent, sent, messages, placed = 0.0, 0, 0, 0
        began = perf_counter()
        while (elapsed := perf_counter() - began) < seconds:
            while placed < elapsed * rate:
                pod = PodInfo(make_pod(f"p-{placed}").cpu("1m").build())
                assembly.table.add_pod(pod, f"node-{placed * 37 % 5000}")
                info = QueuedPodInfo(pod, 0.0)
                ring.add(info, "default-scheduler", 0.0, 0.0, Outcome.SCHEDULED, "node-0", 1, 1)
                placed += 1
            start = thread_time()
            event = await anext(events)
            sent += len(event.encode())
            spent += thread_time() - start
            messages += 1
        await events.aclose()
        return spent, messages, sent

    spent, messages, sent = asyncio.run(read())
    print(
        f"event stream, {rate} pods/s, one reader: {spent / seconds:.2%} of a core, "
        f"{messages / seconds:.1f} messages/s, {sent / seconds / 1024:.0f} KB/s"
    )


def scripts() -> None:
    sizes = {name: len(each.packed) for name, each in assets().items() if name.endswith(".js")}
    print(f"scripts: {sum(sizes.values()) / 1024:.1f} KB compressed in {len(sizes)} files")


PARTS = {"paint": paint, "pan": pan, "what-if": what_if, "stream": stream, "scripts": scripts}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
