"""Cost of one event beside many pending pods: the event, its retries, the longest turn of the loop.

    python benchmarks/backlog.py [--pending 50000] [--classes 100] [--nodes 1000] [--by
        labels|requests] [--profile]

Every node is full. The pending pods belong to apps in turn, which differ in their labels or in
their memory requests; all ask for 2 CPUs and fit nowhere. Then, one after the other:

    useless    a node comes that is too small for all of them
    again      ten such nodes come in turn
    foreign    a pod with other resources than those they lack changes on a node
    room       a pod of 2 CPUs ends: one pending pod fits, and all of them are told
    rooms      ten such pods end in turn
    larger     a node comes that takes one of them (messages change: another number of nodes)

CPU time throughout, of one event: the median if there are several. A turn is an event with all its
handlers, or one attempt; what failed are the attempts that placed nothing. All includes bindings
and conditions.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from kubesched.api.core_v1 import Pod
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.lab.benchmarking.core_cluster import CoreCluster
from kubesched.scheduler.scheduler import Finished, QueueEmpty, Suspended
from kubesched.scheduler.scheduling_cycle import Assumed
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import PodBuilder

LONGEST_BACKOFF_S = 11.0


class Backlog:
    """A full cluster with many pending pods."""

    def __init__(self, nodes: int, pending: int, classes: int, by: str = "labels") -> None:
        self.cluster = CoreCluster(default_config(), DEFAULT_GATES)
        self.scheduler = self.cluster.assembly.scheduler
        self.attempts = self.placed = 0
        self.longest_s = self.failed_s = 0.0
        self.nodes = nodes
        for number in range(nodes):
            self.cluster.add(node(f"node-{number}", "4"))
            for part in range(2):
                self.cluster.add(filler(number, part).build())
        for number in range(pending):
            self.cluster.add(waiting(number, classes, by).build())

    def turn(self, work: Callable[[], object]) -> object:
        began = time.thread_time()
        outcome = work()
        spent = time.thread_time() - began
        self.longest_s = max(self.longest_s, spent)
        if isinstance(outcome, Finished):
            self.failed_s += spent
        return outcome

    async def run(self) -> None:
        """Attempts, bindings and status patches until nothing is left to do at this time."""
        clock, writer = self.cluster.clock, self.scheduler.status_writer
        while True:
            clock.enter()
            outcome = self.turn(self.scheduler.attempt)
            clock.leave()
            if isinstance(outcome, QueueEmpty):
                await writer.drain()
                due = self.scheduler.queue.next_deadline()
                if due is None or due > clock.monotonic():
                    return
                self.turn(self.scheduler.queue.run_timers)
                continue
            assert not isinstance(outcome, Suspended), "no extender is configured"
            self.attempts += 1
            if isinstance(outcome, Assumed):
                self.placed += 1
                await self.scheduler.binding.run(outcome)

    async def measure(self, name: str, events: list[Callable[[], object]]) -> None:
        clock = self.cluster.clock
        clock.advance(LONGEST_BACKOFF_S)
        self.attempts = self.placed = 0
        self.longest_s = 0.0
        spent: list[tuple[float, float, float]] = []
        gc.collect()
        gc.freeze()
        for event in events:
            self.failed_s = 0.0
            began = time.thread_time()
            self.turn(event)
            event_s = time.thread_time() - began
            await self.run()
            spent.append((event_s, self.failed_s, time.thread_time() - began))
        gc.unfreeze()
        event_ms, failed_ms, all_ms = (median(column) * 1e3 for column in zip(*spent, strict=True))
        print(
            f"{name:<10}{event_ms:>12.2f}{failed_ms:>12.2f}{all_ms:>12.1f}"
            f"{self.longest_s * 1e3:>12.2f}{self.attempts:>10}{self.placed:>8}",
            flush=True,
        )

    def ends(self, number: int) -> Callable[[], object]:
        pod = self.cluster.find(Pod, "default", f"filler-{number}-0")
        assert pod is not None, "every filler ends once"
        return lambda: self.cluster.delete(pod)

    async def events(self) -> None:
        print(
            f"{'event':<10}{'event ms':>12}{'failed ms':>12}{'all ms':>12}{'turn ms':>12}"
            f"{'attempts':>10}{'placed':>8}"
        )
        add = self.cluster.add
        await self.measure("useless", [lambda: add(node("small", "1"))])
        await self.measure("again", [partial(add, node(f"small-{n}", "1")) for n in range(10)])
        await self.measure(
            "foreign", [lambda: add(make_pod("zero").on("node-0").uid("zero").build())]
        )
        await self.measure("room", [self.ends(0)])
        await self.measure("rooms", [self.ends(number) for number in range(1, 11)])
        await self.measure("larger", [lambda: add(node("larger", "3"))])


def node(name: str, cpu: str):
    return make_node(name).capacity(cpu=cpu, memory="64Gi").build()


def filler(number: int, part: int) -> PodBuilder:
    name = f"filler-{number}-{part}"
    return make_pod(name).uid(name).cpu("2").memory("1Gi").on(f"node-{number}")


def waiting(number: int, classes: int, by: str) -> PodBuilder:
    name, app = f"waiting-{number}", number % classes
    pod = make_pod(name).uid(name).cpu("2")
    if by == "requests":
        return pod.memory(f"{1024 + app}Mi")
    return pod.memory("1Gi").label("app", f"app-{app}")


async def benchmark(args: argparse.Namespace) -> None:
    backlog = Backlog(args.nodes, args.pending, args.classes, args.by)
    print(f"{args.nodes} nodes, {args.pending} pending pods in {args.classes} classes")
    began = time.thread_time()
    await backlog.run()
    spent = time.thread_time() - began
    print(f"first attempts: {spent / args.pending * 1e6:.0f} µs per pod, conditions included")
    profile = cProfile.Profile()
    if args.profile:
        profile.enable()
    await backlog.events()
    if args.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pending", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--by", choices=("labels", "requests"), default="labels")
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    asyncio.run(benchmark(parser.parse_args()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
