"""Random devices: slices of nodes and zones, classes, and claims of pods (see `generate_sequence`).

Recorded placements have every form of device and request; these cover claims over time: pods share
and release them, slices change, and allocated devices are not allocated again. Left out are claims
that do not exist, which never lead to a decision, and what kube-scheduler decides at random: which
of several claims that are allocated elsewhere to deallocate. So a pod has at most one shared claim.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.generate_terms import ZONE, chance
from kubesched.lab.conformance.sequences import Json, named

GPU, NIC = "gpu.example.com", "nic.example.com"
EXTENDED = "example.com/dra"
"""An extended resource that only a device class serves."""

SHARED_CLAIMS = {"pool-gpu": "gpu", "pool-nic": "nic"}

_NODES = 16
_BIG = f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0'
_USED = ("one", "one", "two", "large", "net", "first", "first", "near", "all-nics", "no-class")


def devices(random: Random, namespaces: tuple[str, ...]) -> list[Json]:
    """All device objects that exist before the first node."""
    made = [*device_classes(), *_slices(random)]
    for namespace in namespaces:
        made += [
            _object("ResourceClaimTemplate", name, {"spec": {"devices": claimed}}, namespace)
            for name, claimed in _templates(random).items()
        ]
        for name, device_class in SHARED_CLAIMS.items():
            requests = {"requests": [_exactly("r", device_class)]}
            made.append(_object("ResourceClaim", name, {"devices": requests}, namespace))
    return made


def _object(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    return {**named("resource.k8s.io/v1", kind, name, namespace), "spec": spec}


def device_classes() -> list[Json]:
    def of(name: str, *expressions: str, **spec: object) -> Json:
        selectors = [{"cel": {"expression": expression}} for expression in expressions]
        return _object("DeviceClass", name, {"selectors": selectors, **spec})

    return [
        of("gpu", f'device.driver == "{GPU}"'),
        of("big", f'device.driver == "{GPU}"', _BIG),
        of("nic", f'device.driver == "{NIC}"'),
        of("extended", f'device.driver in ["{GPU}", "{NIC}"]', extendedResourceName=EXTENDED),
    ]


def _slices(random: Random) -> list[Json]:
    """Slices for single nodes, zones and the whole cluster."""
    made = []
    for number in range(_NODES):
        if chance(random, 70):
            node = f"n{number:03}"
            made.append(slice_of(node, gpus(random)))
    for zone in ("z1", "z2", "z3"):
        if chance(random, 80):
            expression = {"key": ZONE, "operator": "In", "values": [zone]}
            selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            nics = [
                {"name": f"nic-{number}", "attributes": {"rail": {"int": random.randint(0, 1)}}}
                for number in range(random.randint(1, 4))
            ]
            made.append(_slice(NIC, zone, nics, nodeSelector=selector))
    made.append(_slice(NIC, "global", [{"name": "g-0"}], allNodes=True))
    return made


def slice_of(node: str, content: list[Json]) -> Json:
    return _slice(GPU, node, content, nodeName=node)


def claim_of_gpus(name: str, count: int) -> Json:
    """A claim for devices of one node."""
    requests = {"requests": [_exactly("r", "gpu", count=count)]}
    return _object("ResourceClaim", name, {"devices": requests}, "default")


def _slice(driver: str, pool: str, content: list[Json], **spec: object) -> Json:
    told = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    name = f"{pool}-{driver.partition('.')[0]}"
    spec = {"driver": driver, "pool": told, "devices": content, **spec}
    return _object("ResourceSlice", name, spec)


def gpus(random: Random) -> list[Json]:
    """The devices of a node."""
    return [
        {
            "name": f"gpu-{number}",
            "attributes": {f"{NIC}/rail": {"int": random.randint(0, 1)}},
            "capacity": {"memory": {"value": random.choice(("16Gi", "80Gi"))}},
        }
        for number in range(random.randint(1, 4))
    ]


# -- claims ----------------------------------------------------------------------------------------


def _exactly(name: str, device_class: str, **more: object) -> Json:
    return {"name": name, "exactly": _wanted(device_class, **more)}


def _wanted(device_class: str, **more: object) -> Json:
    """A request with the API server's defaults, because replays have no API server."""
    wanted = {"deviceClassName": device_class, "allocationMode": "ExactCount", **more}
    return wanted if wanted["allocationMode"] == "All" else {"count": 1, **wanted}


def _templates(random: Random) -> dict[str, Json]:
    alternatives = [
        {"name": "large", **_wanted("big")},
        {"name": "two", **_wanted("gpu", count=2)},
        {"name": "net", **_wanted("nic")},
    ]
    random.shuffle(alternatives)
    rail = {"requests": ["gpu", "nic"], "matchAttribute": f"{NIC}/rail"}
    return {
        "one": {"requests": [_exactly("gpu", "gpu")]},
        "two": {"requests": [_exactly("gpu", "gpu", count=2)]},
        "large": {"requests": [_exactly("gpu", "big")]},
        "net": {"requests": [_exactly("nic", "nic")]},
        "all-nics": {"requests": [_exactly("nic", "nic", allocationMode="All")]},
        "first": {"requests": [{"name": "some", "firstAvailable": alternatives}]},
        "near": {
            "requests": [_exactly("gpu", "gpu"), _exactly("nic", "nic")],
            "constraints": [rail],
        },
        "no-class": {"requests": [_exactly("gpu", "no-such-class")]},
    }


def give_devices(random: Random, pod: Json) -> bool:
    """Occasionally let the pod request devices; returns whether it does."""
    spec = pod["spec"]
    kind = random.random()
    if kind < 0.1:
        resources = spec["containers"][0].setdefault("resources", {})
        count = random.choice(("1", "1", "2"))
        for field in ("requests", "limits"):
            resources.setdefault(field, {})[EXTENDED] = count
    elif kind < 0.45:
        entries: list[Json] = [
            {"name": f"c{number}", "resourceClaimTemplateName": random.choice(_USED)}
            for number in range(random.choice((1, 1, 2)))
        ]
        if chance(random, 25):
            entries[0] = {"name": "c0", "resourceClaimName": random.choice(list(SHARED_CLAIMS))}
        spec["resourceClaims"] = entries
        container = spec["containers"][0].setdefault("resources", {})
        container["claims"] = [{"name": entry["name"]} for entry in entries]
    else:
        return False
    if chance(random, 70):
        # Makes devices the deciding constraint more often.
        for name in ("affinity", "topologySpreadConstraints", "nodeSelector", "volumes"):
            spec.pop(name, None)
    return True
