"""The in-tree plugins: their extension points, and which are enabled by default.

With this table a configuration can be expanded and shown without importing any plugin. It
duplicates the plugin classes, so a test checks that the two agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubesched.config.features import FeatureGates
from kubesched.config.references import Reference
from kubesched.config.types import ExtensionPoint, Plugin, Plugins, PluginSet

if TYPE_CHECKING:
    from kubesched.config.expansion import Implements

_POINTS_BY_PLUGIN = {
    "SchedulingGates": "preEnqueue",
    "PrioritySort": "queueSort",
    "NodeName": "preFilter filter",
    "NodeUnschedulable": "preFilter filter",
    "TaintToleration": "preFilter filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodePorts": "preFilter filter",
    "DeferredPodScheduling": "preFilter filter permit",
    "NodeResourcesFit": "preFilter filter preScore score placementScore",
    "VolumeRestrictions": "preFilter filter",
    "NodeVolumeLimits": "preFilter filter",
    "VolumeBinding": "preFilter filter preScore score reserve preBind",
    "VolumeZone": "preFilter filter",
    "PodTopologySpread": "preFilter filter preScore score",
    "InterPodAffinity": "preFilter filter preScore score",
    "DynamicResources": (
        "preEnqueue preFilter filter postFilter podGroupPostFilter score reserve preBind"
    ),
    "DefaultPreemption": "preEnqueue postFilter podGroupPostFilter",
    "NodeResourcesBalancedAllocation": "preScore score",
    "ImageLocality": "score",
    "DefaultBinder": "bind",
    "NodeDeclaredFeatures": "preFilter filter",
    "GangScheduling": "preEnqueue permit",
    "TopologyPlacementGenerator": "placementGenerate",
    "PodGroupPodsCount": "placementScore",
}

IN_TREE_PLUGINS: dict[str, frozenset[ExtensionPoint]] = {
    name: frozenset(ExtensionPoint(point) for point in points.split())
    for name, points in _POINTS_BY_PLUGIN.items()
}
"""Every registered in-tree plugin, regardless of gates, and its extension points."""

_ALWAYS_ON = (
    Plugin("SchedulingGates"),
    Plugin("PrioritySort"),
    Plugin("NodeName"),
    Plugin("NodeUnschedulable"),
    Plugin("TaintToleration", 3),
    Plugin("NodeAffinity", 2),
    Plugin("NodePorts"),
    Plugin("NodeResourcesFit", 1),
    Plugin("VolumeRestrictions"),
    Plugin("NodeVolumeLimits"),
    Plugin("VolumeBinding"),
    Plugin("VolumeZone"),
    Plugin("PodTopologySpread", 2),
    Plugin("InterPodAffinity", 2),
    Plugin("DefaultPreemption"),
    Plugin("NodeResourcesBalancedAllocation", 1),
    Plugin("ImageLocality", 1),
    Plugin("DefaultBinder"),
)


_WITHOUT_PRE_FILTER = frozenset({"NodeName", "NodeUnschedulable", "TaintToleration"})


def as_of(reference: Reference, implements: Implements) -> Implements:
    """The points that plugins have in that release: in-tree ones got some of theirs later."""

    def implements_then(name: str, point: ExtensionPoint) -> bool | None:
        able = implements(name, point)
        if name == "DeferredPodScheduling" and not reference.deferred_pod_scheduling:
            return None
        if point is ExtensionPoint.PRE_FILTER and name in _WITHOUT_PRE_FILTER:
            return able and reference.node_name_first
        if point is ExtensionPoint.POD_GROUP_POST_FILTER:
            return able and reference.pod_group_post_filter
        return able

    return implements_then


def implements(name: str, point: ExtensionPoint) -> bool | None:
    """Whether the in-tree plugin implements the point; None if there is no such plugin."""
    points = IN_TREE_PLUGINS.get(name)
    return None if points is None else point in points


def default_plugins(gates: FeatureGates) -> Plugins:
    """The default plugins of a profile: a MultiPoint list only."""
    enabled = list(_ALWAYS_ON)
    if not gates.reference.node_name_first:
        at = enabled.index(Plugin("NodeName"))
        enabled[at : at + 2] = reversed(enabled[at : at + 2])
    if gates.NodeDeclaredFeatures:
        enabled.append(Plugin("NodeDeclaredFeatures"))
    if gates.InPlacePodVerticalScalingSchedulerPreemption:
        # First, so that it is known as the rejector even if the resize does not fit either.
        enabled.insert(
            enabled.index(Plugin("NodeResourcesFit", 1)), Plugin("DeferredPodScheduling")
        )
    if gates.DynamicResourceAllocation:
        # Deallocating an idle claim is tried before evicting a running pod.
        preemption = enabled.index(Plugin("DefaultPreemption"))
        enabled.insert(preemption, Plugin("DynamicResources", 2))
    if gates.GangScheduling:
        enabled.append(Plugin("GangScheduling"))
    if gates.TopologyAwareWorkloadScheduling:
        enabled += [Plugin("TopologyPlacementGenerator"), Plugin("PodGroupPodsCount", 1)]
    return Plugins(multi_point=PluginSet(enabled=tuple(enabled)))
