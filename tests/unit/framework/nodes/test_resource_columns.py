"""Columns of resources: only for what nodes offer or plugins compare, whatever pods ask for."""

from __future__ import annotations

from random import Random

import pytest

from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.scheduler.cache.cache import Cache
from kubesched.testing import make_node, make_pod

GPU = "example.com/gpu"
MANY = 2_000


@pytest.fixture
def cluster():
    table = NodeTable()
    return Cache(table), table


def test_names_that_pods_invent_take_no_column_and_are_forgotten(cluster):
    cache, table = cluster
    cache.add_node(make_node("n").build())
    before, epoch = set(table.requested), table.epoch
    pods = []
    for number in range(4):
        pod = make_pod(f"p{number}").priority(number).on("n")
        for each in range(MANY // 4):
            pod.request(f"example.com/r{number}-{each}", each % 2)
        pods.append(pod.build())
        cache.add_pod(pods[-1])
    assert set(table.requested) == set(table.allocatable) == before
    assert table.epoch == epoch, "kept answers stay good"
    asked = NodeColumns(table).info_at(0).requested.scalars
    assert len(asked) == MANY // 2
    assert asked["example.com/r3-1"] == 1
    view = NodeColumns(table).what_if(0, remove=[table.pods[0][pods[3].metadata.uid]])
    assert "example.com/r3-1" not in view.info_at(0).requested.scalars
    assert view.info_at(0).requested.scalars["example.com/r2-1"] == 1
    for pod in pods:
        cache.remove_pod(pod)
    cache.check_invariants()


def test_pods_that_were_there_first_count_once_a_node_offers_what_they_ask_for(cluster):
    cache, table = cluster
    cache.add_node(make_node("n").build())
    cache.add_node(make_node("other").build())
    for number in range(3):
        pod = make_pod(f"p{number}").priority(number % 2).request(GPU, "2").on("n")
        cache.add_pod(pod.build())
    epoch = table.epoch
    cache.add_node(make_node("third").offers(GPU, "8").build())
    assert table.epoch > epoch
    resource = table.resource_index[GPU]
    assert table.requested[resource].array[:3].tolist() == [6, 0, 0]
    assert table.pods_below(1).requested(resource, slice(0, 3)).tolist() == [4, 0, 0]
    cache.check_invariants()


def test_what_no_node_offers_any_more_is_freed_unless_a_plugin_compares_it(cluster):
    cache, table = cluster
    compared = table.compare_resource("example.com/compared")
    cache.add_node(make_node("a").offers(GPU, "8").offers("example.com/compared", "1").build())
    cache.add_node(make_node("b").offers(GPU, "0").build())
    cache.add_pod(make_pod("p").priority(7).request(GPU, "3").on("a").build())
    cache.remove_node("a")
    assert GPU in table.resource_index
    cache.update_node(make_node("b").build())
    assert GPU not in table.resource_index
    assert sorted(table.requested) == sorted(table.allocatable) == [0, 1, 2, compared]
    cache.check_invariants()
    cache.add_node(make_node("a").offers(GPU, "8").build())
    resource = table.resource_index[GPU]
    assert table.requested[resource].array[table.row_of["a"]] == 3
    cache.check_invariants()


@pytest.mark.parametrize("seed", range(20))
def test_columns_equal_a_recount(cluster, seed):
    cache, _table = cluster
    rng = Random(seed)
    names = [f"example.com/{letter}" for letter in "abcdef"]
    nodes, pods = {}, []
    for step in range(150):
        action, name = rng.random(), f"n{rng.randrange(5)}"
        if action < 0.3:
            node = make_node(name)
            for resource in rng.sample(names, rng.randrange(3)):
                node.offers(resource, str(rng.randrange(4)))
            built = node.build()
            if name in nodes:
                cache.update_node(built)
            else:
                cache.add_node(built)
            nodes[name] = built
        elif action < 0.4 and name in nodes:
            cache.remove_node(name)
            del nodes[name]
        elif action < 0.6 and pods:
            cache.remove_pod(pods.pop(rng.randrange(len(pods))))
        else:
            pod = make_pod(f"p{step}").priority(rng.randrange(3)).on(name)
            for resource in rng.sample(names, rng.randrange(4)):
                pod.request(resource, rng.randrange(3))
            pods.append(pod.build())
            cache.add_pod(pods[-1])
        if step % 10 == 0:
            cache.check_invariants()
    cache.check_invariants()
