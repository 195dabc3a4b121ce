"""Random storage: claims of every kind, volumes, and attach limits (see `generate_objects`)."""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.generate_terms import ZONE
from kubesched.lab.conformance.sequences import Json

HOSTNAME = "kubernetes.io/hostname"
REGION = "topology.kubernetes.io/region"
DRIVER = "csi.example"
"""Driver of all volumes; nodes limit how many of its volumes can be attached."""

_BOUND = ("zonal", "regional", "local", "exclusive", "shared")
_ON_DEMAND = ("late-0", "late-1", "made", "measured")
"""Claims that are bound or provisioned when their first pod is placed."""
_NEVER = ("missing", "unbound", "lost", "immediate")
"""Missing; too big; bound to a missing volume; unbound but not for the scheduler to bind."""
CLAIMS = (*_BOUND, *_BOUND, *_ON_DEMAND, *_ON_DEMAND, *_NEVER)
"""The claims that pods choose from."""

_NODES_WITH_LIMITS = 24


def volumes(random: Random, namespaces: tuple[str, ...]) -> list[Json]:
    """All storage objects that exist before the first node."""
    made = [*_storage_classes(random), *_late_volumes(random), *_csi_nodes(random)]
    for namespace in namespaces:
        made += _bound_claims(random, namespace)
        made += _open_claims(random, namespace)
    made += _attachments(random)
    return made


def pod_volumes(random: Random) -> list[Json]:
    """The volumes of one pod, mostly claims."""
    kind = random.random()
    if kind < 0.12:
        return [{"name": "disk", **_inline_disk(random)}]
    if kind < 0.15:
        template = {"spec": _claim_spec("late", "1Gi", "ReadWriteOnce")}
        return [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    names = dict.fromkeys(random.choice(CLAIMS) for _ in range(random.choice((1, 1, 1, 2))))
    return [
        {"name": f"data{number}", "persistentVolumeClaim": {"claimName": name}}
        for number, name in enumerate(names)
    ]


def _inline_disk(random: Random) -> Json:
    """Disks that pods on one node may share only under conditions."""
    reads = random.random() < 0.4
    return random.choice(
        (
            {"gcePersistentDisk": {"pdName": random.choice(("a", "b")), "readOnly": reads}},
            {"awsElasticBlockStore": {"volumeID": random.choice(("vol-1", "vol-2"))}},
            {
                "iscsi": {
                    "targetPortal": "10.0.0.9:3260",
                    "iqn": "iqn.2026-01.example:disk",
                    "lun": random.randint(0, 1),
                    "readOnly": reads,
                }
            },
            {
                "rbd": {
                    "monitors": random.sample(("10.1.0.1", "10.1.0.2", "10.1.0.3"), 2),
                    "image": "disk",
                    "pool": random.choice(("p1", "p2")),
                    "readOnly": reads,
                }
            },
        )
    )


# -- classes and limits ----------------------------------------------------------------------------


def _storage_classes(random: Random) -> list[Json]:
    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    made: Json = {**late, "provisioner": DRIVER}
    if random.random() < 0.4:
        expression = {"key": ZONE, "values": random.sample(("z1", "z2", "z3"), 2)}
        made["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    return [
        {**_object("StorageClass", "late"), "provisioner": "kubernetes.io/no-provisioner", **late},
        {**_object("StorageClass", "made"), **made},
        {**_object("StorageClass", "measured"), "provisioner": "measured.example", **late},
        {
            **_object("StorageClass", "immediate"),
            "provisioner": DRIVER,
            "volumeBindingMode": "Immediate",
        },
        {**_object("CSIDriver", "measured.example"), "spec": {"storageCapacity": True}},
        *_capacities(random),
    ]


def _capacities(random: Random) -> list[Json]:
    """CSIStorageCapacity objects: where the driver has room for 1Gi, and where it does not."""
    return [
        {
            **_object("CSIStorageCapacity", f"room-{zone}", "default"),
            "storageClassName": "measured",
            "nodeTopology": {"matchLabels": {ZONE: zone}},
            "capacity": random.choice(("10Gi", "512Mi", "0")),
        }
        for zone in ("z1", "z2", "z3")
        if random.random() < 0.8
    ]


def _csi_nodes(random: Random) -> list[Json]:
    made = []
    for number in range(_NODES_WITH_LIMITS):
        if random.random() < 0.3:
            continue
        name = f"n{number:03}"
        driver: Json = {"name": DRIVER, "nodeID": name, "topologyKeys": [HOSTNAME]}
        if random.random() < 0.8:
            driver["allocatable"] = {"count": random.choice((1, 1, 2, 3))}
        made.append({**_object("CSINode", name), "spec": {"drivers": [driver]}})
    return made


def _attachments(random: Random) -> list[Json]:
    """Volumes that are still attached though no pod uses them there."""
    return [
        {
            **_object("VolumeAttachment", f"attached-{claim}"),
            "spec": {
                "attacher": DRIVER,
                "nodeName": f"n{random.randint(0, 5):03}",
                "source": {"persistentVolumeName": f"default-{claim}"},
            },
        }
        for claim in random.sample(_BOUND, 2)
    ]


# -- volumes and claims ----------------------------------------------------------------------------


def _late_volumes(random: Random) -> list[Json]:
    """Available volumes of distinct sizes: among equals kube-scheduler picks at random."""
    made = []
    sizes = random.sample(range(1, 12), 5)
    for number, size in enumerate(sizes):
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
        "regional": (REGION, ["r1", "r2"]),
        "local": (HOSTNAME, [random.choice(("n000", "n001", "n002"))]),
    }
    modes = {"exclusive": "ReadWriteOncePod", "shared": "ReadWriteMany"}
    for claim in _BOUND:
        mode = modes.get(claim, "ReadWriteOnce")
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
        "measured": ("measured", "1Gi"),
        "unbound": ("late", "1Ti"),
        "immediate": ("immediate", "1Gi"),
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
    core = kind in ("PersistentVolume", "PersistentVolumeClaim")
    metadata: Json = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "v1" if core else "storage.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
    }
