"""CPU time of pod-group cycles in memory: gangs of equal pods, placed and preempting.

python benchmarks/groups.py [--nodes 5000] [--members 1000] [--groups 9]
python benchmarks/groups.py --racks 50 --members 4 --groups 100    # each gang in one of the racks
python benchmarks/groups.py --preempting basic|groups|affinity --nodes 100 --members 10 --groups 10

The last form is upstream's GangPreemption{Basic,PodGroups,Affinity}: each gang evicts what runs on
as many nodes as it has members.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

from kubesched.api import codec
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.base.logs import silence
from kubesched.config.features import from_map
from kubesched.scheduler.scheduler import AssumedGroup
from kubesched.testing import Cluster, make_node, make_pod

RACK = "topology.kubernetes.io/rack"
LABELS = {"app": "blue", "label1": "value1", "label2": "value2"}
TERM = {
    "labelSelector": {"matchLabels": LABELS},
    "topologyKey": "kubernetes.io/hostname",
    "namespaceSelector": {},
}
NEAR_LABELS = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}


def gang(name: str, members: int, priority: int, key: str) -> PodGroup:
    meta = {"name": name, "namespace": "default", "uid": name}
    policy = {"gang": {"minCount": members}}
    spec: dict[str, object] = {"schedulingPolicy": policy, "priority": priority}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    return codec.convert({"metadata": meta, "spec": spec}, PodGroup)


def create(
    world: Cluster,
    name: str,
    members: int,
    *,
    cpu: str,
    priority: int = 0,
    key: str = "",
    port: int | None = None,
    spec: Mapping[str, Any] | None = None,
) -> None:
    world.add(gang(name, members, priority, key))
    for number in range(members):
        pod = make_pod(f"{name}-{number}").cpu(cpu).memory("100Mi").priority(priority)
        if port is not None:
            pod = pod.host_port(port)
        world.add(pod.spec(schedulingGroup={"podGroupName": name}, **(spec or {})).build())


def attempt_ms(world: Cluster) -> tuple[float, int]:
    """CPU time of the next cycle, and how many members it places."""
    started = time.process_time()
    outcome = world.assembly.scheduler.attempt()
    elapsed = (time.process_time() - started) * 1000
    assert isinstance(outcome, AssumedGroup), "the next entry is a group"
    return elapsed, len(outcome.members)


def place_and_preempt(world: Cluster, groups: int, members: int) -> None:
    for number in range(groups):
        create(world, f"gang-{number}", members, cpu="400m")
    for number in range(groups):
        elapsed, placed = attempt_ms(world)
        print(
            f"gang {number}: {placed} members in {elapsed:.0f} ms, "
            f"{elapsed / members * 1000:.0f} µs each"
        )
    world.settle()
    create(world, "rival", members, cpu="4", priority=100)
    elapsed, _ = attempt_ms(world)
    print(f"preemption by a gang of {members}: {elapsed:.0f} ms")
    world.settle()


def place_in_racks(world: Cluster, groups: int, members: int) -> None:
    for number in range(groups):
        create(world, f"gang-{number}", members, cpu="100m", key=RACK)
    times = sorted(attempt_ms(world)[0] for _ in range(groups))
    print(f"{groups} gangs of {members}: median {times[groups // 2]:.2f} ms, ", end="")
    print(f"mean {sum(times) / groups:.2f} ms each")
    world.settle()


def preempt(world: Cluster, case: str, nodes: int, groups: int, members: int) -> None:
    if case == "groups":
        for number in range(5 * groups):
            create(world, f"low-{number}", members, cpu="600m", port=8000 + number)
    else:
        for number in range(nodes if case == "affinity" else 0):
            pod = make_pod(f"anchor-{number}").cpu("10m").priority(200).host_port(7000)
            world.add(pod.labels(**LABELS).build())
        for number in range(10 * nodes):
            pod = make_pod(f"low-{number}").cpu("40m").host_port(8000 + number % 10)
            world.add(pod.labels(**LABELS).build())
    world.settle()
    for number in range(groups):
        create(
            world,
            f"gang-{number}",
            members,
            cpu="3500m" if case == "groups" else "3970m",
            priority=100,
            port=9000 + number if case == "groups" else None,
            spec={"affinity": NEAR_LABELS} if case == "affinity" else None,
        )
    times = [attempt_ms(world)[0] for _ in range(groups)]
    print(
        f"{case}: a gang of {members} among {nodes} nodes preempts in "
        f"{sum(times) / groups:.1f} ms, {min(times):.1f} to {max(times):.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=9)
    parser.add_argument("--racks", type=int, default=0, help="gangs must be in one of these")
    parser.add_argument("--preempting", choices=("basic", "groups", "affinity"))
    args = parser.parse_args()
    silence()
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": args.racks > 0}
    with Cluster(gates=from_map(gates)) as world:
        for number in range(args.nodes):
            node = make_node(f"node-{number}").capacity(cpu="4", memory="32Gi")
            if args.racks:
                node = node.label(RACK, f"rack-{number * args.racks // args.nodes}")
            world.add(node.build())
        world.settle()
        if args.preempting:
            preempt(world, args.preempting, args.nodes, args.groups, args.members)
        elif args.racks:
            place_in_racks(world, args.groups, args.members)
        else:
            place_and_preempt(world, args.groups, args.members)


if __name__ == "__main__":
    main()
