"""Memory that names chosen by users take, while their objects are there and after they have gone.

    python benchmarks/names_forgotten.py [--count N] [--names N] [KIND ...]

Creates and deletes pods in rounds, each with names of its own, and prints the resident memory after
every round: it must come back, or stop growing where a cache has reached its bound. The second
number after deletion is without the pages that the C library keeps (`malloc_trim`).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path

from kubesched.base.logs import silence
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import PodBuilder

ROUNDS = 5
NODES = 1000


def _resources(pod: PodBuilder, first: int, names: int) -> None:
    for n in range(first, first + names):
        pod.request(f"example.com/r{n}", "1")


def _bound_resources(pod: PodBuilder, first: int, names: int) -> None:
    _resources(pod.on("n0"), first, names)


def _tolerations(pod: PodBuilder, first: int, names: int) -> None:
    for n in range(first, first + names):
        pod.tolerates(f"taint{n}")


def _labels(pod: PodBuilder, first: int, names: int) -> None:
    for n in range(first, first + names):
        pod.label(f"key{n}", f"value{n}")


def _selectors(pod: PodBuilder, first: int, names: int) -> None:
    pod.node_selector(**{f"key{n}": "x" for n in range(first, first + names)})


def _spread(pod: PodBuilder, first: int, names: int) -> None:
    for n in range(first, first + names):
        pod.spread(1, f"key{n}", when="ScheduleAnyway")


KINDS: dict[str, Callable[[PodBuilder, int, int], None]] = {
    "resources": _resources,
    "bound-resources": _bound_resources,
    "tolerations": _tolerations,
    "labels": _labels,
    "selectors": _selectors,
    "spread": _spread,
}


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 1024**2


def trimmed_mb() -> int:
    ctypes.CDLL(None).malloc_trim(0)
    return resident_mb()


def measure(kind: str, count: int, names: int) -> None:
    state = ClusterState("names")
    for n in range(NODES):
        state.put(make_node(f"n{n}").capacity(cpu="64", memory="64Gi", pods=10_000).build())
    number = 0
    with PlannedCluster(state) as world:
        for round_number in range(ROUNDS):
            began = time.process_time()
            pods = []
            for _ in range(count):
                pod = make_pod(f"p{number}").cpu("1m")
                KINDS[kind](pod, number * names, names)
                pods.append(pod.build())
                number += 1
            for each in pods:
                world.add(each)
            world.settle()
            full = resident_mb()
            for each in pods:
                world.delete(each)
            world.added_pods.clear()
            del pods, each
            world.settle()
            gc.collect()
            cpu = time.process_time() - began
            print(
                f"{kind:16} round {round_number + 1}: {full} MB, after deletion {resident_mb()} MB,"
                f" {trimmed_mb()} MB in use ({cpu:.1f} s CPU)",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="pods per round")
    parser.add_argument("--names", type=int, default=500, help="names per pod")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    args = parser.parse_args()
    silence()
    for kind in args.kinds or KINDS:
        measure(kind, args.count, args.names)


if __name__ == "__main__":
    main()
