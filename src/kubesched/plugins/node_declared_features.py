"""NodeDeclaredFeatures: a pod that needs a kubelet feature only fits nodes that declare it.

The required features are inferred from the pod's spec. Mirrors upstream's
`nodedeclaredfeatures/nodedeclaredfeatures.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubesched.api.core_v1 import Node, Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import InternedColumn
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, error_status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.value_tables import ValueTable

FEATURES_MISSING = unresolvable("node(s) didn't match Pod's required features")
PRE_FILTER_STATE = "PreFilterNodeDeclaredFeatures"

Features = int
"""A set of features: one bit each, in the order of `FEATURE_NAMES`."""


def _never(pod: Pod) -> bool:
    """The feature does not follow from a pod's spec, or only from an update of a running pod."""
    return False


def _restarts_all_containers(pod: Pod) -> bool:
    spec = pod.spec
    for containers in (spec.containers, spec.init_containers):
        for container in containers or ():
            for rule in container.restart_policy_rules or ():
                if rule.action == "RestartAllContainers":
                    return True
    return False


def _user_namespace_on_host_network(pod: Pod) -> bool:
    return pod.spec.host_network and pod.spec.host_users is False


def _has_bind_mount_options(pod: Pod) -> bool:
    spec = pod.spec
    for containers in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        for container in containers or ():
            for mount in container.volume_mounts or ():
                if mount.bind_mount_options:
                    return True
    return False


# Includes what came with 1.37: a pod of an older API server cannot ask for it.
_REQUIRED_BY: dict[str, Callable[[Pod], bool]] = {
    "DRANodeAllocatableResources": _never,
    "DRAOptionalNodeOperations": _never,
    "ExtendWebSocketsToKubelet": _never,
    "InPlacePodLevelResourcesVerticalScaling": _never,
    "InPlacePodVerticalScalingInitContainers": _never,
    "InPlacePodVerticalScalingMemoryBackedVolumes": _never,
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "UserNamespacesHostNetworkSupport": _user_namespace_on_host_network,
    "VolumeBindMountOptions": _has_bind_mount_options,
}
FEATURE_NAMES = tuple(sorted(_REQUIRED_BY))
_RULES = [
    (1 << at, rule)
    for at, name in enumerate(FEATURE_NAMES)
    if (rule := _REQUIRED_BY[name]) is not _never
]


class NodeDeclaredFeatures(
    PreFilterPlugin, FilterPlugin, EnqueueExtensions, SignPlugin, InTreePlugin
):
    """Infers required features from the pod's spec; compares with `status.declaredFeatures`."""

    name = "NodeDeclaredFeatures"
    answers_by_spec = True

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # takes none
        super().__init__(args, handle)
        self._enabled = handle.feature_gates.NodeDeclaredFeatures

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        needed = required_features(pod) if self._enabled else 0
        if not needed:
            return SKIP
        state.write(PRE_FILTER_STATE, needed)
        return None

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        if not self._enabled:
            return None
        needed: Features | None = state.get(PRE_FILTER_STATE)
        if needed is None:
            return error_status(f'error reading "{PRE_FILTER_STATE}" from cycle-state: not found')
        column: InternedColumn[Features] = nodes.interned(self.name, declared_features)
        lacking = state.remember(
            (self.name, needed),
            lambda: ValueTable(column, lambda declared: needed & ~declared != 0, absent=True),
        )
        return Verdicts.reject(lacking.over(nodes), FEATURES_MISSING)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        if not self._enabled:
            return ()
        actions = Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE
        return (
            on_event(Resource.NODE, actions, self.after_node_change),
            on_event(Resource.TARGET_POD, Action.UPDATE, self.after_pod_update),
        )

    @reads("spec")
    def after_node_change(self, pod: Pod, old: Node | None, new: Node) -> Hint:
        if old is not None and (old.status.declared_features or []) == (
            new.status.declared_features or []
        ):
            return Hint.SKIP
        return Hint.QUEUE

    @reads("class")
    def after_pod_update(self, pod: Pod, old: Pod, new: Pod) -> Hint:
        changed = required_features(old) != required_features(new)
        return Hint.QUEUE if changed else Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        needed = required_features(pod)
        bits = "".join("1" if needed >> at & 1 else "0" for at in range(len(FEATURE_NAMES)))
        return {"v1.Pod.Spec.RequiredFeatures()": bits}


def required_features(pod: Pod) -> Features:
    needed = 0
    for bit, is_required in _RULES:
        if is_required(pod):
            needed |= bit
    return needed


def declared_features(node: Node) -> Features | None:
    """The known features that a node declares; None if there are none.

    # Upstream: both lists are merged in order, so entries of an unsorted list are missed.
    """
    declared = at = 0
    for name in node.status.declared_features or ():
        while at < len(FEATURE_NAMES) and FEATURE_NAMES[at] < name:
            at += 1
        if at == len(FEATURE_NAMES):
            break
        if FEATURE_NAMES[at] == name:
            declared |= 1 << at
    return declared or None
