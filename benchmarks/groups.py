"""CPU time of pod-group cycles in memory: gangs of equal pods, placed and preempting.

python benchmarks/groups.py [--nodes 5000] [--members 1000] [--groups 9]
"""

from __future__ import annotations

import argparse
import time

from kubesched.api import codec
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.base.logs import silence
from kubesched.config.features import from_map
from kubesched.scheduler.scheduler import AssumedGroup
from kubesched.testing import Cluster, make_node, make_pod


def gang(name: str, members: int, priority: int) -> PodGroup:
    meta = {"name": name, "namespace": "default", "uid": name}
    policy = {"gang": {"minCount": members}}
    spec = {"schedulingPolicy": policy, "priority": priority}
    return codec.convert({"metadata": meta, "spec": spec}, PodGroup)


def create(world: Cluster, name: str, members: int, *, cpu: str, priority: int = 0) -> None:
    world.add(gang(name, members, priority))
    for number in range(members):
        pod = make_pod(f"{name}-{number}").cpu(cpu).priority(priority)
        world.add(pod.spec(schedulingGroup={"podGroupName": name}).build())


def attempt_ms(world: Cluster) -> tuple[float, int]:
    """CPU time of the next cycle, and how many members it places."""
    started = time.process_time()
    outcome = world.assembly.scheduler.attempt()
    elapsed = (time.process_time() - started) * 1000
    assert isinstance(outcome, AssumedGroup), "the next entry is a group"
    return elapsed, len(outcome.members)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=9)
    args = parser.parse_args()
    silence()
    with Cluster(gates=from_map({"GenericWorkload": True})) as world:
        for number in range(args.nodes):
            world.add(make_node(f"node-{number}").capacity(cpu="4", memory="32Gi").build())
        world.settle()
        for number in range(args.groups):
            create(world, f"gang-{number}", args.members, cpu="400m")
        times = [attempt_ms(world) for _ in range(args.groups)]
        for number, (elapsed, placed) in enumerate(times):
            print(
                f"gang {number}: {placed} members in {elapsed:.0f} ms, "
                f"{elapsed / args.members * 1000:.0f} µs each"
            )
        world.settle()
        create(world, "rival", args.members, cpu="4", priority=100)
        elapsed, _ = attempt_ms(world)
        print(f"preemption by a gang of {args.members}: {elapsed:.0f} ms")
        world.settle()


if __name__ == "__main__":
    main()
