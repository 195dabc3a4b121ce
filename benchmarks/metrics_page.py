"""How long a scrape of a huge metrics page keeps the event loop: longest turn, in CPU time.

Run it as a program; it prints, for plain and compressed pages, the lines, the CPU time of the whole
page and of the longest turn between two yields. Wanted: less than 5 ms for any page.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Coroutine, Generator
from typing import Any

from kubesched.app.server.metrics_pages import MetricsPage
from kubesched.app.server.requests import PageRequest
from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics


def busy_registry(profiles: int) -> MetricsRegistry:
    """Every series that so many profiles with their plugins and events could bring."""
    registry = MetricsRegistry()
    metrics = SchedulerMetrics(registry)
    for profile in range(profiles):
        for plugin in range(20):
            name = f"Plugin{profile}x{plugin}"
            for event in range(20):
                for hint in ("Queue", "QueueSkip"):
                    metrics.queueing_hint_execution_duration_seconds.labels(
                        name, f"Event{event}", hint
                    ).observe(0.001)
            for point in ("PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit"):
                for status in ("Success", "Skip"):
                    metrics.plugin_execution_duration_seconds.labels(name, point, status).observe(
                        0.001
                    )
    return registry


class Turns:
    """Awaits a coroutine and notes the CPU time of each of its turns, from one yield to the event
    loop to the next.
    """

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self.seconds: list[float] = []

    def __await__(self) -> Generator[Any, Any, None]:
        while True:
            began = time.thread_time()
            try:
                awaited = self._work.send(None)
            except StopIteration:
                return
            finally:
                self.seconds.append(time.thread_time() - began)
            yield awaited


async def scrape(registry: MetricsRegistry, *, compress: bool) -> None:
    answer = await MetricsPage(registry)(PageRequest(path="/metrics", accepts_gzip=compress))
    assert answer.stream is not None
    async for _piece in answer.stream:
        pass


async def main(profiles: int, repeats: int) -> None:
    registry = busy_registry(profiles)
    gc.collect()
    gc.freeze()  # as `kubesched run` does
    for compress in (False, True):
        for repeat in range(repeats):
            turns = Turns(scrape(registry, compress=compress))
            await turns
            print(
                f"{'compressed' if compress else 'plain':<11}{'again' if repeat else 'first':<6}"
                f"{registry.text().count(chr(10)):>8} lines   whole page "
                f"{sum(turns.seconds) * 1e3:6.1f} ms"
                f"   {len(turns.seconds)} turns   longest {max(turns.seconds) * 1e3:5.2f} ms"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", type=int, default=3, help="how many profiles (default: 3)")
    parser.add_argument("--repeats", type=int, default=4)
    given = parser.parse_args()
    asyncio.run(main(given.profiles, given.repeats))
