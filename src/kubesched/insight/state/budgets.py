"""Disruption budgets during a plan: refused evictions, and budget status as pods leave and arrive.

Eviction rules and budget arithmetic are the embedded cluster's. The status that a disruption
controller would write is kept current in the cluster, where preemption also reads it: the healthy
count falls with every pod that leaves and rises with every pod that is placed. The desired healthy
count stays as in the state, or is computed for budgets without a status.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from kubesched.api import codec
from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import Pod
from kubesched.api.meta import OwnerReference
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.selectors import from_label_selector
from kubesched.base.errors import ApiError
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.playground.controllers.disruption import (
    disruptions_allowed,
    expectations,
)
from kubesched.playground.registry.eviction import is_charged


class Budgets:
    """The cluster's budgets."""

    def __init__(self, world: PlannedCluster) -> None:
        self._world = world
        self.observe()

    def observe(self) -> None:
        """Write the status of budgets that have none yet."""
        for budget in self._all():
            if not budget.status.observed_generation and not budget.status.expected_pods:
                self._put(self._observed(budget))

    def refusal(self, pod: Pod) -> str:
        """Why the pod cannot be evicted now; empty if it can."""
        budgets = [codec.to_json(budget) for budget in self._of(pod)]
        try:
            is_charged(codec.to_json(pod), budgets)
        except ApiError as error:
            details = error.details if isinstance(error.details, dict) else {}
            causes = [cause["message"] for cause in details.get("causes") or ()]
            return causes[0] if causes else error.message
        return ""

    def pod_left(self, pod: Pod) -> None:
        if _is_ready(pod):
            self._change(pod, -1)

    def pod_came(self, pod: Pod) -> None:
        self._change(pod, 1)

    def _change(self, pod: Pod, by: int) -> None:
        for budget in self._of(pod):
            healthy = max(0, budget.status.current_healthy + by)
            self._put(_with_health(budget, healthy))

    def _all(self) -> list[PodDisruptionBudget]:
        return self._world.objects(PodDisruptionBudget)

    def _of(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that select the pod; not cached, since a plan asks for hundreds of pods."""
        return [
            budget
            for budget in self._all()
            if budget.metadata.namespace == pod.metadata.namespace and _selects(budget, pod)
        ]

    def _put(self, budget: PodDisruptionBudget) -> None:
        self._world.put(budget)

    def _observed(self, budget: PodDisruptionBudget) -> PodDisruptionBudget:
        """The status that a disruption controller would write."""
        pods = [
            pod
            for pod in self._world.objects(Pod)
            if pod.metadata.namespace == budget.metadata.namespace and _selects(budget, pod)
        ]
        spec = budget.spec
        expected, desired = expectations(
            spec.min_available, spec.max_unavailable, len(pods), lambda: self._scale(pods)
        )
        status = structs.replace(
            budget.status,
            observed_generation=budget.metadata.generation,
            expected_pods=expected,
            desired_healthy=desired,
        )
        healthy = sum(_is_ready(pod) for pod in pods)
        return _with_health(structs.replace(budget, status=status), healthy)

    def _scale(self, pods: Iterable[Pod]) -> int:
        """Replicas wanted by the pods' controllers; pods of an unknown controller count instead."""
        counts: dict[str, int] = {}
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = next((o for o in pod.metadata.owner_references or () if o.controller), None)
            if owner is None:
                continue
            counts[owner.uid] = counts.get(owner.uid, 0) + 1
            replicas = self._wanted_by(owner, pod.metadata.namespace)
            if replicas is not None:
                wanted[owner.uid] = replicas
        return sum(wanted.get(uid, count) for uid, count in counts.items())

    def _wanted_by(self, owner: OwnerReference, namespace: str) -> int | None:
        kinds: dict[str, type[ReplicaSet | StatefulSet]] = {
            "ReplicaSet": ReplicaSet,
            "StatefulSet": StatefulSet,
        }
        kind = kinds.get(owner.kind)
        workload = self._world.find(kind, namespace, owner.name) if kind is not None else None
        if workload is None:
            return None
        return 1 if workload.spec.replicas is None else workload.spec.replicas


def _with_health(budget: PodDisruptionBudget, healthy: int) -> PodDisruptionBudget:
    status = budget.status
    allowed = disruptions_allowed(status.expected_pods, status.desired_healthy, healthy)
    changed = structs.replace(
        status, current_healthy=healthy, disruptions_allowed=allowed, disrupted_pods=None
    )
    return structs.replace(budget, status=changed)


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    return from_label_selector(budget.spec.selector).matches(pod.metadata.labels)


def _is_ready(pod: Pod) -> bool:
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in pod.status.conditions or ()
    )
