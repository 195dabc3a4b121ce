"""Revisions of a Deployment: the template and number of each ReplicaSet.

A ReplicaSet belongs to the current template if its own is equal except for the hash label. Numbers
only increase; a rollback renumbers the old ReplicaSet; its history annotation keeps the old number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    controller_reference,
    name_of,
    namespace_of,
    spec_of,
    status_of,
)
from kubesched.playground.controllers.controller_revisions import (
    POD_TEMPLATE_HASH,
    compute_hash,
    same_template,
    with_label,
)
from kubesched.playground.controllers.deployment.strategy import Bounds, Size
from kubesched.playground.controllers.pods import min_ready_s_of

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"

HISTORY_LIMIT_CHARS = 2000
_NAME_LIMIT = 253

_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        REVISION_HISTORY,
        DESIRED_REPLICAS,
        MAX_REPLICAS,
    }
)


def by_age(replica_sets: Sequence[JsonObject]) -> list[JsonObject]:
    """The ReplicaSets, oldest first, by name among those created in the same second."""
    return sorted(
        replica_sets,
        key=lambda obj: (obj["metadata"].get("creationTimestamp", ""), name_of(obj)),
    )


def find_new(deployment: JsonObject, replica_sets: Sequence[JsonObject]) -> JsonObject | None:
    """The ReplicaSet of the current template. Upstream: the oldest, if there are several."""
    template = spec_of(deployment).get("template") or {}
    for replica_set in by_age(replica_sets):
        if same_template(spec_of(replica_set).get("template") or {}, template):
            return replica_set
    return None


def revision_of(replica_set: JsonObject) -> int:
    text = annotations_of(replica_set).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def by_revision(replica_sets: Sequence[JsonObject]) -> list[JsonObject]:
    return sorted(by_age(replica_sets), key=revision_of)


def next_revision(old: Sequence[JsonObject]) -> int:
    return max((revision_of(replica_set) for replica_set in old), default=0) + 1


def replicas_of(replica_set: JsonObject) -> int:
    return int(spec_of(replica_set).get("replicas", 1))


def size_of(replica_set: JsonObject, age_rank: int, deployment: JsonObject) -> Size:
    """The sizes of a ReplicaSet, as input for `strategy`."""
    before = annotations_of(replica_set).get(MAX_REPLICAS, "")
    fallback = int(status_of(deployment).get("replicas", 0))
    return Size(
        name=name_of(replica_set),
        replicas=replicas_of(replica_set),
        available=int(status_of(replica_set).get("availableReplicas", 0)),
        age_rank=age_rank,
        max_replicas_before=(int(before) if before.isdecimal() else 0) or fallback or None,
        wanted_before=desired_replicas(replica_set),
    )


def desired_replicas(replica_set: JsonObject) -> int | None:
    """The Deployment's size when this ReplicaSet was last sized."""
    text = annotations_of(replica_set).get(DESIRED_REPLICAS, "")
    return int(text) if text.isdecimal() else None


def size_annotations(bounds: Bounds) -> dict[str, str]:
    return {DESIRED_REPLICAS: str(bounds.wanted), MAX_REPLICAS: str(bounds.most)}


def build_replica_set(
    deployment: JsonObject, replicas: int, revision: int, bounds: Bounds
) -> JsonObject:
    """The ReplicaSet for the current template."""
    spec = spec_of(deployment)
    template = spec.get("template") or {}
    template_hash = compute_hash(template, int(status_of(deployment).get("collisionCount") or 0))
    template = with_label(template, POD_TEMPLATE_HASH, template_hash)
    selector = spec.get("selector") or {}
    name = name_of(deployment)[: _NAME_LIMIT - 1 - len(template_hash)]
    new_spec: dict[str, Any] = {
        "replicas": replicas,
        "selector": {
            **selector,
            "matchLabels": {
                **(selector.get("matchLabels") or {}),
                POD_TEMPLATE_HASH: template_hash,
            },
        },
        "template": template,
    }
    if spec.get("minReadySeconds"):
        new_spec["minReadySeconds"] = spec["minReadySeconds"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name}-{template_hash}",
            "namespace": namespace_of(deployment),
            "ownerReferences": [controller_reference(deployment)],
            "labels": template["metadata"]["labels"],
            "annotations": {
                **_copied_annotations(deployment),
                REVISION: str(revision),
                **size_annotations(bounds),
            },
        },
        "spec": new_spec,
    }


def renewal_patch(deployment: JsonObject, new: JsonObject, revision: int) -> JsonObject | None:
    """Patch that aligns the current ReplicaSet with the Deployment; None if none is needed."""
    known = annotations_of(new)
    annotations = {
        key: value
        for key, value in _copied_annotations(deployment).items()
        if known.get(key) != value
    }
    if revision_of(new) < revision:
        annotations[REVISION] = str(revision)
        if REVISION in known:
            annotations[REVISION_HISTORY] = _history(known)
    patch: JsonObject = {}
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    min_ready_s = min_ready_s_of(deployment)
    if min_ready_s_of(new) != min_ready_s:
        patch["spec"] = {"minReadySeconds": min_ready_s}
    return patch or None


def _copied_annotations(deployment: JsonObject) -> dict[str, str]:
    return {
        key: value for key, value in annotations_of(deployment).items() if key not in _NOT_COPIED
    }


def _history(annotations: dict[str, str]) -> str:
    """Past revisions; the oldest are dropped once the text would exceed its limit."""
    revisions = [item for item in annotations.get(REVISION_HISTORY, "").split(",") if item]
    revisions.append(annotations[REVISION])
    while len(",".join(revisions)) > HISTORY_LIMIT_CHARS:
        revisions.pop(0)
    return ",".join(revisions)
