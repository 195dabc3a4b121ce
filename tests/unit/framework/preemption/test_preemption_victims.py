"""Whom a node loses: the choice of victims on one node, what plugins are told meanwhile, and what
may go wrong.
"""

from __future__ import annotations

import numpy as np
import pytest

from kubesched.framework.interfaces import FilterPlugin, PreFilterPlugin
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.dry_run import DryRun
from kubesched.framework.preemption.victims import USUAL_RULES, select_victims
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Code, NodeToStatus, Status, error_status, unschedulable
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.plugins.queue_sort import PrioritySort
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE


def victims_on(world, node, preemptor, rules=USUAL_RULES):
    """Names of the victims, and violations; or the status."""
    budgets = world.plugin.evaluator.budgets.list()
    found = select_victims(
        world.preemptor(preemptor.build()), world.table.row_of[node], budgets, rules
    )
    if isinstance(found, Status):
        return found
    return [pod.metadata.name for pod in found.pods], found.pdb_violations


# name, cpu, priority, hour of start
@pytest.mark.parametrize(
    ("pods", "wants", "victims"),
    [
        pytest.param([("a", "1", 0, 1)], "4", ["a"], id="the only one"),
        pytest.param([("a", "1", 0, 1), ("b", "1", 0, 2)], "3", ["b"], id="the later one goes"),
        pytest.param([("a", "1", 5, 2), ("b", "1", 1, 1)], "3", ["b"],
                     id="the less important goes"),
        pytest.param(
            [("a", "1", 0, None), ("b", "1", 0, 9)], "3", ["a"],
            id="of equals the one that has not started yet goes",
        ),
        pytest.param(
            [("a", "3", 5, 1), ("b", "1", 1, 1)], "2", ["a"],
            id="a big important pod goes when it would not fit anyway, and the small one stays",
        ),
        pytest.param(
            [("a", "1", 3, 1), ("b", "1", 2, 1), ("c", "1", 1, 1), ("d", "1", 0, 1)], "3",
            ["b", "c", "d"], id="as many as needed, the most important first",
        ),
        pytest.param(
            [("a", "1", 20, 1), ("b", "2", 3, 1)], "3", ["b"],
            id="pods of higher priority are not touched",
        ),
        pytest.param(
            [("a", "1", 10, 1), ("b", "1", 9, 1)], "3", ["b"],
            id="pods of the same priority are not touched",
        ),
        pytest.param([("a", "1", None, 1)], "4", ["a"], id="no priority is priority 0"),
    ],
)  # fmt: skip
def test_the_usual_victims(world, pods, wants, victims) -> None:
    world.node("n", "4")
    for name, cpu, priority, hour in pods:
        pod = make_pod(name).on("n").cpu(cpu)
        if priority is not None:
            pod.priority(priority)
        if hour is not None:
            pod.status(startTime=f"2026-01-01T{hour:02}:00:00Z")
        world.add(pod)
    assert victims_on(world, "n", world.pending(cpu=wants, priority=10)) == (victims, 0)


def test_terminating_pods_are_victims_like_others(world) -> None:
    world.node("n", "1")
    world.add(make_pod("a").on("n").cpu("1").terminating())
    assert victims_on(world, "n", world.pending()) == (["a"], 0)


def test_nothing_to_evict(world) -> None:
    world.node("n", "1")
    world.on("n", "a", priority=100)
    status = victims_on(world, "n", world.pending(priority=100))
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("No preemption victims found for incoming pod",)


def test_evicting_everything_is_not_enough(world) -> None:
    world.node("n", "4")
    world.on("n", "a", "3", priority=200)
    world.on("n", "b", "1")
    status = victims_on(world, "n", world.pending(cpu="3"))
    assert (status.code, status.reasons) == (Code.UNSCHEDULABLE, ("Insufficient cpu",))


def test_protected_pods_get_the_first_chance_to_stay(world) -> None:
    world.node("n", "2")
    world.on("n", "important", priority=5, app="web")
    world.on("n", "protected", priority=1, app="db")
    world.budget("b", 0, app="db")
    assert victims_on(world, "n", world.pending()) == (["important"], 0)


def test_a_protected_pod_that_cannot_stay_counts_as_violation(world) -> None:
    world.node("n", "2")
    world.on("n", "a", priority=5, app="db")
    world.on("n", "b", priority=1, app="db")
    world.budget("b", 1, app="db")
    assert victims_on(world, "n", world.pending(cpu="2")) == (["a", "b"], 1)


def test_victims_of_both_kinds_are_listed_by_importance(world) -> None:
    world.node("n", "3")
    world.on("n", "a", priority=3, app="web")
    world.on("n", "b", priority=2, app="db")
    world.on("n", "c", priority=1, app="web")
    world.budget("b", 0, app="db")
    assert victims_on(world, "n", world.pending(cpu="3")) == (["a", "b", "c"], 1)


@pytest.mark.parametrize(
    ("rival_priority", "victims"),
    [
        pytest.param(99, ["b"], id="a lower one claims nothing"),
        pytest.param(100, ["a", "b"], id="an equal one must fit as well"),
        pytest.param(101, ["a", "b"], id="a higher one must fit as well"),
    ],
)
def test_nominated_pods_claim_their_room(world, rival_priority, victims) -> None:
    world.node("n", "2")
    world.on("n", "a", priority=2)
    world.on("n", "b", priority=1)
    world.nominate("n", "rival", "1", rival_priority)
    assert victims_on(world, "n", world.pending()) == (victims, 0)


def test_the_pods_own_nomination_claims_nothing(world) -> None:
    world.node("n", "2")
    world.on("n", "a", priority=2)
    world.on("n", "b", priority=1)
    own = world.nominate("n", "p", "1", 100)
    preemptor = world.pending("p").uid(own.metadata.uid)
    assert victims_on(world, "n", preemptor) == (["b"], 0)


def test_ports_are_freed_by_evicting_who_holds_them(world) -> None:
    world.node("n", "4")
    world.add(make_pod("a").on("n").cpu("1").host_port(80))
    world.on("n", "b")
    preemptor = world.pending().host_port(80)
    assert victims_on(world, "n", preemptor) == (["a"], 0)


def test_anti_affinity_is_resolved_by_evicting_its_object(world) -> None:
    world.node("n", "4")
    world.on("n", "a", app="web")
    world.on("n", "b", app="db")
    preemptor = world.pending().pod_anti_affinity(HOSTNAME, app="web")
    assert victims_on(world, "n", preemptor) == (["a"], 0)


def test_anti_affinity_of_the_victim_is_resolved_by_evicting_it(world) -> None:
    world.node("n", "4")
    world.add(make_pod("a").on("n").cpu("1").pod_anti_affinity(HOSTNAME, app="p"))
    preemptor = world.pending().labels(app="p")
    assert victims_on(world, "n", preemptor) == (["a"], 0)


def test_affinity_to_a_pod_keeps_that_pod(world) -> None:
    """As long as the pod is not needed as a victim: affinity to one's own victims is not
    supported.
    """
    world.node("n", "2")
    world.on("n", "friend", priority=5, app="web")
    world.on("n", "other", priority=1)
    preemptor = world.pending().pod_affinity(HOSTNAME, app="web")
    status = victims_on(world, "n", preemptor)
    assert isinstance(status, Status)
    assert status.reasons == ("node(s) didn't match pod affinity rules",)


def test_skew_is_resolved_by_evicting_from_the_crowded_domain(world) -> None:
    for name, zone in (("n1", "a"), ("n2", "b")):
        world.add_node(make_node(name).capacity(cpu="4", memory="8Gi").zone(zone))
    world.on("n1", "a", app="web")
    world.on("n1", "b", app="web")
    world.on("n2", "c", priority=200, app="web")
    preemptor = world.pending().labels(app="web")
    preemptor.spread(1, ZONE, selector={"matchLabels": {"app": "web"}})
    assert victims_on(world, "n1", preemptor) == (["b"], 0)


# -- hooks of plugins that derive from DefaultPreemption -------------------------------------------


class Considerate(DefaultPreemption):
    """Spares pods with a label."""

    name = "Considerate"

    def is_eligible_pod(self, node, victim, preemptor):
        return "spared" not in (victim.pod.metadata.labels or {})


class YoungFirst(DefaultPreemption):
    """Lets short names stay."""

    name = "YoungFirst"

    def is_more_important_pod(self, a, b):
        return len(a.name) < len(b.name)


class FirstNode(DefaultPreemption):
    """Prefers nodes by name."""

    name = "FirstNode"

    def ordered_score_functions(self, victims):
        return [lambda node: -sorted(victims).index(node)]


def test_a_plugin_may_spare_pods(make_world) -> None:
    world = make_world(plugin=lambda handle: Considerate(None, handle))
    world.node("n", "2")
    world.on("n", "a", priority=5)
    world.on("n", "b", priority=1, spared="yes")
    assert world.preempt(world.pending()) == ("n", "")
    assert [pod.metadata.name for pod in evicted(world)] == ["a"]


def test_a_plugin_that_spares_everybody_finds_no_victims(make_world) -> None:
    world = make_world(plugin=lambda handle: Considerate(None, handle))
    world.node("n", "1")
    world.on("n", "a", spared="yes")
    _, message = world.preempt(world.pending())
    assert message.endswith("1 No preemption victims found for incoming pod.")


def test_a_plugin_may_have_its_own_idea_of_importance(make_world) -> None:
    world = make_world(plugin=lambda handle: YoungFirst(None, handle))
    world.node("n", "2")
    world.on("n", "long", priority=5)
    world.on("n", "b", priority=1)
    assert world.preempt(world.pending()) == ("n", "")
    assert [pod.metadata.name for pod in evicted(world)] == ["long"]


def test_a_plugin_may_choose_the_node_by_other_criteria(make_world) -> None:
    world = make_world(plugin=lambda handle: FirstNode(None, handle))
    for name, priority in (("b", 1), ("a", 5)):
        world.node(name, "1")
        world.on(name, f"v-{name}", priority=priority)
    assert world.preempt(world.pending()) == ("a", "")


def evicted(world):
    """Victims of the preemption that was started last."""
    work, _ = world.spawned[-1]
    return work.cr_frame.f_locals["victims"]


# -- what plugins are told, and what may break -----------------------------------------------------


class Watchful(PreFilterPlugin, FilterPlugin):
    """Counts how often it is asked, and breaks when told to."""

    name = "Watchful"
    has_extensions = True

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.calls: list[str] = []
        self.breaks: dict[str, set[str]] = {}

    def _called(self, what, pod, node_name):
        self.calls.append(f"{what} {pod}".strip())
        if node_name in self.breaks.get(what, ()):
            return error_status("injected")
        return None

    def pre_filter(self, state, pod, nodes):
        return None

    def add_pod(self, state, pod, added, node):
        return self._called("add", added.name, node.name_at(0))

    def remove_pod(self, state, pod, removed, node):
        assert removed.uid not in {each.uid for each in node.pods_at(0)}
        return self._called("remove", removed.name, node.name_at(0))

    def filter(self, state, pod, node_info):
        status = self._called("filter", "", node_info.name)
        if status is not None:
            return status
        free = node_info.allocatable.milli_cpu - node_info.requested.milli_cpu
        return None if free >= 1000 else unschedulable("no room")


@pytest.fixture
def watchful(make_world):
    """A world whose only filter is a plugin that looks at one node at a time."""

    def make(handle):
        plugin = Watchful(None, handle)
        points = {
            "queueSort": [PrioritySort(None, handle)],
            "preFilter": [plugin],
            "filter": [plugin],
            "postFilter": [DefaultPreemption(None, handle)],
        }
        return Framework(handle, points, {})

    return make_world(framework=make)


@pytest.mark.parametrize(
    ("pods", "calls"),
    [
        pytest.param([("a", 200)], [], id="no possible victim: no filter is asked"),
        pytest.param(
            [("a", 200), ("b", 0)], ["remove b", "filter"],
            id="no room even without them: one question",
        ),
        pytest.param(
            [("a", 2), ("b", 1)],
            ["remove a", "remove b", "filter", "add a", "filter", "add b", "filter", "remove b"],
            id="one question, and one for every possible victim",
        ),
    ],
)  # fmt: skip
def test_how_often_plugins_are_asked(watchful, pods, calls) -> None:
    watchful.node("n", "2" if len(pods) == 2 and pods[0][1] < 100 else "1")
    for name, priority in pods:
        watchful.on("n", name, priority=priority)
    plugin = watchful.framework.filter[0]
    preemptor = watchful.preemptor(watchful.pending().build())
    rows = np.array([0])
    DryRun(preemptor, Budgets(())).find(rows, 1)
    assert plugin.calls == calls


@pytest.mark.parametrize(
    ("point", "message"),
    [
        pytest.param(
            "remove", 'running RemovePod on PreFilter plugin "Watchful": injected', id="RemovePod"
        ),
        pytest.param("add", 'running AddPod on PreFilter plugin "Watchful": injected', id="AddPod"),
        pytest.param("filter", 'running "Watchful" filter plugin: injected', id="Filter"),
    ],
)
def test_a_single_node_on_which_a_plugin_breaks_is_an_error(watchful, point, message) -> None:
    watchful.node("n", "2")
    watchful.on("n", "a", priority=2)
    watchful.on("n", "b", priority=1)
    pod = watchful.pending().build()
    watchful.listers.of(type(pod)).put(pod)
    state, statuses = watchful.fail(pod)
    watchful.framework.filter[0].breaks[point] = {"n"}
    result, status = watchful.plugin.post_filter(state, pod, statuses)
    assert result is None
    assert (status.code, status.message) == (Code.ERROR, f"preemption: {message}")


def test_a_node_on_which_a_plugin_breaks_does_not_matter_if_another_one_helps(watchful) -> None:
    for name in ("n1", "n2"):
        watchful.node(name, "1")
        watchful.on(name, f"v-{name}")
    pod = watchful.pending().build()
    watchful.listers.of(type(pod)).put(pod)
    state, statuses = watchful.fail(pod)
    watchful.framework.filter[0].breaks["remove"] = {"n1"}
    result, status = watchful.plugin.post_filter(state, pod, statuses)
    assert status.is_success
    assert result.nominating_info.node_name == "n2"


def test_a_node_that_has_room_after_all_is_an_error_not_a_candidate(world) -> None:
    """An extender may have ruled it out, or it became free between the filters and the dry run."""
    world.node("n", "2")
    world.on("n", "v")
    pod = world.pending(cpu="500m").build()
    world.listers.of(type(pod)).put(pod)
    state = world.preemptor(pod).state
    result, status = world.plugin.post_filter(state, pod, NodeToStatus({"n": unschedulable("no")}))
    assert result is None
    assert status.code is Code.ERROR
    assert status.message == 'preemption: expected at least one victim pod on node "n"'
