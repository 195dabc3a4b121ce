"""Pods of controllers: creation, deletion, availability, and which pod to delete first."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubesched.base.errors import ApiError
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    controller_reference,
    copy_json,
    name_of,
    namespace_of,
    parse_timestamp,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import (
    is_active,
    is_finished,
    is_ready,
    node_name_of,
    phase_of,
    ready_since,
)
from kubesched.playground.client.controller import Controller

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


def available_in_s(pod: JsonObject, min_ready_s: int, now: float) -> float | None:
    """Seconds until the pod is available (0.0 if it is); None while it is not ready."""
    since = ready_since(pod)
    if since is None:
        return None
    return max(0.0, since + min_ready_s - now) if min_ready_s else 0.0


def min_ready_s_of(owner: JsonObject) -> int:
    return int(spec_of(owner).get("minReadySeconds") or 0)


def is_available(pod: JsonObject, min_ready_s: int, now: float) -> bool:
    return available_in_s(pod, min_ready_s, now) == 0.0


def next_availability_s(pods: Sequence[JsonObject], min_ready_s: int, now: float) -> float | None:
    """Seconds until the next ready pod becomes available; None if there is none."""
    waits = [wait for pod in pods if (wait := available_in_s(pod, min_ready_s, now))]
    return min(waits, default=None)


@dataclass(slots=True)
class PodCounts:
    """Pod counts of one set."""

    active: int = 0
    labeled: int = 0
    """Active pods that have all labels of the template."""
    ready: int = 0
    available: int = 0
    terminating: int = 0
    next_available_s: float | None = None
    """Seconds until another ready pod becomes available."""


def count_pods(
    pods: Iterable[JsonObject], template_labels: Mapping[str, str], min_ready_s: int, now: float
) -> PodCounts:
    """Count in one pass: sets of thousands of pods are counted several times a second."""
    counts = PodCounts()
    wanted_labels = template_labels.items()
    for pod in pods:
        if is_finished(pod):
            continue
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            counts.terminating += 1
            continue
        counts.active += 1
        counts.labeled += wanted_labels <= (metadata.get("labels") or {}).items()
        if not is_ready(pod):
            continue
        counts.ready += 1
        wait_s = available_in_s(pod, min_ready_s, now) if min_ready_s else 0.0
        if not wait_s:
            counts.available += 1
        elif counts.next_available_s is None or wait_s < counts.next_available_s:
            counts.next_available_s = wait_s
    return counts


def deletion_order(
    pods: Sequence[JsonObject], related: Sequence[JsonObject], now: float
) -> list[JsonObject]:
    """The pods in order of deletion.

    Upstream's order: unassigned, by phase, not ready, low deletion cost, crowded node, ready for
    the shorter time, more restarts, younger. Times are compared by magnitude, and equal ones by
    uid, which amounts to a random choice. `related` are the pods counted for crowding: those of the
    same application, from any of its ReplicaSets.
    """
    crowd: dict[str, int] = {}
    for pod in related:
        if is_active(pod):
            crowd[node_name_of(pod)] = crowd.get(node_name_of(pod), 0) + 1

    def compare(first: JsonObject, second: JsonObject) -> int:
        return _compare(first, second, crowd, now)

    return sorted(pods, key=functools.cmp_to_key(compare))


def _compare(first: JsonObject, second: JsonObject, crowd: dict[str, int], now: float) -> int:
    """Negative if `first` is to be deleted before `second`."""
    for difference in (
        bool(node_name_of(first)) - bool(node_name_of(second)),
        _PHASE_ORDER.get(phase_of(first), 0) - _PHASE_ORDER.get(phase_of(second), 0),
        is_ready(first) - is_ready(second),
        _deletion_cost(first) - _deletion_cost(second),
        crowd.get(node_name_of(second), 0) - crowd.get(node_name_of(first), 0),
    ):
        if difference:
            return difference
    return (
        _compare_ages(ready_since(first), ready_since(second), first, second, now)
        or _compare_restarts(first, second)
        or _compare_ages(_created_at(first), _created_at(second), first, second, now)
    )


def _compare_ages(
    first: float | None,
    second: float | None,
    first_pod: JsonObject,
    second_pod: JsonObject,
    now: float,
) -> int:
    if first is None or second is None or first == second:
        return 0
    difference = _magnitude(now - first) - _magnitude(now - second)
    if difference == 0:
        return -1 if uid_of(first_pod) < uid_of(second_pod) else 1
    return difference


def _compare_restarts(first: JsonObject, second: JsonObject) -> int:
    regular = _max_restarts(second, "containerStatuses") - _max_restarts(first, "containerStatuses")
    return regular or _max_restarts(second, "initContainerStatuses") - _max_restarts(
        first, "initContainerStatuses"
    )


def _max_restarts(pod: JsonObject, field: str) -> int:
    statuses = status_of(pod).get(field) or ()
    if field == "initContainerStatuses":
        sidecars = {
            container["name"]
            for container in spec_of(pod).get("initContainers") or ()
            if container.get("restartPolicy") == "Always"
        }
        statuses = [status for status in statuses if status.get("name") in sidecars]
    return max((int(status.get("restartCount", 0)) for status in statuses), default=0)


def _magnitude(age_s: float) -> int:
    # Upstream: the logarithm is of nanoseconds.
    return int(math.log2(age_s * 1e9)) if age_s > 0 else -1


def _created_at(pod: JsonObject) -> float | None:
    created = pod["metadata"].get("creationTimestamp")
    return parse_timestamp(created) if created else None


def _deletion_cost(pod: JsonObject) -> int:
    text = annotations_of(pod).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0  # Upstream: a cost that is not a number counts as none.


def pod_from_template(template: JsonObject, owner: JsonObject) -> JsonObject:
    """A pod built from the template and owned by `owner`; the server generates its name."""
    template_metadata = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "generateName": f"{name_of(owner)}-",
        "namespace": namespace_of(owner),
        "ownerReferences": [controller_reference(owner)],
    }
    for field in ("labels", "annotations", "finalizers"):
        if template_metadata.get(field):
            metadata[field] = copy_json(template_metadata[field])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": copy_json(template.get("spec") or {}),
    }


class PodControl:
    """Creates and deletes pods for one kind of owner."""

    def __init__(self, controller: Controller[Any]) -> None:
        self._controller = controller

    def create(self, pod: JsonObject, owner: JsonObject) -> JsonObject:
        """Create the pod; a failure is recorded as an event on the owner and raised."""
        try:
            created = self._controller.api.create("pods", pod, namespace_of(owner))
        except ApiError as error:
            self._controller.warning(owner, "FailedCreate", f"Error creating: {error}")
            raise
        self._controller.normal(owner, "SuccessfulCreate", f"Created pod: {name_of(created)}")
        return created

    def delete(self, pod: JsonObject, owner: JsonObject) -> None:
        """Delete the pod gracefully; ignores pods that no longer exist."""
        try:
            is_deleted = self._controller.api.delete_object("pods", pod)
        except ApiError as error:
            self._controller.warning(owner, "FailedDelete", f"Error deleting: {error}")
            raise
        if is_deleted:
            self._controller.normal(owner, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
