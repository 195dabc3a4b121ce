"""Decisions on awkward days: many apps, unique labels, sampling, nominations, changing nodes.

    python benchmarks/awkward.py [--nodes 5000] [--pods 2000] [--rows many-apps,rollout]
        [--no-classes] [--profile]

CPU microseconds per decision of the core with the default profile, 5th percentile of batches of 100
pods. Every node has one old pod of 100m CPU and 500Mi; the pods to place ask for the same:

    basic              one template
    templates          100 templates that differ in their CPU request, in turn
    default-spread     one app behind a Service
    many-apps          1,000 apps, each with a Service and a ReplicaSet, in turn
    rollout            every third pod belongs to a new app, whose Service and ReplicaSet appear
                       with it
    unique-labels      every pod has a label of its own, as those of Jobs do; none of 1,000 Services
                       selects them
    unique-spread      the same, as pods of a StatefulSet behind one of 1,000 Services
    nominations        50 nodes are nominated for other pods of the same priority
    sample-0           percentageOfNodesToScore: 0
    sample-30          percentageOfNodesToScore: 30
    one-worker         parallelism: 1
    extender           an extender for a resource that the pods do not ask for
    volumes            a WaitForFirstConsumer claim each (benchmarks/volumes.py: dynamic)
    preemption         nodes full of low pods, each preemptor displaces three
                       (benchmarks/preemption.py: settled)
    churn              for every 100 pods a node comes and a node goes

Single events, in CPU milliseconds, median of 20:

    node-change        the first decision after a node was added or removed
    new-app            the first decision for a new app while there are 26,000 distinct sets of
                       labels
    new-template       the first, second and third decision together for a new template
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import preemption
import volumes
from decisions import BATCH, Cluster, Workload, basic, one_per_node

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import Service
from kubesched.config.types import Extender, ExtenderManagedResource
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.insight.state.memory import MemoryListers
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.scheduler.extended_algorithm import ExtendedAlgorithm
from kubesched.scheduler.http_extender import HttpExtender
from kubesched.testing import make_pod
from kubesched.testing.builders import PodBuilder

APPS = 1000
EVENTS = 20


def plain(number: int) -> PodBuilder:
    return basic(f"p-{number}")


def template(number: int) -> PodBuilder:
    return plain(number).cpu(f"{100 + number % 100}m")


def of_app(number: int, app: str, kind: str = "ReplicaSet") -> PodBuilder:
    pod = plain(number).label("app", app)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": app, "uid": app, "controller": True}
    pod.json["metadata"]["ownerReferences"] = [owner]
    return pod


def unique(pod: PodBuilder) -> PodBuilder:
    return pod.label("apps.kubernetes.io/pod-index", pod.json["metadata"]["name"])


def put_app(listers: MemoryListers, app: str, kind: type = ReplicaSet) -> None:
    meta = {"namespace": "default", "name": app}
    service = {"metadata": meta, "spec": {"selector": {"app": app}}}
    owner = {"metadata": meta, "spec": {"selector": {"matchLabels": {"app": app}}}}
    listers.of(Service).put(msgspec.convert(service, Service))
    listers.of(kind).put(msgspec.convert(owner, kind))


class Scene:
    """A cluster and what it takes to place pods there."""

    def __init__(
        self, nodes: int, *, classes: bool, apps: int = 0, old: Callable | None = None
    ) -> None:
        self.listers = MemoryListers()
        for number in range(apps):
            put_app(self.listers, f"app-{number}")
        workload = Workload(basic, old or one_per_node)
        self.cluster = Cluster(workload, nodes, "default", classes=classes, listers=self.listers)
        self.before: Callable[[int], None] = lambda number: None
        """Happens before the pod of that number is placed, within the measured time."""

    @property
    def algorithm(self) -> SchedulingAlgorithm:
        return self.cluster.algorithm

    def run(self, make: Callable[[int], PodBuilder], pods: int) -> float:
        waiting = [PodInfo(make(number).build()) for number in range(pods)]
        batches: list[float] = []
        for start in range(0, pods, BATCH):
            began = time.process_time()
            for number in range(start, start + BATCH):
                self.before(number)
                self.cluster.place(waiting[number])
            batches.append((time.process_time() - began) / BATCH * 1e6)
        return statistics.quantiles(batches, n=20)[0]


Row = Callable[[int, int, bool], float]


def simple(make: Callable[[int], PodBuilder], apps: int = 0) -> Row:
    return lambda nodes, pods, classes: Scene(nodes, classes=classes, apps=apps).run(make, pods)


def rollout(nodes: int, pods: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes, apps=APPS)

    def before(number: int) -> None:
        if number % 3 == 0:
            put_app(scene.listers, f"new-{number // 3}")

    scene.before = before
    return scene.run(lambda number: of_app(number, f"new-{number // 3}"), pods)


def unique_spread(nodes: int, pods: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes, apps=APPS)
    put_app(scene.listers, "db", StatefulSet)
    return scene.run(lambda number: unique(of_app(number, "db", "StatefulSet")), pods)


def nominations(nodes: int, pods: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes)
    nominator = scene.cluster.framework.handle.nominator
    for number in range(50):
        rival = basic(f"rival-{number}").build()
        scene.cluster.listers.of(type(rival)).put(rival)
        nominator.add_nominated_pod(PodInfo(rival), NominatingInfo(True, f"node-{number}"))
    return scene.run(plain, pods)


def sampled(percentage: int) -> Row:
    def row(nodes: int, pods: int, classes: bool) -> float:
        scene = Scene(nodes, classes=classes)
        scene.algorithm.percentage_of_nodes_to_score = percentage
        return scene.run(plain, pods)

    return row


def one_worker(nodes: int, pods: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes)
    scene.algorithm.parallelism = 1
    return scene.run(plain, pods)


def extender(nodes: int, pods: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes)
    managed = (ExtenderManagedResource(name="example.com/gpu"),)
    config = Extender(
        url_prefix="http://127.0.0.1", filter_verb="filter", managed_resources=managed
    )
    uninterested = HttpExtender(config, None, scene.cluster.table, transport=object())
    scene.cluster.algorithm = ExtendedAlgorithm(scene.algorithm, [uninterested])
    return scene.run(plain, pods)


def churn(nodes: int, pods: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes)

    def before(number: int) -> None:
        if number % BATCH == 0:
            scene.cluster.exchange_node()

    scene.before = before
    return scene.run(plain, pods)


def preempting(nodes: int, pods: int, classes: bool) -> float:
    return preemption.preempt(nodes, min(pods, 1000), classes=classes, wave=False)[1] * 1e3


ROWS: dict[str, Row] = {
    "basic": simple(plain),
    "templates": simple(template),
    "default-spread": simple(lambda number: of_app(number, "app-0"), 1),
    "many-apps": simple(lambda number: of_app(number, f"app-{number % APPS}"), APPS),
    "rollout": rollout,
    "unique-labels": simple(lambda number: unique(plain(number)), APPS),
    "unique-spread": unique_spread,
    "nominations": nominations,
    "sample-0": sampled(0),
    "sample-30": sampled(30),
    "one-worker": one_worker,
    "extender": extender,
    "volumes": lambda nodes, pods, classes: volumes.run("dynamic", nodes, pods, classes=classes),
    "preemption": preempting,
    "churn": churn,
}


def event_times(
    scene: Scene, happen: Callable[[int], None], pods: Callable[[int], list[PodInfo]]
) -> float:
    """Milliseconds of what happens and the decisions that follow."""
    spent: list[float] = []
    for number in range(EVENTS):
        waiting = pods(number)
        began = time.process_time()
        happen(number)
        for pod in waiting:
            scene.cluster.place(pod)
        spent.append((time.process_time() - began) * 1e3)
    return statistics.median(spent)


def infos(*builders: PodBuilder) -> list[PodInfo]:
    return [PodInfo(builder.build()) for builder in builders]


def node_change(nodes: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes)
    scene.run(plain, BATCH * 2)
    return event_times(
        scene,
        lambda _number: scene.cluster.exchange_node(),
        lambda number: infos(plain(10_000 + number)),
    )


def many_label_sets(nodes: int) -> Iterator[tuple[PodBuilder, int]]:
    for number in range(26_000):
        pod = make_pod(f"old-{number}").cpu("1m").label("app", f"old-{number // 3}")
        yield pod.label("job", f"job-{number}"), number % nodes


def new_app(nodes: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes, apps=APPS, old=many_label_sets)
    scene.run(lambda number: of_app(number, "app-0"), BATCH * 2)
    return event_times(
        scene,
        lambda number: put_app(scene.listers, f"new-{number}"),
        lambda number: infos(of_app(10_000 + number, f"new-{number}")),
    )


def new_template(nodes: int, classes: bool) -> float:
    scene = Scene(nodes, classes=classes)
    scene.run(plain, BATCH * 2)
    return event_times(
        scene,
        lambda _number: None,
        lambda number: infos(
            *[plain(10_000 + 3 * number + at).cpu(f"{101 + number}m") for at in range(3)]
        ),
    )


EVENT_ROWS = {"node-change": node_change, "new-app": new_app, "new-template": new_template}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rows", default="")
    parser.add_argument("--no-classes", action="store_true")
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    args = parser.parse_args()
    chosen = args.rows.split(",") if args.rows else [*ROWS, *EVENT_ROWS]
    classes = not args.no_classes
    print(f"{args.nodes} nodes, {args.pods} pods")
    for name in chosen:
        profile = cProfile.Profile()
        if args.profile:
            profile.enable()
        if name in ROWS:
            print(f"{name:<20}{ROWS[name](args.nodes, args.pods, classes):>12.1f} µs")
        else:
            print(f"{name:<20}{EVENT_ROWS[name](args.nodes, classes):>12.3f} ms")
        sys.stdout.flush()
        if args.profile:
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
