"""Workload kinds that commands accept, by their kubectl names."""

from __future__ import annotations

KINDS = {
    "pod": "Pod",
    "deployment": "Deployment",
    "replicaset": "ReplicaSet",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
    "job": "Job",
}
_SHORT = {
    "po": "pod",
    "deploy": "deployment",
    "rs": "replicaset",
    "sts": "statefulset",
    "ds": "daemonset",
}


def workload_kind(word: str) -> str | None:
    """The kind for a word such as `deploy`, `deployments` or `deployment.apps`."""
    word = word.lower().partition(".")[0]
    return KINDS.get(_SHORT.get(word, word.removesuffix("s")))
