"""Random nodes and pods that cover what the plugins read, reproducible from a seed.

Everything is plain JSON that an API server admits, so the same objects can be given to this
scheduler or to kube-scheduler. Values come from small sets, so that labels match, ports collide and
resources run out often.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from kubesched.lab.conformance.generate_terms import (
    ZONE,
    chance,
    node_affinity,
    pod_affinity,
    pod_labels,
    spread_constraints,
)
from kubesched.lab.conformance.generate_workloads import owner_references
from kubesched.lab.conformance.sequences import Json

T = TypeVar("T")

_CPU = ("0", "1m", "100m", "250m", "0.3", "500m", "0.25", "75e-3", "1.1", "2e0", "4")
_MEMORY = ("0", "1", "64Mi", "100M", "250Mi", "0.5Gi", "1e8", "64Mi", "1500Mi", "3G")
_STORAGE = ("1Gi", "5Gi", "12G")
_DEVICES = ("0", "1", "2", "3")
_DEVICE_NAMES = ("example.com/gpu", "example.com/fpga")
_NOT_OVERCOMMITTED = (*_DEVICE_NAMES, "hugepages-2Mi")
_IMAGES = (
    "reg.example/a:1",
    "reg.example/a",
    "reg.example/a:latest",
    "reg.example/b:1",
    "reg.example:5000/c",
    "reg.example:5000/c:latest",
    "d@sha256:" + "ab" * 32,
    "e",
    "e:latest",
)
_TAINT_KEYS = ("dedicated", "gpu", "soft")
_TAINT_VALUES = ("", "a", "b")
_EFFECTS = ("PreferNoSchedule", "PreferNoSchedule", "NoSchedule", "NoExecute")


# -- nodes -----------------------------------------------------------------------------------------


def node(random: Random, name: str) -> Json:
    labels = {"kubernetes.io/hostname": name}
    if chance(random, 85):
        labels[ZONE] = random.choice(("z1", "z2", "z3"))
    if chance(random, 60):
        labels["topology.kubernetes.io/region"] = random.choice(("r1", "r2"))
    if chance(random, 60):
        labels["disk"] = random.choice(("ssd", "hdd"))
    if chance(random, 60):
        labels["gen"] = random.choice(("1", "3", "5", "007", "x", ""))
    spec: Json = {}
    if chance(random, 6):
        spec["unschedulable"] = True
    if chance(random, 30):
        taints = [_taint(random) for _ in range(random.randint(1, 2))]
        spec["taints"] = list({(taint["key"], taint["effect"]): taint for taint in taints}.values())
    allocatable = _allocatable(random)
    status: Json = {"capacity": allocatable, "allocatable": allocatable}
    if chance(random, 60):
        status["images"] = node_images(random)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def _allocatable(random: Random) -> Json:
    offered: Json = {
        "cpu": _mostly(random, ("4", "7.5", "8", "16", "2e1"), ("0", "500m")),
        "memory": _mostly(random, ("8Gi", "16G", "7777777777", "32Gi", "1e10"), ("0", "1.5Gi")),
        "pods": _mostly(random, ("110", "20"), ("0", "2", "6")),
    }
    if chance(random, 80):
        offered["ephemeral-storage"] = _mostly(random, ("100G", "80Gi"), ("10Gi", "0"))
    if chance(random, 50):
        offered["hugepages-2Mi"] = _mostly(random, ("64Mi",), ("0",))
    for device in _DEVICE_NAMES:
        if chance(random, 50):
            offered[device] = _mostly(random, ("4", "8"), ("1", "0"))
    for missing in ("cpu", "memory", "pods"):
        if chance(random, 3):
            del offered[missing]
    return offered


def _taint(random: Random) -> Json:
    return {
        "key": random.choice(_TAINT_KEYS),
        "value": random.choice(_TAINT_VALUES),
        "effect": random.choice(_EFFECTS),
    }


def node_images(random: Random) -> list[Json]:
    return [_node_image(random) for _ in range(random.randint(1, 4))]


def _node_image(random: Random) -> Json:
    size = random.choice((1, 20 << 20, 45_000_001, 300 << 20, 768_607_127, 2000 << 20))
    return {"names": random.sample(_IMAGES, random.randint(1, 3)), "sizeBytes": size}


# -- pods ------------------------------------------------------------------------------------------


def pod(random: Random, name: str) -> Json:
    """A pod without a node name."""
    namespace = random.choice(("default", "default", "other", "third"))
    metadata: Json = {"name": name, "namespace": namespace}
    if labels := pod_labels(random):
        metadata["labels"] = labels
    if chance(random, 60):
        metadata["ownerReferences"] = owner_references(random)
    count = random.choice((1, 1, 1, 2, 3))
    spec: Json = {
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 0,
        "containers": [_container(random, f"c{i}") for i in range(count)],
    }
    if chance(random, 20):
        spec["initContainers"] = [
            _init_container(random, f"i{i}") for i in range(random.randint(1, 3))
        ]
    if chance(random, 12):
        _put_pod_level(random, spec)
    if chance(random, 10):
        spec["overhead"] = {"cpu": random.choice(_CPU), "memory": random.choice(_MEMORY)}
    _give_ports(random, spec)
    if chance(random, 45):
        spec["tolerations"] = [_toleration(random) for _ in range(random.randint(1, 3))]
    if chance(random, 6):
        selector = {"disk": random.choice(("ssd", "hdd")), "gen": random.choice(("1", "3"))}
        wanted = random.sample(list(selector), random.randint(0, 2))
        spec["nodeSelector"] = {key: selector[key] for key in wanted}
    affinity: Json = {}
    if chance(random, 30):
        affinity["nodeAffinity"] = node_affinity(random)
    if chance(random, 25):
        affinity["podAffinity"] = pod_affinity(random)
    if chance(random, 25):
        affinity["podAntiAffinity"] = pod_affinity(random)
    if affinity:
        spec["affinity"] = affinity
    if chance(random, 30):
        spec["topologySpreadConstraints"] = spread_constraints(random)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(random: Random, name: str) -> Json:
    container: Json = {"name": name, "image": random.choice(_IMAGES)}
    if chance(random, 80):
        wanted = requests(random)
        limits = {name: wanted[name] for name in _NOT_OVERCOMMITTED if name in wanted}
        container["resources"] = {"requests": wanted} | ({"limits": limits} if limits else {})
    return container


def _init_container(random: Random, name: str) -> Json:
    container = _container(random, name)
    if chance(random, 45):
        container["restartPolicy"] = "Always"
    return container


def requests(random: Random) -> Json:
    requests: Json = {}
    if chance(random, 80):
        requests["cpu"] = random.choice(_CPU)
    if chance(random, 80):
        requests["memory"] = random.choice(_MEMORY)
    if chance(random, 15):
        requests["ephemeral-storage"] = random.choice(_STORAGE)
    if chance(random, 4):
        requests["hugepages-2Mi"] = random.choice(("2Mi", "32Mi", "48Mi"))
        requests.setdefault("memory", "64Mi")
    for device in _DEVICE_NAMES:
        if chance(random, 5):
            requests[device] = random.choice(_DEVICES)
    return requests


def _put_pod_level(random: Random, spec: Json) -> None:
    """Set pod-level requests, in whole numbers; containers request less, or nothing.

    kube-scheduler adds the overhead to the pod's own record of a fractional binary amount (`0.5Gi`)
    each time it sums the requests, so its answer depends on the number of sums. API servers store
    such amounts as `512Mi`.
    """
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.pop("resources", None)
        if chance(random, 50):
            container["resources"] = {"requests": {"cpu": random.choice(("50m", "100m"))}}
    wanted: Json = {"cpu": random.choice(("1", "1500m")), "memory": random.choice(("100Mi", "3G"))}
    limits: Json = {}
    if chance(random, 20):
        wanted["hugepages-2Mi"] = limits["hugepages-2Mi"] = "4Mi"
    if chance(random, 30):
        del wanted["cpu"]
        limits["cpu"] = random.choice(("2", "4"))  # without a request, the limit is the request
    spec["resources"] = {"requests": wanted} | ({"limits": limits} if limits else {})


def _give_ports(random: Random, spec: Json) -> None:
    """Let containers ask for host ports, each of them once."""
    on_host = chance(random, 4)
    if on_host:
        spec["hostNetwork"] = True
    taken: set[tuple[int, str]] = set()
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        for _ in range(random.randint(1, 2) if chance(random, 12) else 0):
            port = _port(random)
            if on_host:
                port["containerPort"] = port["hostPort"] = port["hostPort"] or 80
            key = (port["hostPort"], port.get("protocol", "TCP"))
            if key not in taken:
                taken.add(key)
                container.setdefault("ports", []).append(port)


def _port(random: Random) -> Json:
    port: Json = {"containerPort": 80, "hostPort": random.choice((0, 80, 80, 443, 8080))}
    if chance(random, 60):
        port["protocol"] = random.choice(("TCP", "UDP"))
    if chance(random, 50):
        port["hostIP"] = random.choice(("", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"))
    return port


def _toleration(random: Random) -> Json:
    toleration: Json = {"operator": random.choice(("Equal", "Exists", "Exists", ""))}
    if chance(random, 85):
        toleration["key"] = random.choice((*_TAINT_KEYS, "node.kubernetes.io/unschedulable"))
    else:
        toleration["operator"] = "Exists"
    if toleration["operator"] != "Exists":
        toleration["value"] = random.choice(_TAINT_VALUES)
    if chance(random, 60):
        toleration["effect"] = random.choice(_EFFECTS)
    return toleration


def _mostly(random: Random, usual: Sequence[T], odd: Sequence[T]) -> T:
    return random.choice(usual if chance(random, 90) else odd)
