"""Stable codes for plugin rejections.

Plugins reject with kube-scheduler's messages. Programs need an identifier that does not change with
the wording: a code. The codes are part of the published schema; new ones may be added, and existing
ones keep their meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kubesched.framework.status import Status
from kubesched.plugins import (
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_unschedulable,
    node_volume_limits,
    taint_toleration,
    volume_restrictions,
    volume_zone,
)
from kubesched.plugins.dynamic_resources import filtering as dynamic_resources
from kubesched.plugins.inter_pod_affinity import filtering as inter_pod_affinity
from kubesched.plugins.node_resources import fit as node_resources_fit
from kubesched.plugins.pod_topology_spread import filtering as pod_topology_spread
from kubesched.plugins.volume_binding import plugin as volume_binding
from kubesched.plugins.volume_binding import search as volume_search

INSUFFICIENT: Final = "Insufficient "
EXTENDER: Final = "Extender"
"""The plugin name used for extenders."""


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """The code of a kind of rejection, and what can undo it."""

    code: str
    remedy: str
    """Readable description of what would help."""
    is_lasting: bool = False
    """True if the node rejects the pod even when empty, untainted and not cordoned."""
    is_waiting: bool = False
    """True if the pod waits for an object or a component, independent of the nodes."""


LEAVING: Final = "pods leaving"

INSUFFICIENT_RESOURCE: Final = ReasonCode(
    "InsufficientResource", f"{LEAVING}, a smaller request, a larger or a new node"
)
UNTOLERATED_TAINT: Final = ReasonCode("UntoleratedTaint", "a toleration, or the taint removed")
NODE_UNSCHEDULABLE: Final = ReasonCode("NodeUnschedulable", "kubectl uncordon")
NODE_AFFINITY_MISMATCH: Final = ReasonCode(
    "NodeAffinityMismatch", "another selector, or labels on the node", is_lasting=True
)
NODE_NAME_MISMATCH: Final = ReasonCode(
    "NodeNameMismatch", "nothing: the pod names its node", is_lasting=True
)
HOST_PORT_TAKEN: Final = ReasonCode("HostPortTaken", f"{LEAVING}, or another host port")
POD_AFFINITY: Final = ReasonCode("PodAffinityUnsatisfied", "a matching pod in the node's domain")
POD_ANTI_AFFINITY: Final = ReasonCode("PodAntiAffinityViolated", LEAVING)
EXISTING_ANTI_AFFINITY: Final = ReasonCode("ExistingPodAntiAffinityViolated", LEAVING)
SPREAD_VIOLATED: Final = ReasonCode(
    "TopologySpreadViolated", "pods elsewhere, pods leaving, or a larger maxSkew"
)
SPREAD_LABEL_MISSING: Final = ReasonCode(
    "TopologyLabelMissing", "the topology label on the node", is_lasting=True
)
TOO_MANY_PODS: Final = ReasonCode("TooManyPods", f"{LEAVING}, or a new node")
OBJECT_MISSING: Final = ReasonCode("ObjectMissing", "the object being created", is_waiting=True)
CLAIM_NOT_READY: Final = ReasonCode(
    "ClaimNotReady", "the claim being bound or replaced", is_waiting=True
)
SCHEDULING_GATED: Final = ReasonCode("SchedulingGated", "the gates being removed", is_waiting=True)
OTHER_SCHEDULER: Final = ReasonCode(
    "OtherScheduler", "that scheduler, or another schedulerName", is_waiting=True
)
BEING_DELETED: Final = ReasonCode("BeingDeleted", "nothing", is_waiting=True)
PREEMPTION_UNDER_WAY: Final = ReasonCode(
    "PreemptionUnderWay", "the victims leaving", is_waiting=True
)
NOT_ENQUEUED: Final = ReasonCode("NotEnqueued", "the plugin changing its mind", is_waiting=True)
HELD_BY_PERMIT: Final = ReasonCode(
    "HeldByPermit", "the plugin letting it go, or its time limit", is_waiting=True
)
NARROWED_AWAY: Final = ReasonCode(
    "NotSelectedByPreFilter", "depends on the plugin", is_lasting=True
)
REJECTED_BY_EXTENDER: Final = ReasonCode("RejectedByExtender", "depends on the extender")
PLUGIN_ERROR: Final = ReasonCode("PluginError", "whatever broke being repaired")
REJECTED: Final = ReasonCode("Rejected", "depends on the plugin")
"""The code for plugins that are not in this table."""
REJECTED_FOR_GOOD: Final = ReasonCode("RejectedUnresolvably", "depends on the plugin")
"""The same, if the plugin reports that preemption would not help."""


def _reason(status: Status) -> str:
    return status.reasons[0]


DEVICES_UNAVAILABLE: Final = ReasonCode("DevicesUnavailable", "devices being released or added")

_BY_REASON: Final = {
    _reason(dynamic_resources.CANNOT_ALLOCATE): DEVICES_UNAVAILABLE,
    _reason(dynamic_resources.CANNOT_FIT_RESOURCE): DEVICES_UNAVAILABLE,
    _reason(dynamic_resources.STALE_SPECIAL_CLAIM): DEVICES_UNAVAILABLE,
    _reason(dynamic_resources.INVALID_POOLS): DEVICES_UNAVAILABLE,
    _reason(dynamic_resources.UNAVAILABLE_CLAIM): ReasonCode(
        "ClaimOnOtherNodes", "the claim being released"
    ),
    node_resources_fit.TOO_MANY_PODS: TOO_MANY_PODS,
    _reason(taint_toleration.UNTOLERATED): UNTOLERATED_TAINT,
    _reason(node_unschedulable.UNSCHEDULABLE): NODE_UNSCHEDULABLE,
    _reason(node_affinity.NOT_ADMITTED_BY_POD): NODE_AFFINITY_MISMATCH,
    _reason(node_affinity.NOT_ADMITTED_BY_PROFILE): ReasonCode(
        "AddedAffinityMismatch", "another profile, or labels on the node", is_lasting=True
    ),
    _reason(node_affinity.TERMS_CONFLICT): ReasonCode(
        "NodeAffinityConflict", "other affinity terms", is_lasting=True
    ),
    _reason(node_name.WRONG_NODE): NODE_NAME_MISMATCH,
    _reason(node_ports.PORTS_TAKEN): HOST_PORT_TAKEN,
    _reason(inter_pod_affinity.AFFINITY): POD_AFFINITY,
    _reason(inter_pod_affinity.ANTI_AFFINITY): POD_ANTI_AFFINITY,
    _reason(inter_pod_affinity.EXISTING_ANTI_AFFINITY): EXISTING_ANTI_AFFINITY,
    _reason(pod_topology_spread.MISMATCH): SPREAD_VIOLATED,
    _reason(pod_topology_spread.MISSING_LABEL): SPREAD_LABEL_MISSING,
    _reason(volume_restrictions.DISK_CONFLICT): ReasonCode("DiskConflict", LEAVING),
    _reason(volume_restrictions.CLAIM_IN_USE): ReasonCode(
        "ClaimInUse", "the pod that uses the claim leaving"
    ),
    _reason(node_volume_limits.TOO_MANY): ReasonCode("TooManyVolumes", LEAVING),
    volume_search.NODE_CONFLICT: ReasonCode(
        "VolumeNodeAffinityMismatch", "another volume", is_lasting=True
    ),
    volume_search.BIND_CONFLICT: ReasonCode("NoVolumeToBind", "a matching volume being created"),
    volume_search.NOT_ENOUGH_SPACE: ReasonCode("NotEnoughStorage", "more free storage"),
    volume_search.VOLUME_MISSING: ReasonCode("BoundVolumeMissing", "the volume being created"),
    _reason(volume_binding.UNBOUND_IMMEDIATE): ReasonCode(
        "UnboundClaims", "the claims being bound", is_waiting=True
    ),
    _reason(volume_zone.WRONG_ZONE): ReasonCode(
        "VolumeZoneMismatch", "another volume", is_lasting=True
    ),
    _reason(node_declared_features.FEATURES_MISSING): ReasonCode(
        "FeatureMissing", "a newer kubelet", is_lasting=True
    ),
}

_BY_PATTERN: Final = (
    (re.compile(r'^\S+ "[^"]*" not found$'), OBJECT_MISSING),
    (re.compile(r"^waiting for ephemeral volume controller to create "), OBJECT_MISSING),
    (re.compile(r"^looking up PVC .* not found$"), OBJECT_MISSING),
    (
        re.compile(
            r'^(persistentvolumeclaim|resourceclaim) "[^"]*" (bound to|is being deleted)'
            r"|^resource claim \S+ is in the process of being allocated$"
        ),
        CLAIM_NOT_READY,
    ),
    (
        re.compile(
            r'^could not find ResourceClaim "|: ResourceClaim not created yet$'
            r"|: device class \S+ does not exist$"
        ),
        OBJECT_MISSING,
    ),
    (re.compile(r"^waiting for scheduling gates: "), SCHEDULING_GATED),
    (re.compile(r"^waiting for the preemption for this pod"), PREEMPTION_UNDER_WAY),
    (
        re.compile(r" CSI driver is not installed on the node$"),
        ReasonCode("CSIDriverMissing", "the driver being installed on the node"),
    ),
    (re.compile(r"^node\(s\) didn't satisfy plugin"), NARROWED_AWAY),
)


def code_of_reason(reason: str, status: Status) -> ReasonCode:
    """The code of one reason of a rejection."""
    if status.plugin == EXTENDER:
        return REJECTED_BY_EXTENDER if status.is_rejected else PLUGIN_ERROR
    known = _BY_REASON.get(reason)
    if known is not None:
        return known
    if not status.is_rejected:
        return PLUGIN_ERROR
    if reason.startswith(INSUFFICIENT):
        return INSUFFICIENT_RESOURCE
    for pattern, code in _BY_PATTERN:
        if pattern.search(reason):
            return code
    return (
        REJECTED
        if status.code.upstream_name != "UnschedulableAndUnresolvable"
        else REJECTED_FOR_GOOD
    )
