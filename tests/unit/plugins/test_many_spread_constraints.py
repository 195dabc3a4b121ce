"""Soft constraints in thousands: the same scores as in small numbers, and no counting where no node
takes part.
"""

from __future__ import annotations

from random import Random

import pytest
from judging import cluster, make, scores

from kubesched.plugins.pod_topology_spread import PodTopologySpread, plugin
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE

SOFT = "ScheduleAnyway"
KEYS = [HOSTNAME, ZONE, "rack", "absent"]
FOO = {"matchLabels": {"foo": ""}}


@pytest.mark.parametrize("seed", range(40))
def test_many_constraints_score_like_few(seed, monkeypatch):
    random = Random(seed)
    nodes = []
    for n in range(5):
        node = make_node(f"n{n}").label(HOSTNAME, f"n{n}")
        if random.random() < 0.7:
            node.zone(f"z{n % 2}")
        if random.random() < 0.5:
            node.label("rack", f"r{n % 3}")
        nodes.append(node)
    pods = [make_pod(f"p{n}").label("foo", "").on(f"n{random.randrange(5)}") for n in range(7)]
    table = cluster(*nodes, pods=pods)
    pod = make_pod("new").label("foo", "")
    for key in random.sample(KEYS, random.randint(1, 4)):
        pod.spread(1, key, SOFT, FOO)
    found = scores(make(PodTopologySpread, table), pod, table)
    monkeypatch.setattr(plugin, "MANY_CONSTRAINTS", 0)
    assert scores(make(PodTopologySpread, table), pod, table) == found


def test_nothing_is_counted_where_no_node_takes_part():
    table = cluster(make_node("a").zone("z1"), make_node("b").zone("z2"))
    pod = make_pod("new")
    for n in range(100):
        pod.spread(1, f"key{n}", SOFT, {"matchLabels": {"foo": f"{n}"}})
    assert scores(make(PodTopologySpread, table), pod, table) == {"a": 0, "b": 0}
    assert len(table.pod_index._counters) == 0
