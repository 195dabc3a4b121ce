"""NodeAffinity: the specification's checklist on node selectors and node affinity."""

import msgspec
import pytest
from judging import cluster, hint, make, scores, verdict

from kubesched.api.selectors import SelectorError
from kubesched.base.errors import ConfigError
from kubesched.config.plugin_args import NodeAffinityArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.interfaces import PreFilterResult
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code
from kubesched.plugins.node_affinity import NodeAffinity
from kubesched.testing import make_node, make_pod

UU = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
NOT_MATCHED = "node(s) didn't match Pod's node affinity/selector"


def expr(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


def labels(*expressions):
    return {"matchExpressions": list(expressions)}


def named(*requirements):
    return {"matchFields": [expr("metadata.name", *each) for each in requirements]}


def requiring(*terms):
    return make_pod("p").affinity("nodeAffinity", required={"nodeSelectorTerms": list(terms)})


def preferring(*terms):
    preferred = [{"weight": weight, "preference": term} for weight, term in terms]
    return make_pod("p").affinity("nodeAffinity", preferred=preferred)


def args(required=None, preferred=None):
    affinity = {}
    if required is not None:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    if preferred is not None:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": term} for weight, term in preferred
        ]
    return msgspec.convert({"addedAffinity": affinity}, NodeAffinityArgs)


def labelled(name="n1", **found):
    return make_node(name).labels(**found)


def fits(pod, node, plugin_args=None):
    table = cluster(node)
    answer = verdict(make(NodeAffinity, table, plugin_args), pod, table)
    if answer is None or answer.code is Code.SKIP:
        return True
    assert answer.code is UU
    assert answer.reasons == (NOT_MATCHED,)
    return False


@pytest.mark.parametrize(
    ("selector", "found", "expected"),
    [
        pytest.param({"a": "1"}, {}, False, id="a missing label does not match"),
        pytest.param({"a": "1"}, {"a": "1", "b": "2"}, True, id="further labels do not matter"),
        pytest.param({"a": "1", "b": "2"}, {"a": "1"}, False, id="every entry must match"),
        pytest.param({}, {}, True, id="an empty selector matches every node"),
    ],
)
def test_node_selector(selector, found, expected):
    pod = make_pod("p").spec(nodeSelector=selector)
    assert fits(pod, labelled(**found)) is expected


@pytest.mark.parametrize(
    ("terms", "found", "expected"),
    [
        pytest.param(
            [labels(expr("a", "Gt", "10"))], {"a": "11"}, True, id="11 is greater than 10"
        ),
        pytest.param(
            [labels(expr("a", "Gt", "10"))], {"a": "10"}, False, id="10 is not greater than 10"
        ),
        pytest.param(
            [labels(expr("a", "Gt", "10"))], {"a": "x"}, False, id="a word is not greater than 10"
        ),
        pytest.param(
            [labels(expr("a", "Gt", "10"))], {}, False, id="an absent label is not greater than 10"
        ),
        pytest.param([labels(expr("a", "Lt", "10"))], {"a": "9"}, True, id="9 is less than 10"),
        pytest.param(
            [labels(expr("a", "Lt", "10"))], {"a": "10"}, False, id="10 is not less than 10"
        ),
        pytest.param(
            [labels(expr("a", "Gt", "5"))],
            {"a": "+007"},
            True,
            id="labels may be written with sign and zeros",
        ),
        pytest.param(
            [labels(expr("a", "Gt", "-1"))],
            {"a": "3"},
            False,
            id="a negative bound is no label value, so the term never matches",
        ),
        pytest.param(
            [labels(expr("a", "NotIn", "x"))],
            {},
            True,
            id="NotIn matches where the label is absent",
        ),
        pytest.param(
            [labels(expr("a", "DoesNotExist"))],
            {},
            True,
            id="DoesNotExist matches where the label is absent",
        ),
        pytest.param([], {"a": "1"}, False, id="no terms match no node"),
        pytest.param([{}], {"a": "1"}, False, id="an empty term matches no node"),
        pytest.param(
            [{}, labels(expr("a", "Exists"))],
            {"a": "1"},
            True,
            id="beside an empty term another can match",
        ),
        pytest.param(
            [labels(expr("a", "Exists"), expr("b", "Exists"))],
            {"a": "1"},
            False,
            id="requirements of one term must all hold",
        ),
        pytest.param(
            [labels(expr("a", "Exists")), labels(expr("b", "Exists"))],
            {"a": "1"},
            True,
            id="of several terms one is enough",
        ),
        pytest.param(
            [labels(expr("a", "In", "{{bad}}")), labels(expr("a", "Exists"))],
            {"a": "1"},
            True,
            id="a malformed term does not keep another from matching",
        ),
        pytest.param(
            [labels(expr("a", "In", "{{bad}}"))],
            {"a": "{{bad}}"},
            False,
            id="a malformed term matches nothing",
        ),
        pytest.param(
            [labels(expr("a", "Near", "1"))],
            {"a": "1"},
            False,
            id="an unknown operator matches nothing",
        ),
        pytest.param(
            [labels(expr("a", "In"))], {"a": "1"}, False, id="In without values matches nothing"
        ),
        pytest.param(
            [labels(expr("a", "Exists", "1"))],
            {"a": "1"},
            False,
            id="Exists with values matches nothing",
        ),
        pytest.param(
            [labels(expr("a", "In", "v1", "v2", "v3", "v4", "v5", "v6"))],
            {"a": "v6"},
            True,
            id="long lists of values match",
        ),
        pytest.param([named(("In", "n1"))], {}, True, id="the node is named"),
        pytest.param([named(("NotIn", "n1"))], {}, False, id="the node is excluded by name"),
        pytest.param([named(("NotIn", "n2"))], {}, True, id="another node is excluded by name"),
        pytest.param(
            [{"matchFields": [expr("metadata.uid", "In", "")]}],
            {},
            True,
            id="a field nodes do not have reads as empty",
        ),
        pytest.param(
            [{**named(("In", "n1")), **labels(expr("a", "Exists"))}],
            {},
            False,
            id="a named node must satisfy the rest of its term",
        ),
        pytest.param(
            [named(("In", "n1", "n2"))], {}, False, id="a field with two values matches no node"
        ),
    ],
)
def test_required_terms(terms, found, expected):
    assert fits(requiring(*terms), labelled(**found)) is expected


def test_required_without_a_list_of_terms_matches_no_node():
    assert not fits(make_pod("p").affinity("nodeAffinity", required={}), labelled())


def test_an_affinity_without_required_part_admits_every_node():
    assert fits(make_pod("p").affinity("nodeAffinity"), labelled())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"s": "1"}, False, id="the selector alone is not enough"),
        pytest.param({"a": "1"}, False, id="the affinity alone is not enough"),
        pytest.param({"s": "1", "a": "1"}, True, id="both together are"),
    ],
)
def test_selector_and_affinity_must_both_match(found, expected):
    pod = requiring(labels(expr("a", "Exists"))).node_selector(s="1")
    assert fits(pod, labelled(**found)) is expected


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        pytest.param([named(("In", "n1"))], {"n1"}, id="one name"),
        pytest.param(
            [named(("In", "n1")), named(("In", "n2"))], {"n1", "n2"}, id="a name per term"
        ),
        pytest.param(
            [named(("In", "n1")), labels(expr("a", "Exists"))],
            None,
            id="a term without name opens all nodes",
        ),
        pytest.param([named(("In", "n1")), {}], None, id="so does an empty term"),
        pytest.param([named(("NotIn", "n1"))], None, id="excluding a node names none"),
        pytest.param(
            [named(("In", "n1", "n2"))],
            {"n1", "n2"},
            id="all values count, although the filter rejects both",
        ),
        pytest.param(
            [named(("In", "n1"), ("In", "n1", "n2"))], {"n1"}, id="names of one term must agree"
        ),
    ],
)
def test_narrowing_by_name(terms, names):
    table = cluster(make_node("n1"), make_node("n2"))
    plugin = make(NodeAffinity, table)
    answer = plugin.pre_filter(CycleState(), requiring(*terms).build(), NodeColumns(table))
    assert answer == (None if names is None else PreFilterResult(frozenset(names)))


def test_names_that_exclude_each_other_reject_the_pod_before_filtering():
    table = cluster(make_node("n1"), make_node("n2"))
    answer = verdict(make(NodeAffinity, table), requiring(named(("In", "n1"), ("In", "n2"))), table)
    assert (answer.code, answer.message) == (UU, "pod affinity terms conflict")


def test_a_pod_without_any_demand_is_skipped():
    table = cluster(make_node("n"))
    assert verdict(make(NodeAffinity, table), make_pod("p"), table).code is Code.SKIP


def test_the_profiles_affinity_speaks_first():
    table = cluster(labelled("n1"), labelled("n2", team="a"), labelled("n3", team="a", disk="ssd"))
    plugin = make(NodeAffinity, table, args(required=[labels(expr("team", "In", "a"))]))
    pod = make_pod("p").node_selector(disk="ssd")
    enforced = "node(s) didn't match scheduler-enforced node affinity"
    assert verdict(plugin, pod, table, "n1").reasons == (enforced,)
    assert verdict(plugin, pod, table, "n2").reasons == (NOT_MATCHED,)
    assert verdict(plugin, pod, table, "n3") is None


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param(
            [(9, labels(expr("a", "Exists")))],
            {"n1": 100, "n2": 0, "n3": 0},
            id="the best becomes 100",
        ),
        pytest.param(
            [(4, labels(expr("a", "Exists"))), (10, labels(expr("b", "Exists")))],
            {"n1": 40, "n2": 100, "n3": 0},
            id="others in proportion",
        ),
        pytest.param(
            [(30, labels(expr("a", "Exists"))), (45, labels(expr("b", "Exists")))],
            {"n1": 66, "n2": 100, "n3": 0},
            id="proportions are truncated",
        ),
        pytest.param(
            [(5, {})], {"n1": 0, "n2": 0, "n3": 0}, id="an empty preference is worth nothing"
        ),
        pytest.param(
            [(0, labels(expr("a", "Near"))), (1, labels(expr("a", "Exists")))],
            {"n1": 100, "n2": 0, "n3": 0},
            id="a malformed term of weight 0 is not looked at",
        ),
    ],
)
def test_scores(terms, expected):
    table = cluster(labelled("n1", a="1"), labelled("n2", b="1"), labelled("n3"))
    assert scores(make(NodeAffinity, table), preferring(*terms), table) == expected


def test_preferences_of_profile_and_pod_add_up_before_normalisation():
    table = cluster(labelled("n1", a="1"), labelled("n2", b="1"), labelled("n3", a="1", b="1"))
    plugin = make(NodeAffinity, table, args(preferred=[(10, labels(expr("a", "Exists")))]))
    pod = preferring((30, labels(expr("b", "Exists"))))
    assert scores(plugin, pod, table) == {"n1": 25, "n2": 75, "n3": 100}


def test_scoring_is_skipped_without_preferences():
    table = cluster(make_node("n"))
    assert scores(make(NodeAffinity, table), make_pod("p"), table).code is Code.SKIP
    assert scores(make(NodeAffinity, table), requiring({}), table).code is Code.SKIP


def test_scoring_is_not_skipped_for_preferences_that_are_worth_nothing():
    table = cluster(make_node("n"))
    assert scores(make(NodeAffinity, table), preferring((5, {})), table) == {"n": 0}
    plugin = make(NodeAffinity, table, args(preferred=[(5, {})]))
    assert scores(plugin, make_pod("p"), table) == {"n": 0}


def test_a_malformed_preference_ends_the_attempt():
    table = cluster(make_node("n"))
    answer = scores(make(NodeAffinity, table), preferring((1, labels(expr("a", "Near")))), table)
    assert answer.code is Code.ERROR
    assert isinstance(answer.error, SelectorError)


def test_without_prepared_state_the_answers_are_the_same():
    table = cluster(labelled("n1", a="1"), labelled("n2"))
    plugin, nodes = make(NodeAffinity, table), NodeColumns(table)
    required = requiring(labels(expr("a", "Exists"))).build()
    assert plugin.filter_nodes(CycleState(), required, nodes).codes.tolist() == [False, True]
    preferred = preferring((3, labels(expr("a", "Exists")))).build()
    assert plugin.score_nodes(CycleState(), preferred, nodes).tolist() == [3, 0]


def test_an_added_affinity_that_cannot_be_read_is_refused_at_start():
    with pytest.raises(ConfigError, match="addedAffinity"):
        make(NodeAffinity, args=args(required=[labels(expr("a", "Near", "1"))]))


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        pytest.param(None, {"a": "1"}, Hint.QUEUE, id="a new node that matches"),
        pytest.param(None, {}, Hint.SKIP, id="a new node that does not match"),
        pytest.param({}, {"a": "1"}, Hint.QUEUE, id="a node that begins to match"),
        pytest.param({"a": "1"}, {"a": "1", "b": "2"}, Hint.SKIP, id="a node that matched before"),
    ],
)
def test_node_hint(was, becomes, expected):
    action = Action.ADD if was is None else Action.UPDATE_NODE_LABEL
    old = None if was is None else labelled(**was)
    pod = requiring(labels(expr("a", "Exists")))
    assert (
        hint(make(NodeAffinity), Resource.NODE, action, pod, old, labelled(**becomes)) is expected
    )


def test_a_node_that_newly_satisfies_only_the_profile_brings_no_pod_back():
    plugin = make(NodeAffinity, args=args(required=[labels(expr("team", "Exists"))]))
    event = (Resource.NODE, Action.UPDATE_NODE_LABEL, make_pod("p"))
    assert hint(plugin, *event, labelled(), labelled(team="a")) is Hint.SKIP
    assert hint(plugin, Resource.NODE, Action.ADD, make_pod("p"), None, labelled()) is Hint.SKIP


def test_a_malformed_term_makes_the_hint_fail_unless_another_term_matches():
    bad, good = labels(expr("a", "Near")), labels(expr("b", "Exists"))
    event = (make(NodeAffinity), Resource.NODE, Action.ADD)
    with pytest.raises(SelectorError):
        hint(*event, requiring(bad), None, labelled())
    assert hint(*event, requiring(bad, good), None, labelled(b="1")) is Hint.QUEUE


def test_the_signature_does_not_depend_on_the_order_of_terms_and_values():
    one, other = labels(expr("a", "In", "1", "2")), labels(expr("b", "Exists"), expr("c", "Exists"))
    turned = labels(expr("c", "Exists"), expr("b", "Exists"))
    plugin = make(NodeAffinity)
    fragment = plugin.sign_pod(requiring(one, other).build())
    assert fragment == plugin.sign_pod(requiring(turned, labels(expr("a", "In", "2", "1"))).build())
    assert fragment != plugin.sign_pod(requiring(one).build())
    assert plugin.sign_pod(make_pod("p").build()) == {
        "v1.Pod.Spec.Affinity.NodeAffinity": None,
        "v1.Pod.Spec.Affinity.NodeSelector": None,
    }
