"""Labels that no selector reads do not matter: pods alike in the read ones are alike to every selector."""

from random import Random

import pytest

from kubesched.api.selectors import Operator, Requirement, Selector
from kubesched.framework.nodes.label_readers import LabelReaders

KEYS, VALUES = "abcd", "xyz"
OPERATORS = [Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST]


def random_selector(rng):
    def requirement():
        operator = rng.choice(OPERATORS)
        has_values = operator in (Operator.IN, Operator.NOT_IN)
        values = rng.sample(VALUES, rng.randint(1, 2)) if has_values else ()
        return Requirement(rng.choice(KEYS), operator, values)

    return Selector([requirement() for _ in range(rng.randint(0, 3))])


@pytest.mark.parametrize("seed", range(20))
def test_equally_read_labels_match_the_same_selectors(seed):
    rng, readers, selectors = Random(seed), LabelReaders(), []
    label_sets = [
        {key: rng.choice(VALUES) for key in KEYS if rng.random() < 0.6} for _ in range(40)
    ]
    for _ in range(40):
        if selectors and rng.random() < 0.4:
            readers.add(selectors.pop(rng.randrange(len(selectors))), -1)
        else:
            selectors.append(random_selector(rng))
            readers.add(selectors[-1])
        verdicts = {}
        for labels in label_sets:
            verdict = [selector.matches(labels) for selector in selectors]
            assert verdicts.setdefault(readers.read_of(labels), verdict) == verdict


def test_a_label_of_one_pod_is_not_read_unless_a_selector_names_it():
    readers = LabelReaders()
    readers.add(Selector([Requirement("app", Operator.IN, ["web"])]))
    assert readers.read_of({"app": "web", "index": "1"}) == (("app", "web"),)
    assert readers.read_of({"app": "db", "index": "1"}) == ()
    readers.add(Selector([Requirement("index", Operator.EXISTS)]))
    assert readers.read_of({"app": "db", "index": "1"}) == (("index", None),)
