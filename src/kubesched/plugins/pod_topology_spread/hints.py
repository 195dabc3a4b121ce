"""Queueing hints of PodTopologySpread."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.core_v1 import Node, Pod
from kubesched.framework.events import Hint
from kubesched.plugins.pod_topology_spread.constraints import Constraint


def after_pod_change(
    pod: Pod, old: Pod | None, new: Pod | None, constraints: Sequence[Constraint]
) -> Hint:
    """Another pod was added, deleted or relabelled."""
    versions = [version for version in (old, new) if version is not None]
    if not all(_is_neighbour(pod, version) for version in versions):
        return Hint.SKIP
    if old is not None and new is not None:
        return _after_relabelling(old, new, constraints)
    labels = versions[0].metadata.labels if versions else None
    return Hint.QUEUE if any(c.selector.matches(labels) for c in constraints) else Hint.SKIP


def after_target_change(old: Pod, new: Pod, constraints: Sequence[Constraint]) -> Hint:
    """Labels or tolerations of the waiting pod changed."""
    tolerations_changed = (old.spec.tolerations or []) != (new.spec.tolerations or [])
    if tolerations_changed and any(c.honors_taints for c in constraints):
        return Hint.QUEUE
    return _after_relabelling(old, new, constraints)


def _after_relabelling(old: Pod, new: Pod, constraints: Sequence[Constraint]) -> Hint:
    before, after = old.metadata.labels or {}, new.metadata.labels or {}
    if before == after:
        return Hint.SKIP
    flips = any(c.selector.matches(before) != c.selector.matches(after) for c in constraints)
    return Hint.QUEUE if flips else Hint.SKIP


def _is_neighbour(pod: Pod, other: Pod) -> bool:
    placed = bool(other.spec.node_name or other.status.nominated_node_name)
    return placed and other.metadata.namespace == pod.metadata.namespace


def after_node_change(
    old: Node | None, new: Node | None, constraints: Sequence[Constraint]
) -> Hint:
    """A node was added or deleted, or its labels or taints changed."""
    keys = [c.topology_key for c in constraints]
    had, has = _has_all(old, keys), _has_all(new, keys)
    if old is None or new is None:
        return Hint.QUEUE if had or has else Hint.SKIP
    if had != has:
        return Hint.QUEUE
    if not has:
        return Hint.SKIP
    before, after = old.metadata.labels or {}, new.metadata.labels or {}
    moved = any(before[key] != after[key] for key in keys)
    retainted = (old.spec.taints or []) != (new.spec.taints or [])
    return Hint.QUEUE if moved or retainted else Hint.SKIP


def _has_all(node: Node | None, keys: Sequence[str]) -> bool:
    if node is None:
        return False
    labels = node.metadata.labels or {}
    return all(key in labels for key in keys)
