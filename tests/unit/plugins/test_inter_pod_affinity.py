"""InterPodAffinity: the specification's checklist on required, preferred and symmetric terms,
namespaces and hints.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from judging import cluster, hint, make, names_in_order, scores, verdict

from kubesched.config.features import FeatureGates, defaults
from kubesched.config.plugin_args import InterPodAffinityArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import SKIP, Code
from kubesched.plugins.inter_pod_affinity import InterPodAffinity
from kubesched.plugins.inter_pod_affinity.scoring import Contribution, raw_scores
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, REGION, ZONE

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def app(name, value, node=None, namespace="default"):
    pod = make_pod(name, namespace).label("app", value)
    return pod.on(node) if node else pod


def term(key, namespaces=None, namespace_selector=None, **labels):
    found = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    if namespaces is not None:
        found["namespaces"] = namespaces
    if namespace_selector is not None:
        found["namespaceSelector"] = namespace_selector
    return found


def near(*terms, name="new", namespace="default"):
    return make_pod(name, namespace).affinity("podAffinity", required=list(terms))


def apart(*terms, name="new", namespace="default"):
    return make_pod(name, namespace).affinity("podAntiAffinity", required=list(terms))


def three_nodes(*pods):
    return cluster(
        make_node("a1").zone("a").region("r1"),
        make_node("a2").zone("a").region("r1"),
        make_node("b1").zone("b").region("r2"),
        pods=pods,
    )


@pytest.fixture
def plugin():
    return make(InterPodAffinity)


def answers(plugin, pod, table):
    """Node -> reason, or None where the pod fits; SKIP as a whole."""
    first = verdict(plugin, pod, table)
    if first is SKIP:
        return SKIP
    found = {name: verdict(plugin, pod, table, name) for name in names_in_order(table)}
    return {name: status.reasons[0] if status else None for name, status in found.items()}


def test_nothing_to_say_is_skipped(plugin) -> None:
    assert answers(plugin, app("new", "web"), three_nodes(app("x", "db", "a1"))) is SKIP


def test_an_existing_term_on_a_node_without_its_key_is_no_reason_to_look(plugin) -> None:
    table = cluster(make_node("n"), pods=[apart(term("rack", app="web"), name="x").on("n")])
    assert answers(plugin, app("new", "web"), table) is SKIP


def test_required_affinity_keeps_to_the_domain_of_a_matching_pod(plugin) -> None:
    table = three_nodes(app("x", "db", "a1"))
    assert answers(plugin, near(term(ZONE, app="db")), table) == {
        "a1": None,
        "a2": None,
        "b1": AFFINITY,
    }
    status = verdict(plugin, near(term(ZONE, app="db")), table, "b1")
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_a_negative_selector_matches_pods_without_the_key(plugin) -> None:
    negative = {
        "topologyKey": REGION,
        "labelSelector": {
            "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]
        },
    }
    assert answers(plugin, near(negative), three_nodes(make_pod("x").on("b1")))["b1"] is None


def test_pods_of_other_namespaces_are_not_meant_unless_named(plugin) -> None:
    table = three_nodes(app("x", "db", "a1", "other"))
    assert set(answers(plugin, near(term(ZONE, app="db")), table).values()) == {AFFINITY}
    named = near(term(ZONE, namespaces=["other"], app="db"))
    assert answers(plugin, named, table)["a2"] is None


def test_all_affinity_terms_must_be_met_by_the_same_pod(plugin) -> None:
    both = near(term(ZONE, app="db"), term(ZONE, tier="back"))
    halves = three_nodes(app("x", "db", "a1"), make_pod("y").label("tier", "back").on("a1"))
    assert set(answers(plugin, both, halves).values()) == {AFFINITY}
    whole = three_nodes(app("x", "db", "a1").label("tier", "back"))
    assert answers(plugin, both, whole)["a1"] is None


def test_the_first_pod_of_a_group_that_wants_its_own_company_may_begin(plugin) -> None:
    table = cluster(make_node("z").zone("a"), make_node("bare"))
    first = near(term(ZONE, app="web")).label("app", "web")
    assert answers(plugin, first, table) == {"z": None, "bare": AFFINITY}
    assert set(answers(plugin, near(term(ZONE, app="web")), table).values()) == {AFFINITY}, (
        "but not for others' company"
    )


def test_a_pod_matching_one_of_two_terms_does_not_bar_the_first(plugin) -> None:
    first = (
        near(term(ZONE, app="web"), term(ZONE, tier="front"))
        .label("app", "web")
        .label("tier", "front")
    )
    assert answers(plugin, first, three_nodes(app("x", "web", "a1")))["b1"] is None


def test_a_matching_pod_on_a_node_without_any_key_does_not_bar_the_first(plugin) -> None:
    table = cluster(make_node("z").zone("a"), make_node("bare"), pods=[app("x", "web", "bare")])
    assert answers(plugin, near(term(ZONE, app="web")).label("app", "web"), table)["z"] is None


def test_with_the_hostname_fast_path_a_matching_pod_on_any_node_bars_the_first(plugin) -> None:
    """If all terms are about hostnames; otherwise the gate changes nothing."""
    fast = make(InterPodAffinity, gates=FeatureGates(InterPodAffinityHostnameFastPath=True))
    elsewhere = app("x", "web", "bare")
    bare = make_node("bare")
    del bare.json["metadata"]["labels"][HOSTNAME]
    table = cluster(make_node("named").zone("a"), bare, pods=[elsewhere])
    hosts = near(term(HOSTNAME, app="web")).label("app", "web")
    assert answers(plugin, hosts, table)["named"] is None
    assert answers(fast, hosts, table)["named"] == AFFINITY
    before, after = what_if(fast, hosts, table, [(-1, elsewhere)])
    assert (before, after) == (set(), {"named"})
    zones = near(term(HOSTNAME, app="web"), term(ZONE, app="web")).label("app", "web")
    assert answers(fast, zones, table) == answers(plugin, zones, table)
    assert answers(fast, zones, table)["named"] is None


def test_anti_affinity_closes_the_whole_domain(plugin) -> None:
    table = three_nodes(app("x", "db", "a1"))
    assert answers(plugin, apart(term(ZONE, app="db")), table) == {
        "a1": ANTI,
        "a2": ANTI,
        "b1": None,
    }
    assert verdict(plugin, apart(term(ZONE, app="db")), table, "a1").code is Code.UNSCHEDULABLE


def test_any_one_anti_affinity_term_suffices(plugin) -> None:
    pod = apart(term(ZONE, app="db"), term(ZONE, app="cache"))
    assert answers(plugin, pod, three_nodes(app("x", "cache", "b1"))) == {
        "a1": None,
        "a2": None,
        "b1": ANTI,
    }


def test_a_node_without_the_key_has_no_domain_to_close(plugin) -> None:
    table = cluster(make_node("n"), pods=[app("x", "db", "n")])
    assert answers(plugin, apart(term(ZONE, app="db")), table) == {"n": None}


def test_existing_pods_keep_others_away(plugin) -> None:
    table = three_nodes(apart(term(ZONE, app="web"), name="x").on("a1"))
    assert answers(plugin, app("new", "web"), table) == {"a1": EXISTING, "a2": EXISTING, "b1": None}


def test_own_anti_affinity_is_reported_before_that_of_others_and_affinity_before_both(
    plugin,
) -> None:
    x = apart(term(ZONE, app="web"), name="x").label("app", "db").on("a1")
    mutual = apart(term(ZONE, app="db")).label("app", "web")
    assert answers(plugin, mutual, three_nodes(x))["a1"] == ANTI
    wanting = mutual.affinity("podAffinity", required=[term(ZONE, app="absent")])
    assert set(answers(plugin, wanting, three_nodes(x)).values()) == {AFFINITY}


def test_an_existing_pod_of_another_namespace_means_its_own(plugin) -> None:
    table = three_nodes(apart(term(ZONE, app="web"), name="x", namespace="other").on("a1"))
    assert answers(plugin, app("new", "web"), table) is SKIP


LABELLED = {"matchLabels": {"team": "t1"}}
NOT_IN = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["t1"]}]}


@pytest.mark.parametrize(
    ("version", "selector", "where", "meant"),
    [
        pytest.param("1.37", {}, "unknown", True, id="an empty selector means every namespace"),
        pytest.param("1.37", LABELLED, "ours", True, id="namespaces with the label"),
        pytest.param("1.37", LABELLED, "stranger", False, id="and no others"),
        pytest.param("1.37", NOT_IN, "ours", False, id="a negative selector leaves some out"),
        pytest.param("1.37", NOT_IN, "stranger", True, id="and selects the others"),
        pytest.param("1.37", NOT_IN, "unknown", False, id="but only those that exist"),
        pytest.param("1.36", NOT_IN, "ours", True, id="1.36: it means every namespace"),
        pytest.param("1.36", LABELLED, "stranger", False, id="1.36: a label means a label"),
    ],
)
def test_namespace_selectors_of_the_incoming_pod(version, selector, where, meant) -> None:
    plugin = make(InterPodAffinity, gates=defaults(version))
    table = three_nodes(app("x", "db", "a1", where))
    table.namespaces.put("ours", {"team": "t1"})
    table.namespaces.put("stranger", {})
    found = answers(plugin, near(term(ZONE, namespace_selector=selector, app="db")), table)
    assert (found["a1"] is None) == meant


@pytest.mark.parametrize(
    ("labels", "meant"),
    [
        pytest.param(
            {"team": "t1"}, False, id="a negative selector of an existing pod is judged properly"
        ),
        pytest.param({"team": "t2"}, True, id="another team is meant"),
    ],
)
def test_namespace_selectors_of_existing_pods(plugin, labels, meant) -> None:
    table = three_nodes(
        apart(term(ZONE, namespace_selector=NOT_IN, app="web"), name="x", namespace="other").on(
            "a1"
        )
    )
    table.namespaces.put("default", labels)
    found = answers(plugin, app("new", "web"), table)
    assert (found is not SKIP) == meant


@pytest.mark.parametrize(
    ("pod", "category"),
    [
        pytest.param(
            near(
                {
                    "topologyKey": ZONE,
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
                }
            ),
            "requiredAffinityTerms",
            id="a required term",
        ),
        pytest.param(
            make_pod("new").affinity(
                "podAffinity",
                preferred=[
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": ZONE,
                            "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
                        },
                    }
                ],
            ),
            "preferredAffinityTerms",
            id="a preferred term, already at PreFilter",
        ),
    ],
)
def test_an_invalid_selector_is_unresolvable(plugin, pod, category) -> None:
    status = verdict(plugin, pod, three_nodes())
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons[0].startswith(f"parsing pod: {category}: ")


def what_if(plugin, pod, table, changes):
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
        return {
            name for name, row in table.row_of.items() if answer is None or not answer.codes[row]
        }

    return fits(state), fits(clone)


def test_removing_the_pod_in_the_way_opens_the_domain_in_thought_only(plugin) -> None:
    x = app("x", "db", "a1")
    before, after = what_if(plugin, apart(term(ZONE, app="db")), three_nodes(x), [(-1, x)])
    assert (before, after) == ({"b1"}, {"a1", "a2", "b1"})


def test_a_second_pod_in_the_way_keeps_the_domain_closed(plugin) -> None:
    x, y = app("x", "db", "a1"), app("y", "cache", "a2")
    pod = apart(term(ZONE, app="db"), term(ZONE, app="cache"))
    _, after = what_if(plugin, pod, three_nodes(x, y), [(-1, x)])
    assert after == {"b1"}, "terms of one key share their pairs"


def test_adding_and_removing_restores_everything(plugin) -> None:
    y = app("y", "db", "b1")
    before, after = what_if(
        plugin, apart(term(ZONE, app="db")), three_nodes(app("x", "db", "a1")), [(1, y), (-1, y)]
    )
    assert before == after == {"b1"}


def test_removing_the_last_companion_lets_the_pod_begin_anew(plugin) -> None:
    x = app("x", "web", "a1")
    pod = near(term(ZONE, app="web")).label("app", "web")
    before, after = what_if(plugin, pod, three_nodes(x), [(-1, x)])
    assert (before, after) == ({"a1", "a2"}, {"a1", "a2", "b1"})


def test_a_pod_in_thought_brings_its_own_anti_affinity(plugin) -> None:
    table = three_nodes(apart(term(HOSTNAME, app="web"), name="x").on("a1"))
    rival = apart(term(ZONE, app="web"), name="rival").on("b1")
    before, after = what_if(plugin, app("new", "web"), table, [(1, rival)])
    assert (before, after) == ({"a2", "b1"}, {"a2"})


# -- score -----------------------------------------------------------------------------------------


def test_nothing_relevant_is_skipped(plugin) -> None:
    assert scores(plugin, app("new", "web"), three_nodes(app("x", "db", "a1"))) is SKIP
    wishing = make_pod("new").preferred_pod_term("podAffinity", 5, ZONE, app="absent")
    assert scores(plugin, wishing, three_nodes(app("x", "db", "a1"))) is SKIP


def test_more_company_scores_higher(plugin) -> None:
    table = three_nodes(app("x", "db", "a1"), app("y", "db", "a2"), app("z", "db", "b1"))
    wishing = make_pod("new").preferred_pod_term("podAffinity", 5, ZONE, app="db")
    assert scores(plugin, wishing, table) == {"a1": 100, "a2": 100, "b1": 0}


def test_the_worked_example_of_two_keys(plugin) -> None:
    table = cluster(
        make_node("n1").zone("z1"),
        make_node("n2").zone("z1"),
        make_node("n3").zone("z2"),
        pods=[app("x", "db", "n1"), app("y", "db", "n2"), app("w", "noisy", "n1")],
    )
    pod = make_pod("new").preferred_pod_term("podAffinity", 50, ZONE, app="db")
    pod.preferred_pod_term("podAntiAffinity", 30, HOSTNAME, app="noisy")
    assert scores(plugin, pod, table) == {"n1": 70, "n2": 100, "n3": 0}


def test_preferred_distance(plugin) -> None:
    table = cluster(make_node("n1").zone("z1"), make_node("bare"), pods=[app("x", "db", "n1")])
    pod = make_pod("new").preferred_pod_term("podAntiAffinity", 5, ZONE, app="db")
    assert scores(plugin, pod, table) == {"n1": 0, "bare": 100}


def test_existing_pods_wishes_count_too(plugin) -> None:
    table = three_nodes(
        make_pod("x").preferred_pod_term("podAffinity", 7, ZONE, app="web").on("a1")
    )
    assert scores(plugin, app("new", "web"), table) == {"a1": 100, "a2": 100, "b1": 0}


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        pytest.param(
            1, {"a1": 100, "a2": 100, "b1": 0}, id="required affinity of existing pods pulls"
        ),
        pytest.param(0, SKIP, id="unless its weight is zero"),
    ],
)
def test_hard_affinity_is_symmetric_by_weight(weight, expected) -> None:
    plugin = make(InterPodAffinity, args=InterPodAffinityArgs(hard_pod_affinity_weight=weight))
    table = three_nodes(near(term(ZONE, app="web"), name="x").on("a1"))
    assert scores(plugin, app("new", "web"), table) == expected


def test_namespace_labels_decide_whom_existing_terms_mean(plugin) -> None:
    wish = make_pod("x", "other").on("a1")
    wish.affinity(
        "podAffinity",
        preferred=[
            {
                "weight": 3,
                "podAffinityTerm": term(
                    ZONE, namespace_selector={"matchLabels": {"team": "t1"}}, app="web"
                ),
            }
        ],
    )
    table = three_nodes(wish)
    assert scores(plugin, app("new", "web"), table) is SKIP
    table.namespaces.put("default", {"team": "t1"})
    assert scores(plugin, app("new", "web"), table)["a1"] == 100


def test_existing_preferences_can_be_ignored() -> None:
    plugin = make(
        InterPodAffinity, args=InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True)
    )
    table = three_nodes(near(term(ZONE, app="web"), name="x").on("a1"))
    assert scores(plugin, app("new", "web"), table) is SKIP


def test_scores_of_64_bits_equal_those_of_32(plugin, monkeypatch) -> None:
    pods = [app(f"x{at}", "db", ("a1", "a1", "b1")[at % 3]) for at in range(20)]
    pod = make_pod("new").preferred_pod_term("podAffinity", 100, ZONE, app="db")
    pod.preferred_pod_term("podAntiAffinity", 77, HOSTNAME, app="db")
    short = scores(plugin, pod, three_nodes(*pods))
    monkeypatch.setattr("kubesched.plugins.inter_pod_affinity.scoring._SMALL", 0)
    assert scores(plugin, pod, three_nodes(*pods)) == short
    assert len(set(short.values())) == 3


def test_no_difference_scores_nothing(plugin) -> None:
    table = three_nodes(app("x", "db", "a1"), app("y", "db", "b1"))
    pod = make_pod("new").preferred_pod_term("podAffinity", 5, ZONE, app="db")
    assert scores(plugin, pod, table) == {"a1": 0, "a2": 0, "b1": 0}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param([-50, 0, 10], [0, 83, 100], id="negative sums"),
        pytest.param([7, 3, 0], [100, 42, 0], id="truncation"),
        pytest.param(
            [0, 29, 57, 58, 100],
            [0, 28, 56, 57, 100],
            id="division before multiplication, in doubles",
        ),
    ],
)
def test_normalisation(plugin, raw, expected) -> None:
    table = three_nodes()
    found = plugin.normalize_scores(
        CycleState(), make_pod("p").build(), np.array(raw), NodeColumns(table)
    )
    assert found.tolist() == expected


# -- hints -----------------------------------------------------------------------------------------

WANTS_DB = near(term(ZONE, app="db"))
AVOIDS_DB = apart(term(ZONE, app="db")).label("app", "web")


@pytest.mark.parametrize(
    ("pending", "action", "old", "new", "expected"),
    [
        pytest.param(
            WANTS_DB, Action.ADD, None, app("x", "db"), Hint.SKIP, id="a pod without a node"
        ),
        pytest.param(
            WANTS_DB,
            Action.ADD,
            None,
            app("x", "db", "n"),
            Hint.QUEUE,
            id="the wanted company arrives",
        ),
        pytest.param(
            WANTS_DB, Action.ADD, None, app("x", "web", "n"), Hint.SKIP, id="another pod arrives"
        ),
        pytest.param(
            WANTS_DB,
            Action.UPDATE_POD_LABEL,
            app("x", "web", "n"),
            app("x", "db", "n"),
            Hint.QUEUE,
            id="a pod becomes the wanted company",
        ),
        pytest.param(
            AVOIDS_DB,
            Action.UPDATE_POD_LABEL,
            app("x", "db", "n"),
            app("x", "web", "n"),
            Hint.QUEUE,
            id="a pod stops being in the way",
        ),
        pytest.param(
            AVOIDS_DB,
            Action.DELETE,
            app("x", "db", "n"),
            None,
            Hint.QUEUE,
            id="the pod in the way goes",
        ),
        pytest.param(
            app("new", "web"),
            Action.DELETE,
            apart(term(ZONE, app="web"), name="x").on("n"),
            None,
            Hint.QUEUE,
            id="a pod that kept this one away goes",
        ),
        pytest.param(
            AVOIDS_DB,
            Action.DELETE,
            app("x", "other", "n"),
            None,
            Hint.SKIP,
            id="a pod that was not in the way goes",
        ),
    ],
)
def test_pod_hints(plugin, pending, action, old, new, expected) -> None:
    assert hint(plugin, Resource.ASSIGNED_POD, action, pending, old, new) is expected


AVOIDS_TWO = apart(term(ZONE, app="db"), term(ZONE, app="cache"))


@pytest.mark.parametrize(
    ("pending", "old", "new", "any_term"),
    [
        pytest.param(AVOIDS_TWO, app("x", "db", "n"), None, True, id="it goes"),
        pytest.param(AVOIDS_TWO, app("x", "db", "n"), app("x", "web", "n"), True, id="it changes"),
        pytest.param(
            AVOIDS_TWO, app("x", "db", "n"), app("x", "cache", "n"), False, id="it meets the other"
        ),
        pytest.param(
            app("new", "db"),
            apart(term(ZONE, app="db"), term(ZONE, app="cache"), name="x").on("n"),
            None,
            True,
            id="its own terms go",
        ),
    ],
)
@pytest.mark.parametrize("version", ["1.37", "1.36"])
def test_a_pod_that_met_one_of_several_terms(version, pending, old, new, any_term) -> None:
    """1.36 asks whether it met all of them, which it did not."""
    plugin = make(InterPodAffinity, gates=defaults(version))
    action = Action.DELETE if new is None else Action.UPDATE_POD_LABEL
    expected = Hint.QUEUE if any_term and version == "1.37" else Hint.SKIP
    assert hint(plugin, Resource.ASSIGNED_POD, action, pending, old, new) is expected


def test_own_label_updates_are_always_worth_a_try(plugin) -> None:
    old, new = make_pod("new").uid("u"), make_pod("new").uid("u").label("app", "web")
    assert hint(plugin, Resource.TARGET_POD, Action.UPDATE_POD_LABEL, old, old, new) == "always"


@pytest.mark.parametrize(
    ("pending", "action", "old", "new", "expected"),
    [
        pytest.param(
            WANTS_DB,
            Action.ADD,
            None,
            make_node("n").zone("a"),
            Hint.QUEUE,
            id="a node with the key",
        ),
        pytest.param(WANTS_DB, Action.ADD, None, make_node("n"), Hint.SKIP, id="a node without it"),
        pytest.param(
            AVOIDS_DB,
            Action.ADD,
            None,
            make_node("n"),
            Hint.QUEUE,
            id="any node helps one who keeps apart",
        ),
        pytest.param(
            WANTS_DB,
            Action.UPDATE_NODE_LABEL,
            make_node("n"),
            make_node("n").zone("a"),
            Hint.QUEUE,
            id="the key is gained",
        ),
        pytest.param(
            WANTS_DB,
            Action.UPDATE_NODE_LABEL,
            make_node("n").zone("a"),
            make_node("n"),
            Hint.SKIP,
            id="the key is lost",
        ),
        pytest.param(
            AVOIDS_DB,
            Action.UPDATE_NODE_LABEL,
            make_node("n").zone("a"),
            make_node("n"),
            Hint.QUEUE,
            id="the closed domain is left",
        ),
        pytest.param(
            WANTS_DB,
            Action.UPDATE_NODE_LABEL,
            make_node("n").zone("a"),
            make_node("n").zone("b"),
            Hint.QUEUE,
            id="the domain changes",
        ),
        pytest.param(
            app("p", "web"),
            Action.ADD,
            None,
            make_node("n"),
            Hint.QUEUE,
            id="any node helps one whom others keep away",
        ),
        pytest.param(
            app("p", "web"),
            Action.UPDATE_NODE_LABEL,
            make_node("n").zone("a"),
            make_node("n").zone("b"),
            Hint.QUEUE,
            id="a node leaves the domain of those who keep a pod away",
        ),
    ],
)
def test_node_hints(plugin, pending, action, old, new, expected) -> None:
    assert hint(plugin, Resource.NODE, action, pending, old, new) is expected


def test_signatures(plugin) -> None:
    assert plugin.sign_pod(app("p", "web").build()) == {"v1.Pod.Labels": {"app": "web"}}
    assert plugin.sign_pod(WANTS_DB.build()).reasons == (
        "pods with InterPodAffinity are not signable",
    )


class ManyPods:
    """The pods of a domain counter that no cluster of a test could hold."""

    is_by_row = True
    total = 30_000_000

    def of_nodes(self, nodes):
        return np.array([self.total, 0])


def test_points_of_many_pods_are_counted_in_wider_numbers():
    nodes = NodeColumns(cluster(make_node("n1"), make_node("n2")))
    points = raw_scores([(SimpleNamespace(values=[]), [Contribution(ManyPods(), 100)])], nodes)
    assert points.tolist() == [3_000_000_000, 0]
