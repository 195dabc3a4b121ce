"""Preemption in the decision core: no API, one core.

    python benchmarks/preemption.py [--nodes 5000] [--decisions 1000] [--pending 10000]

preempt    every node runs 4 pods of 900m at low priority; each preemptor needs 3 of them gone. One decision is the failed
           attempt, the choice of node and victims, and the nomination. Afterwards, outside the measurement, the victims
           leave and the preemptor takes its place ("settled"), or nothing happens ("wave": nominations pile up).
hopeless   pods that fit nowhere and may evict nobody, and the same again while nothing changes.
others     pods of low priority are scheduled while many unschedulable ones of high priority are pending; both through
           the queue, the failure handler included. Pods end now and then, which wakes the pending ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from random import Random

from kubesched.api.core_v1 import Pod
from kubesched.cache.cache import Cache
from kubesched.config.features import DEFAULT_GATES
from kubesched.framework.classes import ClassCache
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import NominatingInfo
from kubesched.framework.runtime.post_filter import run_post_filter
from kubesched.queue.nominator import Nominator
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.pods import PodInfo
from kubesched.testing import make_node, make_pod
from kubesched.testing.frameworks import default_framework
from kubesched.testing.harness import DictListers

BATCH = 50


class Cluster:
    """Nodes full of unimportant pods, and the default profile."""

    def __init__(self, nodes: int, *, classes: bool) -> None:
        self.table = NodeTable(nodes)
        self.cache = Cache(self.table)
        self.listers = DictListers()
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
            self.table, Random(1), classes=ClassCache() if classes else None
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
    """(milliseconds of the first, of a typical one): the machine is noisy, so CPU time and a low percentile."""
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


def preempt(nodes: int, count: int, *, classes: bool, wave: bool) -> tuple[float, float]:
    cluster = Cluster(nodes, classes=classes)
    pods = [cluster.pend(high(f"high-{number}").build()) for number in range(count + BATCH)]
    spent = [0.0]
    batches: list[float] = []
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
    for start in range(2, len(spent), BATCH):
        batches.append(statistics.mean(spent[start : start + BATCH]))
    typical = statistics.mean(batches) if wave else statistics.quantiles(batches, n=20)[0]
    return first * 1e3, typical * 1e3


def report(name: str, first: float, typical: float) -> None:
    print(f"{name:<44}{first:>10.2f} ms{typical:>10.3f} ms{1e3 / typical:>10.0f} /s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--decisions", type=int, default=1000)
    args = parser.parse_args()
    print(f"{'':<44}{'first':>13}{'typical':>13}{'decisions':>13}")
    for classes in (False, True):
        suffix = "classes" if classes else "no classes"
        for wave in (False, True):
            kind = "wave" if wave else "settled"
            found = preempt(args.nodes, args.decisions, classes=classes, wave=wave)
            report(f"preempt, {kind}, {suffix}", *found)
        cluster = Cluster(args.nodes, classes=classes)
        pods = [cluster.pend(hopeless(f"h-{n}").build()) for n in range(args.decisions + BATCH)]
        report(f"hopeless, {suffix}", *measure(lambda n: cluster.decide(pods[n]), args.decisions))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
