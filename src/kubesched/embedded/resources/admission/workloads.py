"""Admission of workloads and disruption budgets: their first status, and the selector of jobs."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.registry.rest_storage import RestStorage


def admit_job(registry: RestStorage, obj: JsonObject) -> None:
    """A job finds its pods by its own uid, unless the user insists on a selector."""
    obj["status"] = {}
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    template = spec.get("template")
    if template is None:
        return
    uid, name = metadata["uid"], metadata["name"]
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    before = dict(labels)
    labels["batch.kubernetes.io/controller-uid"] = labels["controller-uid"] = uid
    labels["batch.kubernetes.io/job-name"] = labels["job-name"] = name
    # Upstream: labels that were defaulted from the template are one map with the template's.
    if metadata.get("labels") is None or metadata["labels"] == before:
        metadata["labels"] = dict(labels)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {})["batch.kubernetes.io/controller-uid"] = uid


def admit_pod_disruption_budget(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    }


def admit_workload(registry: RestStorage, obj: JsonObject) -> None:
    """A workload that has done nothing yet says so."""
    obj["status"] = dict(_FIRST_STATUS.get(obj["kind"], {}))


_FIRST_STATUS: dict[str, JsonObject] = {
    "DaemonSet": {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    "ReplicaSet": {"replicas": 0},
    "ReplicationController": {"replicas": 0},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
}
