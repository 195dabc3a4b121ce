"""Counters by topology domain beyond the limit: current while something holds them, gone
otherwise.
"""

from __future__ import annotations

import gc
from random import Random

import pytest

from kubesched.framework.nodes import pod_index
from kubesched.framework.nodes.domain_counter import DomainCounter, Domains
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.testing import make_node, make_pod

KEYS = [f"k{n}" for n in range(6)]


class Everything:
    key = "everything"
    anchor = None

    def matches(self, namespace, labels, terminating):
        return True


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(pod_index, "DOMAINS_LIMIT", 2)


def random_node(name, random):
    labels = {key: f"v{random.randrange(3)}" for key in KEYS}
    return make_node(name).labels(**labels).build()


@pytest.mark.parametrize("seed", range(20))
def test_held_counters_beyond_the_limit_stay_current(seed):
    random = Random(seed)
    table = NodeTable(2)
    for n in range(3):
        table.set_node(random_node(f"n{n}", random))
    held = {}
    pods = []
    for step in range(60):
        counter = table.pod_index.counter(Everything())
        choice = random.random()
        if choice < 0.4:
            pod = PodInfo(make_pod(f"p{step}").on(f"n{random.randrange(3)}").build())
            table.add_pod(pod, pod.pod.spec.node_name)
            pods.append(pod)
        elif choice < 0.55 and pods:
            pod = pods.pop(random.randrange(len(pods)))
            table.remove_pod(pod, pod.pod.spec.node_name)
        elif choice < 0.7:
            table.set_node(random_node(f"n{random.randrange(6)}", random))
        else:
            key = random.choice(KEYS)
            held[key] = counter.by_domain(key)
            if random.random() < 0.3:
                held.pop(random.choice(list(held)))
        for key, domains in held.items():
            domains.sync()
            fresh = DomainCounter(Domains(table, key, None), counter)
            column = table.label_column(key)
            slots = range(len(column.values))
            assert [domains.counts[s] for s in slots] == [fresh.counts[s] for s in slots]
            assert (domains.total, domains.domain_count) == (fresh.total, fresh.domain_count)
    table.check_invariants()


def test_what_nothing_holds_is_dropped():
    table = NodeTable()
    table.set_node(random_node("n", Random(1)))
    counter = table.pod_index.counter(Everything())
    kept = counter.by_domain(KEYS[0])
    for key in KEYS[1:]:
        counter.by_domain(key)
    gc.collect()
    assert list(counter._overflow) == [(KEYS[0], None)]
    assert counter.by_domain(KEYS[0]) is kept
    assert len(counter._domains) == pod_index.DOMAINS_LIMIT
