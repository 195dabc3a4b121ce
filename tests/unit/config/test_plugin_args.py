"""Proves the defaults and the checks of every in-tree plugin's arguments, with upstream's
wording.
"""

from __future__ import annotations

import pytest

from kubesched.api.yaml_nodes import parse
from kubesched.config import features
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.plugin_args import (
    ARGS_BY_PLUGIN,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
    default_args,
    with_defaults,
)
from kubesched.config.plugin_args_validation import validate_args
from kubesched.config.schema import Decoder

CPU_AND_MEMORY = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="memory", weight=1))
NO_SCORING = features.parse("StorageCapacityScoring=false")
NO_FILTER_TIMEOUT = features.parse("DRASchedulerFilterTimeout=false")
NO_BINDING_CONDITIONS = features.parse("DRADeviceBindingConditions=false")


def args_of(plugin: str, text: str, gates=DEFAULT_GATES):
    decoder = Decoder(json=False)
    args = decoder.read(parse(text.encode()), ARGS_BY_PLUGIN[plugin], "args")
    assert decoder.problems == []
    return with_defaults(args, gates)


def problems_of(plugin: str, text: str, gates=DEFAULT_GATES) -> list[str]:
    return [str(p) for p in validate_args("args", args_of(plugin, text, gates), gates)]


# -- defaults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugin", "text", "gates", "expected"),
    [
        pytest.param(
            "DefaultPreemption",
            "",
            DEFAULT_GATES,
            DefaultPreemptionArgs(
                min_candidate_nodes_percentage=10, min_candidate_nodes_absolute=100
            ),
            id="preemption looks at 10 % and 100 nodes",
        ),
        pytest.param(
            "DefaultPreemption",
            "minCandidateNodesPercentage: 0",
            DEFAULT_GATES,
            DefaultPreemptionArgs(
                min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=100
            ),
            id="an explicit zero stays",
        ),
        pytest.param(
            "InterPodAffinity",
            "",
            DEFAULT_GATES,
            InterPodAffinityArgs(hard_pod_affinity_weight=1),
            id="hard affinity weighs 1",
        ),
        pytest.param(
            "InterPodAffinity",
            "hardPodAffinityWeight: 0",
            DEFAULT_GATES,
            InterPodAffinityArgs(hard_pod_affinity_weight=0),
            id="hard affinity can weigh nothing",
        ),
        pytest.param(
            "NodeResourcesFit",
            "",
            DEFAULT_GATES,
            NodeResourcesFitArgs(
                scoring_strategy=ScoringStrategy(type="LeastAllocated", resources=CPU_AND_MEMORY)
            ),
            id="fit prefers the least allocated of cpu and memory",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {type: MostAllocated}",
            DEFAULT_GATES,
            NodeResourcesFitArgs(
                scoring_strategy=ScoringStrategy(type="MostAllocated", resources=CPU_AND_MEMORY)
            ),
            id="a strategy without resources gets cpu and memory",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {resources: [{name: a}, {name: b, weight: 0}, {name: c, weight: 4}]}",
            DEFAULT_GATES,
            NodeResourcesFitArgs(
                scoring_strategy=ScoringStrategy(
                    type="",
                    resources=(
                        ResourceSpec(name="a", weight=1),
                        ResourceSpec(name="b", weight=1),
                        ResourceSpec(name="c", weight=4),
                    ),
                )
            ),
            id="no weight and weight zero mean 1, and a given strategy gets no default type",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            "",
            DEFAULT_GATES,
            NodeResourcesBalancedAllocationArgs(resources=CPU_AND_MEMORY),
            id="balance is about cpu and memory",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            "resources: [{name: a}, {name: b, weight: 0}]",
            DEFAULT_GATES,
            NodeResourcesBalancedAllocationArgs(
                resources=(ResourceSpec(name="a", weight=1), ResourceSpec(name="b", weight=1))
            ),
            id="no weight and weight zero mean 1 here too",
        ),
        pytest.param(
            "PodTopologySpread",
            "defaultingType: ''",
            DEFAULT_GATES,
            PodTopologySpreadArgs(defaulting_type="System"),
            id="an empty defaulting type is System",
        ),
        pytest.param(
            "DynamicResources",
            "",
            DEFAULT_GATES,
            DynamicResourcesArgs(filter_timeout_s=10.0, binding_timeout_s=600.0),
            id="allocation has 10 s per node, binding 10 min",
        ),
        pytest.param(
            "DynamicResources",
            "filterTimeout: 0s",
            DEFAULT_GATES,
            DynamicResourcesArgs(filter_timeout_s=0.0, binding_timeout_s=600.0),
            id="a filter timeout of zero stays",
        ),
        pytest.param(
            "DynamicResources",
            "",
            NO_FILTER_TIMEOUT,
            DynamicResourcesArgs(binding_timeout_s=600.0),
            id="no filter timeout without its gate",
        ),
        pytest.param(
            "DynamicResources",
            "",
            NO_BINDING_CONDITIONS,
            DynamicResourcesArgs(filter_timeout_s=10.0),
            id="no binding timeout without its gate",
        ),
        pytest.param(
            "VolumeBinding",
            "",
            NO_SCORING,
            VolumeBindingArgs(bind_timeout_seconds=600, shape=None),
            id="volumes have 10 min and no shape",
        ),
        pytest.param(
            "VolumeBinding",
            "",
            DEFAULT_GATES,
            VolumeBindingArgs(
                shape=(
                    UtilizationShapePoint(utilization=0, score=10),
                    UtilizationShapePoint(utilization=100, score=0),
                )
            ),
            id="a falling shape when capacity is scored",
        ),
    ],
)
def test_missing_arguments_take_their_defaults(plugin, text, gates, expected):
    assert args_of(plugin, text, gates) == expected


def test_plugins_without_arguments_have_none():
    assert default_args("NodeName", DEFAULT_GATES) is None
    assert default_args("Mine", DEFAULT_GATES) is None


@pytest.mark.parametrize("plugin", sorted(ARGS_BY_PLUGIN))
def test_the_defaults_are_valid(plugin):
    for gates in (DEFAULT_GATES, NO_SCORING, NO_FILTER_TIMEOUT, NO_BINDING_CONDITIONS):
        args = default_args(plugin, gates)
        assert args is not None
        assert list(validate_args("args", args, gates)) == []


# -- checks ---------------------------------------------------------------------------------------

NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        pytest.param(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 100, minCandidateNodesAbsolute: 0}",
            id="all nodes and no minimum",
        ),
        pytest.param(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 1}",
            id="no percentage but a minimum",
        ),
        pytest.param(
            "DynamicResources",
            "{filterTimeout: 0s, bindingTimeout: 1s}",
            id="no filter limit and the shortest binding",
        ),
        pytest.param("InterPodAffinity", "hardPodAffinityWeight: 100", id="the heaviest affinity"),
        pytest.param(
            "NodeAffinity",
            "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchExpressions: [{key: a, operator: Gt, values: ['5']}, {key: b, operator: "
            "Exists}],"
            " matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]}}",
            id="a full node selector",
        ),
        pytest.param(
            "NodeAffinity",
            "addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
            "[{weight: 0, preference: {matchExpressions: [{key: a, operator: Nonsense}]}}]}",
            id="a term of weight zero is not looked at",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            "resources: [{name: a}, {name: b}]",
            id="balance over other resources",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{ignoredResources: [example.com/a], ignoredResourceGroups: [example.com], "
            "scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: a, weight: "
            "100}], "
            "requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, "
            "{utilization: 100, score: 10}]}}}",
            id="everything fit can be told",
        ),
        pytest.param(
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: ["
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, "
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}",
            id="the same key with both actions",
        ),
        pytest.param("PodTopologySpread", "defaultingType: List", id="a list without constraints"),
        pytest.param("VolumeBinding", "bindTimeoutSeconds: 0", id="no waiting for volumes"),
    ],
)
def test_sensible_arguments_pass(plugin, text):
    assert problems_of(plugin, text) == []


@pytest.mark.parametrize(
    ("plugin", "text", "expected"),
    [
        pytest.param(
            "DefaultPreemption",
            "minCandidateNodesPercentage: 101",
            ["args.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]"],
            id="more than all nodes",
        ),
        pytest.param(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: -1, minCandidateNodesAbsolute: -1}",
            [
                "args.minCandidateNodesPercentage: Invalid value: -1: not in valid range [0, 100]",
                "args.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
            ],
            id="negative candidates",
        ),
        pytest.param(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            [
                "args.minCandidateNodesPercentage: Invalid value: 0: "
                "cannot be zero at the same time as minCandidateNodesAbsolute",
                "args.minCandidateNodesAbsolute: Invalid value: 0: "
                "cannot be zero at the same time as minCandidateNodesPercentage",
            ],
            id="no candidates at all",
        ),
        pytest.param(
            "DynamicResources",
            "{filterTimeout: -1s, bindingTimeout: 999ms}",
            [
                'args.filterTimeout: Invalid value: "-1s": must be zero or positive',
                'args.bindingTimeout: Invalid value: "999ms": must be at least 1 second',
            ],
            id="times too short",
        ),
        pytest.param(
            "InterPodAffinity",
            "hardPodAffinityWeight: 101",
            ["args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"],
            id="too heavy an affinity",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            "resources: [{name: a, weight: 2}, {name: a}]",
            [
                "args.resources[0].weight: Invalid value: 2: must be 1",
                'args.resources[1].name: Duplicate value: "a"',
            ],
            id="balance has no weights and no repetition",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{ignoredResources: ['a b'], ignoredResourceGroups: [a/b, '']}",
            [
                f'args.ignoredResources[0]: Invalid value: "a b": name part {NAME_RULE}',
                'args.ignoredResourceGroups[0]: Invalid value: "a/b": '
                "resource group name can't contain '/'",
                'args.ignoredResourceGroups[1]: Invalid value: "": name part must be non-empty',
                f'args.ignoredResourceGroups[1]: Invalid value: "": name part {NAME_RULE}',
            ],
            id="names that are none",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {type: Random, resources: [{name: a, weight: 101}]}",
            [
                'args.scoringStrategy.type: Unsupported value: "Random": supported values: '
                '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"',
                "args.scoringStrategy.resources[0].weight: Invalid value: 101: "
                "resource weight of a not in valid range (0, 100]",
            ],
            id="an unknown strategy with a heavy resource",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {}",
            [
                'args.scoringStrategy.type: Unsupported value: "": supported values: '
                '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
            ],
            id="a strategy without type",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {type: RequestedToCapacityRatio}",
            [
                "args.scoringStrategy.requestedToCapacityRatio: Required value: "
                "must be specified when type is RequestedToCapacityRatio"
            ],
            id="a ratio without shape",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {shape: []}}",
            [
                "args.scoringStrategy.requestedToCapacityRatio: Forbidden: "
                "must be nil when type is not RequestedToCapacityRatio"
            ],
            id="a shape without ratio",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {}}",
            [
                "args.scoringStrategy.requestedToCapacityRatio.shape: Required value: "
                "at least one point must be specified"
            ],
            id="an empty shape",
        ),
        pytest.param(
            "NodeResourcesFit",
            "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
            "[{utilization: 50, score: 11}, {utilization: 50, score: -1}, {utilization: 101}]}}",
            [
                "args.scoringStrategy.requestedToCapacityRatio.shape[1].utilization: "
                "Invalid value: 50: values must be sorted in increasing order",
                "args.scoringStrategy.requestedToCapacityRatio.shape[0].score: "
                "Invalid value: 11: not in valid range [0, 10]",
                "args.scoringStrategy.requestedToCapacityRatio.shape[1].score: "
                "Invalid value: -1: not in valid range [0, 10]",
                "args.scoringStrategy.requestedToCapacityRatio.shape[2].utilization: "
                "Invalid value: 101: not in valid range [0, 100]",
            ],
            id="a shape out of order and out of range",
        ),
        pytest.param(
            "PodTopologySpread",
            "defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
            [
                'args.defaultingType: Invalid value: "System": '
                "when .defaultConstraints are not empty"
            ],
            id="constraints need the type List",
        ),
        pytest.param(
            "PodTopologySpread",
            "defaultingType: Random",
            [
                'args.defaultingType: Unsupported value: "Random": supported values: '
                '"System", "List"'
            ],
            id="an unknown type",
        ),
        pytest.param(
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: [{}, {maxSkew: 1, topologyKey: 'a b', "
            "whenUnsatisfiable: Maybe, labelSelector: {}}, {}]}",
            [
                "args.defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                "args.defaultConstraints[0].topologyKey: Required value: can not be empty",
                "args.defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
                'args.defaultConstraints[1].topologyKey: Invalid value: "a b": '
                f"name part {NAME_RULE}",
                'args.defaultConstraints[1].whenUnsatisfiable: Unsupported value: "Maybe": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"',
                "args.defaultConstraints[1].labelSelector: Forbidden: "
                "constraint must not define a selector, as they deduced for each pod",
                "args.defaultConstraints[2].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                "args.defaultConstraints[2].topologyKey: Required value: can not be empty",
                "args.defaultConstraints[2].whenUnsatisfiable: Required value: can not be empty",
                'args.defaultConstraints[2]: Duplicate value: "{, }"',
            ],
            id="constraints wrong in every way",
        ),
        pytest.param(
            "VolumeBinding",
            "{bindTimeoutSeconds: -1, shape: [{utilization: 0, score: 11}]}",
            [
                "args.bindTimeoutSeconds: Invalid value: -1: "
                "invalid BindTimeoutSeconds, should not be a negative value",
                "args.shape[0].score: Invalid value: 11: not in valid range [0, 10]",
            ],
            id="a negative time and a score out of range",
        ),
    ],
)
def test_wrong_arguments_are_reported_in_upstream_words(plugin, text, expected):
    assert problems_of(plugin, text) == expected


def test_fields_whose_gate_is_off_are_forbidden():
    assert problems_of("DynamicResources", "filterTimeout: 1s", NO_FILTER_TIMEOUT) == [
        "args.filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled"
    ]
    assert problems_of("DynamicResources", "bindingTimeout: 2s", NO_BINDING_CONDITIONS) == [
        "args.bindingTimeout: Forbidden: DRADeviceBindingConditions or "
        "DRAResourceClaimDeviceStatus feature gate is disabled"
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shape: [{utilization: 0, score: 1}]", '[{"Utilization":0,"Score":1}]'),
        ("shape: []", "[]"),
    ],
)
def test_a_shape_needs_its_gate(text, shown):
    assert problems_of("VolumeBinding", text, NO_SCORING) == [
        f"args.shape: Invalid value: {shown}: unexpected field `shape`, remove it or turn on "
        "the feature gate StorageCapacityScoring"
    ]


TERMS = "args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        pytest.param(
            "matchExpressions: [{key: a, operator: Near}]",
            [
                f'{TERMS}.matchExpressions[0].operator: Unsupported value: "Near": supported '
                'values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
            ],
            id="an unknown operator",
        ),
        pytest.param(
            "matchExpressions: [{key: 'a/b/c', operator: Exists}]",
            [
                f'{TERMS}.matchExpressions[0].key: Invalid value: "a/b/c": a valid label key '
                f"{NAME_RULE} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ],
            id="a key with two slashes",
        ),
        pytest.param(
            "matchExpressions: [{key: a, operator: In}]",
            [
                f"{TERMS}.matchExpressions[0].values: Invalid value: null: "
                "for 'in', 'notin' operators, values set can't be empty"
            ],
            id="In without values",
        ),
        pytest.param(
            "matchExpressions: [{key: a, operator: Exists, values: [x]}]",
            [
                f'{TERMS}.matchExpressions[0].values: Invalid value: ["x"]: '
                "values set must be empty for exists and does not exist"
            ],
            id="Exists with values",
        ),
        pytest.param(
            "matchExpressions: [{key: a, operator: Lt, values: ['1', x]}]",
            [
                f'{TERMS}.matchExpressions[0].values: Invalid value: ["1","x"]: '
                "for 'Gt', 'Lt' operators, exactly one value is required",
                f'{TERMS}.matchExpressions[0].values[1]: Invalid value: "x": '
                "for 'Gt', 'Lt' operators, the value must be an integer",
            ],
            id="Lt with two values, one of them no number",
        ),
        pytest.param(
            "matchExpressions: [{key: a, operator: Gt, values: ['-5']}]",
            [f'{TERMS}.matchExpressions[0].values[0][a]: Invalid value: "-5": {VALUE_RULE}'],
            id="a negative number is no label value",
        ),
        pytest.param(
            "matchFields: [{key: metadata.name, operator: Exists}, "
            "{key: metadata.name, operator: In, values: [a, b]}]",
            [
                f'{TERMS}.matchFields[0].operator: Unsupported value: "Exists": '
                'supported values: "In", "NotIn"',
                f'{TERMS}.matchFields[1].values: Invalid value: ["a","b"]: must have one element',
            ],
            id="fields know two operators with one value",
        ),
    ],
)
def test_an_added_affinity_must_be_a_node_selector(term, expected):
    text = (
        "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        f"{{nodeSelectorTerms: [{{{term}}}]}}}}"
    )
    assert problems_of("NodeAffinity", text) == expected


def test_preferred_terms_are_checked_too():
    text = (
        "addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
        "[{weight: 1, preference: {matchExpressions: [{key: a, operator: Near}]}}]}"
    )
    (problem,) = problems_of("NodeAffinity", text)
    assert problem.startswith(
        "args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
        ".matchExpressions[0].operator: Unsupported value"
    )
