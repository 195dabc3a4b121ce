"""Eviction: a deletion that respects the pod's disruption budgets."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.base.errors import ServerError, TooManyRequests
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    status_of,
    timestamp,
)
from kubesched.playground.apimachinery.pods import disrupted, is_ready, phase_of
from kubesched.playground.apimachinery.selectors import selector_matches
from kubesched.playground.registry.deletion import DeleteOptions, check_preconditions
from kubesched.playground.registry.rest_storage import RestStorage

# With this many unprocessed disruptions the controller is not keeping up; refuse more.
MAX_DISRUPTED_PODS = 2000

_NOT_DISRUPTIVE_PHASES = ("Succeeded", "Failed", "Pending")


def evict(registry: RestStorage, namespace: str, name: str, options: DeleteOptions) -> None:
    """Delete the pod if its budget allows that, and charge the disruption to the budget."""
    pods = registry.catalog.get("pods")
    found = registry.get(pods, namespace, name)
    pod = found.obj
    budgets = [
        entry
        for entry in registry.store.collection("poddisruptionbudgets.policy").entries(namespace)
        if selector_matches(
            (entry.obj.get("spec") or {}).get("selector"), pod["metadata"].get("labels") or {}
        )
    ]
    if is_charged(pod, [entry.obj for entry in budgets]) and not options.dry_run:
        now = timestamp(registry.clock.now())
        resource = registry.catalog.get("poddisruptionbudgets.policy")
        registry.modify(resource, budgets[0], lambda obj: _charged(obj, name, now))
    check_preconditions(pods, found, options)
    if not options.dry_run and not is_deleting(pod):
        registry.modify(pods, found, lambda obj: _disrupted(obj, registry.clock.now()))
    registry.delete(pods, namespace, name, options)


def is_charged(pod: JsonObject, budgets: Sequence[JsonObject]) -> bool:
    """Whether evicting the pod uses up a disruption of `budgets`, those that select the pod.

    Raises:
        TooManyRequests: the budget allows no disruption now.
        ServerError: the pod has several budgets.
    """
    if not budgets or is_deleting(pod) or phase_of(pod) in _NOT_DISRUPTIVE_PHASES:
        return False
    if len(budgets) > 1:
        raise ServerError(
            "This pod has more than one PodDisruptionBudget,"
            " which the eviction subresource does not support."
        )
    if _is_unready_and_exempt(pod, budgets[0]):
        return False
    _check_budget(budgets[0])
    return True


def _is_unready_and_exempt(pod: JsonObject, budget: JsonObject) -> bool:
    """Whether this unready pod may be evicted: always, or while enough pods are healthy."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _check_budget(budget: JsonObject) -> None:
    name = budget["metadata"]["name"]
    status = budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refusal(
            name,
            f"The disruption budget {name} is still being processed by the server.",
            retry_after_s=10,
        )
    if len(status.get("disruptedPods") or ()) > MAX_DISRUPTED_PODS:
        raise _refusal(
            name,
            f"The disruption budget {name} has too many evictions not confirmed by PDB controller",
        )
    if status.get("disruptionsAllowed", 0) <= 0:
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refusal(
            name,
            f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently",
        )


def _refusal(name: str, explanation: str, *, retry_after_s: float | None = None) -> TooManyRequests:
    return TooManyRequests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": explanation}]},
        retry_after_s=retry_after_s,
    )


def _disrupted(pod: JsonObject, now: float) -> JsonObject:
    """The pod with the condition that tells its owner why it goes."""
    why = ("EvictionByEvictionAPI", "Eviction API: evicting")
    conditions = disrupted(pod, now, *why, extra={"lastProbeTime": None})
    return {**pod, "status": {**status_of(pod), "conditions": conditions}}


def _charged(budget: JsonObject, pod_name: str, now: str) -> JsonObject:
    status = dict(budget.get("status") or {})
    status["disruptionsAllowed"] = status.get("disruptionsAllowed", 0) - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: now}
    return {**budget, "status": status}
