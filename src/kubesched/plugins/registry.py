"""The in-tree plugins by name; classes are imported on first use."""

from __future__ import annotations

from functools import partial

from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.profile import enabled_plugins
from kubesched.framework.registry import Registry, load_by_path

IN_TREE: dict[str, str] = {
    "DefaultBinder": "kubesched.plugins.default_binder:DefaultBinder",
    "DefaultPreemption": "kubesched.plugins.default_preemption:DefaultPreemption",
    "DeferredPodScheduling": "kubesched.plugins.deferred_pod_scheduling:DeferredPodScheduling",
    "DynamicResources": "kubesched.plugins.dynamic_resources:DynamicResources",
    "GangScheduling": "kubesched.plugins.gang_scheduling:GangScheduling",
    "ImageLocality": "kubesched.plugins.image_locality:ImageLocality",
    "InterPodAffinity": "kubesched.plugins.inter_pod_affinity:InterPodAffinity",
    "NodeAffinity": "kubesched.plugins.node_affinity:NodeAffinity",
    "NodeDeclaredFeatures": "kubesched.plugins.node_declared_features:NodeDeclaredFeatures",
    "NodeName": "kubesched.plugins.node_name:NodeName",
    "NodePorts": "kubesched.plugins.node_ports:NodePorts",
    "NodeResourcesBalancedAllocation": (
        "kubesched.plugins.node_resources.balanced_allocation:NodeResourcesBalancedAllocation"
    ),
    "NodeResourcesFit": "kubesched.plugins.node_resources.fit:NodeResourcesFit",
    "NodeVolumeLimits": "kubesched.plugins.node_volume_limits:NodeVolumeLimits",
    "NodeUnschedulable": "kubesched.plugins.node_unschedulable:NodeUnschedulable",
    "PodGroupPodsCount": "kubesched.plugins.pod_group_pods_count:PodGroupPodsCount",
    "PodTopologySpread": "kubesched.plugins.pod_topology_spread:PodTopologySpread",
    "PrioritySort": "kubesched.plugins.queue_sort:PrioritySort",
    "SchedulingGates": "kubesched.plugins.scheduling_gates:SchedulingGates",
    "TaintToleration": "kubesched.plugins.taint_toleration:TaintToleration",
    "TopologyPlacementGenerator": (
        "kubesched.plugins.topology_placement_generator:TopologyPlacementGenerator"
    ),
    "VolumeBinding": "kubesched.plugins.volume_binding:VolumeBinding",
    "VolumeRestrictions": "kubesched.plugins.volume_restrictions:VolumeRestrictions",
    "VolumeZone": "kubesched.plugins.volume_zone:VolumeZone",
}
"""Plugin name -> `module:class`."""


def in_tree_registry() -> Registry:
    """A registry of the in-tree plugins, to which others can be added."""
    return Registry({name: partial(load_by_path, path) for name, path in IN_TREE.items()})


def installed_registry() -> Registry:
    """The in-tree plugins, and those of installed packages."""
    registry = in_tree_registry()
    registry.add_installed()
    return registry


def load_plugins(config: KubeSchedulerConfiguration) -> Registry:
    """In-tree and installed plugins; imports those that a profile enables."""
    registry = installed_registry()
    enabled_plugins(config, registry)
    return registry
