"""A node's host ports are a set, in the table and in what-ifs alike: kube-scheduler keeps them so.

Two pods can share a port on a node only if another scheduler put them there. Then the first to
leave frees it, and the other takes it again as soon as it is written anew. The model here is that
set.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.host_ports import HostPort, any_conflict
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns, WhatIfColumns
from kubesched.testing import make_node, make_pod

IPS = ("0.0.0.0", "10.0.0.1", "10.0.0.2")
PORTS = [HostPort(ip, "TCP", number) for ip in IPS for number in (80, 443)]
PODS = 4
CHANGES = st.lists(
    st.tuples(st.sampled_from(["come", "go", "renew"]), st.integers(0, PODS - 1)), max_size=14
)
HELD = st.lists(
    st.lists(st.sampled_from(PORTS), max_size=2, unique=True), min_size=PODS, max_size=PODS
)


def pod_with(name, ports):
    pod = make_pod(name).on("n")
    for port in ports:
        pod.host_port(port.port, ip=port.ip)
    return PodInfo(pod.build())


class Ports:
    """The model: a set that every pod adds to when it comes, and takes from when it goes."""

    def __init__(self, ports=()):
        self.taken = set(ports)

    def change(self, what, pod):
        if what in ("go", "renew"):
            self.taken -= set(pod.host_ports)
        if what in ("come", "renew"):
            self.taken |= set(pod.host_ports)

    def assert_agrees(self, view, at=0):
        assert view.ports_at(at) == self.taken
        assert view.info_at(at).used_ports == self.taken
        for port in PORTS:
            expected = any_conflict([port], self.taken)
            assert bool(view.port_conflicts([port])[at]) == expected, port


def happens(what, pod, present):
    """Pods that are there go or are renewed, others come."""
    return (pod.uid in present) == (what != "come")


@settings(max_examples=300, deadline=None)
@given(held=HELD, changes=CHANGES, imagined=CHANGES, split=st.integers(0, 14))
def test_ports_follow_the_order_of_comings_and_goings(held, changes, imagined, split) -> None:
    table = NodeTable()
    for name in ("other", "n"):
        table.set_node(make_node(name).build())
    pods = [pod_with(f"p{number}", ports) for number, ports in enumerate(held)]
    model, present = Ports(), {}
    for what, number in changes:
        pod = pods[number]
        if not happens(what, pod, present):
            continue
        model.change(what, pod)
        if what == "come":
            table.add_pod(pod, "n")
            present[pod.uid] = pod
        elif what == "go":
            table.remove_pod(pod, "n")
            del present[pod.uid]
        else:
            table.replace_pod(pod, pod.pod)
    table.check_invariants()
    row = table.row_of["n"]
    model.assert_agrees(NodeColumns(table), row)

    view = WhatIfColumns(table, np.array([row]), [[]], [[]])
    thought = Ports(model.taken)
    for step, (what, number) in enumerate(imagined):
        pod = pods[number]
        if what == "renew" or not happens(what, pod, present):
            continue
        thought.change(what, pod)
        if step >= split:  # another view that goes on where this one was
            more = {"add" if what == "come" else "remove": [pod]}
            view = view.what_if(0, **more)
        elif what == "come":
            view.put(0, pod)
        else:
            view.take(0, pod)
        if what == "come":
            present[pod.uid] = pod
        else:
            del present[pod.uid]
        thought.assert_agrees(view)
    model.assert_agrees(NodeColumns(table), row)


def test_a_pod_written_anew_takes_its_ports_again_and_the_row_counts_as_changed() -> None:
    table = NodeTable()
    table.set_node(make_node("n").build())
    first, second = (pod_with(name, [PORTS[0]]) for name in ("first", "second"))
    for pod in (first, second):
        table.add_pod(pod, "n")
    table.remove_pod(first, "n")
    assert not NodeColumns(table).port_conflicts([PORTS[0]])[0]
    cursor = table.pod_log.end
    table.replace_pod(second, second.pod)
    assert NodeColumns(table).port_conflicts([PORTS[0]])[0]
    assert table.pod_log.since(cursor), "whoever keeps verdicts looks again"
    cursor = table.pod_log.end
    table.replace_pod(second, second.pod)
    assert not table.pod_log.since(cursor), "nothing has changed"
