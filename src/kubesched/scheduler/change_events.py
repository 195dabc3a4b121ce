"""Differences between two versions of a node or a pod, as cluster events."""

from __future__ import annotations

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.meta import ResourceList
from kubesched.api.quantity import parse
from kubesched.api.resources import (
    ACCOUNTED,
    RequestOptions,
    request_amounts,
    same_resource_status,
)
from kubesched.framework.events import Action
from kubesched.framework.nodes.node_table import conditions_of


def node_changes(
    old: Node, new: Node, *, declared_features: bool = True, preemption_policy: bool = True
) -> list[Action]:
    """A node update's actions, in upstream's order; none for a heartbeat.

    # Upstream: an un-cordon that also removes a taint yields the taint event twice.
    """
    events: list[Action] = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        events.append(Action.UPDATE_NODE_TAINT)
    if not same_amounts(old.status.allocatable, new.status.allocatable):
        events.append(Action.UPDATE_NODE_ALLOCATABLE)
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        events.append(Action.UPDATE_NODE_LABEL)
    if (old.spec.taints or []) != (new.spec.taints or []):
        events.append(Action.UPDATE_NODE_TAINT)
    if conditions_of(old) != conditions_of(new):
        events.append(Action.UPDATE_NODE_CONDITION)
    if (old.metadata.annotations or {}) != (new.metadata.annotations or {}):
        events.append(Action.UPDATE_NODE_ANNOTATION)
    if preemption_policy and old.spec.pod_preemption_policy != new.spec.pod_preemption_policy:
        events.append(Action.UPDATE_NODE_PREEMPTION_POLICY)
    if declared_features and (old.status.declared_features or []) != (
        new.status.declared_features or []
    ):
        events.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return events


def pod_changes(
    old: Pod, new: Pod, *, scale_up: bool = True, footprint: RequestOptions = ACCOUNTED
) -> list[Action]:
    """A pod update's actions; a general Update when nothing specific changed."""
    actions: list[Action] = []
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        actions.append(Action.UPDATE_POD_LABEL)
    is_less, is_more = scaled(old, new, footprint)
    if is_less:
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if is_more and scale_up:
        actions.append(Action.UPDATE_POD_SCALE_UP)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations or ()) != len(new.spec.tolerations or ()):
        actions.append(Action.UPDATE_POD_TOLERATION)
    if (old.status.resource_claim_statuses or []) != (new.status.resource_claim_statuses or []) or (
        old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
    ):
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return actions or [Action.UPDATE]


def scaled(old: Pod, new: Pod, footprint: RequestOptions = ACCOUNTED) -> tuple[bool, bool]:
    """Whether any request decreased or was removed, and whether any increased or was added."""
    # Most updates change conditions and container states, which do not affect requests.
    same_spec = old.spec is new.spec or old.spec == new.spec
    if same_spec and same_resource_status(old, new):
        return False, False
    before, after = request_amounts(old, footprint), request_amounts(new, footprint)
    return (
        any(after.get(name, -1) < amount for name, amount in before.items()),
        any(before.get(name, -1) < amount for name, amount in after.items()),
    )


def same_amounts(a: ResourceList | None, b: ResourceList | None) -> bool:
    """Equal by value: `1` and `1000m` are equal, and so are absent and empty."""
    a, b = a or {}, b or {}
    if a == b:
        return True
    return a.keys() == b.keys() and all(parse(a[name]) == parse(b[name]) for name in a)
