"""Clusters with devices for the tests of explanations: nodes, slices, classes, claims, and pods
that name them.
"""

from __future__ import annotations

from random import Random

from dra_objects import (
    allocation,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    resource_slice,
)
from msgspec import structs

from kubesched.api.core_v1 import PodResourceClaim
from kubesched.testing import make_node, make_pod

DRIVER = "gpu.example.com"
NUMA = f"{DRIVER}/numa"
GPU = device_class("gpu", f'device.driver == "{DRIVER}"')
BAD = {"key": "bad", "value": "yes", "effect": "NoSchedule"}


class Built:
    """A finished object where a builder is expected."""

    def __init__(self, obj):
        self.obj = obj

    def build(self):
        return self.obj


def pod(name, *claims, node=""):
    """A pod that uses claims by name."""
    made = make_pod(name).build()
    used = [PodResourceClaim(name=each, resource_claim_name=each) for each in claims]
    return Built(
        structs.replace(made, spec=structs.replace(made.spec, resource_claims=used, node_name=node))
    )


def attribute(name):
    return f'device.attributes["{DRIVER}"].{name}'


def node(name):
    return make_node(name).capacity(cpu="8", memory="8Gi")


def gpus(on, *devices, **spec):
    """The slice of a node; a number stands for that many plain devices."""
    made = [
        device(f"gpu-{at}", attributes={"model": "a100", "numa": at % 2})
        if isinstance(each, int)
        else each
        for at, each in enumerate(range(devices[0]) if isinstance(devices[0], int) else devices)
    ]
    return resource_slice(f"slice-{on}", *made, pool=on, nodeName=on, **spec)


def held(name, *devices, pods=(), **more):
    """A claim that holds devices (node, device), reserved for pods."""
    users = [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in pods]
    results = allocation(*(("r", pool, each, more) for pool, each in devices))
    return claim(
        name, exactly("r", len(devices)), status={"allocation": results, "reservedFor": users}
    )


def random_world(seed):
    """A pod with a claim beside nodes with devices: (claim, objects).

    Small, so that all can be tried.
    """
    draw = Random(seed)
    objects = [GPU, device_class("big", f"{attribute('numa')} == 1")]
    for at in range(draw.randint(1, 3)):
        name = f"n{at}"
        devices = [
            device(
                f"d{number}",
                attributes={"model": draw.choice(["a100", "h100"]), "numa": draw.randint(0, 1)},
                capacity={"mem": {"value": draw.choice(["10", "20"])}},
                **({"taints": [BAD]} if draw.random() < 0.25 else {}),
            )
            for number in range(draw.randint(0, 4))
        ]
        objects += [node(name), resource_slice(f"s-{name}", *devices, pool=name, nodeName=name)]
        for number in range(len(devices)):
            if draw.random() < 0.4:
                user = f"user-{at}-{number}"
                objects.append(held(f"held-{at}-{number}", (name, f"d{number}"), pods=[user]))
                objects.append(pod(user, f"held-{at}-{number}", node=name))

    def request(name):
        more = {}
        if draw.random() < 0.3:
            more["selectors"] = [
                f'{attribute("model")} == "{draw.choice(["a100", "h100", "b200"])}"'
            ]
        if draw.random() < 0.2:
            more["tolerations"] = [{"key": "bad", "operator": "Exists"}]
        if draw.random() < 0.2:
            more["capacity"] = {"requests": {"mem": draw.choice(["5", "15", "30"])}}
        kind = draw.choice(["gpu", "gpu", "big"])
        if draw.random() < 0.1:
            return exactly(name, class_name=kind, mode="All", **more)
        return exactly(name, draw.randint(1, 3), class_name=kind, **more)

    requests = [request(f"r{at}") for at in range(draw.randint(1, 2))]
    if draw.random() < 0.2:
        requests = [first_available("either", request("one"), request("two"))]
    constraints = [{"matchAttribute": NUMA}] if draw.random() < 0.3 else []
    return claim("c", *requests, constraints=constraints), objects
