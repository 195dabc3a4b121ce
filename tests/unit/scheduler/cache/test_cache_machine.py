"""Whatever happens to pods and nodes, the incremental tables equal a rebuild from scratch.

A Hypothesis state machine drives the cache through every operation in any order; after each step
the cache, the node table and all selector, domain and term counters check themselves against a
recount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import structs

from kubesched.api.core_v1 import ContainerStatus, ResourceRequirements
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pod_index import TERM_KINDS
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.cache.cache import Cache, CacheError
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE

NODE_NAMES = ["n0", "n1", "n2"]
ZONES = ["a", "b", ""]
APPS = ["web", "db"]
NAMESPACES = ["default", "other"]
POD_NUMBERS = st.integers(0, 4)


@dataclass(frozen=True)
class AppIs:
    app: str
    namespace: str

    @property
    def key(self):
        return ("app", self.app, self.namespace)

    @property
    def anchor(self):
        return ("app", self.app) if self.namespace == "default" else None

    def matches(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> bool:
        return namespace == self.namespace and labels.get("app") == self.app and not terminating


class Untainted:
    key = "untainted"

    def mask(self, table: NodeTable, rows):
        column = table.interned("tainted", lambda node: bool(node.spec.taints))
        lookup = np.array([not value for value in column.values] + [False])
        return lookup[column.ids[rows]]


@st.composite
def nodes(draw):
    node = make_node(draw(st.sampled_from(NODE_NAMES))).capacity(
        cpu=draw(st.sampled_from(["1", "2500m", "4"])), memory="4Gi", pods=draw(st.integers(0, 3))
    )
    if zone := draw(st.sampled_from(ZONES)):
        node.zone(zone)
    if draw(st.booleans()):
        node.taint("dedicated")
    if draw(st.booleans()):
        node.offers("example.com/gpu", draw(st.integers(0, 4)))
    if draw(st.booleans()):
        node.image("app:latest", size_bytes=draw(st.integers(1, 10**9)))
    return node.build()


@st.composite
def pods(draw):
    number = draw(POD_NUMBERS)
    pod = (
        make_pod(f"p{number}", draw(st.sampled_from(NAMESPACES)))
        .uid(f"u{number}")
        .label("app", draw(st.sampled_from(APPS)))
    )
    pod.cpu(draw(st.sampled_from(["0", "100m", "1"])))
    if draw(st.booleans()):
        pod.request("example.com/gpu", draw(st.integers(1, 2)))
    if draw(st.booleans()):
        pod.host_port(draw(st.sampled_from([80, 443])), ip=draw(st.sampled_from(["", "10.0.0.1"])))
    if draw(st.booleans()):
        pod.pod_anti_affinity(
            draw(st.sampled_from([HOSTNAME, ZONE])), app=draw(st.sampled_from(APPS))
        )
    if draw(st.booleans()):
        pod.preferred_pod_term("podAffinity", draw(st.integers(1, 3)), ZONE, app="web")
    if draw(st.booleans()):
        pod.claim("data")
    if draw(st.booleans()):
        pod.terminating()
    return pod.on(draw(st.sampled_from(NODE_NAMES))).build()


class CacheMachine(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.cache = Cache(NodeTable(capacity=1))
        # A dozen nodes that stay: only then do counters follow single nodes instead of being built
        # anew.
        for number in range(12):
            self.cache.add_node(make_node(f"steady-{number}").zone(ZONES[number % 2]).build())
        self.model: dict[str, tuple[str, str]] = {}  # uid -> (state, node name)

    def index(self):
        return self.cache.table.pod_index

    @rule(node=nodes())
    def set_node(self, node):
        self.cache.add_node(node)

    @rule(name=st.sampled_from(NODE_NAMES))
    def remove_node(self, name):
        if name in self.cache.table.row_of:
            self.cache.remove_node(name)
        else:
            with pytest.raises(CacheError):
                self.cache.remove_node(name)

    @rule(pod=pods())
    def assume(self, pod):
        uid = pod.metadata.uid
        if uid in self.model:
            with pytest.raises(CacheError):
                self.cache.assume_pod(PodInfo(pod))
        else:
            self.cache.assume_pod(PodInfo(pod))
            self.model[uid] = ("assumed", pod.spec.node_name)

    @rule(pod=pods())
    def forget(self, pod):
        known = self.model.get(pod.metadata.uid)
        if known is None or known == ("assumed", pod.spec.node_name):
            self.cache.forget_pod(pod)
            self.model.pop(pod.metadata.uid, None)
        else:
            with pytest.raises(CacheError):
                self.cache.forget_pod(pod)

    @rule(pod=pods())
    def add(self, pod):
        uid = pod.metadata.uid
        if self.model.get(uid, ("",))[0] == "added":
            with pytest.raises(CacheError):
                self.cache.add_pod(pod)
        else:
            self.cache.add_pod(pod)
            self.model[uid] = ("added", pod.spec.node_name)

    @rule(pod=pods())
    def update(self, pod):
        known = self.model.get(pod.metadata.uid)
        if known == ("added", pod.spec.node_name):
            self.cache.update_pod(pod, pod)
        elif known is None or known[0] == "assumed":
            with pytest.raises(CacheError):
                self.cache.update_pod(pod, pod)

    @rule(pod=pods())
    def remove(self, pod):
        known = self.model.get(pod.metadata.uid)
        if known is None:
            with pytest.raises(CacheError):
                self.cache.remove_pod(pod)
        elif known[1] == pod.spec.node_name:
            self.cache.remove_pod(pod)
            del self.model[pod.metadata.uid]

    @rule(
        data=st.data(),
        newer=pods(),
        action=st.sampled_from(["confirm", "forget", "update", "remove"]),
    )
    def change_a_known_pod(self, data, newer, action):
        """Operations on a pod in the state that allows them, which random pods seldom hit."""
        wanted = "assumed" if action in ("confirm", "forget") else "added"
        candidates = sorted(uid for uid, (state, _) in self.model.items() if state == wanted)
        if not candidates:
            return
        uid = data.draw(st.sampled_from(candidates))
        current = self.cache.get_pod(uid).pod
        meta = structs.replace(newer.metadata, uid=uid, name=current.metadata.name)
        spec = structs.replace(newer.spec, node_name=current.spec.node_name)
        newer = structs.replace(newer, metadata=meta, spec=spec)
        if action == "confirm":
            self.cache.add_pod(newer)
            self.model[uid] = ("added", current.spec.node_name)
        elif action == "forget":
            self.cache.forget_pod(current)
            del self.model[uid]
        elif action == "update":
            self.cache.update_pod(current, newer)
        else:
            self.cache.remove_pod(current)
            del self.model[uid]

    @rule(data=st.data(), app=st.sampled_from(APPS), ends=st.booleans())
    def relabel(self, data, app, ends):
        """Labels change, or the pod is deleted: its sums stay, its counters do not."""
        if not self.model:
            return
        uid = data.draw(st.sampled_from(sorted(self.model)))
        current = self.cache.get_pod(uid).pod
        meta = structs.replace(
            current.metadata,
            labels={"app": app},
            deletion_timestamp="2026-01-01T00:00:00Z" if ends else None,
        )
        newer = structs.replace(current, metadata=meta)
        if self.cache.is_assumed(uid):
            self.cache.add_pod(newer)
            self.model[uid] = ("added", current.spec.node_name)
        else:
            self.cache.update_pod(current, newer)

    @rule(
        data=st.data(),
        allocated=st.sampled_from([None, {"cpu": "0"}, {"cpu": "100m"}, {"cpu": "2"}]),
    )
    def report_resources(self, data, allocated):
        """The kubelet tells what it has allocated, which may be what the spec asks for, or not."""
        candidates = sorted(uid for uid, (state, _) in self.model.items() if state == "added")
        if not candidates:
            return
        current = self.cache.get_pod(data.draw(st.sampled_from(candidates))).pod
        name = current.spec.containers[0].name
        resources = None if allocated is None else ResourceRequirements(requests=allocated)
        reported = ContainerStatus(name=name, resources=resources)
        status = structs.replace(current.status, container_statuses=[reported])
        self.cache.update_pod(current, structs.replace(current, status=status))

    @rule(
        app=st.sampled_from(APPS),
        namespace=st.sampled_from(NAMESPACES),
        key=st.sampled_from([HOSTNAME, ZONE]),
        eligible=st.booleans(),
    )
    def count(self, app, namespace, key, eligible):
        self.index().counter(AppIs(app, namespace)).by_domain(
            key, Untainted() if eligible else None
        )

    @rule()
    def read_terms(self):
        for kind in TERM_KINDS:
            for term in self.index().terms(kind):
                assert term.domains.total <= term.total

    @rule()
    def begin_cycle(self):
        self.cache.table.refresh()

    @invariant()
    def incremental_state_equals_a_rebuild(self):
        if hasattr(self, "cache"):
            self.cache.check_invariants()
            assert {pod.uid for pod in self.cache.pods()} == self.model.keys()
            for pod in self.cache.pods():
                anew = PodInfo(pod.pod)
                assert pod.requests == anew.requests
                assert pod.nonzero_requests == anew.nonzero_requests
            for uid, (state, _) in self.model.items():
                assert self.cache.is_assumed(uid) == (state == "assumed")


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCacheMachine.pytestmark = [pytest.mark.slow]


def test_new_labels_make_the_row_dirty():
    cache = Cache(NodeTable())
    cache.add_node(make_node("n").capacity(cpu="4").build())
    pod = make_pod("a").cpu("1").on("n").build()
    cache.add_pod(pod)
    for labels, is_dirty in (({"zone": "a"}, True), ({"zone": "a"}, False)):
        before = cache.table.pod_log.end
        newer = structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels))
        cache.update_pod(pod, newer)
        assert (cache.table.pod_log.end != before) == is_dirty
        pod = newer


def test_a_status_that_changes_no_request_leaves_the_row_clean():
    cache = Cache(NodeTable())
    cache.add_node(make_node("n").capacity(cpu="4").build())
    pod = make_pod("a").cpu("1").on("n").build()
    cache.add_pod(pod)
    before = cache.table.pod_log.end
    name = pod.spec.containers[0].name
    for amount, is_dirty in (("1", False), ("1000m", False), ("2", True)):
        resources = ResourceRequirements(requests={"cpu": amount})
        reported = ContainerStatus(name=name, resources=resources)
        newer = structs.replace(
            pod, status=structs.replace(pod.status, container_statuses=[reported])
        )
        cache.update_pod(pod, newer)
        assert (cache.table.pod_log.end != before) == is_dirty
        pod = newer


@pytest.mark.parametrize(
    "change",
    [
        lambda cache, pod: cache.assume_pod(PodInfo(pod)),
        lambda cache, pod: cache.forget_pod(pod),
        lambda cache, pod: cache.add_pod(pod),
        lambda cache, pod: cache.update_pod(pod, pod),
        lambda cache, pod: cache.remove_pod(pod),
    ],
    ids=["assume", "forget", "add", "update", "remove"],
)
def test_a_pod_without_uid_is_refused(change):
    cache = Cache(NodeTable())
    with pytest.raises(CacheError, match="cannot get cache key for pod default/a with empty UID"):
        change(cache, make_pod("a").uid("").on("n").build())
    assert cache.pod_count == 0
