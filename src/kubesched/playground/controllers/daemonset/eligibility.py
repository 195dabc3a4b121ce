"""Which nodes are eligible for a DaemonSet's pods.

The scheduler places daemon pods like all others. The controller pins each pod to its node through
node affinity and adds tolerations that let daemons run where ordinary pods may not.
"""

from __future__ import annotations

from kubesched.api.tolerations import NO_EXECUTE, NO_SCHEDULE, first_untolerated_taint
from kubesched.playground.apimachinery.objects import JsonObject, labels_of, name_of, spec_of
from kubesched.playground.apimachinery.pods import (
    node_name_of,
    required_affinity,
    taints_of,
    tolerations_of,
)

_TOLERATED = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
_TOLERATED_ON_HOST_NETWORK = (("node.kubernetes.io/network-unavailable", NO_SCHEDULE),)


def tolerations_for(pod_spec: JsonObject) -> list[JsonObject]:
    """The template's tolerations plus those that every daemon pod gets."""
    given: list[JsonObject] = list(pod_spec.get("tolerations") or ())
    extra = _TOLERATED + (_TOLERATED_ON_HOST_NETWORK if pod_spec.get("hostNetwork") else ())
    for key, effect in extra:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        if toleration not in given:
            given.append(toleration)
    return given


class Eligibility:
    """A DaemonSet's verdict on nodes."""

    def __init__(self, daemon_set: JsonObject) -> None:
        pod_spec = (spec_of(daemon_set).get("template") or {}).get("spec") or {}
        self._node_name = pod_spec.get("nodeName") or ""
        self._affinity = required_affinity(pod_spec)
        self._tolerations = tolerations_of({"tolerations": tolerations_for(pod_spec)})

    def of(self, node: JsonObject) -> tuple[bool, bool]:
        """Whether a pod should start on the node, and whether an existing one may stay."""
        if self._node_name not in ("", name_of(node)):
            return False, False
        if not self._affinity.matches(labels_of(node), name_of(node)):
            return False, False
        if not spec_of(node).get("taints"):
            return True, True
        taints = taints_of(node)
        if first_untolerated_taint(taints, self._tolerations) is None:
            return True, True
        return False, first_untolerated_taint(taints, self._tolerations, (NO_EXECUTE,)) is None


def pinned_to(affinity: JsonObject | None, node_name: str) -> JsonObject:
    """The affinity with its node part replaced by a requirement for this node."""
    requirement = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    given = affinity or {}
    node_affinity = {
        **(given.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [requirement]}]
        },
    }
    return {**given, "nodeAffinity": node_affinity}


def target_node(pod: JsonObject) -> str:
    """The node a daemon pod is bound or pinned to, or ""."""
    if node_name_of(pod):
        return node_name_of(pod)
    node_affinity = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for requirement in term.get("matchFields") or ():
            values: list[str] = requirement.get("values") or []
            if requirement.get("key") == "metadata.name" and len(values) == 1:
                return values[0]
    return ""
