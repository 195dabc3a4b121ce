"""Decisions per second for pods with volumes, one core: evaluate, choose, assume, reserve.

    python benchmarks/volumes.py [--nodes 1000] [--pods 2000] [--workload bound] [--repeats 3]
        [--profile]

    none      no volumes that matter, only the token every pod has: what the storage plugins cost
              everybody
    bound     a bound claim each, its CSI volume in one of three zones; nodes take 39 volumes
    shared    one bound claim for all
    local     a local volume each, waiting for its first consumer: two fitting volumes per node
    dynamic   a claim each that is to be provisioned; storage capacity is tracked per node

The default profile is used, all nodes are scored. Each workload runs without and with pod classes,
in turns; of each run the 5th percentile of batches of 100 is taken, and the median of the repeats
is printed, in CPU time. Pods that differ in the names of their claims are of one class.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
from frameworks import default_framework

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.storage_v1 import CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime.reserve import run_reserve
from kubesched.insight.state.memory import MemoryListers
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.classes import ClassEngine
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE, PodBuilder

BATCH = 100
DRIVER = "csi.example.com"
ZONES = 3
VOLUMES_PER_NODE = 39

Json = dict[str, Any]


def pod(name: str) -> PodBuilder:
    token = {"name": "kube-api-access", "projected": {"defaultMode": 420}}
    return make_pod(name).cpu("100m").memory("500Mi").label("app", "bench").spec(volumes=[token])


def on_label(key: str, value: str) -> Json:
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def claim(name: str, volume: str = "", storage_class: str = "zonal") -> PersistentVolumeClaim:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return msgspec.convert(
        {
            "metadata": {
                "namespace": "default",
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "annotations": annotations,
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Gi"}},
                "storageClassName": storage_class,
                "volumeName": volume,
            },
            "status": {"phase": "Bound" if volume else "Pending"},
        },
        PersistentVolumeClaim,
    )


def volume(name: str, affinity: Json, storage_class: str, **source: Json) -> PersistentVolume:
    return msgspec.convert(
        {
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "10Gi"},
                "storageClassName": storage_class,
                "nodeAffinity": affinity,
                **source,
            },
            "status": {"phase": "Available"},
        },
        PersistentVolume,
    )


def storage_class(name: str, provisioner: str) -> StorageClass:
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        StorageClass,
    )


def csi_volume(name: str, zone: str) -> PersistentVolume:
    source = {"driver": DRIVER, "volumeHandle": name}
    return volume(name, on_label(ZONE, zone), "zonal", csi=source)


def put(listers: MemoryListers, obj: Any) -> None:
    listers.of(type(obj)).put(obj)


def none(number: int, listers: MemoryListers) -> PodBuilder:
    return pod(f"p-{number}")


def bound(number: int, listers: MemoryListers) -> PodBuilder:
    name = f"claim-{number}"
    put(listers, csi_volume(f"pv-{number}", f"zone-{number % ZONES}"))
    put(listers, claim(name, f"pv-{number}"))
    return pod(f"p-{number}").claim(name)


def shared(number: int, listers: MemoryListers) -> PodBuilder:
    if number == 0:
        put(listers, csi_volume("pv-shared", "zone-0"))
        put(listers, claim("claim-shared", "pv-shared"))
    return pod(f"p-{number}").claim("claim-shared")


def local(number: int, listers: MemoryListers) -> PodBuilder:
    put(listers, claim(f"claim-{number}", storage_class="local"))
    return pod(f"p-{number}").claim(f"claim-{number}")


def dynamic(number: int, listers: MemoryListers) -> PodBuilder:
    put(listers, claim(f"claim-{number}", storage_class="dynamic"))
    return pod(f"p-{number}").claim(f"claim-{number}")


WORKLOADS: dict[str, Callable[[int, MemoryListers], PodBuilder]] = {
    "none": none,
    "bound": bound,
    "shared": shared,
    "local": local,
    "dynamic": dynamic,
}


def cluster(node_count: int, workload: str) -> Iterator[Any]:
    """What storage there is besides the pods' own claims."""
    yield storage_class("zonal", DRIVER)
    yield storage_class("local", "kubernetes.io/no-provisioner")
    yield storage_class("dynamic", DRIVER)
    yield msgspec.convert(
        {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}, CSIDriver
    )
    for number in range(node_count):
        name = f"node-{number}"
        driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": VOLUMES_PER_NODE}}
        yield msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": [driver]}}, CSINode)
        if workload == "local":
            for copy in range(2):
                path = {"path": f"/mnt/{copy}"}
                yield volume(
                    f"local-{number}-{copy}", on_label(HOSTNAME, name), "local", local=path
                )
        elif workload == "dynamic":
            yield msgspec.convert(
                {
                    "metadata": {"namespace": "storage", "name": name},
                    "storageClassName": "dynamic",
                    "nodeTopology": {"matchLabels": {HOSTNAME: name}},
                    "capacity": "1Ti",
                },
                CSIStorageCapacity,
            )


def run(workload: str, node_count: int, pod_count: int, *, classes: bool) -> float:
    """Microseconds per decision, 5th percentile of the batches: these machines are noisy, the
    fastest batches are not.
    """
    table = NodeTable(node_count)
    cache = Cache(table)
    for number in range(node_count):
        node = make_node(f"node-{number}").capacity(cpu="16", memory="64Gi")
        cache.add_node(node.zone(f"zone-{number % ZONES}").build())
        cache.add_pod(pod(f"old-{number}").on(f"node-{number}").build())
    listers = MemoryListers()
    for obj in cluster(node_count, workload):
        put(listers, obj)
    framework = default_framework(table, Handle(table=table, listers=listers))
    algorithm = SchedulingAlgorithm(
        table, Random(1), engine=ClassEngine(table) if classes else None
    )
    pods = [PodInfo(WORKLOADS[workload](number, listers).build()) for number in range(pod_count)]
    batches: list[float] = []
    for start in range(0, pod_count, BATCH):
        began = time.process_time()
        for info in pods[start : start + BATCH]:
            state = CycleState()
            result = algorithm.schedule(framework, state, info)
            if not isinstance(result, ScheduleResult):
                raise SystemExit(f"{workload}: {result}")
            assumed = info.assumed_on(result.node_name)
            cache.assume_pod(assumed)
            refused = run_reserve(framework, state, assumed.pod, result.node_name)
            if refused is not None:
                raise SystemExit(f"{workload}: {refused}")
        batches.append((time.process_time() - began) / BATCH * 1e6)
    return statistics.quantiles(batches, n=20)[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    args = parser.parse_args()
    print(f"{'workload':<12}{'µs':>9}{'/s':>9}{'µs classes':>13}{'/s classes':>12}")
    for workload in WORKLOADS if args.workload == "all" else [args.workload]:
        if args.profile:
            profile = cProfile.Profile()
            profile.runcall(run, workload, args.nodes, args.pods, classes=True)
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        found: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(args.repeats):
            for classes, times in found.items():
                times.append(run(workload, args.nodes, args.pods, classes=classes))
        plain, by_class = statistics.median(found[False]), statistics.median(found[True])
        print(
            f"{workload:<12}{plain:>9.1f}{1e6 / plain:>9.0f}"
            f"{by_class:>13.1f}{1e6 / by_class:>12.0f}"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
