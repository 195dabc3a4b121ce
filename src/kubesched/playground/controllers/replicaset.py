"""ReplicaSets and ReplicationControllers: maintain the requested number of pods.

Both kinds work alike: matching pods without a controller are adopted, own pods that stopped
matching are released, then the difference between desired and active pods is created or deleted, at
most `BURST_REPLICAS` at a time. Counts come from the `ReplicaTally`; individual pods are visited
only to adopt, release, delete or time them.
"""

from __future__ import annotations

from typing import ClassVar

from kubesched.base.errors import ApiError
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_of,
    find_condition,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
    with_condition,
    without_condition,
    without_zeros,
)
from kubesched.playground.apimachinery.pods import is_active
from kubesched.playground.apimachinery.selectors import selector_matches
from kubesched.playground.client.controller import ControllerContext
from kubesched.playground.controllers.ownership import (
    Dependents,
    OwnerController,
)
from kubesched.playground.controllers.pods import (
    PodControl,
    PodCounts,
    count_pods,
    deletion_order,
    min_ready_s_of,
    pod_from_template,
)
from kubesched.playground.controllers.replica_tally import ReplicaTally

BURST_REPLICAS = 50
"""Pods created or deleted per sync, about 20 ms of work. The rest is requeued immediately."""


class ReplicaSetController(OwnerController):
    """Keeps every ReplicaSet at its desired number of pods."""

    name = "replicaset"
    resource = "replicasets.apps"
    kind = "ReplicaSet"
    component = "replicaset-controller"
    counts_terminating: ClassVar[bool] = True

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._tally = self.informers.informer("pods").derive(ReplicaTally)
        self._siblings = Dependents(self.api, self.owners)
        self._pod_control = PodControl(self)
        self._reported: dict[str, JsonObject] = {}  # the last status written, by key

    def sync(self, key: str) -> float | None:
        replica_set = self.owners.get(key)
        if replica_set is None:
            self._reported.pop(key, None)
            return None
        if self._may_claim(replica_set):
            self.dependents.claim(replica_set, self.selector(replica_set))
        counts = self._count(replica_set)
        failure: ApiError | None = None
        surplus = counts.active - int(spec_of(replica_set).get("replicas", 1))
        if surplus and not is_deleting(replica_set):
            try:
                self._manage(surplus, replica_set)
            except ApiError as error:
                failure = error
            else:
                if abs(surplus) > BURST_REPLICAS:
                    return 0.0  # more to do: the last sync writes the status
            counts = self._count(replica_set)
        current = self.owners.get(key)
        if current is not None:
            status = self._reported[key] = self._status(current, counts, failure)
            self.api.write_status(self.resource, current, status)
        if failure is not None:
            raise failure
        return counts.next_available_s

    def _may_claim(self, replica_set: JsonObject) -> bool:
        """Whether there are pods to adopt or release."""
        if is_deleting(replica_set):
            return False
        selector = self.selector(replica_set)
        return bool(self.dependents.orphans(namespace_of(replica_set), selector)) or not all(
            selector_matches(selector, dict(labels))
            for labels in self._tally.label_sets(uid_of(replica_set))
        )

    def _manage(self, surplus: int, replica_set: JsonObject) -> None:
        """Create or delete the difference, at most `BURST_REPLICAS` pods."""
        if surplus < 0:
            # Stops at the first failure, so that a rejected template is not retried for every pod.
            pod = pod_from_template(spec_of(replica_set).get("template") or {}, replica_set)
            for _ in range(min(-surplus, BURST_REPLICAS)):
                self._pod_control.create(pod, replica_set)
            return
        active = [pod for pod in self._selected(replica_set) if is_active(pod)]
        ordered = deletion_order(active, self._related_pods(replica_set), self.clock.now())
        for pod in ordered[: min(surplus, BURST_REPLICAS)]:
            self._pod_control.delete(pod, replica_set)

    def _selected(self, replica_set: JsonObject) -> list[JsonObject]:
        """The set's own pods that match its selector."""
        selector = self.selector(replica_set)
        return [
            pod
            for pod in self.dependents.of(replica_set)
            if selector_matches(selector, labels_of(pod))
        ]

    def _count(self, replica_set: JsonObject) -> PodCounts:
        template = spec_of(replica_set).get("template") or {}
        template_labels = (template.get("metadata") or {}).get("labels") or {}
        min_ready_s = min_ready_s_of(replica_set)
        if min_ready_s:  # availability depends on each pod's ready time
            pods = self._selected(replica_set)
            return count_pods(pods, template_labels, min_ready_s, self.clock.now())
        selector = self.selector(replica_set)
        return self._tally.count(
            uid_of(replica_set),
            template_labels,
            lambda labels: selector_matches(selector, dict(labels)),
        )

    def _related_pods(self, replica_set: JsonObject) -> list[JsonObject]:
        """Pods of all ReplicaSets of the same Deployment, counted together for node crowding."""
        owner = controller_of(replica_set)
        siblings = self._siblings.of_uid(owner["uid"]) if owner else [replica_set]
        return [pod for sibling in siblings for pod in self.dependents.of(sibling)]

    def _status(
        self, replica_set: JsonObject, counts: PodCounts, failure: ApiError | None
    ) -> JsonObject:
        status = {
            "replicas": counts.active,
            "fullyLabeledReplicas": counts.labeled,
            "readyReplicas": counts.ready,
            "availableReplicas": counts.available,
            "observedGeneration": replica_set["metadata"].get("generation", 0),
            "conditions": self._conditions(replica_set, counts.active, failure, self.clock.now()),
        }
        status = without_zeros(status, "replicas")
        if self.counts_terminating:
            status["terminatingReplicas"] = counts.terminating
        return status

    @staticmethod
    def _conditions(
        replica_set: JsonObject, active_count: int, failure: ApiError | None, now: float
    ) -> list[JsonObject]:
        conditions: list[JsonObject] = status_of(replica_set).get("conditions") or []
        known = find_condition(conditions, "ReplicaFailure")
        if failure is None:
            return without_condition(conditions, "ReplicaFailure") if known else conditions
        if known is not None:
            return conditions  # Upstream: the first failure stays until all is well again.
        wanted = int(spec_of(replica_set).get("replicas", 1))
        reason = "FailedCreate" if active_count < wanted else "FailedDelete"
        return with_condition(
            conditions, "ReplicaFailure", "True", now, reason=reason, message=str(failure)
        )

    def owner_changed(self, kind: str, owner: JsonObject, old: JsonObject | None) -> None:
        # Ignore the controller's own status writes; a status written by others must be repaired.
        key = key_of(owner)
        if (
            old is None
            or kind == "DELETED"
            or spec_of(old) != spec_of(owner)
            or _without_version(old) != _without_version(owner)
            or status_of(owner) != self._reported.get(key)
        ):
            self.queue.add(key)


def _without_version(obj: JsonObject) -> JsonObject:
    return {**obj["metadata"], "resourceVersion": None}


class ReplicationControllerController(ReplicaSetController):
    """The same controller for ReplicationControllers."""

    name = "replication"
    resource = "replicationcontrollers"
    kind = "ReplicationController"
    group = ""
    component = "replication-controller"
    counts_terminating = False

    def selector(self, owner: JsonObject) -> JsonObject | None:
        """The label map in `spec.selector`; an empty one selects nothing."""
        labels = spec_of(owner).get("selector")
        return {"matchLabels": labels} if labels else None
