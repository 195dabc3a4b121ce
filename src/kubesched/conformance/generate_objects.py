"""What is in a cluster besides nodes and pods, at random: see `generate_sequence`."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from kubesched.conformance.generate_terms import ZONE, label_selector, namespaces
from kubesched.conformance.sequences import Json

PRIORITIES = ("low", "middle", "high", "high-but-polite")
CLAIMS = ("zonal", "regional", "local", "exclusive", "shared", "missing", "unbound")
_NAMESPACES = ("default", "other", "third")


def surroundings(random: Random, features: Collection[str]) -> list[Json]:
    """The objects that are there before the first node."""
    made = [
        _object("v1", "Namespace", name, labels=labels) for name, labels in namespaces().items()
    ]
    if "priorities" in features:
        made += _priority_classes()
        made += _budgets(random)
    if "default-spread" in features:
        made += [each for namespace in _NAMESPACES for each in _workloads(random, namespace)]
    if "volumes" in features:
        made += [each for namespace in _NAMESPACES for each in _volumes(random, namespace)]
        made.append(
            {
                **_object("storage.k8s.io/v1", "StorageClass", "late"),
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )
    return made


def _object(
    api_version: str, kind: str, name: str, namespace: str = "", labels: Json | None = None
) -> Json:
    metadata: Json = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


# -- priorities --------------------------------------------------------------------------------------------------------


def _priority_classes() -> list[Json]:
    values = {"low": -10, "middle": 10, "high": 1000, "high-but-polite": 1000}
    made = []
    for name, value in values.items():
        each = {**_object("scheduling.k8s.io/v1", "PriorityClass", name), "value": value}
        if name == "high-but-polite":
            each["preemptionPolicy"] = "Never"
        made.append(each)
    return made


def _budgets(random: Random) -> list[Json]:
    """Disruption budgets; nobody keeps their status, so it says what is written here."""
    return [
        {
            **_object("policy/v1", "PodDisruptionBudget", "budget", namespace),
            "spec": {"minAvailable": 1, "selector": label_selector(random)},
            "status": {
                "disruptionsAllowed": random.randint(0, 2),
                "currentHealthy": 1,
                "desiredHealthy": 1,
                "expectedPods": 1,
                "observedGeneration": 1,
            },
        }
        for namespace in _NAMESPACES
        if random.randint(0, 1)
    ]


# -- workloads ---------------------------------------------------------------------------------------------------------


def _workloads(random: Random, namespace: str) -> list[Json]:
    made = []
    for number in range(random.randint(0, 2)):
        selector = random.choice(({"app": "web"}, {"app": "db", "tier": "back"}, {"tier": "front"}))
        service = _object("v1", "Service", f"svc{number}", namespace)
        made.append({**service, "spec": {"clusterIP": "None", "selector": selector}})
    for api_version, kind, name in (
        ("v1", "ReplicationController", "rc"),
        ("apps/v1", "ReplicaSet", "rs"),
        ("apps/v1", "StatefulSet", "ss"),
    ):
        if not random.randint(0, 1):
            continue
        labels = random.choice(({"app": "web"}, {"app": "db"}, {"app": "cache", "tier": "back"}))
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "reg.example/a:1"}]},
        }
        spec: Json = {"replicas": 0, "selector": labels, "template": template}
        if kind != "ReplicationController":
            spec["selector"] = {"matchLabels": labels}
        if kind == "StatefulSet":
            spec["serviceName"] = "svc0"
        made.append({**_object(api_version, kind, name, namespace), "spec": spec})
    return made


# -- volumes -----------------------------------------------------------------------------------------------------------


def _volumes(random: Random, namespace: str) -> list[Json]:
    """Claims and the volumes that they are bound to; `missing` is missing, `unbound` never gets a volume."""
    made = []
    affinities = {
        "zonal": (ZONE, [random.choice(("z1", "z2"))]),
        "regional": ("topology.kubernetes.io/region", ["r1", "r2"]),
        "local": ("kubernetes.io/hostname", [random.choice(("n000", "n001", "n002"))]),
    }
    for claim in ("zonal", "regional", "local", "exclusive", "shared"):
        mode = {"exclusive": "ReadWriteOncePod", "shared": "ReadWriteMany"}.get(
            claim, "ReadWriteOnce"
        )
        labels = {ZONE: random.choice(("z1", "z2__z3"))} if claim == "shared" else None
        volume = _object("v1", "PersistentVolume", f"{namespace}-{claim}", labels=labels)
        volume["spec"] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": "",
            "csi": {"driver": "csi.example", "volumeHandle": f"{namespace}-{claim}"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim,
            },
        }
        if claim in affinities:
            key, values = affinities[claim]
            expression = {"key": key, "operator": "In", "values": values}
            volume["spec"]["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            }
        made += [volume, _claim(namespace, claim, mode, f"{namespace}-{claim}")]
    made.append(_claim(namespace, "unbound", "ReadWriteOnce", ""))
    return made


def _claim(namespace: str, name: str, mode: str, volume: str) -> Json:
    claim = _object("v1", "PersistentVolumeClaim", name, namespace)
    claim["spec"] = {
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "" if volume else "late",
    }
    if volume:
        claim["spec"]["volumeName"] = volume
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        claim["status"] = {"phase": "Bound"}
    return claim
