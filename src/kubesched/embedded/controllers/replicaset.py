"""ReplicaSets and ReplicationControllers: as many pods as asked for.

Both kinds work alike; `ReplicaKind` holds what differs. Pods that match and have no controller are
adopted, own pods that stopped matching are released, then the difference between wanted and active
pods is created or deleted, at most `BURST_REPLICAS` at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kubesched.embedded.controllers.controller import Controller, ControllerContext, settling_s
from kubesched.embedded.controllers.metadata import (
    controller_of,
    find_condition,
    is_deleting,
    key_of,
    labels_of,
    spec_of,
    status_of,
    with_condition,
    without_condition,
)
from kubesched.embedded.controllers.ownership import (
    BY_NAMESPACE,
    Dependents,
    SelectorOf,
    concerned_owners,
    index_by_namespace,
    selector_of,
)
from kubesched.embedded.controllers.pod_control import PodControl, pod_from_template
from kubesched.embedded.controllers.pods import (
    deletion_order,
    is_active,
    is_available,
    is_ready,
    is_terminating,
    next_availability_s,
)
from kubesched.embedded.controllers.status_writes import without_zeros, write_status
from kubesched.embedded.objects import JsonObject
from kubesched.errors import ApiError

BURST_REPLICAS = 100
"""Pods created or deleted in one go, some 20 ms of work. The rest follows at once, but in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """What tells the two kinds apart."""

    kind: str
    group: str
    resource: str
    component: str
    selector: SelectorOf
    counts_terminating: bool


def _plain_selector(controller: JsonObject) -> JsonObject | None:
    """A ReplicationController's label map; an empty one selects nothing."""
    labels = spec_of(controller).get("selector")
    return {"matchLabels": labels} if labels else None


REPLICA_SET = ReplicaKind(
    kind="ReplicaSet",
    group="apps",
    resource="replicasets.apps",
    component="replicaset-controller",
    selector=selector_of,
    counts_terminating=True,
)
REPLICATION_CONTROLLER = ReplicaKind(
    kind="ReplicationController",
    group="",
    resource="replicationcontrollers",
    component="replication-controller",
    selector=_plain_selector,
    counts_terminating=False,
)


class ReplicaSetController(Controller[str]):
    """Keeps the pods of every ReplicaSet at the wanted number."""

    name: ClassVar[str] = "replicaset"
    flavour: ClassVar[ReplicaKind] = REPLICA_SET

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._sets = self.informers.informer(self.flavour.resource)
        self._sets.add_index(BY_NAMESPACE, index_by_namespace)
        self._sets.add_handler(lambda kind, obj, old: self.queue.add(key_of(obj)))
        self._siblings = Dependents(self.api, self._sets)
        pods = self.informers.informer("pods")
        pods.add_handler(self._pod_changed)
        self._pods = Dependents(self.api, pods)
        self._pod_control = PodControl(context, self.flavour.component)

    def sync(self, key: str) -> float | None:
        replica_set = self._sets.get(key)
        if replica_set is None:
            return None
        pods = self._pods.claim(replica_set, self.flavour.selector(replica_set))
        failure: ApiError | None = None
        unfinished = False
        if not is_deleting(replica_set):
            try:
                unfinished = self._manage([pod for pod in pods if is_active(pod)], replica_set)
            except ApiError as error:
                failure = error
        # The writes above changed the pods; count what is there now.
        pods = self._pods.of(replica_set)
        current = self._sets.get(key)
        if current is not None:
            write_status(
                self.api, self.flavour.resource, current, self._status(current, pods, failure)
            )
        if failure is not None:
            raise failure
        if unfinished:
            return 0.0
        return next_availability_s(pods, self._min_ready_s(replica_set), self.clock.now())

    def _manage(self, active: list[JsonObject], replica_set: JsonObject) -> bool:
        """Create or delete the difference; returns whether some of it is left for the next turn."""
        wanted = int(spec_of(replica_set).get("replicas", 1))
        surplus = len(active) - wanted
        if surplus < 0:
            # Stopping at the first failure keeps a refused template from being tried 500 times.
            for _ in range(min(-surplus, BURST_REPLICAS)):
                template = spec_of(replica_set).get("template") or {}
                self._pod_control.create(pod_from_template(template, replica_set), replica_set)
        elif surplus > 0:
            ordered = deletion_order(active, self._related_pods(replica_set), self.clock.now())
            for pod in ordered[: min(surplus, BURST_REPLICAS)]:
                self._pod_control.delete(pod, replica_set)
        return abs(surplus) > BURST_REPLICAS

    def _related_pods(self, replica_set: JsonObject) -> list[JsonObject]:
        """Pods of all ReplicaSets under the same Deployment: they make a node crowded together."""
        owner = controller_of(replica_set)
        siblings = self._siblings.of_uid(owner["uid"]) if owner else [replica_set]
        return [pod for each in siblings for pod in self._pods.of(each)]

    def _status(
        self, replica_set: JsonObject, pods: list[JsonObject], failure: ApiError | None
    ) -> JsonObject:
        now = self.clock.now()
        active = [pod for pod in pods if is_active(pod)]
        ready = [pod for pod in active if is_ready(pod)]
        min_ready_s = self._min_ready_s(replica_set)
        template = spec_of(replica_set).get("template") or {}
        template_labels = (template.get("metadata") or {}).get("labels") or {}
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(
                template_labels.items() <= labels_of(pod).items() for pod in active
            ),
            "readyReplicas": len(ready),
            "availableReplicas": sum(is_available(pod, min_ready_s, now) for pod in ready),
            "observedGeneration": replica_set["metadata"].get("generation", 0),
            "conditions": self._conditions(replica_set, len(active), failure, now),
        }
        status = without_zeros(status, "replicas")
        if self.flavour.counts_terminating:
            status["terminatingReplicas"] = sum(is_terminating(pod) for pod in pods)
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

    @staticmethod
    def _min_ready_s(replica_set: JsonObject) -> int:
        return int(spec_of(replica_set).get("minReadySeconds") or 0)

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        flavour = self.flavour
        owner = controller_of(pod)
        pause_s = settling_s(self._pods.count(owner.get("uid", ""))) if owner is not None else 0.0
        for key in concerned_owners(
            flavour.kind, flavour.group, self._sets, pod, old, flavour.selector
        ):
            self.queue.add_after(key, pause_s)


class ReplicationControllerController(ReplicaSetController):
    """The same for ReplicationControllers."""

    name: ClassVar[str] = "replication"
    flavour: ClassVar[ReplicaKind] = REPLICATION_CONTROLLER
