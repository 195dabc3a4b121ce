"""How many candidates are looked for, when the search ends, and which candidate is preferred."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kubesched.framework.extenders import Victims
from kubesched.framework.preemption.candidates import (
    Candidate,
    CandidateCount,
    ListedCandidates,
    Quota,
    best_by,
    best_of,
    visiting_order,
)
from kubesched.testing import make_pod

NOON_US = round(1_767_268_800 * 1e6)  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("percentage", "absolute", "nodes", "wanted"),
    [
        pytest.param(10, 100, 5000, 500, id="a tenth of many nodes"),
        pytest.param(10, 100, 500, 100, id="not fewer than a hundred"),
        pytest.param(10, 100, 7, 7, id="not more than there are"),
        pytest.param(40, 1, 5, 2, id="two of five"),
        pytest.param(33, 0, 10, 3, id="parts of a node do not count"),
        pytest.param(0, 5, 10, 5, id="no percentage"),
        pytest.param(5, 0, 10, 0, id="too few nodes for a percentage alone"),
    ],
)
def test_candidates_wanted(percentage, absolute, nodes, wanted) -> None:
    assert CandidateCount(percentage, absolute).of(nodes) == wanted


def test_visiting_starts_anywhere_and_goes_around() -> None:
    rows = np.arange(5)
    orders = {tuple(visiting_order(rows, Random(seed)).tolist()) for seed in range(50)}
    assert orders == {tuple(np.roll(rows, -offset).tolist()) for offset in range(5)}


@pytest.mark.parametrize(
    ("size", "violations", "kept"),
    [
        pytest.param(2, [0, 0, 0], [0, 1], id="enough is enough"),
        pytest.param(3, [0, 0], [0, 1], id="fewer than wanted"),
        pytest.param(2, [1, 0, 0], [0, 1], id="one that violates and one that does not are two"),
        pytest.param(
            2, [1, 1, 1, 0, 0], [0, 1, 3], id="beyond the number until one spares the budgets"
        ),
        pytest.param(1, [2, 1, 3], [0], id="of those that violate no more than wanted are kept"),
        pytest.param(2, [0, 1, 0], [0, 1], id="it ends once both together are enough"),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 10], ids="in blocks of {}".format)
def test_the_search_ends(size, violations, kept, block) -> None:
    quota = Quota(size)
    found = []
    for start in range(0, len(violations), block):
        part = np.array(violations[start : start + block])
        found += [start + index for index in quota.admit(part).tolist()]
        if quota.is_filled:
            break
    assert found == kept


def victim(priority=0, hour=None, name="v"):
    pod = make_pod(name).priority(priority)
    return (pod if hour is None else pod.status(startTime=f"2026-01-01T{hour:02}:00:00Z")).build()


def node(name, *victims, violations=0):
    return Candidate(name, Victims(victims, violations))


@pytest.mark.parametrize(
    ("candidates", "winner"),
    [
        pytest.param([node("a", victim(9), violations=2)], "a", id="the only one"),
        pytest.param(
            [node("a", victim(1), violations=1), node("b", victim(9), victim(9))], "b",
            id="budgets matter more than priorities",
        ),
        pytest.param(
            [node("a", victim(1), violations=2), node("b", victim(9), violations=1)], "b",
            id="fewer violations are better",
        ),
        pytest.param(
            [node("a", victim(5)), node("b", victim(3), victim(3), victim(3))], "b",
            id="the most important victim matters more than their number",
        ),
        pytest.param(
            [node("a", victim(5), victim(4)), node("b", victim(5), victim(1))], "b",
            id="then the sum of priorities",
        ),
        pytest.param(
            [node("a", victim(5), victim(-3)), node("b", victim(5))], "b",
            id="a victim of negative priority is still one more",
        ),
        pytest.param(
            [node("a", victim(-5), victim(-7)), node("b", victim(-5))], "b",
            id="among negative priorities fewer victims win",
        ),
        pytest.param(
            [
                node("a", victim(3), victim(-(2**31)), victim(-(2**31))),
                node("b", victim(3), victim(-(2**31))),
            ],
            "b",
            id="victims that add nothing to the sum are counted",
        ),
        pytest.param(
            [node("a", victim(5, 3)), node("b", victim(5, 7)), node("c", victim(5, 5))], "b",
            id="then whose most important victim started last",
        ),
        pytest.param(
            [
                node("a", victim(5, 8), victim(5, 2)),
                node("b", victim(5, 3), victim(5, 9)),
            ],
            "b",
            id="of several most important victims the one running longest counts",
        ),
        pytest.param(
            [
                node("a", victim(5, 7), victim(1, 1)),
                node("b", victim(5, 6), victim(1, 9)),
            ],
            "a",
            id="start times of less important victims do not matter",
        ),
        pytest.param(
            [node("a", victim(5, 11)), node("b", victim(5))], "b",
            id="a victim yet to start counts as starting now",
        ),
        pytest.param(
            [node("a", victim(5, 13)), node("b", victim(5))], "a",
            id="a clock ahead of ours is believed",
        ),
        pytest.param(
            [node("a", victim(1), victim(9)), node("b", victim(5), victim(5))], "a",
            id="the first victim is taken for the most important, whatever an extender did",
        ),
        pytest.param(
            [node("a", victim(5, 1)), node("b", victim(5, 1))], "a", id="the first wins a tie"
        ),
    ],
)  # fmt: skip
def test_the_ladder(candidates, winner) -> None:
    assert best_of(ListedCandidates(candidates, NOON_US)).node_name == winner


def test_other_criteria_replace_the_ladder() -> None:
    candidates = [node("a", victim(1)), node("b", victim(9)), node("c", victim(9))]
    scores = {"a": 0, "b": 5, "c": 5}
    last = {"a": 9, "b": 1, "c": 2}
    assert best_by(candidates, [scores.__getitem__]).node_name == "b"
    assert best_by(candidates, [scores.__getitem__, last.__getitem__]).node_name == "c"
