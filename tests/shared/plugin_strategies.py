"""Hypothesis strategies for clusters, pods and changes to them, and a table and its scalar model
side by side.

Clusters come from the project's own generator, driven by a `Random` that Hypothesis controls:
examples shrink, and what plugins read is described in one place.
"""

import msgspec
import numpy as np
import odd_objects
from hypothesis import strategies as st
from scalar.model import Model

from kubesched.api.core_v1 import Node, Pod
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.lab.conformance.generate_terms import namespaces


def randoms():
    """A `Random` whose every draw Hypothesis chooses."""
    return st.randoms(use_true_random=False)


@st.composite
def clusters(draw, nodes=(1, 6), pods=(0, 10)):
    """A `SideBySide` with some nodes and bound pods."""
    random = draw(randoms())
    cluster = SideBySide(random)
    for _ in range(random.randint(*nodes)):
        cluster.add_node()
    for _ in range(random.randint(*pods)):
        cluster.add_pod()
    cluster.refresh()
    return cluster


@st.composite
def pending_pods(draw):
    """A pod to be placed, as JSON."""
    random = draw(randoms())
    return odd_objects.pod(random, f"pending{random.randint(0, 999)}", malformed=True)


def pod_of(json):
    return msgspec.convert(json, Pod)


def node_of(json):
    return msgspec.convert(json, Node)


class SideBySide:
    """The same cluster twice: in the table the plugins read, and in the scalar model."""

    def __init__(self, random):
        self.random = random
        self.table = NodeTable(capacity=2)
        self.model = Model(namespaces())
        for name, labels in namespaces().items():
            self.table.namespaces.put(name, labels)
        self._infos = {}
        self._made = 0

    def _number(self):
        self._made += 1
        return self._made

    def add_node(self):
        self.set_node(odd_objects.node(self.random, f"n{self._number():03}"))

    def set_node(self, json):
        self.table.set_node(node_of(json))
        self.model.set_node(json)

    def add_pod(self, json=None):
        if json is None:
            if not self.model.nodes:
                return
            json = odd_objects.pod(self.random, f"p{self._number():03}", malformed=True)
            json["spec"]["nodeName"] = self.random.choice(sorted(self.model.nodes))
        info = PodInfo(pod_of(json))
        self._infos[info.uid] = (info, json)
        self.table.add_pod(info, json["spec"]["nodeName"])
        self.model.add_pod(json)

    def pods(self):
        """(PodInfo, JSON) of every pod, those of vanished nodes included."""
        return list(self._infos.values())

    def remove_pod(self, info):
        _, json = self._infos.pop(info.uid)
        self.table.remove_pod(info, json["spec"]["nodeName"])
        self.model.remove_pod(json)

    def remove_node(self, name):
        self.table.remove_node(name)
        self.model.remove_node(name)

    def change(self):
        """One random change to nodes or pods."""
        names, pods = sorted(self.model.nodes), self.pods()
        kind = self.random.randint(0, 9)
        if kind <= 3:
            self.add_pod()
        elif kind <= 5 and pods:
            self.remove_pod(self.random.choice(pods)[0])
        elif kind == 6 or not names:
            self.add_node()
        elif kind <= 8:
            name = self.random.choice(names)
            self.set_node(odd_objects.node(self.random, name))
        else:
            self.remove_node(self.random.choice(names))

    def refresh(self):
        """Begin a scheduling cycle."""
        self.table.refresh()
        self.model.refresh()

    def views(self):
        """All rows as a slice, and the living ones as an index in some order."""
        rows = [self.table.row_of[name] for name in sorted(self.model.nodes)]
        self.random.shuffle(rows)
        return [NodeColumns(self.table), NodeColumns(self.table, np.array(rows, dtype=np.intp))]
