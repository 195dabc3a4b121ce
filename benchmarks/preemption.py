"""Preemption in the decision core: no API, one core.

    python benchmarks/preemption.py [--nodes 5000] [--decisions 1000] [--pending 10000]

preempt    every node runs 4 pods of 900m at low priority; each preemptor needs 3 of them gone. One
           decision is the failed
           attempt, the choice of node and victims, and the nomination. Afterwards, outside the
           measurement, the victims leave and the preemptor takes its place ("settled"), or nothing
           happens ("wave": nominations pile up).
hopeless   pods that fit nowhere and have no victims, one after the other while nothing changes.
others     pods of low priority are scheduled while many unschedulable ones of high priority are
           pending; everything goes
           through event handlers, queue and failure handler. Then a pod ends, which wakes all
           pending ones: all are tried again without success. A pod that keeps failing backs off for
           10 seconds, so this cannot happen more often.

CPU time throughout. First and typical decision; typical is the 5th percentile of batches, since
these machines are noisy, except for waves, which change as they go: there it is the mean.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from random import Random

from frameworks import default_framework

from kubesched.api.core_v1 import Pod
from kubesched.base.clock import ManualClock
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime.post_filter import run_post_filter
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.factory import Dependencies, assemble
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.scheduler.scheduler import FINISHED, QUEUE_EMPTY
from kubesched.testing import make_node, make_pod

BATCH = 50
LONGEST_BACKOFF_S = 10.0


class Cluster:
    """Nodes full of unimportant pods, and the default profile."""

    def __init__(self, nodes: int, *, classes: bool) -> None:
        self.table = NodeTable(nodes)
        self.cache = Cache(self.table)
        self.listers = MemoryListers()
        self.queued: dict[str, PodInfo] = {}
        self.nominator = Nominator(self.listers.of(Pod), self.queued.get)
        for number in range(nodes):
            name = f"node-{number}"
            node = make_node(name).capacity(cpu="4", memory="32Gi").zone(f"zone-{number % 3}")
            self.cache.add_node(node.build())
            for each in range(4):
                self.cache.add_pod(low(f"low-{number}-{each}").on(name).build())
        handle = Handle(
            table=self.table,
            random=Random(1),
            listers=self.listers,
            nominator=self.nominator,
            feature_gates=DEFAULT_GATES,
            spawn=lambda work, _what: work.close(),
        )
        self.framework = default_framework(self.table, handle)
        self.algorithm = SchedulingAlgorithm(
            self.table, Random(1), engine=ClassEngine(self.table) if classes else None
        )

    def pend(self, pod: Pod) -> PodInfo:
        self.listers.of(Pod).put(pod)
        info = PodInfo(pod)
        self.queued[info.key] = info
        return info

    def decide(self, info: PodInfo) -> tuple[str, str]:
        """(nominated node, message) of a pod that fits nowhere."""
        state = CycleState()
        failed = self.algorithm.schedule(self.framework, state, info)
        diagnosis = failed.error.diagnosis
        result, status = run_post_filter(self.framework, state, info.pod, diagnosis.node_to_status)
        diagnosis.post_filter_msg = "" if status is None else status.message
        self.nominator.add_nominated_pod(info, result.nominating_info)
        return result.nominating_info.node_name, str(failed.error)

    def settle(self, info: PodInfo, node: str) -> None:
        """The victims leave and the preemptor runs."""
        self.nominator.delete_nominated_pod(info.pod)
        del self.queued[info.key]
        for victim in list(self.table.pods[self.table.row_of[node]].values())[:3]:
            self.cache.remove_pod(victim.pod)
        self.cache.assume_pod(info.assumed_on(node))


def low(name: str):
    return make_pod(name).cpu("900m").memory("500Mi").status(startTime="2026-01-01T00:00:00Z")


def high(name: str):
    return make_pod(name).cpu("3").memory("500Mi").priority(100)


def hopeless(name: str):
    return make_pod(name).cpu("3").memory("500Mi").priority(0)


def measure(work: Callable[[int], None], count: int) -> tuple[float, float]:
    """(milliseconds of the first, of a typical one): the machine is noisy, so CPU time and a low
    percentile.
    """
    began = time.process_time()
    work(0)
    first = time.process_time() - began
    batches: list[float] = []
    for start in range(1, count, BATCH):
        began = time.process_time()
        for number in range(start, start + BATCH):
            work(number)
        batches.append((time.process_time() - began) / BATCH)
    return first * 1e3, statistics.quantiles(batches, n=20)[0] * 1e3


def in_vain(nodes: int, count: int, *, classes: bool) -> tuple[float, float]:
    cluster = Cluster(nodes, classes=classes)
    pods = [cluster.pend(hopeless(f"h-{n}").build()) for n in range(count + BATCH)]
    return measure(lambda number: cluster.decide(pods[number]), count)


def preempt(nodes: int, count: int, *, classes: bool, wave: bool) -> tuple[float, float]:
    cluster = Cluster(nodes, classes=classes)
    pods = [cluster.pend(high(f"high-{number}").build()) for number in range(count + BATCH)]
    spent = [0.0]
    first = 0.0
    for number, pod in enumerate(pods[: min(count, nodes)]):
        began = time.process_time()
        node, message = cluster.decide(pod)
        spent.append(time.process_time() - began)
        if not node:
            raise SystemExit(f"no node after {number} decisions: {message}")
        if number == 0:
            first = spent[-1]
        if not wave:
            cluster.settle(pod, node)
    batches = [statistics.mean(spent[n : n + BATCH]) for n in range(2, len(spent), BATCH)]
    typical = statistics.mean(batches) if wave else statistics.quantiles(batches, n=20)[0]
    return first * 1e3, typical * 1e3


class World:
    """A whole scheduler without an API server: its bindings succeed at once, its writes go
    nowhere.
    """

    def __init__(self, nodes: int) -> None:
        self.clock = ManualClock()
        self.listers = MemoryListers()
        self.assembly = assemble(
            default_config(DEFAULT_GATES),
            DEFAULT_GATES,
            in_tree_registry(),
            Dependencies(
                listers=self.listers,
                client=NullClient(),
                recorder=lambda _name: NullClient(),
                clock=self.clock,
                random=Random(1),
                call_later=lambda _seconds, _function: None,
                metrics=SchedulerMetrics(MetricsRegistry()),
            ),
        )
        self.pods = self.listers.of(Pod)
        handlers = self.assembly.handlers
        self._ended = 0
        for number in range(nodes):
            name = f"node-{number}"
            handlers.node_added(make_node(name).capacity(cpu="4", memory="32Gi").build())
            daemon = make_pod(f"daemon-{number}").cpu("100m").priority(2000).on(name)
            old = make_pod(f"old-{number}").cpu("100m").on(name)
            for pod in (daemon.build(), old.build()):
                self.pods.put(pod)
                handlers.pod_added(pod)

    def add(self, builder) -> None:
        pod = builder.build()
        self.pods.put(pod)
        self.assembly.handlers.pod_added(pod)

    def run(self) -> None:
        """Try pods until there is none to try."""
        scheduler, handlers = self.assembly.scheduler, self.assembly.handlers
        while (outcome := scheduler.attempt()) is not QUEUE_EMPTY:
            if outcome is FINISHED:
                continue
            bound = outcome.pod.pod
            scheduler.queue.done(bound.metadata.uid)
            old = self.pods.put(bound)
            handlers.pod_updated(old, bound)

    def end_a_pod(self) -> None:
        pod = self.pods.get("default", f"old-{self._ended}")
        self._ended += 1
        self.pods.remove("default", pod.metadata.name)
        self.assembly.handlers.pod_deleted(pod)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.assembly.scheduler.queue.run_timers()


class NullClient:
    """Takes events and writes, and does nothing with them."""

    def event(self, *_args) -> None:
        pass


def others(nodes: int, count: int, pending: int) -> tuple[float, float, float]:
    """Milliseconds per pod of low priority alone and beside pending ones, and seconds to try all
    pending ones again.

    The two are measured in turns: what slows the machine down slows both.
    """
    alone, beside = World(nodes), World(nodes)
    for number in range(pending):
        beside.add(make_pod(f"vip-{number}").cpu("4").priority(1000))
    beside.run()
    gc.collect()
    gc.freeze()  # as the scheduler does once it knows the cluster
    spent: dict[World, list[float]] = {alone: [], beside: []}
    for start in range(0, count, BATCH):
        for world, batches in spent.items():
            pods = [make_pod(f"other-{n}").cpu("100m") for n in range(start, start + BATCH)]
            began = time.process_time()
            for pod in pods:
                world.add(pod)
                world.run()
            batches.append((time.process_time() - began) / BATCH)
    waking: list[float] = []
    for _ in range(5):
        beside.pass_time(20.0)
        began = time.process_time()
        beside.end_a_pod()
        beside.run()
        waking.append(time.process_time() - began)
    typical = [statistics.quantiles(batches, n=20)[0] * 1e3 for batches in spent.values()]
    return typical[0], typical[1], min(waking)


def report(name: str, first: float, typical: float) -> None:
    print(f"{name:<44}{first:>10.2f} ms{typical:>10.3f} ms{1e3 / typical:>10.0f} /s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--pending", type=int, default=10_000)
    args = parser.parse_args()
    print(f"{'':<44}{'first':>13}{'typical':>13}{'decisions':>13}")
    for classes in (False, True):
        suffix = "classes" if classes else "no classes"
        for wave in (False, True):
            kind = "wave" if wave else "settled"
            found = preempt(args.nodes, args.decisions, classes=classes, wave=wave)
            report(f"preempt, {kind}, {suffix}", *found)
        report(f"hopeless, {suffix}", *in_vain(args.nodes, args.decisions, classes=classes))
    alone, beside, waking = others(args.nodes, 2 * args.decisions, args.pending)
    print(f"\nothers, alone {alone:>38.4f} ms")
    print(f"others, {args.pending} pending {beside:>30.4f} ms{beside / alone - 1:>10.1%}")
    share = waking / LONGEST_BACKOFF_S
    print(
        f"waking all of them {waking:>32.2f} s{share:>12.1%} of a core at one per "
        f"{LONGEST_BACKOFF_S:g} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
