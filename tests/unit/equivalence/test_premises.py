"""Premises hold while each has the value it had, however few of them are asked."""

from __future__ import annotations

from random import Random

import pytest

from kubesched.equivalence.premises import Premises, SharedVersions
from kubesched.framework.rules import Rule, Scope, VersionedPremise
from kubesched.snapshot.node_table import NodeTable


class Facts:
    """Numbers that change, each with a version that may change without it."""

    def __init__(self, rng, count):
        self.rng = rng
        self.values = [0] * count
        self.numbers = [0] * count
        self.found = 0
        self.versions = [lambda at=at: self.numbers[at] for at in range(count)]

    def change(self):
        at = self.rng.randrange(len(self.values))
        self.numbers[at] += 1
        self.values[at] = self.rng.randrange(2)

    def find(self, at):
        self.found += 1
        return self.values[at]

    def rule(self, at):
        versioned = VersionedPremise(self.versions[at], lambda: self.find(at))
        plain = lambda: self.values[at]  # noqa: E731
        return Rule(Scope.NODE, premise=self.rng.choice((versioned, plain)))


@pytest.mark.parametrize("seed", range(30))
def test_versions_change_nothing_about_when_premises_hold(seed):
    rng = Random(seed)
    facts, table = Facts(rng, 4), NodeTable()
    made = []
    for _ in range(60):
        if rng.random() < 0.3:
            read = rng.sample(range(4), rng.randint(0, 3))
            premises = Premises(table, [facts.rule(at) for at in read])
            made.append((premises, {at: facts.values[at] for at in read}))
        if rng.random() < 0.5:
            facts.change()
        for premises, values in made:
            expected = all([facts.values[at] == value for at, value in values.items()])
            assert premises.hold() == expected


def test_nothing_is_found_again_while_versions_stay():
    facts = Facts(Random(1), 1)
    rule = Rule(Scope.NODE, premise=VersionedPremise(facts.versions[0], lambda: facts.find(0)))
    premises = [Premises(NodeTable(), [rule]) for _ in range(3)]
    found = facts.found
    assert all([each.hold() for each in premises * 5])
    assert facts.found == found
    facts.numbers[0] += 1
    assert all([each.hold() for each in premises * 5])
    assert facts.found == found + 1


def test_rules_with_equal_versions_share_them_for_as_long_as_they_are_used():
    facts = Facts(Random(1), 2)
    one = SharedVersions.of(facts.versions)
    assert SharedVersions.of([*facts.versions, *facts.versions]) is one
    assert SharedVersions.of(facts.versions[:1]) is not one
    number = one.number()
    assert one.number() == number
    facts.numbers[1] += 1
    assert one.number() != number


def test_a_table_with_another_layout_ends_them():
    table = NodeTable()
    premises = Premises(table, [])
    assert premises.hold()
    table.epoch += 1
    assert not premises.hold()
