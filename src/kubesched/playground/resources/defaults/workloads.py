"""Defaults of workload kinds."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.resources.defaults.cluster import fill
from kubesched.playground.resources.defaults.pods import default_pod_template

_CLAIM_TEMPLATE: JsonObject = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "spec": {"volumeMode": "Filesystem"},
    "status": {"phase": "Pending"},
}


def _spec(obj: JsonObject) -> JsonObject:
    spec: JsonObject = obj.setdefault("spec", {})
    if "template" in spec:
        default_pod_template(spec["template"])
    return spec


def default_deployment(obj: JsonObject) -> None:
    counts = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    spec = fill(_spec(obj), counts)
    _strategy(spec.setdefault("strategy", {}), {"maxUnavailable": "25%", "maxSurge": "25%"})


def _strategy(strategy: JsonObject, rolling: JsonObject) -> None:
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        fill(strategy.setdefault("rollingUpdate", {}), rolling)


def default_replica_set(obj: JsonObject) -> None:
    _spec(obj).setdefault("replicas", 1)


def default_replication_controller(obj: JsonObject) -> None:
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)


def default_stateful_set(obj: JsonObject) -> None:
    spec = fill(
        _spec(obj),
        {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"},
    )
    _strategy(spec.setdefault("updateStrategy", {}), {"partition": 0})
    retention = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    fill(spec, {"persistentVolumeClaimRetentionPolicy": retention})
    for claim in spec.get("volumeClaimTemplates") or ():
        fill(claim, _CLAIM_TEMPLATE)


def default_daemon_set(obj: JsonObject) -> None:
    spec = fill(_spec(obj), {"revisionHistoryLimit": 10})
    _strategy(spec.setdefault("updateStrategy", {}), {"maxUnavailable": 1, "maxSurge": 0})


def default_job(obj: JsonObject) -> None:
    spec = _spec(obj)
    # Upstream: with neither given a job runs one pod; with only parallelism it is a work queue.
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2147483647 if "backoffLimitPerIndex" in spec else 6)
    fill(spec, {"completionMode": "NonIndexed", "suspend": False, "manualSelector": False})
    replacement = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replacement)
    if not obj["metadata"].get("labels"):
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if labels:
            obj["metadata"]["labels"] = dict(labels)
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")


def default_cron_job(obj: JsonObject) -> None:
    limits = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
    spec = obj.setdefault("spec", {})
    fill(spec, {"concurrencyPolicy": "Allow", "suspend": False, **limits})
    template = ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template")
    if template is not None:
        default_pod_template(template)
