"""Column form == row form == scalar twin, on random clusters and after random changes, with and
without classes.

Every plugin that looks at one node at a time is judged node by node against a plain Python
implementation of the specification. Spreading and inter-pod affinity are compared elsewhere.
"""

import copy

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from plugin_strategies import clusters, pending_pods, pod_of
from scalar import node_rules as twin
from scalar.labels import Malformed
from scalar.model import host_ports

from kubesched.config.plugin_args import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import PreFilterResult
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code, Status
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.image_locality import ImageLocality
from kubesched.plugins.node_affinity import NodeAffinity
from kubesched.plugins.node_declared_features import NodeDeclaredFeatures
from kubesched.plugins.node_name import NodeName
from kubesched.plugins.node_ports import NodePorts
from kubesched.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.plugins.node_unschedulable import NodeUnschedulable
from kubesched.plugins.taint_toleration import TaintToleration

# Without shrinking: clusters drawn through a Random are small already and take minutes to become
# smaller.
thorough = settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

ADDED = {
    twin.REQUIRED: {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
    },
    twin.PREFERRED: [
        {
            "weight": 7,
            "preference": {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["2"]}]},
        }
    ],
}
FOUR_RESOURCES = (("cpu", 3), ("memory", 1), ("example.com/gpu", 5), ("ephemeral-storage", 2))
SHAPE = ((0, 10), (40, 3), (70, 0), (100, 8))


def make(plugin, table, args=None):
    return plugin(args, Handle(table))


def strategy(kind, resources=twin.DEFAULT_RESOURCES, shape=()):
    points = tuple(UtilizationShapePoint(utilization=u, score=s) for u, s in shape)
    return NodeResourcesFitArgs(
        scoring_strategy=ScoringStrategy(
            type=kind,
            resources=tuple(ResourceSpec(name=n, weight=w) for n, w in resources),
            requested_to_capacity_ratio=(
                RequestedToCapacityRatioParam(shape=points) if shape else None
            ),
        )
    )


# -- judging a plugin ------------------------------------------------------------------------------


def comparable(status):
    """(code, reasons); NodeResourcesFit may list scalar resources in any order."""
    if status is None:
        return None
    code, reasons = (
        status if isinstance(status, tuple) else (status.code.upstream_name, status.reasons)
    )
    return code, sorted(reasons)


def new_state(memo):
    state = CycleState()
    state.class_memo = memo
    return state


def assert_filter_agrees(plugin, cluster, json, expected, memo=None):
    """`expected(model, pod, node name)` is the twin; SKIP means that no node may be rejected."""
    pod = pod_of(json)
    for nodes in cluster.views():
        state = new_state(memo)
        answer = plugin.pre_filter(state, pod, nodes) if hasattr(plugin, "pre_filter") else None
        skipped = isinstance(answer, Status) and answer.code is Code.SKIP
        verdicts = None if skipped else plugin.filter_nodes(state, pod, nodes)
        assert verdicts is None or isinstance(verdicts, Verdicts)
        for index in range(len(nodes)):
            if not nodes.alive[index]:
                continue
            name = nodes.name_at(index)
            theirs = comparable(expected(cluster.model, json, name))
            code = 0 if verdicts is None else int(verdicts.codes[index])
            assert comparable(verdicts.describe(code) if code else None) == theirs, name
            passes = None if skipped else getattr(plugin.filter_rule(state, pod), "at", None)
            if passes is not None:
                assert passes(nodes.row_at(index)) == (theirs is None), name


def assert_score_agrees(plugin, cluster, json, expected, normalized=None, memo=None):
    pod = pod_of(json)
    for nodes in cluster.views():
        living = [index for index in range(len(nodes)) if nodes.alive[index]]
        names = [nodes.name_at(index) for index in living]
        state = new_state(memo)
        if hasattr(plugin, "pre_score"):
            assert plugin.pre_score(state, pod, nodes) is None
        raw = plugin.score_nodes(state, pod, nodes)
        theirs = [expected(cluster.model, json, name) for name in names]
        raw = np.broadcast_to(raw, len(nodes))
        assert raw[living].tolist() == theirs, names
        score_at = getattr(plugin.score_rule(state, pod), "at", None)
        if score_at is not None:
            rows = [cluster.table.row_of[name] for name in names]
            assert [score_at(row) for row in rows] == theirs, names
        if normalized is not None:
            feasible = NodeColumns(cluster.table, nodes.row_indices()[living])
            final = plugin.normalize_scores(state, pod, raw[living], feasible)
            assert final.tolist() == normalized(theirs)


def judge_node_rules(cluster, plugins, json, memo=None):
    """Every plugin with default arguments on one pod."""
    filters = {
        "NodeUnschedulable": twin.node_unschedulable,
        "NodeName": twin.node_name,
        "TaintToleration": twin.taint_toleration,
        "NodeAffinity": twin.node_affinity_filter,
        "NodePorts": twin.node_ports,
        "NodeResourcesFit": twin.node_resources_fit,
        "NodeDeclaredFeatures": twin.node_declared_features,
    }
    for name, expected in filters.items():
        assert_filter_agrees(plugins[name], cluster, json, expected, memo)
    assert_score_agrees(
        plugins["TaintToleration"],
        cluster,
        json,
        twin.taint_toleration_score,
        lambda scores: twin.default_normalize(scores, reverse=True),
        memo,
    )
    if twin.prefers_nodes(json):
        assert_score_agrees(
            plugins["NodeAffinity"],
            cluster,
            json,
            twin.node_affinity_score,
            twin.default_normalize,
            memo,
        )
    assert_score_agrees(plugins["NodeResourcesFit"], cluster, json, least_allocated, memo=memo)
    if not twin.is_best_effort(json):
        assert_score_agrees(
            plugins["NodeResourcesBalancedAllocation"],
            cluster,
            json,
            balanced,
            memo=memo,
        )
    assert_score_agrees(plugins["ImageLocality"], cluster, json, twin.image_locality, memo=memo)


def least_allocated(model, pod, name, resources=twin.DEFAULT_RESOURCES):
    return twin.least_allocated(twin.scored_amounts(model, pod, name, resources, real=False))


def balanced(model, pod, name, resources=twin.DEFAULT_RESOURCES):
    return twin.balanced_allocation(twin.scored_amounts(model, pod, name, resources, real=True))


ALL = (
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeDeclaredFeatures,
    NodeResourcesBalancedAllocation,
    ImageLocality,
)


def all_plugins(table):
    return {each.name: make(each, table) for each in ALL}


# -- the properties --------------------------------------------------------------------------------


@thorough
@given(clusters(), pending_pods())
def test_every_plugin_equals_its_twin_on_any_cluster(cluster, json):
    judge_node_rules(cluster, all_plugins(cluster.table), json)


@pytest.mark.slow
@thorough
@given(clusters(), st.lists(pending_pods(), min_size=1, max_size=2), st.booleans())
def test_every_plugin_equals_its_twin_after_changes_to_nodes_and_pods(cluster, jsons, by_class):
    plugins = all_plugins(cluster.table)
    memos = [{} if by_class else None for _ in jsons]
    for _ in range(3):
        for json, memo in zip(jsons, memos, strict=True):
            judge_node_rules(cluster, plugins, json, memo)
        for _ in range(cluster.random.randint(1, 4)):
            cluster.change()
        cluster.refresh()
    for json, memo in zip(jsons, memos, strict=True):
        judge_node_rules(cluster, plugins, json, memo)


@thorough
@given(clusters(), pending_pods())
def test_a_node_with_pods_added_and_removed_in_thought_is_judged_as_if_they_were(cluster, json):
    plugins = all_plugins(cluster.table)
    table, model = cluster.table, cluster.model
    pods = cluster.pods()
    if not pods:
        cluster.add_pod()
        pods = cluster.pods()
    removed, removed_json = cluster.random.choice(pods)
    added, added_json = cluster.random.choice(pods)
    name = removed_json["spec"]["nodeName"]
    imagined = copy.deepcopy(model)
    imagined.remove_pod(removed_json)
    elsewhere = added_json["spec"]["nodeName"] != name
    if elsewhere:
        imagined.add_pod({**added_json, "spec": {**added_json["spec"], "nodeName": name}})
    view = cluster.views()[0].what_if(
        table.row_of[name], add=[added] if elsewhere else [], remove=[removed]
    )
    pod = pod_of(json)
    for plugin, expected in (
        (plugins["NodePorts"], twin.node_ports),
        (plugins["NodeResourcesFit"], twin.node_resources_fit),
    ):
        state = CycleState()
        if plugin.pre_filter(state, pod, view) is not None:
            continue
        verdicts = plugin.filter_nodes(state, pod, view)
        code = 0 if verdicts is None else int(verdicts.codes[0])
        ours = verdicts.describe(code) if code else None
        assert comparable(ours) == comparable(expected(imagined, json, name))
    for plugin, expected in (
        (plugins["NodeResourcesFit"], least_allocated),
        (plugins["NodeResourcesBalancedAllocation"], balanced),
    ):
        state = CycleState()
        if plugin.pre_score(state, pod, view) is None:
            score = plugin.score_nodes(state, pod, view)
            assert score.tolist() == [expected(imagined, json, name)]


@pytest.mark.slow
@thorough
@given(clusters(), pending_pods(), st.data())
def test_strategies_equal_their_twins_for_any_resource_list(cluster, json, data):
    resources = tuple(data.draw(st.permutations(FOUR_RESOURCES)))[: data.draw(st.integers(1, 4))]

    def amounts(model, pod, name):
        return twin.scored_amounts(model, pod, name, resources, real=False)

    for args, expected in (
        (strategy(LEAST_ALLOCATED, resources), twin.least_allocated),
        (strategy(MOST_ALLOCATED, resources), twin.most_allocated),
        (
            strategy(REQUESTED_TO_CAPACITY_RATIO, resources, SHAPE),
            lambda found: twin.requested_to_capacity_ratio(found, SHAPE),
        ),
    ):
        plugin = make(NodeResourcesFit, cluster.table, args)
        for _ in range(2):
            assert_score_agrees(
                plugin, cluster, json, lambda m, p, n, e=expected: e(amounts(m, p, n))
            )
            cluster.change()
            cluster.refresh()


@thorough
@given(clusters(), pending_pods())
def test_balance_over_four_resources_equals_its_twin(cluster, json):
    resources = tuple((name, 1) for name, _ in FOUR_RESOURCES)
    args = NodeResourcesBalancedAllocationArgs(
        resources=tuple(ResourceSpec(name=name, weight=1) for name, _ in resources)
    )
    plugin = make(NodeResourcesBalancedAllocation, cluster.table, args)
    if twin.is_best_effort(json, resources):
        assert plugin.pre_score(CycleState(), pod_of(json), cluster.views()[0]).code is Code.SKIP
        return
    for _ in range(2):
        assert_score_agrees(plugin, cluster, json, lambda m, p, n: balanced(m, p, n, resources))
        cluster.change()
        cluster.refresh()


@thorough
@given(clusters(), pending_pods())
def test_ignored_resources_and_groups_are_left_out_of_the_filter(cluster, json):
    args = NodeResourcesFitArgs(
        ignored_resources=("example.com/gpu", "cpu"), ignored_resource_groups=("other.com",)
    )
    plugin = make(NodeResourcesFit, cluster.table, args)
    assert_filter_agrees(
        plugin,
        cluster,
        json,
        lambda m, p, n: twin.node_resources_fit(m, p, n, {"example.com/gpu"}, {"other.com"}),
    )


@thorough
@given(clusters(), pending_pods())
def test_affinity_added_by_the_profile_joins_the_pods_own(cluster, json):
    args = msgspec.convert({"addedAffinity": ADDED}, NodeAffinityArgs)
    plugin = make(NodeAffinity, cluster.table, args)
    assert_filter_agrees(
        plugin, cluster, json, lambda m, p, n: twin.node_affinity_filter(m, p, n, ADDED)
    )
    assert_score_agrees(
        plugin,
        cluster,
        json,
        lambda m, p, n: twin.node_affinity_score(m, p, n, ADDED),
        twin.default_normalize,
    )


@thorough
@given(clusters(), pending_pods())
def test_pre_filter_narrows_to_the_nodes_that_required_terms_name(cluster, json):
    plugin = make(NodeAffinity, cluster.table)
    answer = plugin.pre_filter(CycleState(), pod_of(json), cluster.views()[0])
    names = twin.named_nodes(json)
    if names is None:
        assert answer is None or answer.code is Code.SKIP
    elif names:
        assert isinstance(answer, PreFilterResult)
        assert answer.node_names == names
    else:
        assert comparable(answer) == (twin.UU, ["pod affinity terms conflict"])


@thorough
@given(clusters(), pending_pods())
def test_plugins_skip_exactly_the_pods_they_have_nothing_to_say_about(cluster, json):
    plugins, nodes, pod = all_plugins(cluster.table), cluster.views()[0], pod_of(json)

    def skips(plugin, point):
        answer = getattr(plugin, point)(CycleState(), pod, nodes)
        return isinstance(answer, Status) and answer.code is Code.SKIP

    spec, affinity = json["spec"], (json["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    assert skips(plugins["NodePorts"], "pre_filter") == (not host_ports(json))
    assert skips(plugins["NodeAffinity"], "pre_filter") == (
        spec.get("nodeSelector") is None and affinity.get(twin.REQUIRED) is None
    )
    assert skips(plugins["NodeDeclaredFeatures"], "pre_filter") == (
        not twin.required_features(json)
    )
    assert not skips(plugins["NodeResourcesFit"], "pre_filter")
    assert skips(plugins["NodeAffinity"], "pre_score") == (not twin.prefers_nodes(json))
    assert skips(plugins["NodeResourcesBalancedAllocation"], "pre_score") == (
        twin.is_best_effort(json)
    )
    assert not skips(plugins["TaintToleration"], "pre_score")
    assert not skips(plugins["NodeResourcesFit"], "pre_score")


def test_the_twin_itself_refuses_a_preference_it_cannot_read():
    node = {"metadata": {"name": "n"}, "spec": {}}
    term = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
    with pytest.raises(Malformed):
        twin.matches_node_term(term, node)
