"""`check_plugin`: each check catches a fault that was planted, and honest plugins pass."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
import pytest
from hypothesis import strategies as st

from kubesched.api.core_v1 import Service
from kubesched.api.meta import ObjectMeta
from kubesched.base.clock import ManualClock
from kubesched.base.errors import KubeschedError
from kubesched.framework import (
    Action,
    EnqueueExtensions,
    FilterPlugin,
    Hint,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    Resource,
    Rule,
    Scope,
    ScorePlugin,
    Verdicts,
    on_event,
    unschedulable,
)
from kubesched.plugins.registry import in_tree_registry
from kubesched.testing import PluginFault, check_plugin, make_node, make_pod

NO = unschedulable("no")
START = ManualClock().monotonic()
WEB = Service(metadata=ObjectMeta(name="web", namespace="default"))


@dataclass(frozen=True)
class RackArgs:
    label: str = "rack"


class Racks(FilterPlugin, ScorePlugin, EnqueueExtensions):
    """Honest: the base of most plugins here, which each break one thing."""

    name = "Racks"
    args_type = RackArgs

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.label_ids(self.args.label) < 0, NO)

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)

    def score_nodes(self, state, pod, nodes):
        return np.where(nodes.label_ids(self.args.label) >= 0, 100, 0)

    def score_rule(self, state, pod):
        return Rule(Scope.NODE)

    def events_to_register(self):
        return [on_event(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self.hint)]

    def hint(self, pod, old, new):
        return Hint.QUEUE if self.args.label in (new.metadata.labels or {}) else Hint.SKIP


class Crowd(PreFilterPlugin, FilterPlugin):
    """Honest: at most one pod labelled `app` per cluster, counted by `pre_filter`."""

    name = "Crowd"
    key = "Crowd"

    def pre_filter(self, state, pod, nodes):
        state.write(self.key, Count(sum(self.count(i) for i in self.every(nodes))))

    def every(self, nodes):
        return [p for i in np.flatnonzero(nodes.alive) for p in nodes.pods_at(int(i))]

    def count(self, info):
        return "app" in (info.pod.metadata.labels or {})

    def add_pod(self, state, pod, added, node):
        state.read(self.key).pods += self.count(added)

    def remove_pod(self, state, pod, removed, node):
        state.read(self.key).pods -= self.count(removed)

    def filter(self, state, pod, node_info):
        return NO if state.read(self.key).pods else None


class Count:
    def __init__(self, pods):
        self.pods = pods

    def clone(self):
        return Count(self.pods)


class Seats(ReservePlugin, FilterPlugin):
    """Honest: one seat per node, kept by the plugin itself."""

    name = "Seats"

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.taken = {}

    def filter(self, state, pod, node_info):
        return NO if node_info.name in self.taken else None

    def reserve(self, state, pod, node_name):
        self.taken.setdefault(node_name, pod.metadata.uid)

    def unreserve(self, state, pod, node_name):
        if self.taken.get(node_name) == pod.metadata.uid:
            del self.taken[node_name]


class WaitsForService(PreFilterPlugin, EnqueueExtensions):
    """Honest: no pod before the Service exists."""

    name = "WaitsForService"
    lists = (Service,)

    def pre_filter(self, state, pod, nodes):
        return None if self.handle.listers.of(Service).get("default", "web") else NO

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE, premise=lambda: self.handle.listers.of(Service).version)

    def events_to_register(self):
        return [on_event("Service", Action.ADD)]


class Labelled(PreEnqueuePlugin, EnqueueExtensions):
    """Honest: pods without the label `ready` stay out of the queue."""

    name = "Labelled"

    def pre_enqueue(self, pod):
        return None if "ready" in (pod.metadata.labels or {}) else NO

    def events_to_register(self):
        return [on_event(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)]


@pytest.mark.parametrize("plugin", [Racks, Crowd, Seats, Labelled], ids=lambda p: p.name)
def test_an_honest_plugin_passes(plugin):
    check_plugin(plugin, examples=20)


def test_objects_come_and_go():
    check_plugin(WaitsForService, objects=[WEB], examples=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["NodeAffinity", "NodePorts", "NodeResourcesFit", "TaintToleration", "PodTopologySpread"],
)
def test_no_false_alarm_about_in_tree_plugins(name):
    check_plugin(in_tree_registry().get(name), words=["rack"], examples=60)


class Random(Racks):
    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.calls = count()

    def score_nodes(self, state, pod, nodes):
        return next(self.calls) % 2


class OtherForm(Racks):
    def filter(self, state, pod, node_info):
        return NO if "shelf" in (node_info.node.metadata.labels or {}) else None


class OtherScoreForm(Racks):
    def score(self, state, pod, node_info):
        return 7


class ViewDependent(Racks):
    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(np.full(len(nodes), len(nodes) > 1), NO)


class CountsPodsByNode(Racks):
    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.pod_count > 0, NO)


class ScoresPodsByNode(Racks):
    def score_nodes(self, state, pod, nodes):
        return np.minimum(nodes.pod_count, 100)


class LooksAtNeighbours(Racks):
    def filter_nodes(self, state, pod, nodes):
        crowded = int(nodes.table.pod_count.array.sum()) > 1
        return Verdicts.reject(np.full(len(nodes), crowded), NO)

    def filter_rule(self, state, pod):
        return Rule(Scope.ROW)


class NoPremise(WaitsForService):
    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)


class LooksAtTheClock(Racks):
    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(
            np.full(len(nodes), self.handle.clock.monotonic() > START + 3000), NO
        )


class ReadsAnnotations(Racks):
    def score_nodes(self, state, pod, nodes):
        return 7 if "special" in (pod.metadata.annotations or {}) else 0


class ReadsLabelsUnnamed(Racks):
    def class_fields(self, pod):
        return None

    def score_nodes(self, state, pod, nodes):
        return 7 if "special" in (pod.metadata.labels or {}) else 0


class NoEvents(Racks):
    def events_to_register(self):
        return [on_event(Resource.NODE, Action.ADD)]


class WrongHint(Racks):
    def hint(self, pod, old, new):
        return Hint.SKIP


class GateWithoutEvent(Labelled):
    def events_to_register(self):
        return []


class RemembersPods(Racks):
    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.seen = set()

    def filter_nodes(self, state, pod, nodes):
        self.seen.add(pod.metadata.name)
        return Verdicts.reject(np.full(len(nodes), len(self.seen) > 1), NO)


class RemembersTooMuch(Racks):
    def score_nodes(self, state, pod, nodes):
        return state.remember("sum", lambda: min(int(nodes.pod_count.sum()), 100))

    def score_rule(self, state, pod):
        return None


class NoExtensions(Crowd):
    add_pod = PreFilterPlugin.add_pod
    remove_pod = PreFilterPlugin.remove_pod


class NoClone(Crowd):
    def pre_filter(self, state, pod, nodes):
        count = [self.count(i) for i in self.every(nodes)].count(True)
        state.write(self.key, type("Bare", (), {"pods": count})())


class NeverUndone(Seats):
    def unreserve(self, state, pod, node_name):
        pass


class UndoesOthers(Seats):
    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.count = 0

    def filter(self, state, pod, node_info):
        return NO if self.count else None

    def reserve(self, state, pod, node_name):
        self.count += 1

    def unreserve(self, state, pod, node_name):
        self.count -= 1


class TooHigh(Racks):
    def score_nodes(self, state, pod, nodes):
        return nodes.pod_count * 60


class Raises(Racks):
    def filter_nodes(self, state, pod, nodes):
        if "rack" in (pod.metadata.labels or {}):
            raise ZeroDivisionError("oops")


class RuleRaises(Racks):
    def filter_rule(self, state, pod):
        raise ZeroDivisionError("oops")


class Nonsense(Racks):
    def filter_nodes(self, state, pod, nodes):
        return "yes"


@pytest.mark.parametrize(
    ("plugin", "check", "text", "lines"),
    [
        (
            Random,
            "deterministic",
            "answers differ although nothing has changed",
            ["first", "second"],
        ),
        (OtherForm, "forms", "filter_nodes and filter disagree", ["columns", "single"]),
        (OtherScoreForm, "forms", "score_nodes and score disagree", ["columns", "single"]),
        (ViewDependent, "forms", "for a node alone than among all nodes", ["among", "alone"]),
        (
            CountsPodsByNode,
            "rules",
            "filter_rule keeps an answer that has changed",
            ["change", "before"],
        ),
        (
            ScoresPodsByNode,
            "rules",
            "score_rule keeps an answer that has changed",
            ["change", "before"],
        ),
        (
            LooksAtNeighbours,
            "rules",
            "filter_rule keeps an answer that has changed",
            ["change", "after"],
        ),
        (
            LooksAtTheClock,
            "rules",
            "filter_rule keeps an answer that has changed",
            ["change  an hour"],
        ),
        (ReadsAnnotations, "classes", "class_fields must return", ["it ", "twin"]),
        (ReadsLabelsUnnamed, "classes", "class_fields must return", ["it ", "twin"]),
        (
            NoEvents,
            "events",
            "NodeUpdateNodeLabel is not registered for",
            ["change", "before", "after"],
        ),
        (WrongHint, "events", "nothing wakes the pod", ["change", "before", "after"]),
        (GateWithoutEvent, "events", "TargetPodUpdatePodLabel is not registered for", ["change"]),
        (RemembersPods, "isolation", "asked about another pod before", ["other", "fresh"]),
        (RemembersTooMuch, "isolation", "is not that of a new instance", ["change", "kept"]),
        (
            NoExtensions,
            "what-ifs",
            "_pod the filter answers otherwise than if it were so",
            ["what if"],
        ),
        (NoClone, "what-ifs", "needs clone()", ["before", "after"]),
        (NeverUndone, "reservations", "unreserve does not undo reserve", ["fresh", "undone"]),
        (UndoesOthers, "reservations", "unreserve without reserve counts", ["fresh", "undone"]),
        (TooHigh, "deterministic", "in the range of [0, 100] after normalizing", ["pod"]),
        (Raises, "deterministic", "oops", ["pod"]),
        (RuleRaises, "deterministic", "filter_rule raised ZeroDivisionError: oops", ["pod"]),
        (Nonsense, "deterministic", "returned str where a Status or None was expected", ["pod"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_fault_is_found(plugin, check, text, lines):
    with pytest.raises(PluginFault) as caught:
        check_plugin(plugin, checks=[check])
    message = str(caught.value)
    assert text in message, message
    assert "\n  pod     {" in message, message
    for line in lines:
        assert f"\n  {line}" in message, message


def test_a_premise_that_is_missing_is_found():
    with pytest.raises(PluginFault, match="filter_rule keeps an answer") as caught:
        check_plugin(NoPremise, objects=[WEB], checks=["rules"])
    assert "Service default/web is" in str(caught.value)


def test_what_is_found_is_small():
    with pytest.raises(PluginFault) as caught:
        check_plugin(CountsPodsByNode, checks=["rules"])
    text = str(caught.value)
    assert "annotations" not in text, text
    assert "taints" not in text, text
    assert text.count("\n  node    ") == 1, text


def test_own_pods_and_nodes_are_drawn_from():
    names = set()

    class Looks(Racks):
        def filter_nodes(self, state, pod, nodes):
            names.add(pod.metadata.labels["mine"])
            names.update(nodes.label_column("own").values)

    pods = st.sampled_from(["a", "b"]).map(lambda v: make_pod("x").label("mine", v).build())
    nodes = st.just(make_node("x").label("own", "c").build())
    check_plugin(Looks, pods=pods, nodes=nodes, examples=10)
    assert names == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("plugin", "args", "text"),
    [
        (int, None, "is not a class derived from"),
        (7, None, "is not a class derived from"),
        (FilterPlugin, None, "implements neither filter nor filter_nodes"),
        (Racks, {"lable": "x"}, 'initializing plugin "Racks": .*lable'),
    ],
)
def test_what_is_no_plugin_is_said_in_a_sentence(plugin, args, text):
    with pytest.raises(KubeschedError, match=text):
        check_plugin(plugin, args)


def test_arguments_are_decoded_or_taken_as_they_are():
    check_plugin(Racks, {"label": "shelf"}, examples=5)
    check_plugin(Racks, RackArgs("shelf"), examples=5)
