"""Random storage: claims of every kind, volumes, and attach limits (see `generate_objects`).

Recorded placements have disks named in pods, attachments and storage capacities as well.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.generate_terms import ZONE, chance
from kubesched.lab.conformance.sequences import Json, named

HOSTNAME = "kubernetes.io/hostname"
DRIVER = "csi.example"
"""Driver of all volumes; nodes limit how many of its volumes can be attached."""

_BOUND = {
    "zonal": "ReadWriteOnce",
    "local": "ReadWriteOnce",
    "exclusive": "ReadWriteOncePod",
    "shared": "ReadWriteMany",
}
"""Bound claims with their access modes."""
_ON_DEMAND = ("late-0", "late-1", "made")
"""Claims that are bound or provisioned when their first pod is placed."""
_NEVER = ("missing", "unbound", "lost")
"""Missing; too big; bound to a missing volume."""
CLAIMS = (*_BOUND, *_BOUND, *_ON_DEMAND, *_ON_DEMAND, *_NEVER)
"""The claims that pods choose from."""

_NODES_WITH_LIMITS = 24


def volumes(random: Random, namespaces: tuple[str, ...]) -> list[Json]:
    """All storage objects that exist before the first node."""
    made = [*_storage_classes(random), *_late_volumes(random), *_csi_nodes(random)]
    for namespace in namespaces:
        made += _bound_claims(random, namespace)
        made += _open_claims(random, namespace)
    return made


def pod_volumes(random: Random) -> list[Json]:
    names = dict.fromkeys(random.choice(CLAIMS) for _ in range(random.choice((1, 1, 1, 2))))
    return [
        {"name": f"data{number}", "persistentVolumeClaim": {"claimName": name}}
        for number, name in enumerate(names)
    ]


def _storage_classes(random: Random) -> list[Json]:
    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    made: Json = {**late, "provisioner": DRIVER}
    if chance(random, 40):
        expression = {"key": ZONE, "values": random.sample(("z1", "z2", "z3"), 2)}
        made["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    return [
        {**_object("StorageClass", "late"), "provisioner": "kubernetes.io/no-provisioner", **late},
        {**_object("StorageClass", "made"), **made},
    ]


def _csi_nodes(random: Random) -> list[Json]:
    made = []
    for number in range(_NODES_WITH_LIMITS):
        if chance(random, 30):
            continue
        name = f"n{number:03}"
        driver: Json = {"name": DRIVER, "nodeID": name, "topologyKeys": [HOSTNAME]}
        if chance(random, 80):
            driver["allocatable"] = {"count": random.choice((1, 1, 2, 3))}
        made.append({**_object("CSINode", name), "spec": {"drivers": [driver]}})
    return made


# -- volumes and claims ----------------------------------------------------------------------------


def _late_volumes(random: Random) -> list[Json]:
    """Available volumes of distinct sizes: among equals kube-scheduler picks at random."""
    made = []
    for number, size in enumerate(random.sample(range(1, 12), 5)):
        volume = _volume(f"late-pv-{number}", "late", f"{size}Gi", "ReadWriteOnce")
        match random.randint(0, 3):
            case 0:
                _attach_to(volume, HOSTNAME, [f"n{random.randint(0, 5):03}"])
            case 1 | 2:
                _attach_to(volume, ZONE, random.sample(("z1", "z2", "z3"), 2))
        volume["status"] = {"phase": "Available"}
        made.append(volume)
    return made


def _bound_claims(random: Random, namespace: str) -> list[Json]:
    """Claims, each with its bound volume."""
    made = []
    topologies = {
        "zonal": (ZONE, [random.choice(("z1", "z2"))]),
        "local": (HOSTNAME, [random.choice(("n000", "n001", "n002"))]),
    }
    for claim, mode in _BOUND.items():
        name = f"{namespace}-{claim}"
        volume = _volume(name, "", "1Gi", mode)
        if claim == "shared":
            volume["metadata"]["labels"] = {ZONE: random.choice(("z1", "z2__z3"))}
        if claim in topologies:
            _attach_to(volume, *topologies[claim])
        volume["spec"]["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": claim,
        }
        made += [volume, _bound_claim(namespace, claim, mode, name)]
    return made


def _open_claims(random: Random, namespace: str) -> list[Json]:
    wanted = {
        "late-0": ("late", "1Gi"),
        "late-1": ("late", random.choice(("2Gi", "5Gi"))),
        "made": ("made", "1Gi"),
        "unbound": ("late", "1Ti"),
    }
    made = []
    for name, (storage_class, size) in wanted.items():
        claim = _object("PersistentVolumeClaim", name, namespace)
        claim["spec"] = _claim_spec(storage_class, size, "ReadWriteOnce")
        made.append(claim)
    return [*made, _bound_claim(namespace, "lost", "ReadWriteOnce", "no-such-volume")]


def _volume(name: str, storage_class: str, size: str, mode: str) -> Json:
    volume = _object("PersistentVolume", name)
    volume["spec"] = {
        "capacity": {"storage": size},
        "accessModes": [mode],
        "storageClassName": storage_class,
        "csi": {"driver": DRIVER, "volumeHandle": name},
    }
    return volume


def _attach_to(volume: Json, key: str, values: list[str]) -> None:
    expression = {"key": key, "operator": "In", "values": values}
    volume["spec"]["nodeAffinity"] = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    }


def _claim_spec(storage_class: str, size: str, mode: str) -> Json:
    return {
        "accessModes": [mode],
        "resources": {"requests": {"storage": size}},
        "storageClassName": storage_class,
    }


def _bound_claim(namespace: str, name: str, mode: str, volume: str) -> Json:
    claim = _object("PersistentVolumeClaim", name, namespace)
    claim["spec"] = {**_claim_spec("", "1Gi", mode), "volumeName": volume}
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["status"] = {"phase": "Bound"}
    return claim


def _object(kind: str, name: str, namespace: str = "") -> Json:
    core = kind.startswith("PersistentVolume")
    return named("v1" if core else "storage.k8s.io/v1", kind, name, namespace)
