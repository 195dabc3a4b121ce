"""Random clusters and pods for tests of the whole algorithm: everything the default plugins read,
kept small so that rules collide often. Seeded with a plain generator, because what matters here is
volume, not shrinking.
"""

from __future__ import annotations

from random import Random

from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE, NodeBuilder, PodBuilder

ZONES = ["a", "b", "c", ""]
APPS = ["web", "db", "cache"]
NAMESPACES = ["default", "other"]
KEYS = [HOSTNAME, ZONE, "rack"]


def random_node(rng: Random, name: str) -> NodeBuilder:
    node = make_node(name).capacity(
        cpu=rng.choice(["1", "2", "4"]),
        memory=rng.choice(["2Gi", "8Gi"]),
        pods=rng.choice([2, 5, 20]),
    )
    if zone := rng.choice(ZONES):
        node.zone(zone)
    if rng.random() < 0.5:
        node.label("rack", rng.choice("xy"))
    if rng.random() < 0.3:
        node.label("disk", rng.choice(["ssd", "hdd"]))
    if rng.random() < 0.25:
        node.taint(
            "dedicated",
            rng.choice(["gpu", "infra"]),
            rng.choice(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        )
    if rng.random() < 0.1:
        node.unschedulable()
    if rng.random() < 0.3:
        node.offers("example.com/gpu", rng.randrange(3))
    if rng.random() < 0.5:
        node.image("app:latest", size_bytes=rng.randrange(1, 2000) * 1024 * 1024)
    return node


def random_pod(rng: Random, name: str) -> PodBuilder:
    pod = make_pod(name, rng.choice(NAMESPACES)).label("app", rng.choice(APPS))
    if rng.random() < 0.8:
        pod.cpu(rng.choice(["100m", "250m", "1"]))
    if rng.random() < 0.7:
        pod.memory(rng.choice(["64Mi", "1Gi"]))
    if rng.random() < 0.15:
        pod.request("example.com/gpu", 1)
    if rng.random() < 0.2:
        pod.tolerates("dedicated", rng.choice(["", "gpu"]))
    if rng.random() < 0.15:
        pod.node_selector(disk="ssd")
    if rng.random() < 0.15:
        term = {
            "matchExpressions": [
                {"key": ZONE, "operator": rng.choice(["In", "NotIn"]), "values": ["a", "b"]}
            ]
        }
        pod.affinity(
            "nodeAffinity", preferred=[{"weight": rng.randint(1, 100), "preference": term}]
        )
    if rng.random() < 0.15:
        pod.host_port(rng.choice([80, 443]), ip=rng.choice(["", "10.0.0.1"]))
    if rng.random() < 0.15:
        pod.pod_affinity(rng.choice(KEYS), app=rng.choice(APPS))
    if rng.random() < 0.2:
        pod.pod_anti_affinity(rng.choice(KEYS), app=rng.choice(APPS))
    if rng.random() < 0.2:
        kind = rng.choice(["podAffinity", "podAntiAffinity"])
        pod.preferred_pod_term(kind, rng.randint(1, 100), rng.choice(KEYS), app=rng.choice(APPS))
    if rng.random() < 0.25:
        when = rng.choice(["DoNotSchedule", "ScheduleAnyway"])
        policies = {"nodeTaintsPolicy": "Honor"} if rng.random() < 0.3 else {}
        selector = {"matchLabels": {"app": rng.choice(APPS)}}
        pod.spread(rng.randint(1, 2), rng.choice(KEYS), when, selector, **policies)
    return pod
