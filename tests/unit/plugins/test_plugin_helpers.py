"""What plugins share: normalisation, tables over interned values, row mirrors, packed verdicts, the
registry.
"""

import numpy as np
import pytest
from judging import cluster

from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.types import ExtensionPoint
from kubesched.framework.interfaces import EXTENSION_POINTS, default_normalize
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import unschedulable
from kubesched.plugins.helper.packed_verdicts import packed_verdicts
from kubesched.plugins.helper.value_tables import ValueTable
from kubesched.plugins.registry import IN_TREE, in_tree_registry
from kubesched.testing import make_node


@pytest.mark.parametrize(
    ("raw", "plain", "reversed_"),
    [
        pytest.param([3, 6, 12], [25, 50, 100], [75, 50, 0], id="in proportion to the highest"),
        pytest.param([2, 7, 5], [28, 100, 71], [72, 0, 29], id="truncated before being reversed"),
        pytest.param([400, 3, 7], [100, 0, 1], [0, 100, 99], id="above 100 as well"),
        pytest.param([0, 0], [0, 0], [100, 100], id="nothing anywhere"),
        pytest.param([1, 1], [100, 100], [0, 0], id="the same everywhere"),
    ],
)
def test_default_normalisation(raw, plain, reversed_):
    scores = np.array(raw)
    assert default_normalize(scores).tolist() == plain
    assert default_normalize(scores, reverse=True).tolist() == reversed_


def test_a_value_table_judges_each_value_once_and_new_ones_when_they_come():
    table = cluster(make_node("n0").labels(a="1"), make_node("n1"), make_node("n2").labels(a="2"))
    judged = []

    def is_two(value):
        judged.append(value)
        return value == "2"

    rule = ValueTable(table.label_column("a"), is_two, absent=False)
    assert rule.over(NodeColumns(table)).tolist() == [False, False, True]
    assert judged == ["1", "2"]
    table.set_node(make_node("n1").labels(a="3").build())
    table.set_node(make_node("n3").labels(a="2").build())
    assert rule.over(NodeColumns(table)).tolist() == [False, False, True, True]
    assert judged == ["1", "2", "3"]


def test_a_value_table_knows_when_it_has_nothing_to_say():
    table = cluster(make_node("n0").labels(a="1"))
    rule = ValueTable(table.label_column("a"), lambda value: value == "2", absent=False)
    rule.update()
    assert rule.is_trivial
    table.set_node(make_node("n0").labels(a="2").build())
    rule.update()
    assert not rule.is_trivial


@pytest.mark.parametrize("count", [1, 7, 8, 9, 31, 33, 62, 64, 100])
def test_packed_verdicts_tell_every_combination_apart(count):
    random = np.random.default_rng(count)
    findings = [random.random(12) < 0.3 for _ in range(count)]
    findings = [finding & (np.arange(12) > 0) for finding in findings]
    verdicts = packed_verdicts(findings, lambda bits: unschedulable(f"{bits:b}"))
    for node in range(12):
        expected = sum(1 << at for at in range(count) if findings[at][node])
        code = int(verdicts.codes[node])
        assert (int(verdicts.describe(code).message, 2) if code else 0) == expected


WRITTEN = sorted(name for name, path in IN_TREE.items() if "not_yet" not in path)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_configuration_knows_what_each_registered_plugin_implements(name):
    registry = in_tree_registry()
    assert registry.get(name).name == name
    served = {point for point in EXTENSION_POINTS if registry.implements(name, point)}
    # Placement scoring is an alpha extension point that the framework does not have yet.
    declared = {point.value for point in IN_TREE_PLUGINS[name]} & set(EXTENSION_POINTS)
    assert served == declared
    assert declared <= {point.value for point in ExtensionPoint}
