"""DefaultPreemption as a plugin: who may preempt, what it answers, and what the pod's message says
in the end.
"""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import ConfigError
from kubesched.config.features import DEFAULT_GATES, defaults
from kubesched.config.plugin_args import DefaultPreemptionArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Hint, Resource
from kubesched.framework.status import (
    Code,
    NodeToStatus,
    Status,
    unresolvable,
    unschedulable,
)
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.testing import make_node, make_pod

NOTHING = "preemption: 0/{} nodes are available: {}."
HELPLESS = "No preemption victims found for incoming pod"
USELESS = "Preemption is not helpful for scheduling"


def full_node(world, name="n", priority=0):
    world.node(name, "1")
    return world.on(name, f"v-{name}", priority=priority)


# -- the answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.37", "preemption: found a potential placement for pod on node n, preempting 1 victims"),
        ("1.36", ""),
    ],
)
def test_a_node_is_nominated(make_world, version, said) -> None:
    world = make_world(gates=defaults(version))
    full_node(world)
    pod = world.pending().build()
    world.listers.of(Pod).put(pod)
    state, statuses = world.fail(pod)
    result, status = world.plugin.post_filter(state, pod, statuses)
    assert result.nominating_info.node_name == "n"
    assert ("" if status is None else status.message) == said


@pytest.mark.parametrize(
    ("priority", "victim", "node"),
    [
        pytest.param(1, 0, "n", id="a lower priority makes room"),
        pytest.param(0, 0, "", id="an equal priority does not, and the nomination is cleared"),
        pytest.param(0, 1, "", id="a higher priority does not"),
        pytest.param(0, -1, "n", id="negative priorities are priorities"),
    ],
)
def test_only_lower_priorities_make_room(world, priority, victim, node) -> None:
    full_node(world, priority=victim)
    found, message = world.preempt(world.pending(priority=priority))
    assert found == node
    assert message == ("" if node else NOTHING.format(1, f"1 {HELPLESS}"))


def test_the_histogram_tells_nodes_apart(world) -> None:
    world.node("n1", "2")
    world.on("n1", "a", "1", priority=200)
    world.on("n1", "b", "1")
    for name in ("n2", "n3"):
        world.node(name, "2")
        world.on(name, f"v-{name}", "2", priority=200)
    answer = world.preempt(world.pending(cpu="2"))
    assert answer == ("", NOTHING.format(3, f"1 Insufficient cpu, 2 {HELPLESS}"))


def test_nodes_that_no_eviction_can_help_are_not_tried(world) -> None:
    full_node(world, "small")
    world.add_node(make_node("tainted").capacity(cpu="4", memory="8Gi").taint("dedicated"))
    world.on("tainted", "v", "4")
    found, message = world.preempt(world.pending(cpu="2"))
    assert (found, message) == ("", NOTHING.format(2, f"2 {USELESS}"))


@pytest.mark.parametrize(
    ("statuses", "node"),
    [
        pytest.param(NodeToStatus({"n": unschedulable("x")}), "n", id="rejected"),
        pytest.param(NodeToStatus({"n": unresolvable("x")}), "", id="rejected for good"),
        pytest.param(NodeToStatus({"n": Status(Code.PENDING, ["x"])}), "", id="pending"),
        pytest.param(NodeToStatus(), "", id="no verdict: nodes are not tried by default"),
        pytest.param(
            NodeToStatus(absent_status=unschedulable("x")), "n",
            id="rejected by PreFilter, so every node is tried",
        ),
        pytest.param(
            NodeToStatus({"n": unresolvable("x")}, unschedulable("x")), "",
            id="a node's own verdict counts more than the default",
        ),
        pytest.param(
            NodeToStatus({"gone": unschedulable("x")}), "", id="an unknown node is dropped"
        ),
    ],
)  # fmt: skip
def test_which_verdicts_make_a_node_worth_a_try(world, statuses, node) -> None:
    full_node(world)
    assert world.preempt(world.pending(), statuses)[0] == node


def test_the_pod_is_looked_up_again(world) -> None:
    """Its priority, policy and nomination may have changed since it was taken from the queue."""
    full_node(world)
    pod = world.pending().build()
    state, statuses = world.fail(pod)
    world.listers.of(Pod).put(
        structs.replace(pod, spec=structs.replace(pod.spec, preemption_policy="Never"))
    )
    result, status = world.plugin.post_filter(state, pod, statuses)
    assert result is None
    assert status.message == "preemption: not eligible due to preemptionPolicy=Never."


def test_a_pod_that_is_gone_is_an_error(world) -> None:
    full_node(world)
    pod = world.pending().build()
    state, statuses = world.fail(pod)
    result, status = world.plugin.post_filter(state, pod, statuses)
    assert result is None
    assert (status.code, status.message) == (Code.ERROR, 'preemption: pod "p" not found')


def test_attempts_and_victims_are_counted(world) -> None:
    full_node(world)
    world.preempt(world.pending(priority=0))
    world.preempt(world.pending("q"))
    assert world.metrics.preemption_attempts_total.current() == 2
    assert world.metrics.preemption_victims.count == 1


# -- eligibility -----------------------------------------------------------------------------------

TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
STILL_GOING = (None, "preemption: not eligible due to a terminating pod on the nominated node.")


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        pytest.param(None, ("n", ""), id="no policy allows it"),
        pytest.param("PreemptLowerPriority", ("n", ""), id="the usual policy allows it"),
        pytest.param(
            "Never", (None, "preemption: not eligible due to preemptionPolicy=Never."), id="Never"
        ),
    ],
)
def test_preemption_policy(world, policy, answer) -> None:
    full_node(world)
    pod = world.pending()
    if policy is not None:
        pod.spec(preemptionPolicy=policy)
    assert world.preempt(pod) == answer
    assert bool(world.spawned) == (answer[0] == "n")


@pytest.mark.parametrize(
    ("priority", "terminating", "conditions", "waits"),
    [
        pytest.param(0, True, [TARGET], True, id="a victim of preemption on its way out"),
        pytest.param(0, False, [TARGET], False, id="not on its way out yet"),
        pytest.param(0, True, [], False, id="on its way out for other reasons"),
        pytest.param(
            0, True, [TARGET | {"reason": "EvictionByEvictionAPI"}], False, id="evicted by others"
        ),
        pytest.param(0, True, [TARGET | {"status": "False"}], False, id="the condition is false"),
        pytest.param(
            0, True, [TARGET | {"reason": "Other"}, TARGET], False, id="the first condition counts"
        ),
        pytest.param(100, True, [TARGET], False, id="a pod of the same priority"),
    ],
)
def test_waiting_for_victims_on_the_nominated_node(
    world, priority, terminating, conditions, waits
) -> None:
    world.node("n", "2")
    world.on("n", "other")
    pod = make_pod("v").on("n").cpu("1").priority(priority).status(conditions=conditions)
    world.add(pod.terminating() if terminating else pod)
    answer = world.preempt(world.pending().nominated("n"))
    assert (answer == STILL_GOING) is waits
    if not waits:
        assert answer[0] == "n"


def test_a_nominated_node_that_nothing_can_help_is_given_up(world) -> None:
    world.node("n", "1")
    world.add(make_pod("v").on("n").cpu("1").status(conditions=[TARGET]).terminating())
    full_node(world, "m")
    statuses = NodeToStatus({"n": unresolvable("x"), "m": unschedulable("x")})
    assert world.preempt(world.pending().nominated("n"), statuses)[0] == "m"


def test_a_nominated_node_that_is_gone_does_not_matter(world) -> None:
    full_node(world)
    assert world.preempt(world.pending().nominated("gone"))[0] == "n"


# -- pod groups ------------------------------------------------------------------------------------


def test_without_the_gate_a_member_of_a_group_is_a_pod_like_any_other(world) -> None:
    full_node(world)
    member = world.pending().spec(schedulingGroup={"podGroupName": "g"})
    assert world.preempt(member)[0] == "n"


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percentage", "absolute", "problems"),
    [
        pytest.param(10, 100, [], id="the defaults"),
        pytest.param(0, 1, [], id="no percentage"),
        pytest.param(101, 1, ["not in valid range [0, 100]"], id="more than all"),
        pytest.param(-1, 1, ["not in valid range [0, 100]"], id="less than none"),
        pytest.param(1, -1, ["not in valid range [0, inf)"], id="a negative number"),
        pytest.param(
            0, 0,
            [
                "cannot be zero at the same time as minCandidateNodesAbsolute",
                "cannot be zero at the same time as minCandidateNodesPercentage",
            ],
            id="nothing at all",
        ),
    ],
)  # fmt: skip
def test_arguments_are_checked(world, percentage, absolute, problems) -> None:
    args = DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )
    if not problems:
        DefaultPreemption(args, world.handle)
        return
    with pytest.raises(ConfigError) as caught:
        DefaultPreemption(args, world.handle)
    told = str(caught.value)
    assert all(problem in told for problem in problems)
    assert len(caught.value.problems) == len(problems)


def test_the_configured_number_of_candidates_is_looked_for(make_world) -> None:
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=40, min_candidate_nodes_absolute=1)
    world = make_world(plugin=lambda handle: DefaultPreemption(args, handle))
    for number in range(5):
        full_node(world, f"n{number}")
    found = []
    evaluator = world.plugin.evaluator
    best = evaluator._best
    evaluator._best = lambda shortlist: found.append(len(shortlist)) or best(shortlist)
    world.preempt(world.pending())
    assert found == [2]


# -- the queue -------------------------------------------------------------------------------------


def test_a_pod_waits_while_its_victims_are_being_evicted(world) -> None:
    full_node(world)
    pod = world.pending().build()
    assert world.plugin.pre_enqueue(pod) is None
    world.preempt(pod)
    status = world.plugin.pre_enqueue(pod)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == "waiting for the preemption for this pod to be finished"
    other = world.pending("q").build()
    assert world.plugin.pre_enqueue(other) is None, "others are not kept back"


def test_a_kept_back_pod_is_looked_at_when_a_pod_is_deleted(world) -> None:
    (registered,) = world.plugin.events_to_register()
    assert (registered.event.resource, registered.event.action) == (
        Resource.ASSIGNED_POD,
        Action.DELETE,
    )
    pod = world.pending().build()
    assert registered.hint(pod, pod, None) is Hint.SKIP, "others know whether it helps"


def test_without_background_work_nothing_is_registered_and_no_pod_waits(make_world) -> None:
    world = make_world(gates=dataclasses.replace(DEFAULT_GATES, SchedulerAsyncPreemption=False))
    assert world.plugin.events_to_register() == ()
    assert world.plugin.pre_enqueue(world.pending().build()) is None


def test_an_empty_state_is_an_error(world) -> None:
    """PreFilter was not run for this pod: the plugins asked in the dry run say so."""
    full_node(world)
    pod = world.pending().build()
    world.listers.of(Pod).put(pod)
    result, status = world.plugin.post_filter(
        CycleState(), pod, NodeToStatus({"n": unschedulable("x")})
    )
    assert result is None
    assert status.code is Code.ERROR
    assert status.message.startswith("preemption: running ")
