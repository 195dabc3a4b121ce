"""Comparison: each aspect notices what differs in it, and only that."""

import pytest

from kubesched.lab.conformance.comparison import Agreement, Aspect, compare, compare_decisions
from kubesched.lab.conformance.recordings import RecordedAnswer, Rejection
from kubesched.lab.conformance.sequences import Decision


def answer(**changes):
    fields = {
        "feasible": ["a", "b"],
        "total": {"a": 5, "b": 3},
        "scores": {"a": {"X": 5}, "b": {"X": 3}},
        "rejected": {"c": Rejection("NodeName", "Unschedulable", ["no"])},
        "message": "",
    }
    return RecordedAnswer(**(fields | changes))


def differing(expected, got):
    return [finding for finding in compare(expected, got) if not finding.agrees]


def test_equal_answers_agree_in_every_aspect():
    assert differing(answer(), answer()) == []


@pytest.mark.parametrize(
    ("changes", "aspect", "node"),
    [
        pytest.param({"feasible": ["b", "a"]}, Aspect.FEASIBLE, "", id="the order of nodes"),
        pytest.param({"total": {"a": 5, "b": 4}}, Aspect.TOTAL, "b", id="a total"),
        pytest.param({"scores": {"a": {"X": 5}, "b": {"X": 2}}}, Aspect.SCORE, "b", id="a score"),
        pytest.param(
            {"scores": {"a": {"X": 5}, "b": {}}}, Aspect.SCORE, "b", id="a plugin that skipped"
        ),
        pytest.param(
            {"scores": {"a": {"X": 5, "Y": 0}, "b": {"X": 3}}},
            Aspect.SCORE,
            "a",
            id="a plugin that did not skip",
        ),
        pytest.param(
            {"rejected": {"c": Rejection("NodePorts", "Unschedulable", ["no"])}},
            Aspect.REJECTING_PLUGIN,
            "c",
            id="the rejecting plugin",
        ),
        pytest.param(
            {"rejected": {"c": Rejection("NodeName", "Unschedulable", ["never"])}},
            Aspect.REASONS,
            "c",
            id="the reason",
        ),
        pytest.param(
            {"rejected": {"c": Rejection("NodeName", "Pending", ["no"])}},
            Aspect.REASONS,
            "c",
            id="the code",
        ),
        pytest.param({"message": "0/3 nodes are available"}, Aspect.MESSAGE, "", id="the message"),
        pytest.param({"error": "boom"}, Aspect.ERROR, "", id="an error"),
    ],
)
def test_one_difference_is_found_in_one_aspect(changes, aspect, node):
    (result,) = differing(answer(), answer(**changes))
    assert (result.aspect, result.node) == (aspect, node)


def test_a_node_feasible_on_one_side_only_is_told_once():
    got = answer(feasible=["a"], rejected={}, scores={"a": {"X": 5}}, total={"a": 5})
    (result,) = differing(answer(), got)
    assert result.aspect is Aspect.FEASIBLE


def test_the_order_of_scalar_resources_does_not_matter():
    def rejected(*reasons):
        return answer(rejected={"c": Rejection("NodeResourcesFit", "Unschedulable", list(reasons))})

    one = ("Insufficient cpu", "Insufficient x/a", "Insufficient x/b")
    other = ("Insufficient cpu", "Insufficient x/b", "Insufficient x/a")
    assert differing(rejected(*one), rejected(*other)) == []
    wrong = ("Too many pods", "Insufficient cpu"), ("Insufficient cpu", "Too many pods")
    assert len(differing(rejected(*wrong[0]), rejected(*wrong[1]))) == 1


def test_the_order_of_nodes_left_by_narrowing_does_not_matter():
    narrowed = {"c": Rejection("", "UnschedulableAndUnresolvable", ["narrowed"])}
    expected, got = answer(rejected=narrowed), answer(rejected=narrowed, feasible=["b", "a"])
    assert differing(expected, got) == []


def test_agreement_is_complete_until_something_differs():
    agreement = Agreement()
    for finding in compare(answer(), answer()):
        agreement.count(finding)
    assert agreement.is_complete
    for finding in compare(answer(), answer(message="x")):
        agreement.count(finding)
    assert not agreement.is_complete
    tally = agreement.by_aspect[Aspect.MESSAGE]
    assert (tally.compared, tally.agreed) == (2, 1)


@pytest.mark.parametrize(
    "complaint",
    [
        'expected at least one victim pod on node "{}"',
        'running "DynamicResources" filter plugin: claim a/c, request r: pool {} is being updated',
    ],
)
def test_the_order_in_which_nodes_are_complained_about_does_not_count(complaint):
    one, two = (
        f"0/2 nodes are available. preemption: [{complaint.format(a)}, {complaint.format(b)}]"
        for a, b in (("n1", "n2"), ("n2", "n1"))
    )
    results = list(compare_decisions(Decision(unschedulable=one), Decision(unschedulable=two)))
    assert all(finding.agrees for finding in results)
    other = Decision(unschedulable=one.replace("n2", "n3"))
    assert not all(f.agrees for f in compare_decisions(Decision(unschedulable=two), other))


def test_questions_to_extenders_are_compared_where_there_were_any():
    asked, other = Decision(node="n", asked=("x0 filter n",)), Decision(node="n")
    assert [f.aspect for f in compare_decisions(asked, other) if not f.agrees] == [Aspect.ASKED]
    assert Aspect.ASKED not in {f.aspect for f in compare_decisions(other, other)}
