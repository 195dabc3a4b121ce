"""Random objects other than nodes and pods (see `generate_sequence`)."""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.generate_terms import label_selector, namespaces
from kubesched.lab.conformance.generate_volumes import volumes
from kubesched.lab.conformance.sequences import Json, named

PRIORITIES = ("low", "middle", "high", "high-but-polite")
NAMESPACES = ("default", "other", "third")


def initial_objects(random: Random) -> list[Json]:
    """The objects that exist before the first node."""
    return [
        *(named("v1", "Namespace", name, labels=labels) for name, labels in namespaces().items()),
        *priority_classes(),
        *_budgets(random),
        *(workload for namespace in NAMESPACES for workload in _workloads(random, namespace)),
        *volumes(random, NAMESPACES),
    ]


# -- priorities ------------------------------------------------------------------------------------


def priority_classes() -> list[Json]:
    values = {"low": -10, "middle": 10, "high": 1000, "high-but-polite": 1000}
    made = []
    for name, value in values.items():
        made.append({**named("scheduling.k8s.io/v1", "PriorityClass", name), "value": value})
        if name == "high-but-polite":
            made[-1]["preemptionPolicy"] = "Never"
    return made


def _budgets(random: Random) -> list[Json]:
    """Disruption budgets. No controller updates their status, so it stays as generated."""
    return [
        {
            **named("policy/v1", "PodDisruptionBudget", name, namespace),
            "spec": {"minAvailable": 1, "selector": label_selector(random)},
            "status": {
                "disruptionsAllowed": random.randint(0, 2),
                "currentHealthy": 1,
                "desiredHealthy": 1,
                "expectedPods": 1,
                "observedGeneration": 1,
                # Pods with a recently approved eviction do not count again.
                "disruptedPods": {
                    f"p{random.randint(0, 60):04}": "2026-01-01T00:00:00Z" for _ in range(6)
                },
            },
        }
        for namespace in NAMESPACES
        for name in ("budget", "budget-too")
        if random.randint(0, 1)
    ]


# -- workloads -------------------------------------------------------------------------------------


def _workloads(random: Random, namespace: str) -> list[Json]:
    made = []
    for number in range(random.randint(0, 2)):
        selector = random.choice(({"app": "web"}, {"app": "db", "tier": "back"}, {"tier": "front"}))
        service = named("v1", "Service", f"svc{number}", namespace)
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
        made.append({**named(api_version, kind, name, namespace), "spec": spec})
    return made
