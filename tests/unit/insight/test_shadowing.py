"""Bindings of another scheduler: each class of agreement, on states that are built for it."""

from __future__ import annotations

import pytest
from msgspec import structs

from kubesched.api.core_v1 import PodCondition
from kubesched.insight.shadowing import BindingObserver
from kubesched.testing import Cluster, make_node, make_pod


class Beside:
    """A cluster that another scheduler binds pods in; ours only watches."""

    def __init__(self, nodes, **options):
        self.cluster = Cluster(nodes)
        self.observer = BindingObserver(
            self.cluster.assembly, self.cluster.clock, "default-scheduler", **options
        )
        self.observer.is_synced = True

    def pod(self, name, cpu="1"):
        self.cluster.add(make_pod(name).cpu(cpu).memory("1Gi").build())
        return self.cluster.pod(name)

    def bind(self, name, node):
        old = self.cluster.pod(name)
        new = structs.replace(old, spec=structs.replace(old.spec, node_name=node))
        self.observer.pod_updated(old, new)
        self.cluster.update(new)

    def change(self, new):
        old = self.cluster.find(type(new), "", new.metadata.name)
        self.observer.node_changed(old, new)
        self.cluster.put(new)

    def later(self, seconds=1.5):
        self.cluster.clock.advance(seconds)
        self.observer.settle()

    @property
    def counts(self):
        return {name: count for name, count in self.observer.bindings.items() if count}


def node(name, cpu="8"):
    return make_node(name).capacity(cpu=cpu, memory="32Gi", pods=110).build()


@pytest.fixture
def two():
    beside = Beside([node("n0"), node("n1")])
    yield beside
    beside.cluster.close()


def test_a_tie_and_then_the_only_best_node(two):
    for name in ("a", "b"):
        two.pod(name)
    two.bind("a", "n0")
    two.bind("b", "n1")
    assert two.counts == {"tie": 1, "same": 1}


def test_another_choice_is_different_with_the_plugin_that_explains_it(two):
    for name in ("a", "b"):
        two.pod(name, "4")
    two.bind("a", "n0")
    two.later(10)
    two.bind("b", "n0")  # packed, where ours spreads
    assert two.counts == {"tie": 1}, "judged again once the events around it are known"
    two.later()
    assert two.counts == {"tie": 1, "different": 1}
    (found,) = two.observer.found
    assert (found.pod, found.theirs, found.ours) == ("default/b", "n0", "n1")
    assert found.plugin == "NodeResourcesFit"
    assert found.reason.startswith("+")
    assert found.refused_since is None


def test_a_pod_whose_binding_arrives_later_explains_a_race(two):
    for name in ("a", "b"):
        two.pod(name, "4")
    two.pod("c", "1")
    two.bind("c", "n0")
    two.later(10)
    # Theirs placed a on n1 first, where it was assumed, then b on n0; the bindings arrived the
    # other way round.
    two.bind("b", "n0")
    two.cluster.clock.advance(0.1)
    two.bind("a", "n1")
    two.later()
    assert two.counts == {"tie": 1, "race": 1, "same": 1}


def test_what_had_not_arrived_there_explains_a_race(two):
    for name in ("a", "b"):
        two.pod(name, "4")
    two.bind("a", "n0")
    two.cluster.clock.advance(0.1)
    two.bind("b", "n0")  # chosen before the first was seen: then both nodes were equal
    two.later()
    assert two.counts == {"tie": 1, "race": 1}


def test_a_race_may_take_one_change_of_several_nodes():
    beside = Beside([node(f"n{i}") for i in range(4)])
    for name in ("filler", "a", "b", "c", "d"):
        beside.pod(name, "2")
    beside.bind("filler", "n0")
    beside.later(10)
    # Theirs knew d on n3 before it arrived here, and did not know that a had come to n0 since: no
    # state of ours had the one and not the other, but a state of that moment may have.
    beside.bind("a", "n0")
    beside.bind("b", "n1")
    beside.bind("c", "n2")
    beside.pod("e", "2")
    beside.bind("e", "n0")
    beside.bind("d", "n3")
    beside.later()
    assert beside.counts["race"] >= 1
    assert "different" not in beside.counts
    beside.cluster.assembly.scheduler.cache.check_invariants()
    beside.cluster.close()


def test_the_state_is_what_it_was_after_judging(two):
    for name in ("a", "b", "c"):
        two.pod(name, "2")
        two.bind(name, "n0")
        two.cluster.clock.advance(0.1)
    two.later()
    two.cluster.assembly.scheduler.cache.check_invariants()
    assert two.cluster.placements() == dict.fromkeys(("default/a", "default/b", "default/c"), "n0")
    assert sum(two.counts.values()) == 3


@pytest.mark.parametrize(
    ("percentage", "large", "chosen", "result"),
    [
        (0, 10, "n5", "tie"),
        (0, 10, "n50", "sampling"),  # 100 of 120 are looked for, so 20 may be missed
        (0, 30, "n50", "different"),  # any 100 have a better one
        (100, 10, "n50", "different"),
    ],
)
def test_the_best_of_a_possible_sample_is_sampling(percentage, large, chosen, result):
    nodes = [node(f"n{i}", cpu="64" if i < large else "8") for i in range(120)]
    beside = Beside(nodes, percentage=percentage)
    beside.pod("a", "4")
    beside.bind("a", chosen)
    beside.later()
    beside.cluster.close()
    assert beside.counts == {result: 1}


def test_a_stale_node_is_named_with_the_event_that_was_missed(two):
    two.pod("a")
    old = two.cluster.find(type(node("n0")), "", "n0")
    arrived = two.cluster.clock.now()
    two.change(structs.replace(old, spec=structs.replace(old.spec, unschedulable=True)))
    two.later(30)
    two.bind("a", "n0")
    two.later()
    (found,) = two.observer.found
    assert (found.theirs, found.ours, found.plugin) == ("n0", "n1", "NodeUnschedulable")
    assert found.refused_since == arrived
    assert "refuses it by NodeUnschedulable" in found.line()
    assert "stale" in found.line()
    assert two.cluster.assembly.table.nodes[
        two.cluster.assembly.table.row_of["n0"]
    ].spec.unschedulable


def test_a_cordon_of_the_same_moment_is_a_race(two):
    two.pod("a")
    old = two.cluster.find(type(node("n0")), "", "n0")
    two.change(structs.replace(old, spec=structs.replace(old.spec, unschedulable=True)))
    two.cluster.clock.advance(0.2)
    two.bind("a", "n0")
    two.later()
    assert two.counts == {"race": 1}


def failed(pod, message):
    condition = PodCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message=message
    )
    return structs.replace(pod, status=structs.replace(pod.status, conditions=[condition]))


def test_verdicts_that_no_node_is_there_are_compared_too(two):
    for name, cpu in (("big", "64"), ("small", "1")):
        old = two.pod(name, cpu)
        new = failed(old, "0/2 nodes are available")
        two.observer.pod_updated(old, new)
        two.cluster.update(new)
    two.later()
    assert dict(two.observer.failures) == {"same": 1, "different": 1}
    (found,) = two.observer.found
    assert (found.pod, found.theirs, found.reason) == ("default/small", "", "2 nodes are feasible")


def test_bindings_before_the_sync_and_of_other_schedulers_are_not_judged(two):
    two.observer.is_synced = False
    two.pod("a")
    two.bind("a", "n0")
    two.observer.is_synced = True
    two.cluster.add(make_pod("b").cpu("1").scheduler("other").build())
    two.bind("b", "n0")
    two.later()
    assert two.counts == {}
