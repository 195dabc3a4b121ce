"""Node selectors, required node affinity and preferred terms, case by case as upstream decides
them.
"""

from __future__ import annotations

import pytest

from kubesched.api.core_v1 import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
)
from kubesched.api.meta import ObjectMeta
from kubesched.api.node_selectors import (
    ParsedNodeSelector,
    PreferredNodeTerms,
    RequiredNodeAffinity,
)
from kubesched.api.selectors import SelectorError


def need(key, operator, *values):
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values) or None)


def term(*expressions, fields=()):
    return NodeSelectorTerm(
        match_expressions=list(expressions) or None, match_fields=list(fields) or None
    )


def name_in(*names):
    return term(fields=[need("metadata.name", "In", *names)])


def pod(*terms, node_selector=None, affinity=True):
    required = NodeSelector(node_selector_terms=list(terms)) if affinity else None
    return Pod(
        spec=PodSpec(
            node_selector=node_selector,
            affinity=Affinity(
                node_affinity=NodeAffinity(
                    required_during_scheduling_ignored_during_execution=required
                )
            ),
        )
    )


BROKEN = term(need("k", "In", "{{bad}}"))


@pytest.mark.parametrize(
    ("wanted", "labels", "fits"),
    [
        pytest.param(
            pod(affinity=False, node_selector={"a": "1"}), {}, False, id="nodeSelector, no label"
        ),
        pytest.param(
            pod(affinity=False, node_selector={"a": "1"}),
            {"a": "1", "b": "2"},
            True,
            id="nodeSelector holds",
        ),
        pytest.param(
            pod(affinity=False, node_selector={"a": "1", "b": "2"}),
            {"a": "1"},
            False,
            id="nodeSelector half",
        ),
        pytest.param(pod(affinity=False), {}, True, id="an affinity object without requirements"),
        pytest.param(Pod(), {}, True, id="nothing asked"),
        pytest.param(pod(term(need("g", "Gt", "10"))), {"g": "11"}, True, id="Gt holds"),
        pytest.param(pod(term(need("g", "Gt", "10"))), {"g": "10"}, False, id="Gt is strict"),
        pytest.param(pod(term(need("g", "Gt", "10"))), {"g": "x"}, False, id="Gt on text"),
        pytest.param(pod(term(need("g", "Gt", "10"))), {}, False, id="Gt on nothing"),
        pytest.param(pod(term(need("g", "Lt", "10"))), {"g": "9"}, True, id="Lt holds"),
        pytest.param(pod(term(need("g", "Lt", "10"))), {"g": "10"}, False, id="Lt is strict"),
        pytest.param(
            pod(term(need("g", "Gt", "-1"))),
            {"g": "5"},
            False,
            id="a negative bound breaks the term",
        ),
        pytest.param(
            pod(term(need("k", "NotIn", "x"))), {}, True, id="NotIn holds without the key"
        ),
        pytest.param(
            pod(term(need("k", "DoesNotExist"))), {}, True, id="DoesNotExist without the key"
        ),
        pytest.param(pod(), {"a": "1"}, False, id="no terms match nothing"),
        pytest.param(pod(term()), {"a": "1"}, False, id="an empty term matches nothing"),
        pytest.param(
            pod(term(), term(need("a", "Exists"))),
            {"a": "1"},
            True,
            id="an empty term beside a match",
        ),
        pytest.param(
            pod(term(need("a", "Exists"), need("b", "Exists"))),
            {"a": "1"},
            False,
            id="requirements are ANDed",
        ),
        pytest.param(
            pod(term(need("b", "Exists")), term(need("a", "Exists"))),
            {"a": "1"},
            True,
            id="terms are ORed",
        ),
        pytest.param(
            pod(term(need("a", "Exists")), node_selector={"b": "1"}),
            {"a": "1"},
            False,
            id="nodeSelector fails",
        ),
        pytest.param(
            pod(term(need("c", "Exists")), node_selector={"a": "1"}),
            {"a": "1"},
            False,
            id="affinity fails",
        ),
        pytest.param(
            pod(BROKEN, term(need("a", "Exists"))),
            {"a": "1"},
            True,
            id="a broken term beside a match",
        ),
        pytest.param(pod(BROKEN), {"k": "{{bad}}"}, False, id="a broken term matches nothing"),
        pytest.param(pod(name_in("n1")), {}, True, id="the node's own name"),
        pytest.param(pod(name_in("n2")), {}, False, id="another node's name"),
        pytest.param(
            pod(term(fields=[need("metadata.name", "NotIn", "n1")])),
            {},
            False,
            id="any name but this",
        ),
        pytest.param(
            pod(
                term(fields=[need("metadata.name", "In", "n1"), need("metadata.name", "In", "n2")])
            ),
            {},
            False,
            id="two names at once",
        ),
        pytest.param(pod(name_in("n1", "n2")), {}, False, id="a list of two names is broken"),
        pytest.param(
            pod(term(need("a", "Exists"), fields=[need("metadata.name", "In", "n1")])),
            {},
            False,
            id="the name holds, the expression does not",
        ),
        pytest.param(
            pod(term(fields=[need("spec.x", "In", "y")])), {}, False, id="an unknown field is empty"
        ),
        pytest.param(
            pod(term(fields=[need("spec.x", "NotIn", "y")])),
            {},
            True,
            id="and differs from anything",
        ),
    ],
)
def test_required_node_affinity(wanted, labels, fits):
    affinity = RequiredNodeAffinity(wanted)
    assert affinity.matches(labels, "n1") is fits
    assert affinity.matches_node(Node(metadata=ObjectMeta(name="n1", labels=labels))) is fits


def test_fields_of_a_nameless_node_are_not_looked_at():
    assert RequiredNodeAffinity(pod(name_in("n1"))).matches({}, "")


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param(
            [term(need("k", "Near", "v"))],
            'nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near": '
            "supported "
            'values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
            id="an unknown operator",
        ),
        pytest.param(
            [term(), term(need("k", "In"))],
            "nodeSelectorTerms[1].matchExpressions[0].values: Invalid value: null: for 'in', "
            "'notin' "
            "operators, values set can't be empty",
            id="paths count empty terms",
        ),
        pytest.param(
            [name_in("a", "b")],
            'nodeSelectorTerms[0].matchFields[0].values: Invalid value: ["a","b"]: must have one '
            "element",
            id="two field values",
        ),
        pytest.param(
            [term(fields=[need("metadata.name", "Exists")])],
            'nodeSelectorTerms[0].matchFields[0].operator: Unsupported value: "Exists": supported '
            'values: "In", "NotIn"',
            id="a field operator that does not exist",
        ),
        pytest.param(
            [term(need("k", "Near")), name_in("a", "b")],
            '[nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near": '
            "supported "
            'values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", '
            'nodeSelectorTerms[1].matchFields[0].values: Invalid value: ["a","b"]: must have one '
            "element]",
            id="problems of all terms",
        ),
    ],
)
def test_problems_are_told_with_their_path(selector, message):
    parsed = ParsedNodeSelector(NodeSelector(node_selector_terms=selector))
    assert not parsed.matches({}, "n")
    assert str(parsed.error) == message


def test_a_sound_selector_has_no_error():
    assert ParsedNodeSelector(NodeSelector(node_selector_terms=[name_in("n")])).error is None


def prefer(weight, preference):
    return PreferredSchedulingTerm(weight=weight, preference=preference)


@pytest.mark.parametrize(
    ("terms", "score"),
    [
        pytest.param(None, 0, id="nothing preferred"),
        pytest.param([prefer(5, term())], 0, id="an empty preference scores nothing"),
        pytest.param([prefer(5, term(need("a", "Exists")))], 5, id="a match scores its weight"),
        pytest.param(
            [prefer(5, term(need("a", "Exists"))), prefer(7, term(need("a", "In", "1")))],
            12,
            id="matches add up",
        ),
        pytest.param([prefer(5, term(need("b", "Exists")))], 0, id="no match"),
        pytest.param(
            [prefer(0, BROKEN), prefer(3, name_in("n"))], 3, id="weight 0 is not even read"
        ),
    ],
)
def test_preferred_terms_score(terms, score):
    assert PreferredNodeTerms(terms).score({"a": "1"}, "n") == score


def test_one_broken_preference_spoils_the_list():
    with pytest.raises(
        SelectorError, match=r"^\[1\]\.matchExpressions\[0\]\.values\[0\]\[k\]: Invalid value"
    ):
        PreferredNodeTerms([prefer(5, term(need("a", "Exists"))), prefer(1, BROKEN)])


def test_equal_requirements_are_equal_keys():
    one = RequiredNodeAffinity(pod(term(need("a", "In", "1", "2")), node_selector={"x": "1"}))
    other = RequiredNodeAffinity(pod(term(need("a", "In", "2", "1")), node_selector={"x": "1"}))
    different = RequiredNodeAffinity(pod(term(need("a", "In", "1"))))
    assert one == other
    assert hash(one) == hash(other)
    assert one != different
    assert RequiredNodeAffinity(Pod()).is_unrestricted
    assert not one.is_unrestricted
    assert PreferredNodeTerms([prefer(1, name_in("n"))]) == PreferredNodeTerms(
        [prefer(1, name_in("n"))]
    )
    assert PreferredNodeTerms([prefer(1, name_in("n"))]) != PreferredNodeTerms(
        [prefer(2, name_in("n"))]
    )
