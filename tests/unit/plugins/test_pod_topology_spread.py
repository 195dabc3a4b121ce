"""PodTopologySpread: the specification's checklist, its worked examples, and default constraints
behind workloads.
"""

import msgspec
import numpy as np
import pytest
from judging import cluster, hint, make, names_in_order, scores, verdict

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import ReplicationController, Service
from kubesched.config.plugin_args import LIST_DEFAULTING, PodTopologySpreadArgs
from kubesched.framework.basis import is_kept
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import SKIP, Code
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.pod_topology_spread import PodTopologySpread
from kubesched.plugins.pod_topology_spread.scoring import (
    natural_log,
)
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE

FOO = {"matchLabels": {"foo": ""}}
MISMATCH = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
SOFT = "ScheduleAnyway"


def foo(name, node, **labels):
    pod = make_pod(name).on(node).label("foo", "")
    for key, value in labels.items():
        pod.label(key, value)
    return pod


def spread_over(counts, key=HOSTNAME):
    """Nodes n0, n1, … with that many matching pods each; with a zone key, one node per zone."""
    nodes = [make_node(f"n{i}").label(key, f"v{i}") for i in range(len(counts))]
    pods = [foo(f"p{i}-{j}", f"n{i}") for i, count in enumerate(counts) for j in range(count)]
    return cluster(*nodes, pods=pods)


def fitting(plugin, pod, table):
    return [name for name in names_in_order(table) if verdict(plugin, pod, table, name) is None]


@pytest.fixture
def plugin():
    return make(PodTopologySpread)


# -- filter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_skew", "matches_itself", "expected"),
    [
        pytest.param(1, True, ["n1", "n3"], id="with skew 1 only the emptiest nodes fit"),
        pytest.param(2, True, ["n1", "n2", "n3"], id="with skew 2 the next ones too"),
        pytest.param(
            1,
            False,
            ["n1", "n2", "n3"],
            id="a pod that does not count itself has one more to spare",
        ),
    ],
)
def test_hosts_with_4_1_2_1_pods(plugin, max_skew, matches_itself, expected) -> None:
    pod = make_pod("new").spread(max_skew, HOSTNAME, selector=FOO)
    if matches_itself:
        pod.label("foo", "")
    assert fitting(plugin, pod, spread_over([4, 1, 2, 1])) == expected


def test_a_pod_without_constraints_of_either_kind_is_skipped(plugin) -> None:
    table = spread_over([1])
    assert verdict(plugin, make_pod("new"), table) is SKIP
    assert scores(plugin, make_pod("new"), table) is SKIP


def test_soft_constraints_do_not_filter_and_hard_ones_do_not_score(plugin) -> None:
    table = spread_over([1, 0])
    soft = make_pod("new").label("foo", "").spread(1, HOSTNAME, SOFT, FOO)
    hard = make_pod("new").label("foo", "").spread(1, HOSTNAME, selector=FOO)
    assert verdict(plugin, soft, table) is SKIP
    assert scores(plugin, hard, table) is SKIP, "and own constraints keep the defaults away"


def test_no_selector_counts_no_pod(plugin) -> None:
    pod = make_pod("new").label("foo", "").spread(1, HOSTNAME)
    assert fitting(plugin, pod, spread_over([9, 0])) == ["n0", "n1"]
    soft = make_pod("new").label("foo", "").spread(1, HOSTNAME, SOFT)
    assert scores(plugin, soft, spread_over([9, 0])) == {"n0": 100, "n1": 100}


def test_an_empty_selector_counts_the_pod_itself_only(plugin) -> None:
    assert fitting(
        plugin, make_pod("new").spread(1, HOSTNAME, selector={}), spread_over([9, 0])
    ) == ["n0", "n1"]


def test_other_namespaces_and_terminating_pods_do_not_count(plugin) -> None:
    table = cluster(
        make_node("n0"),
        make_node("n1"),
        pods=[
            make_pod("a", "other").label("foo", "").on("n0"),
            foo("b", "n0").terminating(),
            foo("c", "n1"),
        ],
    )
    pod = make_pod("new").label("foo", "").spread(1, HOSTNAME, selector=FOO)
    assert fitting(plugin, pod, table) == ["n0"]


def test_a_node_without_the_label_is_out_and_its_pods_count_for_nothing(plugin) -> None:
    table = cluster(
        make_node("a").zone("z1"),
        make_node("b").zone("z2"),
        make_node("c"),
        pods=[foo("1", "c"), foo("2", "c"), foo("3", "a")],
    )
    pod = make_pod("new").label("foo", "").spread(1, ZONE, selector=FOO)
    status = verdict(plugin, pod, table, "c")
    assert (status.code, status.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (MISSING,))
    status = verdict(plugin, pod, table, "a")
    assert (status.code, status.reasons) == (Code.UNSCHEDULABLE, (MISMATCH,))
    assert verdict(plugin, pod, table, "b") is None


def test_a_node_lacking_one_of_two_labels_counts_for_neither(plugin) -> None:
    table = cluster(
        make_node("a").zone("z1").label("rack", "r1"),
        make_node("b").zone("z2"),
        make_node("c").zone("z2").label("rack", "r2"),
        pods=[foo("1", "b"), foo("2", "b"), foo("3", "a")],
    )
    pod = (
        make_pod("new")
        .label("foo", "")
        .spread(1, ZONE, selector=FOO)
        .spread(1, "rack", selector=FOO)
    )
    assert fitting(plugin, pod, table) == ["c"], (
        "zone z2 counts as empty: its pods are on a node without a rack"
    )


@pytest.mark.parametrize(
    ("min_domains", "max_skew", "expected"),
    [
        pytest.param(3, 2, ["n1"], id="too few domains: the minimum counts as zero"),
        pytest.param(2, 2, ["n0", "n1"], id="enough domains: the real minimum counts"),
    ],
)
def test_min_domains(plugin, min_domains, max_skew, expected) -> None:
    pod = (
        make_pod("new")
        .label("foo", "")
        .spread(max_skew, HOSTNAME, selector=FOO, minDomains=min_domains)
    )
    assert fitting(plugin, pod, spread_over([2, 1])) == expected


def test_the_worked_example_with_zones_4_2_2(plugin) -> None:
    table = spread_over([4, 2, 2], ZONE)
    pod = make_pod("new").label("foo", "").spread(1, ZONE, selector=FOO)
    assert fitting(plugin, pod, table) == ["n1", "n2"]
    wide = make_pod("new").label("foo", "").spread(3, ZONE, selector=FOO, minDomains=4)
    assert fitting(plugin, wide, table) == ["n1", "n2"]
    narrow = make_pod("new").label("foo", "").spread(1, ZONE, selector=FOO, minDomains=4)
    assert fitting(plugin, narrow, table) == []


def policy_cluster():
    return cluster(
        make_node("a").zone("z1").label("disk", "ssd"),
        make_node("b").zone("z2").label("disk", "ssd"),
        make_node("c").zone("z3"),
        make_node("d").zone("z4").label("disk", "ssd").taint("dedicated"),
        pods=[foo("1", "a"), foo("2", "b"), foo("4", "d")],
    )


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param(
            {}, ["a", "b", "d"], id="domains the node selector excludes do not set the minimum"
        ),
        pytest.param(
            {"nodeAffinityPolicy": "Ignore"}, [], id="unless affinity is ignored: zone z3 is empty"
        ),
        pytest.param(
            {"nodeTaintsPolicy": "Honor"}, ["a", "b", "d"], id="tainted domains can be left out"
        ),
    ],
)
def test_inclusion_policies(plugin, policies, expected) -> None:
    pod = (
        make_pod("new")
        .label("foo", "")
        .node_selector(disk="ssd")
        .spread(1, ZONE, selector=FOO, **policies)
    )
    assert [name for name in fitting(plugin, pod, policy_cluster()) if name != "c"] == expected


def test_taints_count_only_where_honoured_and_untolerated(plugin) -> None:
    table = cluster(
        make_node("a").zone("z1"),
        make_node("b").zone("z2").taint("dedicated"),
        pods=[foo("1", "a")],
    )
    pod = make_pod("new").label("foo", "")
    assert fitting(plugin, pod.spread(1, ZONE, selector=FOO), table) == ["b"]
    honour = (
        make_pod("new").label("foo", "").spread(1, ZONE, selector=FOO, nodeTaintsPolicy="Honor")
    )
    assert "a" in fitting(plugin, honour, table), "zone z2 does not exist for this pod"
    assert fitting(plugin, honour.tolerates("dedicated"), table) == ["b"]


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        pytest.param(
            FOO, {"foo": "", "rev": "7"}, ["b"], id="only pods of the same revision count"
        ),
        pytest.param(FOO, {"foo": ""}, [], id="a key the pod lacks is ignored"),
        pytest.param({}, {"rev": "7"}, ["b"], id="an empty selector becomes just the key"),
        pytest.param(
            None, {"foo": "", "rev": "7"}, ["a", "b"], id="no selector still selects no pod"
        ),
    ],
)
def test_match_label_keys(plugin, selector, labels, expected) -> None:
    pods = [
        foo("1", "a", rev="7"),
        foo("2", "b", rev="6"),
        foo("3", "b", rev="6"),
        foo("4", "a", rev="6"),
    ]
    table = cluster(make_node("a").zone("z1"), make_node("b").zone("z2"), pods=pods)
    pod = make_pod("new").spread(1, ZONE, selector=selector, matchLabelKeys=["rev"])
    for key, value in labels.items():
        pod.label(key, value)
    if labels == {"foo": ""}:
        expected = ["a", "b"]  # two foo pods each
    assert fitting(plugin, pod, table) == expected


def test_two_constraints_on_one_key_keep_separate_counts(plugin) -> None:
    bar = {"matchLabels": {"bar": ""}}
    table = cluster(
        make_node("a").zone("z1"),
        make_node("b").zone("z2"),
        pods=[foo("1", "a"), make_pod("2").label("bar", "").on("b")],
    )
    pod = (
        make_pod("new")
        .label("foo", "")
        .label("bar", "")
        .spread(1, ZONE, selector=FOO)
        .spread(1, ZONE, selector=bar)
    )
    assert fitting(plugin, pod, table) == []


def test_an_invalid_selector_is_an_error(plugin) -> None:
    bad = {"matchExpressions": [{"key": "foo", "operator": "In"}]}
    status = verdict(plugin, make_pod("new").spread(1, ZONE, selector=bad), spread_over([1]))
    assert status.code is Code.ERROR
    soft = scores(plugin, make_pod("new").spread(1, ZONE, SOFT, bad), spread_over([1]))
    assert soft.code is Code.ERROR


# -- pods added and removed in what-if evaluation --------------------------------------------------


def what_if(plugin, pod, table, changes):
    """Names of fitting nodes after hypothetical (sign, pod) changes, on a clone of the state."""
    built = pod.build()
    state = CycleState()
    assert plugin.pre_filter(state, built, NodeColumns(table)) is None
    clone = state.clone()
    for sign, other in changes:
        info = PodInfo(other.build())
        view = NodeColumns(table, np.array([table.row_of[info.pod.spec.node_name]]))
        (plugin.add_pod if sign > 0 else plugin.remove_pod)(clone, built, info, view)

    def fits(found):
        answer = plugin.filter_nodes(found, built, NodeColumns(table))
        return [
            name
            for name in names_in_order(table)
            if answer is None or not answer.codes[table.row_of[name]]
        ]

    return fits(state), fits(clone)


def test_pods_in_thought_move_the_balance_and_leave_the_original_alone(plugin) -> None:
    table = spread_over([1, 0])
    pod = make_pod("new").label("foo", "").spread(1, HOSTNAME, selector=FOO)
    before, after = what_if(plugin, pod, table, [(1, foo("x", "n1"))])
    assert (before, after) == (["n1"], ["n0", "n1"]), (
        "the only emptiest node got a pod: the minimum rises"
    )
    before, after = what_if(plugin, pod, table, [(-1, foo("p0-0", "n0"))])
    assert (before, after) == (["n1"], ["n0", "n1"])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_pod("x", "other").label("foo", "").on("n1"), id="of another namespace"),
        pytest.param(make_pod("x").on("n1"), id="that the selector does not match"),
    ],
)
def test_pods_in_thought_that_change_nothing(plugin, other) -> None:
    pod = make_pod("new").label("foo", "").spread(1, HOSTNAME, selector=FOO)
    before, after = what_if(plugin, pod, spread_over([1, 0]), [(1, other)])
    assert before == after == ["n1"]


def test_a_pod_in_thought_on_a_node_without_the_label_changes_nothing(plugin) -> None:
    table = cluster(
        make_node("a").zone("z1"), make_node("b").zone("z2"), make_node("c"), pods=[foo("1", "a")]
    )
    pod = make_pod("new").label("foo", "").spread(1, ZONE, selector=FOO)
    before, after = what_if(plugin, pod, table, [(1, foo("x", "c"))])
    assert before == after == ["b"]


# -- score -----------------------------------------------------------------------------------------


def soft_pod(max_skew, *keys):
    pod = make_pod("new").label("foo", "")
    for key in keys:
        pod.spread(max_skew, key, SOFT, FOO)
    return pod


@pytest.mark.parametrize(
    ("counts", "max_skew", "expected"),
    [
        pytest.param([3, 0, 1], 1, [0, 100, 60], id="3/0/1 pods, skew 1"),
        pytest.param([3, 0, 1], 3, [28, 100, 71], id="a larger skew softens"),
        pytest.param([2, 2], 1, [100, 100], id="equal counts are equally good"),
        pytest.param([0, 0], 1, [100, 100], id="no pods at all"),
        pytest.param([5], 1, [100], id="a single node"),
    ],
)
def test_soft_hostname_scores(plugin, counts, max_skew, expected) -> None:
    found = scores(plugin, soft_pod(max_skew, HOSTNAME), spread_over(counts))
    assert list(found.values()) == expected


def test_scores_too_large_for_32_bits(plugin) -> None:
    max_skew, counts = 2**31 - 1, [300, 0, 7]
    raw = [round(count * natural_log(len(counts) + 2)) + max_skew - 1 for count in counts]
    low, high = min(raw), max(raw)
    found = scores(plugin, soft_pod(max_skew, HOSTNAME), spread_over(counts))
    assert list(found.values()) == [100 * (low + high - score) // high for score in raw]


def test_two_soft_constraints_add_up(plugin) -> None:
    # The worked example: (zone count, node count) = (3,1), (3,0), (1,1) over three of four nodes.
    table = cluster(
        make_node("a").zone("z1"),
        make_node("b").zone("z1"),
        make_node("c").zone("z2"),
        make_node("d").zone("z1"),
        pods=[foo("1", "a"), foo("2", "d"), foo("3", "d"), foo("4", "c")],
    )
    built = soft_pod(1, ZONE, HOSTNAME).build()
    rows = np.array([table.row_of[name] for name in ("a", "b", "c")])
    nodes, state = NodeColumns(table, rows), CycleState()
    assert plugin.pre_score(state, built, nodes) is None
    raw = plugin.score_nodes(state, built, nodes)
    assert raw.tolist() == [6, 4, 3]
    assert plugin.normalize_scores(state, built, raw, nodes).tolist() == [50, 83, 100]


def test_a_feasible_node_without_the_label_scores_nothing(plugin) -> None:
    table = cluster(
        make_node("a").zone("z1"), make_node("b"), make_node("c").zone("z2"), pods=[foo("1", "a")]
    )
    assert scores(plugin, soft_pod(1, ZONE), table) == {"a": 0, "b": 0, "c": 100}


def test_two_nodes_of_a_full_zone_score_alike(plugin) -> None:
    table = cluster(
        make_node("a").zone("z1"),
        make_node("b").zone("z1"),
        make_node("c").zone("z2"),
        pods=[foo(f"a{i}", "a") for i in range(5)] + [foo(f"c{i}", "c") for i in range(2)],
    )
    assert scores(plugin, soft_pod(1, ZONE), table) == {"a": 42, "b": 42, "c": 100}


@pytest.mark.parametrize("number", [2, 3, 5, 14, 48, 74, 1000, 20002])
def test_the_logarithm_is_within_a_bit_of_the_exact_one(number) -> None:
    assert abs(natural_log(number) - np.log(number)) <= np.spacing(np.log(number))


# -- default constraints ---------------------------------------------------------------------------


def workload_listers(*objects):
    listers = MemoryListers()
    for kind, json in objects:
        listers.of(kind).put(msgspec.convert(json, kind))
    return listers


def service(selector):
    return Service, {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"selector": selector},
    }


def owned(pod, api_version, kind):
    pod.json["metadata"]["ownerReferences"] = [
        {"apiVersion": api_version, "kind": kind, "name": "w", "uid": "u", "controller": True}
    ]
    return pod


def workload(kind, selector):
    return kind, {"metadata": {"name": "w", "namespace": "default"}, "spec": {"selector": selector}}


def test_system_defaults_without_zones_equal_one_hostname_constraint() -> None:
    plugin = make(PodTopologySpread, listers=workload_listers(service({"foo": ""})))
    found = scores(plugin, make_pod("new").label("foo", ""), spread_over([5, 2, 1]))
    assert found == {"n0": 40, "n1": 90, "n2": 100}


def test_system_defaults_with_zones() -> None:
    plugin = make(PodTopologySpread, listers=workload_listers(service({"foo": ""})))
    pods = (
        [foo(f"a{i}", "a") for i in range(2)]
        + [foo(f"d{i}", "d") for i in range(4)]
        + [foo("c0", "c")]
    )
    table = cluster(
        make_node("a").zone("z1"),
        make_node("b").zone("z1"),
        make_node("c").zone("z2"),
        make_node("d").zone("z1"),
        pods=pods,
    )
    built = make_pod("new").label("foo", "").build()
    nodes = NodeColumns(table, np.array([table.row_of[name] for name in ("a", "b", "c")]))
    state = CycleState()
    assert plugin.pre_score(state, built, nodes) is None
    raw = plugin.score_nodes(state, built, nodes)
    assert raw.tolist() == [18, 14, 9]
    assert plugin.normalize_scores(state, built, raw, nodes).tolist() == [50, 72, 100]


@pytest.mark.parametrize(
    ("listers", "make_pending", "applies"),
    [
        pytest.param(
            [],
            lambda: make_pod("p").label("foo", ""),
            False,
            id="no service, no owner: nothing to spread",
        ),
        pytest.param(
            [service({"foo": ""})],
            lambda: make_pod("p").label("foo", ""),
            True,
            id="a matching service",
        ),
        pytest.param(
            [service({"foo": "x"})],
            lambda: make_pod("p").label("foo", ""),
            False,
            id="a service for others",
        ),
        pytest.param(
            [service(None)],
            lambda: make_pod("p").label("foo", ""),
            False,
            id="a service without selector",
        ),
        pytest.param(
            [workload(ReplicaSet, {"matchLabels": {"foo": ""}})],
            lambda: owned(make_pod("p").label("foo", ""), "apps/v1", "ReplicaSet"),
            True,
            id="a ReplicaSet",
        ),
        pytest.param(
            [workload(StatefulSet, {"matchLabels": {"foo": ""}})],
            lambda: owned(make_pod("p").label("foo", ""), "apps/v1", "StatefulSet"),
            True,
            id="a StatefulSet",
        ),
        pytest.param(
            [workload(ReplicationController, {"foo": ""})],
            lambda: owned(make_pod("p").label("foo", ""), "v1", "ReplicationController"),
            True,
            id="a ReplicationController",
        ),
        pytest.param(
            [workload(ReplicaSet, {"matchLabels": {"foo": ""}})],
            lambda: owned(make_pod("p").label("foo", ""), "extensions/v1beta1", "ReplicaSet"),
            False,
            id="an owner of another API version",
        ),
    ],
)
def test_default_constraints_apply_to_pods_of_a_workload(listers, make_pending, applies) -> None:
    plugin = make(PodTopologySpread, listers=workload_listers(*listers))
    found = scores(plugin, make_pending(), spread_over([1, 0]))
    assert (found is not SKIP) == applies


HARD_DEFAULTS = msgspec.convert(
    {
        "defaultingType": LIST_DEFAULTING,
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        ],
    },
    PodTopologySpreadArgs,
)


def test_listed_default_constraints_can_be_hard() -> None:
    table, args = spread_over([1, 0], ZONE), HARD_DEFAULTS
    active = make(PodTopologySpread, args=args, listers=workload_listers(service({"foo": ""})))
    assert fitting(active, make_pod("new").label("foo", ""), table) == ["n1"]
    idle = make(PodTopologySpread, args=args, listers=workload_listers())
    assert verdict(idle, make_pod("new").label("foo", ""), table) is SKIP


@pytest.mark.parametrize("args", [None, HARD_DEFAULTS], ids=["soft defaults", "hard defaults"])
def test_a_skip_is_kept_if_it_follows_from_the_spec(args) -> None:
    """The Service selects some of these pods: answers for a spec must not depend on labels."""
    plugin = make(PodTopologySpread, args=args, listers=workload_listers(service({"foo": ""})))
    table, kept = spread_over([1, 0], ZONE), set()
    for name, template in {
        "none": make_pod("new"),
        "soft": make_pod("new").spread(1, ZONE, SOFT, FOO),
        "hard": make_pod("new").spread(1, ZONE, selector=FOO),
    }.items():
        for pod in (template, template.label("foo", "")):
            if is_kept(plugin.filter_rule(CycleState(), pod.build())):
                kept.add(f"filter {name}")
                assert verdict(plugin, pod, table) is SKIP
            if is_kept(plugin.score_rule(CycleState(), pod.build())):
                kept.add(f"score {name}")
                assert scores(plugin, pod, table) is SKIP
    assert kept == {"filter soft", "score hard", "filter none" if args is None else "score none"}


def test_signatures_are_refused_while_there_are_constraints() -> None:
    listed = PodTopologySpreadArgs(defaulting_type=LIST_DEFAULTING)
    assert make(PodTopologySpread).sign_pod(make_pod("p").build()).reasons == (
        "pods with default topology constraints are not signable",
    )
    plugin = make(PodTopologySpread, args=listed)
    assert plugin.sign_pod(make_pod("p").build()) == {}
    assert plugin.sign_pod(make_pod("p").spread(1, ZONE).build()).code is Code.UNSCHEDULABLE


# -- hints -----------------------------------------------------------------------------------------

PENDING = (
    make_pod("new")
    .uid("new")
    .label("foo", "")
    .spread(1, ZONE, selector=FOO)
    .spread(1, "rack", selector=FOO)
)


@pytest.mark.parametrize(
    ("action", "old", "new", "expected"),
    [
        pytest.param(
            Action.ADD,
            None,
            make_node("n").zone("z").label("rack", "r"),
            Hint.QUEUE,
            id="a new node with all keys",
        ),
        pytest.param(
            Action.ADD,
            None,
            make_node("n").zone("z"),
            Hint.SKIP,
            id="a new node with one of two keys",
        ),
        pytest.param(
            Action.DELETE,
            make_node("n").zone("z").label("rack", "r"),
            None,
            Hint.QUEUE,
            id="a node with all keys goes",
        ),
        pytest.param(
            Action.UPDATE_NODE_LABEL,
            make_node("n").zone("z").label("rack", "r"),
            make_node("n").zone("z").label("rack", "r").label("x", "y"),
            Hint.SKIP,
            id="an unrelated label",
        ),
        pytest.param(
            Action.UPDATE_NODE_LABEL,
            make_node("n").zone("z").label("rack", "r"),
            make_node("n").zone("z").label("rack", "s"),
            Hint.QUEUE,
            id="the node moves to another domain",
        ),
        pytest.param(
            Action.UPDATE_NODE_LABEL,
            make_node("n").zone("z"),
            make_node("n").zone("z").label("rack", "s"),
            Hint.QUEUE,
            id="the node gains the missing key",
        ),
    ],
)
def test_node_hints(plugin, action, old, new, expected) -> None:
    assert hint(plugin, Resource.NODE, action, PENDING, old, new) is expected


@pytest.mark.parametrize(
    ("action", "old", "new", "expected"),
    [
        pytest.param(Action.ADD, None, foo("x", "n"), Hint.QUEUE, id="a matching pod arrives"),
        pytest.param(
            Action.ADD,
            None,
            make_pod("x").on("n"),
            Hint.SKIP,
            id="a pod that is not selected arrives",
        ),
        pytest.param(
            Action.ADD, None, make_pod("x").label("foo", ""), Hint.SKIP, id="a pod without a node"
        ),
        pytest.param(Action.DELETE, foo("x", "n"), None, Hint.QUEUE, id="a matching pod goes"),
        pytest.param(
            Action.UPDATE_POD_LABEL,
            foo("x", "n"),
            make_pod("x").on("n"),
            Hint.QUEUE,
            id="a pod stops matching",
        ),
        pytest.param(
            Action.UPDATE_POD_LABEL,
            foo("x", "n"),
            foo("x", "n", extra="1"),
            Hint.SKIP,
            id="a label that is not selected on",
        ),
    ],
)
def test_pod_hints(plugin, action, old, new, expected) -> None:
    assert hint(plugin, Resource.ASSIGNED_POD, action, PENDING, old, new) is expected


def test_own_tolerations_matter_only_where_taints_are_honoured(plugin) -> None:
    def pending(policy):
        return (
            make_pod("new")
            .uid("new")
            .label("foo", "")
            .spread(1, ZONE, selector=FOO, nodeTaintsPolicy=policy)
        )

    for policy, expected in (("Honor", Hint.QUEUE), ("Ignore", Hint.SKIP)):
        old, new = pending(policy), pending(policy).tolerates("dedicated")
        assert (
            hint(plugin, Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, old, old, new)
            is expected
        )
