"""The arguments of the in-tree plugins, one record per `<Plugin>Args` kind of the v1 API.

A record built without arguments has upstream's defaults. `with_defaults` adds those that depend on
feature gates, and those that upstream fills in for an explicit zero. Validation is in
`plugin_args_validation`; arguments of other plugins stay raw (`schema.RawArgs`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import field
from msgspec.structs import replace

from kubesched.api.core_v1.placement import NodeAffinity, TopologySpreadConstraint
from kubesched.api.meta import Record
from kubesched.config.features import FeatureGates
from kubesched.config.schema import OMIT_EMPTY, Int32, Int64, Seconds

LEAST_ALLOCATED = "LeastAllocated"
MOST_ALLOCATED = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"

SYSTEM_DEFAULTING = "System"
LIST_DEFAULTING = "List"

MAX_CUSTOM_PRIORITY_SCORE = 10
"""Scores of a shape range from 0 to this; plugins scale them to 100."""


class PluginArgs(Record):
    """Base of every arguments record."""


class ResourceSpec(Record):
    """A resource and its weight."""

    name: str = ""
    weight: Annotated[Int64, OMIT_EMPTY] = 0


DEFAULT_RESOURCES = (
    ResourceSpec(name="cpu", weight=1),
    ResourceSpec(name="memory", weight=1),
)


class UtilizationShapePoint(Record):
    """A point of a piecewise linear function: utilization 0..100 to score 0..10."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatioParam(Record):
    """Parameters of `RequestedToCapacityRatio`."""

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(Record):
    """How NodeResourcesFit scores; an explicit strategy must have a type."""

    type: Annotated[str, OMIT_EMPTY] = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class DefaultPreemptionArgs(PluginArgs):
    """How many candidate nodes preemption dry-runs."""

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100


class DynamicResourcesArgs(PluginArgs):
    """Time limits of the allocator and of binding conditions; None where the gate is off."""

    filter_timeout_s: Seconds | None = field(default=None, name="filterTimeout")
    binding_timeout_s: Seconds | None = field(default=None, name="bindingTimeout")


class InterPodAffinityArgs(PluginArgs):
    """Weight of the symmetric hard affinity when scoring."""

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(PluginArgs):
    """A node affinity added to that of every pod of the profile."""

    added_affinity: NodeAffinity | None = None


class NodeResourcesBalancedAllocationArgs(PluginArgs):
    """The resources whose utilization is balanced."""

    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES


class NodeResourcesFitArgs(PluginArgs):
    """Resources that filtering ignores, and how nodes are scored."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(
        type=LEAST_ALLOCATED, resources=DEFAULT_RESOURCES
    )


class PodTopologySpreadArgs(PluginArgs):
    """Spread constraints for pods that have none."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: Annotated[str, OMIT_EMPTY] = SYSTEM_DEFAULTING


class VolumeBindingArgs(PluginArgs):
    """Timeout of volume binding, and (gated) the scoring of capacity."""

    bind_timeout_seconds: Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None


ARGS_BY_PLUGIN: dict[str, type[PluginArgs]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}
"""Plugins that take arguments; the kind in a file is the plugin's name followed by `Args`."""


def with_defaults(args: PluginArgs, gates: FeatureGates) -> PluginArgs:
    """The arguments with every default filled in."""
    match args:
        case DynamicResourcesArgs():
            return _dynamic_resources(args, gates)
        case NodeResourcesBalancedAllocationArgs():
            return replace(args, resources=_weighted(args.resources))
        case NodeResourcesFitArgs(scoring_strategy=strategy):
            resources = _weighted(strategy.resources)
            return replace(args, scoring_strategy=replace(strategy, resources=resources))
        case PodTopologySpreadArgs(defaulting_type=""):
            return replace(args, defaulting_type=SYSTEM_DEFAULTING)
        case VolumeBindingArgs(shape=shape) if not shape and gates.StorageCapacityScoring:
            # Unused storage capacity scores highest.
            empty = UtilizationShapePoint(utilization=0, score=MAX_CUSTOM_PRIORITY_SCORE)
            full = UtilizationShapePoint(utilization=100, score=0)
            return replace(args, shape=(empty, full))
    return args


def default_args(plugin: str, gates: FeatureGates) -> PluginArgs | None:
    """The default arguments of a plugin, or None if it takes none or is not in-tree."""
    args_type = ARGS_BY_PLUGIN.get(plugin)
    return None if args_type is None else with_defaults(args_type(), gates)


def _weighted(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    if not resources:
        return DEFAULT_RESOURCES
    return tuple(
        msgspec.structs.replace(resource, weight=resource.weight or 1) for resource in resources
    )


def _dynamic_resources(args: DynamicResourcesArgs, gates: FeatureGates) -> DynamicResourcesArgs:
    if args.filter_timeout_s is None and gates.DRASchedulerFilterTimeout:
        args = replace(args, filter_timeout_s=10.0)
    conditions = gates.DRADeviceBindingConditions and gates.DRAResourceClaimDeviceStatus
    if args.binding_timeout_s is None and conditions:
        args = replace(args, binding_timeout_s=600.0)
    return args
