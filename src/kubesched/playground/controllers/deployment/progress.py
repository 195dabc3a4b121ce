"""A Deployment's status: counts, and the conditions Available, Progressing and ReplicaFailure.

`kubectl rollout status` waits for `observedGeneration`, then for the counts; `kubectl wait
--for=condition=Available` reads the conditions. Reasons and messages are upstream's.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    find_condition,
    name_of,
    parse_timestamp,
    spec_of,
    status_of,
    timestamp,
    without_condition,
    without_zeros,
)
from kubesched.playground.controllers.deployment.strategy import Bounds

PROGRESSING = "Progressing"
AVAILABLE = "Available"
REPLICA_FAILURE = "ReplicaFailure"

NEW_REPLICA_SET_AVAILABLE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"

_NO_DEADLINE = 2**31 - 1


def progress_deadline_s(deployment: JsonObject) -> int | None:
    """How long a rollout may make no progress; None for no limit."""
    deadline = spec_of(deployment).get("progressDeadlineSeconds")
    return None if deadline is None or deadline == _NO_DEADLINE else int(deadline)


def set_condition(
    conditions: list[JsonObject],
    condition_type: str,
    status: str,
    reason: str,
    message: str,
    now: float,
) -> list[JsonObject]:
    """The conditions with one set; unchanged if it already has this status and reason."""
    known = find_condition(conditions, condition_type)
    if known is not None and known.get("status") == status and known.get("reason") == reason:
        return conditions
    transition = timestamp(now)
    if known is not None and known.get("status") == status:
        transition = known.get("lastTransitionTime", transition)
    entry = {
        "type": condition_type,
        "status": status,
        "lastUpdateTime": timestamp(now),
        "lastTransitionTime": transition,
        "reason": reason,
        "message": message,
    }
    return [*without_condition(conditions, condition_type), entry]


def build_status(
    deployment: JsonObject,
    replica_sets: Sequence[JsonObject],
    new: JsonObject | None,
    bounds: Bounds,
    now: float,
) -> JsonObject:
    """Status with updated counts and Available; the other conditions are kept."""
    wanted_total = sum(int(spec_of(replica_set).get("replicas", 1)) for replica_set in replica_sets)
    available = _total(replica_sets, "availableReplicas")
    conditions: list[JsonObject] = status_of(deployment).get("conditions") or []
    verdict = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    if available < bounds.min_available:
        message = "Deployment does not have minimum availability."
        verdict = ("False", "MinimumReplicasUnavailable", message)
    conditions = set_condition(conditions, AVAILABLE, *verdict, now)
    status = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": _total(replica_sets, "replicas"),
        "updatedReplicas": _total([new] if new is not None else [], "replicas"),
        "readyReplicas": _total(replica_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted_total - available),
        "collisionCount": status_of(deployment).get("collisionCount"),
        "conditions": conditions,
    }
    status = without_zeros(status)
    status["terminatingReplicas"] = _total(replica_sets, "terminatingReplicas")
    return status


def with_progress(
    deployment: JsonObject,
    status: JsonObject,
    replica_sets: Sequence[JsonObject],
    new: JsonObject | None,
    now: float,
) -> JsonObject:
    """The status with Progressing and ReplicaFailure updated."""
    conditions: list[JsonObject] = status.get("conditions") or []
    known = find_condition(conditions, PROGRESSING)
    if progress_deadline_s(deployment) is None:
        conditions = without_condition(conditions, PROGRESSING)
    elif not _was_complete(known, status):
        conditions = _progress(deployment, status, conditions, new, now)
    failure = _replica_failure(replica_sets, new)
    if failure is None:
        conditions = without_condition(conditions, REPLICA_FAILURE)
    else:
        cause = (failure.get("reason", ""), failure.get("message", ""))
        conditions = set_condition(conditions, REPLICA_FAILURE, "True", *cause, now)
    return {**status, "conditions": conditions}


def is_complete(deployment: JsonObject, status: JsonObject) -> bool:
    """Whether all desired pods use the current template and are available, and no others remain."""
    wanted = int(spec_of(deployment).get("replicas", 1))
    return all(
        int(status.get(field, 0)) == wanted
        for field in ("updatedReplicas", "replicas", "availableReplicas")
    ) and int(status.get("observedGeneration", 0)) >= deployment["metadata"].get("generation", 0)


def next_check_s(deployment: JsonObject, status: JsonObject, now: float) -> float | None:
    """Seconds until the rollout may exceed its deadline; None if it cannot."""
    deadline_s = progress_deadline_s(deployment)
    known = find_condition(status.get("conditions"), PROGRESSING)
    if deadline_s is None or known is None or known.get("reason") == TIMED_OUT:
        return None
    if is_complete(deployment, status):
        return None
    # One extra second: timestamps have whole seconds, and "exceeded" means past the deadline.
    return max(0.0, parse_timestamp(known["lastUpdateTime"]) + deadline_s - now) + 1.0


def _was_complete(known: JsonObject | None, status: JsonObject) -> bool:
    """Whether the rollout completed earlier: pods that fail later do not restart it."""
    return (
        known is not None
        and known.get("reason") == NEW_REPLICA_SET_AVAILABLE
        and status.get("replicas", 0) == status.get("updatedReplicas", 0)
    )


def _progress(
    deployment: JsonObject,
    status: JsonObject,
    conditions: list[JsonObject],
    new: JsonObject | None,
    now: float,
) -> list[JsonObject]:
    subject = (
        f'ReplicaSet "{name_of(new)}"' if new is not None else f'Deployment "{name_of(deployment)}"'
    )
    if is_complete(deployment, status):
        done = (NEW_REPLICA_SET_AVAILABLE, f"{subject} has successfully progressed.")
        return set_condition(conditions, PROGRESSING, "True", *done, now)
    known = find_condition(conditions, PROGRESSING)
    if _made_progress(status_of(deployment), status):
        # Removing it first renews lastUpdateTime, where the deadline starts.
        others = without_condition(conditions, PROGRESSING)
        news = ("ReplicaSetUpdated", f"{subject} is progressing.")
        refreshed = set_condition(others, PROGRESSING, "True", *news, now)
        if known is not None and known.get("status") == "True":
            refreshed[-1]["lastTransitionTime"] = known.get("lastTransitionTime")
        return refreshed
    if _has_timed_out(deployment, known, now):
        late = (TIMED_OUT, f"{subject} has timed out progressing.")
        return set_condition(conditions, PROGRESSING, "False", *late, now)
    return conditions


def _made_progress(before: JsonObject, after: JsonObject) -> bool:
    def count(status: JsonObject, field: str) -> int:
        return int(status.get(field, 0))

    old_before = count(before, "replicas") - count(before, "updatedReplicas")
    old_after = count(after, "replicas") - count(after, "updatedReplicas")
    return old_after < old_before or any(
        count(after, field) > count(before, field)
        for field in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def _has_timed_out(deployment: JsonObject, known: JsonObject | None, now: float) -> bool:
    deadline_s = progress_deadline_s(deployment)
    if known is None or deadline_s is None or known.get("reason") == NEW_REPLICA_SET_AVAILABLE:
        return False
    if known.get("reason") == TIMED_OUT:
        return True
    return parse_timestamp(known["lastUpdateTime"]) + deadline_s < now


def _replica_failure(
    replica_sets: Sequence[JsonObject], new: JsonObject | None
) -> JsonObject | None:
    for item in (*([new] if new is not None else []), *replica_sets):
        failure = find_condition(status_of(item).get("conditions"), REPLICA_FAILURE)
        if failure is not None:
            return failure
    return None


def _total(replica_sets: Sequence[JsonObject], field: str) -> int:
    return sum(int(status_of(replica_set).get(field, 0)) for replica_set in replica_sets)
