"""The disruption controller: how many disruptions each PodDisruptionBudget currently allows.

Evictions read and charge the status that this controller writes. An evicted pod counts as gone
until it is deleted, or until two minutes have passed without its deletion.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.base.errors import ApiError, NotFound
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_of,
    is_deleting,
    is_percent,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    parse_timestamp,
    scaled_value,
    spec_of,
    status_of,
    uid_of,
    with_condition,
)
from kubesched.playground.apimachinery.pods import is_ready
from kubesched.playground.apimachinery.selectors import selector_matches
from kubesched.playground.client.controller import Controller, ControllerContext, settling_s
from kubesched.playground.client.informers import BY_NAMESPACE

RESOURCE = "poddisruptionbudgets.policy"
DELETION_TIMEOUT_S = 120.0
"""How long an evicted pod may stay before its disruption is returned to the budget."""

_SCALED_KINDS = {
    ("apps", "ReplicaSet"): "replicasets.apps",
    ("apps", "Deployment"): "deployments.apps",
    ("apps", "StatefulSet"): "statefulsets.apps",
    ("", "ReplicationController"): "replicationcontrollers",
}
IntOrPercent = int | str


class DisruptionController(Controller[str]):
    """Maintains the status of every budget."""

    name = "disruption"
    component = "controllermanager"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._budgets = self.watch(RESOURCE, self.add_key, BY_NAMESPACE)
        self._pods = self.watch("pods", self._pod_changed, BY_NAMESPACE)
        for resource in _SCALED_KINDS.values():
            self.watch(resource, self._owner_changed)

    def sync(self, key: str) -> float | None:
        budget = self._budgets.get(key)
        if budget is None:
            return None
        selector = spec_of(budget).get("selector")
        namespace_pods = self._pods.find(BY_NAMESPACE, namespace_of(budget))
        pods = [pod for pod in namespace_pods if selector_matches(selector, labels_of(pod))]
        if not pods:
            self.normal(budget, "NoPods", "No matching pods found")
        try:
            expected, desired = self._expectations(budget, pods)
        except ApiError as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self.warning(budget, "CalculateExpectedPodCountFailed", message)
            self._fail_safe(budget, error)
            raise
        disrupted, recheck_s = self._still_disrupted(budget, pods)
        healthy = sum(
            not is_deleting(pod) and name_of(pod) not in disrupted and is_ready(pod) for pod in pods
        )
        self._write(budget, expected, desired, healthy, disrupted)
        return recheck_s

    def _expectations(self, budget: JsonObject, pods: list[JsonObject]) -> tuple[int, int]:
        """How many pods are expected, and how many of them must be healthy."""
        spec = spec_of(budget)
        return expectations(
            spec.get("minAvailable"),
            spec.get("maxUnavailable"),
            len(pods),
            lambda: self._expected_scale(budget, pods),
        )

    def _expected_scale(self, budget: JsonObject, pods: list[JsonObject]) -> int:
        """Total size of the pods' owners. Upstream: pods without an owner do not count."""
        scales: dict[str, int] = {}
        unmanaged = []
        for pod in pods:
            reference = controller_of(pod)
            if reference is None:
                unmanaged.append(name_of(pod))
            elif reference["uid"] not in scales:
                owner = self._scaled_owner(namespace_of(pod), reference)
                scales[reference["uid"]] = 0
                scales[uid_of(owner)] = int(spec_of(owner).get("replicas", 1))
        if unmanaged:
            self.warning(
                budget,
                "UnmanagedPods",
                "Pods selected by this PodDisruptionBudget (selector:"
                f" {spec_of(budget).get('selector')})"
                " were found to be unmanaged. As a result, the status of the PDB cannot be"
                " calculated correctly, which may result in undefined behavior. To account for"
                " these pods please"
                ' set ".spec.minAvailable" field of the PDB to an integer value.',
            )
        return sum(scales.values())

    def _scaled_owner(self, namespace: str, reference: JsonObject) -> JsonObject:
        """The object whose replicas count: the Deployment for a ReplicaSet that has one."""
        group = reference.get("apiVersion", "").rpartition("/")[0]
        resource = _SCALED_KINDS.get((group, reference.get("kind", "")))
        if resource is None:
            raise NotFound(
                f'{reference.get("kind")} "{reference.get("name")}" does not implement the scale'
                " subresource"
            )
        owner = self.informers.informer(resource).get(f"{namespace}/{reference['name']}")
        if owner is None or uid_of(owner) != reference["uid"]:
            raise NotFound(f'{resource} "{namespace}/{reference["name"]}" not found')
        above = controller_of(owner) if reference["kind"] == "ReplicaSet" else None
        return self._scaled_owner(namespace, above) if above is not None else owner

    def _still_disrupted(
        self, budget: JsonObject, pods: list[JsonObject]
    ) -> tuple[dict[str, str], float | None]:
        """Evicted pods that still exist, and when the first of them times out."""
        evicted: dict[str, str] = status_of(budget).get("disruptedPods") or {}
        present = {name_of(pod): pod for pod in pods}
        kept: dict[str, str] = {}
        recheck_s: float | None = None
        for name, since in evicted.items():
            pod = present.get(name)
            if pod is None or is_deleting(pod):
                continue
            left_s = parse_timestamp(since) + DELETION_TIMEOUT_S - self.clock.now()
            if left_s < 0:
                message = f"Pod was expected by PDB {key_of(budget)} to be deleted but it wasn't"
                self.warning(pod, "NotDeleted", message)
                continue
            kept[name] = since
            recheck_s = left_s if recheck_s is None else min(recheck_s, left_s)
        # Timestamps have whole seconds: one second later the deadline has certainly passed.
        return kept, None if recheck_s is None else recheck_s + 1.0

    def _write(
        self,
        budget: JsonObject,
        expected: int,
        desired: int,
        healthy: int,
        disrupted: dict[str, str],
    ) -> None:
        allowed = disruptions_allowed(expected, desired, healthy)
        generation = budget["metadata"].get("generation", 0)
        status: JsonObject = {
            "observedGeneration": generation,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": with_condition(
                status_of(budget).get("conditions"),
                "DisruptionAllowed",
                "True" if allowed > 0 else "False",
                self.clock.now(),
                reason="SufficientPods" if allowed > 0 else "InsufficientPods",
                extra={"observedGeneration": generation, "message": ""},
            ),
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        self.api.write_status(RESOURCE, budget, status)

    def _fail_safe(self, budget: JsonObject, error: ApiError) -> None:
        """Allow no disruptions for a budget that cannot be calculated."""
        generation = budget["metadata"].get("generation", 0)
        status = dict(status_of(budget))
        status["disruptionsAllowed"] = 0
        for field in ("currentHealthy", "desiredHealthy", "expectedPods"):
            status.setdefault(field, 0)
        status["conditions"] = with_condition(
            status.get("conditions"),
            "DisruptionAllowed",
            "False",
            self.clock.now(),
            reason="SyncFailed",
            message=str(error),
            extra={"observedGeneration": generation},
        )
        self.api.write_status(RESOURCE, budget, status)

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        if not self._budgets.count(BY_NAMESPACE, namespace_of(pod)):
            return
        labels = [labels_of(version) for version in (old, pod) if version is not None]
        pause_s = settling_s(self._pods.count(BY_NAMESPACE, namespace_of(pod)))
        for budget in self._budgets.find(BY_NAMESPACE, namespace_of(pod)):
            selector = spec_of(budget).get("selector")
            if any(selector_matches(selector, label) for label in labels):
                self.queue.add_after(key_of(budget), pause_s)

    def _owner_changed(self, kind: str, owner: JsonObject, old: JsonObject | None) -> None:
        """Queue the budgets of an owner's pods when the owner was scaled."""
        if old is not None and spec_of(old).get("replicas") == spec_of(owner).get("replicas"):
            return
        template = spec_of(owner).get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        for budget in self._budgets.find(BY_NAMESPACE, namespace_of(owner)):
            if selector_matches(spec_of(budget).get("selector"), labels):
                self.queue.add(key_of(budget))


def expectations(
    min_available: IntOrPercent | None,
    max_unavailable: IntOrPercent | None,
    pods: int,
    scale: Callable[[], int],
) -> tuple[int, int]:
    """How many pods are expected and how many must be healthy; calls `scale` only if needed."""
    if max_unavailable is not None:
        expected = scale()
        return expected, max(0, expected - scaled_value(max_unavailable, expected, round_up=True))
    minimum = 1 if min_available is None else min_available
    if is_percent(minimum):
        expected = scale()
        return expected, scaled_value(minimum, expected, round_up=True)
    return pods, int(minimum)


def disruptions_allowed(expected: int, desired: int, healthy: int) -> int:
    """Allowed disruptions; none for a budget that selects no pods."""
    return max(0, healthy - desired) if expected > 0 else 0
