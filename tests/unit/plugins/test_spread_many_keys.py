"""Pods with many spread constraints: the shared column of labels equals a look at each label of
each node.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.plugins.pod_topology_spread import constraints
from kubesched.plugins.pod_topology_spread.constraints import Constraint, SpreadNodes
from kubesched.testing import make_node, make_pod

KEYS = [f"example.com/key-{n}" for n in range(12)]


def random_node(name, random):
    node = make_node(name)
    # Most nodes lack at most one label: few would have all of them otherwise.
    missing = random.choice([None, None, *KEYS])
    for key in KEYS:
        if key != missing:
            node = node.label(key, f"v{random.randrange(3)}")
    return node.build()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [1, constraints.FEW_KEYS, constraints.FEW_KEYS + 1, len(KEYS)])
def test_the_mask_equals_a_look_at_every_label(seed, count):
    random = Random(seed)
    table = NodeTable()
    keys = frozenset(random.sample(KEYS, count))
    rule = Constraint(1, KEYS[0], None, 1, honors_affinity=True, honors_taints=False)
    spread = SpreadNodes(make_pod("p").build(), keys, rule, comparison_operators=False)
    names = [f"n{n}" for n in range(12)]
    for _step in range(5):
        for name in random.sample(names, 4):
            if name in table.row_of and random.random() < 0.3:
                table.remove_node(name)
            else:
                table.set_node(random_node(name, random))
        rows = table.order_rows
        plain = [keys <= set(table.nodes[row].metadata.labels) for row in rows]
        assert spread.mask(table, rows).tolist() == plain


def test_constraints_of_a_pod_share_one_column():
    table = NodeTable()
    table.set_node(make_node("n").labels(**dict.fromkeys(KEYS, "v")).build())
    keys = frozenset(KEYS)
    pod = make_pod("p").build()
    before = len(table._interned)
    for key in KEYS:
        rule = Constraint(1, key, None, 1, honors_affinity=True, honors_taints=False)
        nodes = SpreadNodes(pod, keys, rule, comparison_operators=False)
        nodes.mask(table, np.array([0], dtype=np.int32))
    assert len(table._interned) == before + 1
