"""Validation of the in-tree plugins' arguments, with upstream's wording.

`validate_args` serves both the static check of a configuration and the plugin factories.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.api import times
from kubesched.api.core_v1 import TopologySpreadConstraint
from kubesched.api.names import label_key_problems
from kubesched.api.node_selectors import ParsedNodeSelector, PreferredNodeTerms
from kubesched.api.selectors import SelectorError
from kubesched.base.errors import FieldProblem
from kubesched.config.features import FeatureGates
from kubesched.config.field_problems import duplicate, forbidden, invalid, not_supported, required
from kubesched.config.plugin_args import (
    LEAST_ALLOCATED,
    LIST_DEFAULTING,
    MAX_CUSTOM_PRIORITY_SCORE,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    SYSTEM_DEFAULTING,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    UtilizationShapePoint,
    VolumeBindingArgs,
)

Problems = Iterator[FieldProblem]


def validate_args(path: str, args: PluginArgs, gates: FeatureGates) -> Problems:
    """Every problem of the arguments at `path`."""
    match args:
        case DefaultPreemptionArgs():
            yield from _default_preemption(path, args)
        case DynamicResourcesArgs():
            yield from _dynamic_resources(path, args, gates)
        case InterPodAffinityArgs(hard_pod_affinity_weight=weight):
            yield from _in_range(f"{path}.hardPodAffinityWeight", weight, 0, 100)
        case NodeAffinityArgs():
            yield from _node_affinity(path, args)
        case NodeResourcesBalancedAllocationArgs():
            yield from _balanced_allocation(path, args)
        case NodeResourcesFitArgs():
            yield from _fit(path, args)
        case PodTopologySpreadArgs():
            yield from _topology_spread(path, args)
        case VolumeBindingArgs():
            yield from _volume_binding(path, args, gates)


def _in_range(path: str, value: int, low: int, high: int) -> Problems:
    if not low <= value <= high:
        yield invalid(path, value, f"not in valid range [{low}, {high}]")


def _default_preemption(path: str, args: DefaultPreemptionArgs) -> Problems:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    percentage_path = f"{path}.minCandidateNodesPercentage"
    absolute_path = f"{path}.minCandidateNodesAbsolute"
    yield from _in_range(percentage_path, percentage, 0, 100)
    if absolute < 0:
        yield invalid(absolute_path, absolute, "not in valid range [0, inf)")
    if percentage == 0 and absolute == 0:
        problem = "cannot be zero at the same time as"
        yield invalid(percentage_path, percentage, f"{problem} minCandidateNodesAbsolute")
        yield invalid(absolute_path, absolute, f"{problem} minCandidateNodesPercentage")


def _dynamic_resources(path: str, args: DynamicResourcesArgs, gates: FeatureGates) -> Problems:
    timeout, binding = args.filter_timeout_s, args.binding_timeout_s
    if timeout is not None:
        where = f"{path}.filterTimeout"
        if not gates.DRASchedulerFilterTimeout:
            # Upstream: the text misspells the gate.
            yield forbidden(where, "DRASchedulingFilterTimeout feature gate is disabled")
        elif timeout < 0:
            yield invalid(where, times.format_duration(timeout), "must be zero or positive")
    if binding is not None:
        where = f"{path}.bindingTimeout"
        if not (gates.DRADeviceBindingConditions and gates.DRAResourceClaimDeviceStatus):
            yield forbidden(
                where,
                "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is "
                "disabled",
            )
        elif binding < 1:
            yield invalid(where, times.format_duration(binding), "must be at least 1 second")


def _balanced_allocation(path: str, args: NodeResourcesBalancedAllocationArgs) -> Problems:
    seen = set()
    for index, resource in enumerate(args.resources):
        where = f"{path}.resources[{index}]"
        if resource.name in seen:
            yield duplicate(f"{where}.name", resource.name)
        seen.add(resource.name)
        if resource.weight != 1:
            yield invalid(f"{where}.weight", resource.weight, "must be 1")


def _volume_binding(path: str, args: VolumeBindingArgs, gates: FeatureGates) -> Problems:
    if args.bind_timeout_seconds < 0:
        yield invalid(
            f"{path}.bindTimeoutSeconds",
            args.bind_timeout_seconds,
            "invalid BindTimeoutSeconds, should not be a negative value",
        )
    if gates.StorageCapacityScoring:
        yield from _shape(f"{path}.shape", args.shape or ())
    elif args.shape is not None:
        points = [{"Utilization": at.utilization, "Score": at.score} for at in args.shape]
        yield invalid(
            f"{path}.shape",
            points,
            "unexpected field `shape`, remove it or turn on the feature gate "
            "StorageCapacityScoring",
        )


def _shape(path: str, shape: tuple[UtilizationShapePoint, ...]) -> Problems:
    if not shape:
        yield required(path, "at least one point must be specified")
        return
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            yield invalid(
                f"{path}[{index}].utilization",
                shape[index].utilization,
                "values must be sorted in increasing order",
            )
            break
    for index, point in enumerate(shape):
        yield from _in_range(f"{path}[{index}].utilization", point.utilization, 0, 100)
        yield from _in_range(f"{path}[{index}].score", point.score, 0, MAX_CUSTOM_PRIORITY_SCORE)


# -- NodeResourcesFit -----------------------------------------------------------------------------


def _fit(path: str, args: NodeResourcesFitArgs) -> Problems:
    for index, resource in enumerate(args.ignored_resources):
        yield from _label_key(f"{path}.ignoredResources[{index}]", resource)
    for index, group in enumerate(args.ignored_resource_groups):
        where = f"{path}.ignoredResourceGroups[{index}]"
        if "/" in group:
            yield invalid(where, group, "resource group name can't contain '/'")
        yield from _label_key(where, group)

    strategy, where = args.scoring_strategy, f"{path}.scoringStrategy"
    kinds = (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO)
    if strategy.type not in kinds:
        yield not_supported(f"{where}.type", strategy.type, kinds)
    for index, spec in enumerate(strategy.resources):
        if not 0 < spec.weight <= 100:
            yield invalid(
                f"{where}.resources[{index}].weight",
                spec.weight,
                f"resource weight of {spec.name} not in valid range (0, 100]",
            )
    ratio, ratio_path = strategy.requested_to_capacity_ratio, f"{where}.requestedToCapacityRatio"
    if strategy.type != REQUESTED_TO_CAPACITY_RATIO:
        if ratio is not None:
            yield forbidden(ratio_path, "must be nil when type is not RequestedToCapacityRatio")
    elif ratio is None:
        yield required(ratio_path, "must be specified when type is RequestedToCapacityRatio")
    else:
        yield from _shape(f"{ratio_path}.shape", ratio.shape)


def _label_key(path: str, key: str) -> Problems:
    for rule in label_key_problems(key):
        yield invalid(path, key, rule)


# -- PodTopologySpread ----------------------------------------------------------------------------


def _topology_spread(path: str, args: PodTopologySpreadArgs) -> Problems:
    where = f"{path}.defaultingType"
    if args.defaulting_type not in (SYSTEM_DEFAULTING, LIST_DEFAULTING):
        yield not_supported(where, args.defaulting_type, (SYSTEM_DEFAULTING, LIST_DEFAULTING))
    elif args.defaulting_type == SYSTEM_DEFAULTING and args.default_constraints:
        yield invalid(where, args.defaulting_type, "when .defaultConstraints are not empty")
    seen = set()
    for index, constraint in enumerate(args.default_constraints):
        where = f"{path}.defaultConstraints[{index}]"
        yield from _constraint(where, constraint)
        identity = (constraint.topology_key, constraint.when_unsatisfiable)
        if identity in seen:
            yield duplicate(where, "{%s, %s}" % identity)  # noqa: UP031 - braces in the text
        seen.add(identity)


def _constraint(path: str, constraint: TopologySpreadConstraint) -> Problems:
    if constraint.max_skew <= 0:
        yield invalid(f"{path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
    if not constraint.topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    else:
        yield from _label_key(f"{path}.topologyKey", constraint.topology_key)
    actions = ("DoNotSchedule", "ScheduleAnyway")
    if not constraint.when_unsatisfiable:
        yield required(f"{path}.whenUnsatisfiable", "can not be empty")
    elif constraint.when_unsatisfiable not in actions:
        yield not_supported(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, actions)
    if constraint.label_selector is not None:
        yield forbidden(
            f"{path}.labelSelector",
            "constraint must not define a selector, as they deduced for each pod",
        )


# -- NodeAffinity ---------------------------------------------------------------------------------


def _node_affinity(path: str, args: NodeAffinityArgs) -> Problems:
    affinity = args.added_affinity
    if affinity is None:
        return
    texts: list[str] = []
    required_terms = affinity.required_during_scheduling_ignored_during_execution
    if required_terms is not None:
        where = f"{path}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        selector = ParsedNodeSelector(required_terms, where)
        texts += [problem for term in selector.terms for problem in term.problems]
    try:
        PreferredNodeTerms(affinity.preferred_during_scheduling_ignored_during_execution)
    except SelectorError as error:
        where = f"{path}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
        texts += [f"{where}{problem}" for problem in error.problems]
    for text in texts:
        field, _, message = text.partition(": ")
        yield FieldProblem(field, message)
