"""Random devices: slices of every form, classes, and claims of pods (see `generate_sequence`).

Left out: claims that do not exist, which never lead to a decision, and what kube-scheduler decides
at random, which is the choice among several claims allocated elsewhere to deallocate. So a pod has
at most one shared claim.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.generate_terms import ZONE
from kubesched.lab.conformance.sequences import Json

GPU, NIC, PART, SHARED = (
    "gpu.example.com",
    "nic.example.com",
    "part.example.com",
    "shared.example.com",
)
EXTENDED = "example.com/dra"
"""An extended resource that only a device class serves; nodes may serve others as well."""

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
ADMIN_NAMESPACE = "default"
SHARED_CLAIMS = ("pool-gpu", "pool-nic", "pool-global")

_NODES = 16
_MODEL_A = f'device.attributes["{GPU}"].model == "a"'
_BIG = f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0'
_SOME_MODEL = f'has(device.attributes["{GPU}"].model) && device.attributes["{GPU}"].model != "c"'


def devices(random: Random, namespaces: tuple[str, ...]) -> list[Json]:
    """All device objects that exist before the first node."""
    made = [*_classes(random), *slices(random)]
    for namespace in namespaces:
        made += [
            _object("ResourceClaimTemplate", name, {"spec": {"devices": claimed}}, namespace)
            for name, claimed in _templates(random, namespace).items()
        ]
        for name, kind in zip(SHARED_CLAIMS, ("gpu", "nic", "any"), strict=True):
            requests = {"requests": [_exactly("r", kind)]}
            made.append(_object("ResourceClaim", name, {"devices": requests}, namespace))
    return made


def _object(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _selectors(*expressions: str) -> list[Json]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def _classes(random: Random) -> list[Json]:
    specs: dict[str, Json] = {
        "gpu": {"selectors": _selectors(f'device.driver == "{GPU}"')},
        "big": {"selectors": _selectors(f'device.driver == "{GPU}"', _BIG)},
        "nic": {"selectors": _selectors(f'device.driver == "{NIC}"')},
        "part": {"selectors": _selectors(f'device.driver == "{PART}"')},
        "shared": {"selectors": _selectors(f'device.driver == "{SHARED}"')},
        "any": {},
        "extended": {
            "selectors": _selectors(f'device.driver in ["{GPU}", "{NIC}"]'),
            "extendedResourceName": EXTENDED,
        },
    }
    if random.random() < 0.3:
        # Some nodes also offer it without a driver.
        specs["also-offered"] = {
            "selectors": _selectors(f'device.driver == "{NIC}"'),
            "extendedResourceName": "example.com/fpga",
        }
    return [_object("DeviceClass", name, spec) for name, spec in specs.items()]


# -- slices ----------------------------------------------------------------------------------------


def slices(random: Random) -> list[Json]:
    """Slices for single nodes, zones and the whole cluster."""
    made = []
    for number in range(_NODES):
        node = f"n{number:03}"
        if random.random() < 0.7:
            made += _gpus(random, node)
        if random.random() < 0.25:
            made += _partitions(random, node)
        if random.random() < 0.25:
            made.append(_shared_device(random, node))
    for zone in ("z1", "z2", "z3"):
        if random.random() < 0.8:
            made.append(_zone_pool(random, zone))
    if random.random() < 0.5:
        made.append(_slice(NIC, "global", [{"name": "g-0"}], allNodes=True))
    if random.random() < 0.4:
        made.append(_mixed_pool(random))
    return made


def _slice(
    driver: str, pool: str, content: list[Json], name: str = "", count: int = 1, **spec: object
) -> Json:
    body = {
        "driver": driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
        "devices": content,
        **spec,
    }
    return _object("ResourceSlice", name or f"{pool}-{driver.partition('.')[0]}", body)


def _gpus(random: Random, node: str) -> list[Json]:
    gpus = [gpu(random, number) for number in range(random.randint(1, 4))]
    kind = random.random()
    if kind < 0.1 and len(gpus) > 1:  # two slices, maybe reordered, maybe incomplete
        names = random.sample((f"{node}-x", f"{node}-y"), 2)
        both = [
            _slice(GPU, node, gpus[:1], names[0], 2, nodeName=node),
            _slice(GPU, node, gpus[1:], names[1], 2, nodeName=node),
        ]
        return both if random.random() < 0.7 else both[:1]
    if kind < 0.13:
        gpus.append({**gpus[0]})  # rejected within one slice, allowed across two
        return [
            _slice(GPU, node, gpus[:1], f"{node}-x", 2, nodeName=node),
            _slice(GPU, node, gpus[-1:], f"{node}-y", 2, nodeName=node),
        ]
    return [_slice(GPU, node, gpus, nodeName=node)]


def gpu(random: Random, number: int) -> Json:
    """A device with attributes, occasionally with a taint."""
    attributes: Json = {"numa": {"int": number % 2}, f"{NIC}/rail": {"int": random.randint(0, 1)}}
    if random.random() < 0.9:
        attributes["model"] = {"string": random.choice(("a", "a", "b", "c"))}
    if random.random() < 0.5:
        attributes["driverVersion"] = {"version": random.choice(("1.2.3", "2.0.0"))}
    device: Json = {"name": f"gpu-{number}", "attributes": attributes}
    if random.random() < 0.97:
        device["capacity"] = {"memory": {"value": random.choice(("16Gi", "80Gi"))}}
    if random.random() < 0.12:
        effect = random.choice(("NoSchedule", "NoExecute", "None"))
        device["taints"] = [{"key": "worn", "value": random.choice(("a", "b")), "effect": effect}]
    return device


def _partitions(random: Random, node: str) -> list[Json]:
    """One card that is used as a whole or in halves."""
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]

    def part(name: str, memory: str) -> Json:
        consumed = {"counterSet": "card", "counters": {"memory": {"value": memory}}}
        return {"name": name, "consumesCounters": [consumed]}

    parts = [part("half-0", "40Gi"), part("half-1", "40Gi"), part("whole", "80Gi")]
    random.shuffle(parts)
    counter_slice = _slice(PART, node, [], f"{node}-counters", 2, nodeName=node)
    del counter_slice["spec"]["devices"]
    counter_slice["spec"]["sharedCounters"] = counters
    return [counter_slice, _slice(PART, node, parts, f"{node}-parts", 2, nodeName=node)]


def _shared_device(random: Random, node: str) -> Json:
    policy = random.choice(
        (
            None,
            {"default": "2Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}},
            {"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
        )
    )
    capacity: Json = {"value": random.choice(("8Gi", "10Gi"))}
    if policy is not None:
        capacity["requestPolicy"] = policy
    device = {
        "name": "share",
        "allowMultipleAllocations": True,
        "capacity": {"memory": capacity},
        "attributes": {"numa": {"int": 0}},
    }
    return _slice(SHARED, node, [device], nodeName=node)


def _zone_pool(random: Random, zone: str) -> Json:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    nics = [
        {"name": f"nic-{number}", "attributes": {"rail": {"int": random.randint(0, 1)}}}
        for number in range(random.randint(1, 4))
    ]
    selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return _slice(NIC, zone, nics, nodeSelector=selector)


def _mixed_pool(random: Random) -> Json:
    """Devices that carry their own node selection."""
    content: list[Json] = [
        {"name": "m-0", "nodeName": f"n{random.randint(0, 5):03}"},
        {"name": "m-1", "allNodes": True},
    ]
    return _slice(NIC, "mixed", content, perDeviceNodeSelection=True)


# -- claims ----------------------------------------------------------------------------------------


def _exactly(name: str, device_class: str, **more: object) -> Json:
    return {"name": name, "exactly": _wanted(device_class, **more)}


def _wanted(device_class: str, **more: object) -> Json:
    """A request with the API server's defaults, because replays have no API server."""
    wanted = {"deviceClassName": device_class, "allocationMode": "ExactCount", **more}
    return wanted if wanted["allocationMode"] == "All" else {"count": 1, **wanted}


def _templates(random: Random, namespace: str) -> dict[str, Json]:
    alternatives = [
        {"name": "large", **_wanted("big")},
        {"name": "two", **_wanted("gpu", count=2)},
        {"name": "card", **_wanted("part")},
    ]
    random.shuffle(alternatives)
    pair = [_exactly("gpu", "gpu"), _exactly("nic", "nic")]
    amount = random.choice(("1Gi", "3Gi", "1500Mi", "16Gi"))
    made: dict[str, Json] = {
        "one": {"requests": [_exactly("gpu", "gpu")]},
        "two": {"requests": [_exactly("gpu", "gpu", count=2)]},
        "large": {"requests": [_exactly("gpu", "big")]},
        "model": {"requests": [_exactly("gpu", "gpu", selectors=_selectors(_SOME_MODEL))]},
        "net": {"requests": [_exactly("nic", "nic")]},
        "all-nics": {"requests": [_exactly("nic", "nic", allocationMode="All")]},
        "part": {"requests": [_exactly("part", "part")]},
        "share": {"requests": [_exactly("share", "shared")]},
        "amount": {
            "requests": [_exactly("share", "shared", capacity={"requests": {"memory": amount}})]
        },
        "first": {"requests": [{"name": "some", "firstAvailable": alternatives}]},
        "tolerant": {
            "requests": [
                _exactly("gpu", "gpu", tolerations=[{"key": "worn", "operator": "Exists"}])
            ]
        },
        "pair": {"requests": pair},
        "near": {
            "requests": pair,
            "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": f"{NIC}/rail"}],
        },
        "same-side": {
            "requests": [_exactly("gpu", "gpu", count=2)],
            "constraints": [{"matchAttribute": f"{GPU}/numa"}],
        },
        "both-sides": {
            "requests": [_exactly("gpu", "gpu", count=2)],
            "constraints": [{"distinctAttribute": f"{GPU}/numa"}],
        },
        "no-class": {"requests": [_exactly("gpu", "no-such-class")]},
    }
    if namespace == ADMIN_NAMESPACE:
        made["monitor"] = {"requests": [_exactly("gpu", "gpu", adminAccess=True)]}
    else:
        made["monitor"] = made["one"]
    if random.random() < 0.2:  # fails on devices without a model, or without memory
        made["model"]["requests"][0]["exactly"]["selectors"] = _selectors(_MODEL_A)
    return made


_USED = (
    *("one", "one", "two", "large", "model", "net", "part", "share", "amount", "first", "first"),
    *("tolerant", "pair", "near", "same-side", "both-sides", "all-nics", "no-class", "monitor"),
)


def give_devices(random: Random, pod: Json) -> bool:
    """Occasionally let the pod request devices; returns whether it does."""
    spec = pod["spec"]
    kind = random.random()
    if kind < 0.1:
        limits = spec["containers"][0].setdefault("resources", {})
        for field in ("requests", "limits"):
            limits.setdefault(field, {})[EXTENDED] = str(random.choice((1, 1, 2)))
    elif kind < 0.45:
        entries: list[Json] = [
            {"name": f"c{number}", "resourceClaimTemplateName": random.choice(_USED)}
            for number in range(random.choice((1, 1, 2)))
        ]
        if random.random() < 0.25:
            entries[0] = {"name": "c0", "resourceClaimName": random.choice(SHARED_CLAIMS)}
        spec["resourceClaims"] = entries
        container = spec["containers"][0].setdefault("resources", {})
        container["claims"] = [{"name": entry["name"]} for entry in entries]
    else:
        return False
    if random.random() < 0.7:
        # Makes devices the deciding constraint more often.
        for name in ("affinity", "topologySpreadConstraints", "nodeSelector", "volumes"):
            spec.pop(name, None)
    return True
