"""The in-tree plugins: which exist, what they implement, and which are on by default.

The table of capabilities lets the configuration be expanded and shown without importing a single
plugin. It repeats what the classes say, so a test holds the two together.
"""

from __future__ import annotations

from kubesched.config.features import FeatureGates
from kubesched.config.types import ExtensionPoint, Plugin, Plugins, PluginSet

_POINTS_BY_PLUGIN = {
    "SchedulingGates": "preEnqueue",
    "PrioritySort": "queueSort",
    "NodeUnschedulable": "filter",
    "NodeName": "filter",
    "TaintToleration": "filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodePorts": "preFilter filter",
    "NodeResourcesFit": "preFilter filter preScore score placementScore",
    "VolumeRestrictions": "preFilter filter",
    "NodeVolumeLimits": "preFilter filter",
    "VolumeBinding": "preFilter filter preScore score reserve preBind",
    "VolumeZone": "preFilter filter",
    "PodTopologySpread": "preFilter filter preScore score",
    "InterPodAffinity": "preFilter filter preScore score",
    "DynamicResources": "preEnqueue preFilter filter postFilter score reserve preBind",
    "DefaultPreemption": "preEnqueue postFilter",
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
"""Every registered in-tree plugin, whatever the gates, and the points it implements."""

_ALWAYS_ON = (
    Plugin("SchedulingGates"),
    Plugin("PrioritySort"),
    Plugin("NodeUnschedulable"),
    Plugin("NodeName"),
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


def implements(name: str, point: ExtensionPoint) -> bool | None:
    """Whether the in-tree plugin of that name implements the point; None if there is none."""
    points = IN_TREE_PLUGINS.get(name)
    return None if points is None else point in points


def default_plugins(gates: FeatureGates) -> Plugins:
    """What a profile starts from: a MultiPoint list and nothing else."""
    enabled = list(_ALWAYS_ON)
    if gates.NodeDeclaredFeatures:
        enabled.append(Plugin("NodeDeclaredFeatures"))
    if gates.DynamicResourceAllocation:
        # Giving back an idle claim is tried before evicting a pod that may be working.
        preemption = enabled.index(Plugin("DefaultPreemption"))
        enabled.insert(preemption, Plugin("DynamicResources", 2))
    if gates.GangScheduling:
        enabled.append(Plugin("GangScheduling"))
    if gates.TopologyAwareWorkloadScheduling:
        enabled += [Plugin("TopologyPlacementGenerator"), Plugin("PodGroupPodsCount", 1)]
    return Plugins(multi_point=PluginSet(enabled=tuple(enabled)))
