"""Memory taken by names that users choose, while their objects exist and after they are deleted.

    python benchmarks/names_forgotten.py [--total N] [KIND ...]

For every kind, in a process of its own: creates and deletes pods with N distinct names, then pods
with N others, in batches of 20,000 names and 5,000 pods at most. Prints the resident memory with
the nodes alone, after the first deletion (caches that have a bound are full then), at the second
peak and after the second deletion (`malloc_trim` returns the pages that the C library keeps). The
last must be within 10 % of the second: exit code 1 otherwise. With one name per pod, the first
round has 10,000. Both rounds use the same batches, because cached objects share pages with freed
ones: larger batches leave more pages behind.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import convert

from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.base.clock import ManualClock
from kubesched.base.logs import silence
from kubesched.client.events import EventBroadcaster
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import PodBuilder

NODES = 100
BATCH_NAMES = 20_000
ALLOWED = 1.1
BATCH_PODS = 5_000
FIRST_PODS = 10_000
"""More than any cache holds by pod."""
CLASS = convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)
PER_CLAIM = 32
DEVICES = BATCH_NAMES // PER_CLAIM


class Kind(NamedTuple):
    """Names that a pod brings along."""

    per_pod: int
    bring: Callable[[PodBuilder, int], object]
    """Adds the name with that number to the pod."""


def _namespace(pod: PodBuilder, n: int) -> None:
    pod.json["metadata"]["namespace"] = f"space{n}"


KINDS = {
    "resources": Kind(500, lambda pod, n: pod.request(f"example.com/r{n}", "1")),
    "bound-resources": Kind(500, lambda pod, n: pod.on("n0").request(f"example.com/r{n}", "1")),
    "label-keys": Kind(100, lambda pod, n: pod.label(f"key{n}", "x")),
    "label-values": Kind(100, lambda pod, n: pod.label(f"key{n % 100}", f"value{n}")),
    "node-selectors": Kind(100, lambda pod, n: pod.node_selector(**{f"key{n}": "x"})),
    "tolerations": Kind(100, lambda pod, n: pod.tolerates(f"taint{n}")),
    "topology-keys": Kind(100, lambda pod, n: pod.spread(1, f"key{n}", when="ScheduleAnyway")),
    "affinity-keys": Kind(100, lambda pod, n: pod.pod_anti_affinity(f"key{n}", app="a")),
    "selectors": Kind(20, lambda pod, n: pod.pod_anti_affinity("host", app=f"a{n}")),
    "images": Kind(50, lambda pod, n: pod.container(name=f"c{n}", image=f"image{n}")),
    "ports": Kind(
        50, lambda pod, n: pod.host_port(1 + n % 50_000, "UDP" if n >= 50_000 else "TCP")
    ),
    "gates": Kind(50, lambda pod, n: pod.gate(f"example.com/g{n}")),
    "volume-claims": Kind(10, lambda pod, n: pod.claim(f"claim{n}")),
    "namespaces": Kind(1, _namespace),
    "signatures": Kind(1, lambda pod, n: pod.cpu(f"{1 + n}m")),
}
"""Kinds of pods. `device-claims` and `events` are measured in other ways."""


def pods(kind: Kind, numbers: range) -> Iterable[list[Any]]:
    """The objects of each pod."""
    for first in numbers[:: kind.per_pod]:
        pod = make_pod(f"p{first}").cpu("1m")
        for n in range(first, first + kind.per_pod):
            kind.bring(pod, n)
        yield [pod.build()]


def devices() -> Iterable[ResourceSlice]:
    for number in range(-(-DEVICES // 128)):
        pool = {"name": f"pool{number}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "pool": pool, "allNodes": True}
        named = [{"name": f"d{n}"} for n in range(128)]
        made = {"metadata": {"name": f"slice{number}"}, "spec": {**spec, "devices": named}}
        yield convert(made, ResourceSlice)


def claims(numbers: range) -> Iterable[list[Any]]:
    """Pods with a claim whose selectors are all different expressions."""
    for first in numbers[::PER_CLAIM]:
        selectors = [
            {"cel": {"expression": f'device.driver != "d{n}.example.com"'}}
            for n in range(first, first + PER_CLAIM)
        ]
        exactly = {"deviceClassName": "gpu", "selectors": selectors}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        meta = {"name": f"claim{first}", "namespace": "default", "uid": f"claim{first}"}
        named = [{"name": "r", "resourceClaimName": f"claim{first}"}]
        pod = make_pod(f"p{first}").cpu("1m").spec(resourceClaims=named)
        yield [convert({"metadata": meta, "spec": spec}, ResourceClaim), pod.build()]


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1024**2


def trimmed_mb() -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident_mb()


class Scheduler:
    """Objects come in batches and go again."""

    def __init__(self, kind: str) -> None:
        state = ClusterState("names")
        for n in range(NODES):
            node = make_node(f"n{n}").capacity(cpu="1000000", memory="64Gi", pods=100_000)
            state.put(node.label("host", f"n{n}").build())
        if kind not in KINDS:
            for each in (CLASS, *devices()):
                state.put(each)
        self._kind = KINDS.get(kind)
        self._batch = min(
            BATCH_NAMES, BATCH_PODS * (self._kind.per_pod if self._kind else PER_CLAIM)
        )
        self._world = PlannedCluster(state)

    def come_and_go(self, numbers: range) -> float:
        """The memory while the last batch is there."""
        peak = 0.0
        for first in numbers[:: self._batch]:
            part = range(first, min(first + self._batch, numbers.stop))
            made = pods(self._kind, part) if self._kind else claims(part)
            batch = [each for objects in made for each in objects]
            self._world.add(*batch)
            self._world.settle()
            peak = max(peak, resident_mb())
            for each in reversed(batch):
                meta = each.metadata
                self._world.delete(self._world.find(type(each), meta.namespace, meta.name))
            self._world.added_pods.clear()
            self._world.settle()
        return peak

    def close(self) -> None:
        self._world.close()


class Events:
    """Events about pods with names of their own, none of which can be written."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self._events = EventBroadcaster(
            None,  # type: ignore[arg-type]
            clock=self._clock,
            rng=random.Random(1),
            host_name="host",
        )
        self._recorder = self._events.recorder("default-scheduler")

    def come_and_go(self, numbers: range) -> float:
        for n in numbers:
            pod = make_pod(f"p{n}").build()
            self._recorder.event(pod, None, "Warning", "FailedScheduling", "Scheduling", f"no {n}")
        return resident_mb()

    def close(self) -> None:
        """Nothing runs."""


def measure(kind: str, total: int) -> bool:
    measured = Events() if kind == "events" else Scheduler(kind)
    empty = trimmed_mb()
    began = time.process_time()
    per_pod = KINDS[kind].per_pod if kind in KINDS else PER_CLAIM
    first = min(total, FIRST_PODS * per_pod)
    measured.come_and_go(range(first))
    before = trimmed_mb()
    peak = measured.come_and_go(range(first, first + total))
    after, cpu = trimmed_mb(), time.process_time() - began
    measured.close()
    print(
        f"| {kind} | {empty:.0f} | {before:.0f} | {peak:.0f} | {after:.0f} | {cpu:.0f} |",
        flush=True,
    )
    return after <= ALLOWED * before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=100_000, help="distinct names")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    kinds = [*KINDS, "device-claims", "events"]
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(kinds))
    args = parser.parse_args()
    silence()
    if args.here:
        return 0 if measure(args.kinds[0], args.total) else 1
    print("| Kind | nodes alone | before | peak | after, MB | CPU, s |\n|---|---|---|---|---|---|")
    grown = [
        kind
        for kind in args.kinds or kinds
        if subprocess.call([sys.executable, __file__, "--here", f"--total={args.total}", kind])
    ]
    print(f"more than 10 % above before: {', '.join(grown)}" if grown else "all came back")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
