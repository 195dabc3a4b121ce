"""Pod (anti-)affinity terms: scope, matching, and how one bad selector empties its list."""

from __future__ import annotations

import pytest

from kubesched.api.affinity_terms import NO_TERMS, parse_affinity_term, parse_affinity_terms
from kubesched.api.core_v1 import (
    Affinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodSpec,
    WeightedPodAffinityTerm,
)
from kubesched.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta

APP = LabelSelector(match_labels={"app": "a"})
BROKEN = LabelSelector(match_expressions=[LabelSelectorRequirement(key="k", operator="Near")])


def term(selector=APP, namespaces=None, namespace_selector=None, key="zone"):
    return PodAffinityTerm(
        label_selector=selector,
        namespaces=namespaces,
        namespace_selector=namespace_selector,
        topology_key=key,
    )


def pod(required=None, anti=None, preferred=None, preferred_anti=None):
    def weigh(terms):
        return (
            None
            if terms is None
            else [WeightedPodAffinityTerm(weight=w, pod_affinity_term=t) for w, t in terms]
        )

    return Pod(
        metadata=ObjectMeta(namespace="home", name="p"),
        spec=PodSpec(
            affinity=Affinity(
                pod_affinity=PodAffinity(
                    required_during_scheduling_ignored_during_execution=required,
                    preferred_during_scheduling_ignored_during_execution=weigh(preferred),
                ),
                pod_anti_affinity=PodAntiAffinity(
                    required_during_scheduling_ignored_during_execution=anti,
                    preferred_during_scheduling_ignored_during_execution=weigh(preferred_anti),
                ),
            )
        ),
    )


@pytest.mark.parametrize(
    ("written", "namespace", "labels", "namespace_labels", "meant"),
    [
        pytest.param(
            term(), "home", {"app": "a"}, None, True, id="the pod's own namespace by default"
        ),
        pytest.param(term(), "away", {"app": "a"}, None, False, id="and no other"),
        pytest.param(term(), "home", {"app": "b"}, None, False, id="labels must match"),
        pytest.param(term(None), "home", {"app": "a"}, None, False, id="no selector means no pod"),
        pytest.param(
            term(LabelSelector()), "home", None, None, True, id="an empty selector means every pod"
        ),
        pytest.param(
            term(namespaces=["away"]),
            "home",
            {"app": "a"},
            None,
            False,
            id="listed namespaces only",
        ),
        pytest.param(
            term(namespaces=["away"]), "away", {"app": "a"}, None, True, id="a listed namespace"
        ),
        pytest.param(
            term(namespace_selector=LabelSelector()),
            "any",
            {"app": "a"},
            None,
            True,
            id="an empty namespace selector means all",
        ),
        pytest.param(
            term(namespace_selector=LabelSelector(match_labels={"team": "x"})),
            "home",
            {"app": "a"},
            {"team": "y"},
            False,
            id="with a namespace selector the own namespace is not implied",
        ),
        pytest.param(
            term(namespaces=["away"], namespace_selector=LabelSelector(match_labels={"team": "x"})),
            "third",
            {"app": "a"},
            {"team": "x"},
            True,
            id="listed namespaces or selected ones",
        ),
        pytest.param(
            term(namespaces=[], namespace_selector=None),
            "home",
            {"app": "a"},
            None,
            True,
            id="an empty list is no list",
        ),
    ],
)
def test_which_pods_a_term_means(written, namespace, labels, namespace_labels, meant):
    parsed = parse_affinity_term(written, "home")
    assert parsed.matches(namespace, labels, namespace_labels) is meant


def test_all_four_lists_are_parsed():
    result = parse_affinity_terms(
        pod([term(key="r")], [term(key="a")], [(5, term(key="p"))], [(7, term(key="q"))])
    )
    assert [t.topology_key for t in result.required_affinity] == ["r"]
    assert [t.topology_key for t in result.required_anti_affinity] == ["a"]
    assert [(w.weight, w.term.topology_key) for w in result.preferred_affinity] == [(5, "p")]
    assert [(w.weight, w.term.topology_key) for w in result.preferred_anti_affinity] == [(7, "q")]
    assert result.error == ""


def test_one_bad_selector_empties_its_list_and_no_other():
    result = parse_affinity_terms(
        pod([term()], [term(), term(BROKEN)], [(1, term())], [(1, term(namespace_selector=BROKEN))])
    )
    assert len(result.required_affinity) == 1
    assert result.required_anti_affinity == ()
    assert len(result.preferred_affinity) == 1
    assert result.preferred_anti_affinity == ()
    assert result.error == (
        '[requiredAntiAffinityTerms: "Near" is not a valid label selector operator, '
        'preferredAntiAffinityTerms: "Near" is not a valid label selector operator]'
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(pod([term(BROKEN)]), "requiredAffinityTerms", id="required affinity"),
        pytest.param(
            pod(anti=[term(BROKEN)]), "requiredAntiAffinityTerms", id="required anti-affinity"
        ),
        pytest.param(
            pod(preferred=[(1, term(BROKEN))]), "preferredAffinityTerms", id="preferred affinity"
        ),
        pytest.param(
            pod(preferred_anti=[(1, term(BROKEN))]),
            "preferredAntiAffinityTerms",
            id="preferred anti-affinity",
        ),
    ],
)
def test_an_error_names_its_list(broken, message):
    assert (
        parse_affinity_terms(broken).error
        == f'{message}: "Near" is not a valid label selector operator'
    )


def test_a_pod_without_pod_affinity_has_no_terms():
    assert parse_affinity_terms(Pod()) is NO_TERMS
    assert parse_affinity_terms(Pod(spec=PodSpec(affinity=Affinity()))) is NO_TERMS


def test_equal_terms_are_equal_keys():
    one = parse_affinity_term(term(namespaces=["a", "b"]), "home")
    other = parse_affinity_term(term(namespaces=["b", "a"]), "elsewhere")
    assert one == other
    assert hash(one) == hash(other)
    assert one != parse_affinity_term(term(), "home")
