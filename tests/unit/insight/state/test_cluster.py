"""A cluster in memory: it knows when nothing is left to do, passes time when told, and shows what
was decided.
"""

from __future__ import annotations

import asyncio

import pytest

from kubesched.api.core_v1 import Container, Node, Pod, PodSpec
from kubesched.api.meta import CustomObject, ObjectMeta
from kubesched.base.errors import Conflict, KubeschedError, NotFound
from kubesched.framework.events import Action, ClusterEvent, ClusterEventWithHint
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    PreBindPlugin,
    Wait,
)
from kubesched.framework.status import unschedulable
from kubesched.insight.state.virtual_loop import SimulationStuck
from kubesched.testing import Cluster, make_node, make_pod

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: %s}]
"""


def node(name: str, cpu: str = "4") -> Node:
    return make_node(name).capacity(cpu=cpu, memory="8Gi", pods="110").build()


def test_objects_given_and_added_are_decided_about() -> None:
    with Cluster([node("n1"), make_pod("old").on("n1").build()]) as cluster:
        cluster.add(make_pod("a").build(), make_pod("b").cpu("64").build())
        cluster.settle()
        assert cluster.placements() == {"default/old": "n1", "default/a": "n1"}
        assert (cluster.node_of("a"), cluster.node_of("b")) == ("n1", "")
        reason, message = cluster.condition("b") or ("", "")
        assert reason == "Unschedulable"
        assert message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert cluster.place_in_queue("b") == "unschedulable"
        assert [decision.name for decision in cluster.decisions()] == ["b", "a"]
        assert {event.reason for event in cluster.events} == {"Scheduled", "FailedScheduling"}
        assert "scheduler_schedule_attempts_total" in cluster.metrics.text()


def test_an_object_gets_what_an_api_server_would_give_it() -> None:
    with Cluster([node("n1")]) as cluster:
        spec = PodSpec(containers=[Container(name="c")])
        cluster.add(Pod(metadata=ObjectMeta(name="bare"), spec=spec))
        cluster.settle()
        pod = cluster.pod("bare")
        assert pod.spec.node_name == "n1"
        assert pod.metadata.uid
        assert pod.metadata.resource_version


def test_what_exists_cannot_be_added_and_what_does_not_cannot_be_updated() -> None:
    with Cluster([node("n1")]) as cluster:
        with pytest.raises(KubeschedError, match="Node n1 exists already"):
            cluster.add(node("n1"))
        with pytest.raises(NotFound, match="Node n2 does not exist"):
            cluster.update(node("n2"))
        cluster.delete(node("n2"))
        with pytest.raises(KeyError, match="default/a"):
            cluster.pod("a")


def test_a_node_that_changes_makes_room_after_the_backoff() -> None:
    with Cluster([node("n1", cpu="1")]) as cluster:
        cluster.add(make_pod("a").cpu("2").build())
        cluster.settle()
        cluster.update(node("n1", cpu="2"))
        cluster.advance(1)
        assert cluster.node_of("a") == "n1"
        cluster.delete(cluster.pod("a"))
        assert cluster.objects(Pod) == []


def test_run_lets_backoffs_pass_and_ends_when_waiting_helps_no_more() -> None:
    with Cluster([node("n1", cpu="1")]) as cluster:
        began = cluster.clock.monotonic()
        cluster.add(make_pod("low").cpu("1").priority(0).build())
        cluster.settle()
        cluster.add(make_pod("high").cpu("1").priority(10).build())
        cluster.run()
        assert cluster.client.deleted == ["default/low"]
        assert cluster.placements() == {"default/high": "n1"}
        assert cluster.nominations() == {}
        cluster.add(make_pod("never").cpu("64").build())
        cluster.run()
        assert cluster.node_of("never") == ""
        assert cluster.clock.monotonic() - began < 300


def test_time_passes_deadline_by_deadline() -> None:
    """A pod whose binding fails is tried again after 1, 2, 4 and 8 seconds: at 1, 3, 7 and 15."""

    def attempts_after(seconds: float, *, at_once: bool) -> int:
        with Cluster([node("n1")]) as cluster:

            def refuse(_pod: Pod, _node_name: str) -> None:
                raise Conflict("not now")

            cluster.client.before["bind_pod"] = refuse
            cluster.add(make_pod("a").build())
            cluster.settle()
            began = cluster.clock.monotonic()
            cluster.advance(seconds) if at_once else cluster.run(seconds)
            assert cluster.clock.monotonic() == pytest.approx(began + seconds)
            return len([it for it in cluster.decisions() if it.outcome.value == "scheduled"])

    assert attempts_after(14, at_once=False) == 4
    assert attempts_after(14, at_once=True) == 2


def test_a_preemptor_is_nominated_while_its_victims_leave() -> None:
    with Cluster([node("n1", cpu="1")]) as cluster:
        cluster.add(make_pod("low").cpu("1").priority(0).build())
        cluster.settle()
        leaves = asyncio.Event()
        cluster.client.before["delete_pod"] = lambda _pod: leaves.wait()
        cluster.add(make_pod("high").cpu("1").priority(10).build())
        cluster.run()
        assert cluster.nominations() == {"default/high": "n1"}
        leaves.set()
        cluster.run()
        assert cluster.placements() == {"default/high": "n1"}


def test_a_hook_makes_calls_fail() -> None:
    with Cluster([node("n1")]) as cluster:

        def refuse(_pod: Pod, _node_name: str) -> None:
            raise Conflict("not now")

        cluster.client.before["bind_pod"] = refuse
        cluster.add(make_pod("a").build())
        cluster.settle()
        assert cluster.placements() == {}
        cluster.client.before.clear()
        cluster.run()
        assert cluster.client.bindings == {"default/a": "n1"}


class Picky(FilterPlugin):
    name = "Picky"

    def filter(self, state, pod, node_info):
        return None if node_info.node.metadata.name == "n2" else unschedulable("not n2")


def test_a_plugin_takes_part_without_being_installed() -> None:
    with Cluster([node("n1"), node("n2")], CONFIG % "Picky", plugins=[Picky]) as cluster:
        cluster.add(make_pod("a").build())
        cluster.settle()
        assert cluster.node_of("a") == "n2"


class Slow(PreBindPlugin):
    name = "Slow"

    def pre_bind_pre_flight(self, state, pod, node_name):
        return None

    async def pre_bind(self, state, pod, node_name):
        await asyncio.sleep(30)


class Held(PermitPlugin):
    name = "Held"

    def permit(self, state, pod, node_name):
        return Wait(10.0)


@pytest.mark.parametrize(("plugin", "waits_s"), [(Slow, 30.0)])
def test_a_plugin_that_sleeps_wakes_in_virtual_time(plugin, waits_s: float) -> None:
    with Cluster([node("n1")], CONFIG % plugin.name, plugins=[plugin]) as cluster:
        cluster.add(make_pod("a").build())
        cluster.settle()
        cluster.advance(waits_s - 1)
        assert cluster.node_of("a") == ""
        cluster.advance(1)
        assert cluster.node_of("a") == "n1"


def test_a_permit_ends_by_its_timeout() -> None:
    with Cluster([node("n1")], CONFIG % "Held", plugins=[Held]) as cluster:
        cluster.add(make_pod("a").build())
        cluster.settle()
        assert len(cluster.assembly.waiting_pods) == 1
        cluster.advance(10)
        assert cluster.node_of("a") == ""
        assert "timeout" in (cluster.condition("a") or ("", ""))[1]


async def test_a_cluster_works_inside_a_running_loop() -> None:
    outer, task = asyncio.get_running_loop(), asyncio.current_task()
    with Cluster([node("n1")]) as cluster:
        cluster.add(make_pod("a").build())
        cluster.settle()
        assert cluster.node_of("a") == "n1"
        assert asyncio.get_running_loop() is outer
        assert asyncio.current_task() is task
        await asyncio.sleep(0)


def test_settling_can_end_early() -> None:
    with Cluster([node("n1")]) as cluster:
        cluster.add(*(make_pod(f"p{number}").cpu("10m").build() for number in range(100)))
        cluster.settle(until=lambda: bool(cluster.client.bindings))
        assert 0 < len(cluster.client.bindings) < 100
        cluster.settle()
        assert len(cluster.client.bindings) == 100


def test_a_plugin_that_never_rests_is_reported() -> None:
    class Busy(PreBindPlugin):
        name = "Busy"

        def pre_bind_pre_flight(self, state, pod, node_name):
            return None

        async def pre_bind(self, state, pod, node_name):
            while True:  # noqa: ASYNC110  # it never rests
                await asyncio.sleep(0)

    with Cluster([node("n1")], CONFIG % "Busy", plugins=[Busy]) as cluster:
        cluster.add(make_pod("a").build())
        with pytest.raises(SimulationStuck, match="busy without end"):
            cluster.settle()


class Gate(CustomObject):
    """With a field beside spec and status."""

    resource = "gates.v1.test.example"
    open: bool = False


class GateOpen(FilterPlugin, EnqueueExtensions):
    """Keeps pods back until some Gate is open."""

    name = "GateOpen"
    lists = (Gate,)

    def filter_nodes(self, state, pod, nodes):
        by_name = self.handle.listers.of(Gate.resource).list()
        assert by_name == self.handle.listers.of(Gate).list()
        return None if any(gate.open for gate in by_name) else unschedulable("closed")

    def events_to_register(self):
        return [ClusterEventWithHint(ClusterEvent(Gate.resource, Action.ADD | Action.UPDATE))]


@pytest.mark.parametrize("first", ["given", "added", "changed"])
def test_objects_of_custom_resources_reach_plugins_and_wake_pods(first: str) -> None:
    gate = Gate(metadata=ObjectMeta(name="g"), open=True)
    given = {"given": [gate], "changed": [Gate(metadata=ObjectMeta(name="g"))]}.get(first, [])
    with Cluster([node("n1"), *given], CONFIG % "GateOpen", plugins=[GateOpen]) as cluster:
        cluster.add(make_pod("p").build())
        cluster.settle()
        if first != "given":
            assert "closed" in (cluster.condition("p") or ("", ""))[1]
            cluster.put(gate)
            cluster.advance(2)
        assert cluster.node_of("p") == "n1"
        cluster.delete(gate)
        assert not cluster.objects(Gate)
        cluster.add(make_pod("q").build())
        cluster.settle()
        assert cluster.node_of("q") == ""
