"""Proves how plugins' registrations become the hint map, and how hints decide about one pod and one
event.
"""

from __future__ import annotations

import logging

import pytest

from kubesched.api.names import key_of
from kubesched.base.errors import KubeschedError
from kubesched.config.references import REFERENCES
from kubesched.framework.events import (
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    FORCE_ACTIVATE,
    POD_RESOURCES,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
)
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue import PluginEvents, build_hint_map
from kubesched.scheduler.queue.hints import HintEvaluator, Strategy

NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_UPDATE = ClusterEvent(Resource.NODE, Action.UPDATE)
DEFAULT_RESOURCES = {
    *POD_RESOURCES,
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "storage.k8s.io/CSINode",
    "storage.k8s.io/CSIDriver",
    "storage.k8s.io/CSIStorageCapacity",
    "storage.k8s.io/StorageClass",
    "resource.k8s.io/ResourceClaim",
    "resource.k8s.io/DeviceClass",
}


def on(resource, action, hint=None):
    return ClusterEventWithHint(ClusterEvent(resource, action), hint)


def plugin(name, *events):
    return PluginEvents(name, lambda: list(events))


def built(*plugins, **options):
    return build_hint_map({"default-scheduler": list(plugins)}, **options)


def registered(hint_map, name):
    """Events a plugin ended up with."""
    return set(hint_map.events_of(name))


class TestBuilding:
    """From registrations to the map."""

    def test_a_plugin_that_does_not_say_is_woken_by_anything(self):
        hint_map = built(PluginEvents("Silent", None))
        assert registered(hint_map, "Silent") == {
            ClusterEvent(r, Action.ALL) for r in DEFAULT_RESOURCES
        }

    def test_pod_groups_are_in_the_default_set_only_with_their_gate(self):
        hint_map = built(PluginEvents("Silent", None), group_resources=(Resource.POD_GROUP,))
        expected = {
            ClusterEvent(r, Action.ALL) for r in DEFAULT_RESOURCES | {"scheduling.k8s.io/PodGroup"}
        }
        assert registered(hint_map, "Silent") == expected

    def test_slices_and_attachments_are_not_in_the_default_set(self):
        hint_map = built(PluginEvents("Silent", None))
        for resource in (Resource.RESOURCE_SLICE, Resource.VOLUME_ATTACHMENT):
            assert not hint_map.resolve(ClusterEvent(resource, Action.ADD)).is_of_interest

    def test_extenders_get_the_default_set_under_their_own_name_and_come_first(self):
        hint_map = built(plugin("P", on(Resource.NODE, Action.ALL)), has_extenders=True)
        assert len(registered(hint_map, "Extender")) == len(DEFAULT_RESOURCES)
        hints = hint_map.by_profile["default-scheduler"][ClusterEvent(Resource.NODE, Action.ALL)]
        assert [hint.plugin for hint in hints] == ["Extender", "P"]
        assert registered(built(plugin("P")), "Extender") == set()

    def test_registering_nothing_means_that_no_event_helps(self):
        hint_map = built(plugin("P"))
        assert registered(hint_map, "P") == set()
        assert not hint_map.resolve(EVENT_NODE_ADD).is_of_interest

    @pytest.mark.parametrize(
        ("events", "gets_taints"),
        [
            pytest.param([on("Node", Action.ADD)], True,
                         id="waiting for new nodes implies waiting for their taints"),
            pytest.param([on("Node", Action.ADD | Action.UPDATE_NODE_LABEL)], True,
                         id="labels do not imply taints"),
            pytest.param([on("Node", Action.ADD | Action.UPDATE_NODE_TAINT)], False,
                         id="taints are registered already"),
            pytest.param(
                [on("Node", Action.ADD), on("Node", Action.UPDATE_NODE_TAINT)], False,
                id="in another registration",
            ),
            pytest.param([on("Node", Action.ALL)], False, id="all actions include taints"),
            pytest.param([on("Node", Action.UPDATE_NODE_LABEL)], False,
                         id="without Add nothing is implied"),
            pytest.param([on("Pod", Action.ADD)], False, id="only nodes have taints"),
        ],
    )  # fmt: skip
    def test_implicit_taint_registration_of_1_36(self, events, gets_taints):
        own = {registration.event for registration in events}
        if ClusterEvent("Pod", Action.ADD) in own:
            own = {ClusterEvent(resource, Action.ADD) for resource in POD_RESOURCES}
        assert registered(built(plugin("P", *events)), "P") == own
        hint_map = built(plugin("P", *events), reference=REFERENCES["1.36"])
        assert registered(hint_map, "P") == own | ({NODE_TAINT} if gets_taints else set())

    def test_every_failing_registration_is_named(self):
        def broken():
            raise RuntimeError("no client")

        with pytest.raises(KubeschedError) as caught:
            built(PluginEvents("A", broken), plugin("B"), PluginEvents("C", lambda: ["NodeAdd"]))
        text = str(caught.value)
        assert (
            'plugin "A" of profile "default-scheduler" cannot register its events: no client'
            in text
        )
        assert (
            'plugin "C" of profile "default-scheduler" cannot register its events: expected '
            "ClusterEvent" in text
        )

    def test_union_of_actions_over_profiles(self):
        hint_map = build_hint_map(
            {
                "one": [plugin("A", on("Node", Action.ADD), on("Pod", Action.DELETE))],
                "two": [
                    plugin("A", on("Node", Action.DELETE)),
                    plugin("B", on("widgets.v1.acme.io", Action.ADD)),
                ],
            }
        )
        assert hint_map.actions_by_resource() == {
            "Node": Action.ADD | Action.DELETE,
            "widgets.v1.acme.io": Action.ADD,
        }
        assert set(hint_map.events_of("A")) == {
            EVENT_NODE_ADD,
            ClusterEvent("Node", Action.DELETE),
            *(ClusterEvent(resource, Action.DELETE) for resource in POD_RESOURCES),
        }


class Case:
    """One pod, rejected by some plugins, and the evaluator."""

    def __init__(self, world, hint_map, rejected_by=(), pending=(), profile="default-scheduler"):
        self.info = QueuedPodInfo(PodInfo(world.pod("a", profile=profile)), 0.0)
        self.info.unschedulable_plugins = {*rejected_by, *pending}
        self.info.pending_plugins = set(pending)
        self.hint_map = hint_map
        self.metrics = world.metrics
        self.evaluator = HintEvaluator(world.clock, world.metrics)

    def on(self, event, old=None, new=None):
        return self.evaluator.evaluate(self.info, self.hint_map.resolve(event), old, new)


def says(answer):
    return lambda pod, old, new: answer


def raises(pod, old, new):
    raise RuntimeError("hint broke")


def garbage(pod, old, new):
    return "Queue"


QUEUE, SKIP = says(Hint.QUEUE), says(Hint.SKIP)
NODE_ALL = Action.ALL


@pytest.mark.parametrize(
    ("hints", "rejected_by", "pending", "expected"),
    [
        pytest.param({"A": QUEUE}, [], [], Strategy.AFTER_BACKOFF,
                     id="no plugin rejected it: an error, retried after backoff"),
        pytest.param({"A": QUEUE}, ["A"], [], Strategy.AFTER_BACKOFF, id="its rejector says Queue"),
        pytest.param({"A": SKIP}, ["A"], [], Strategy.SKIP, id="its rejector says Skip"),
        pytest.param({"A": QUEUE}, ["B"], [], Strategy.SKIP,
                     id="plugins that did not reject it are not asked"),
        pytest.param({"A": SKIP, "B": QUEUE}, ["A", "B"], [], Strategy.AFTER_BACKOFF,
                     id="one Queue is enough"),
        pytest.param({"A": raises}, ["A"], [], Strategy.AFTER_BACKOFF,
                     id="a hint that fails counts as Queue"),
        pytest.param({"A": garbage}, ["A"], [], Strategy.AFTER_BACKOFF,
                     id="so does one that answers nonsense"),
        pytest.param({"A": None}, ["A"], [], Strategy.AFTER_BACKOFF,
                     id="no hint function means always Queue"),
        pytest.param({"A": QUEUE}, [], ["A"], Strategy.IMMEDIATELY,
                     id="Queue from the plugin it is pending on skips backoff"),
        pytest.param({"A": SKIP, "B": QUEUE}, ["B"], ["A"], Strategy.AFTER_BACKOFF,
                     id="Queue from another rejector does not"),
        pytest.param({"B": QUEUE, "A": QUEUE}, ["B"], ["A"], Strategy.IMMEDIATELY,
                     id="the pending plugin is still asked"),
        pytest.param({"A": SKIP}, [], ["A"], Strategy.SKIP,
                     id="Skip from the plugin it is pending on"),
    ],
)  # fmt: skip
def test_verdict_of_hints(world, caplog, hints, rejected_by, pending, expected):
    caplog.set_level(logging.CRITICAL)
    hint_map = built(*(plugin(name, on("Node", NODE_ALL, hint)) for name, hint in hints.items()))
    assert Case(world, hint_map, rejected_by, pending).on(EVENT_NODE_ADD) is expected


@pytest.mark.parametrize(
    ("registration", "event", "expected"),
    [
        pytest.param(("Node", NODE_ALL), NODE_LABEL, True,
                     id="a general registration covers a specific event"),
        pytest.param(("Node", Action.UPDATE), NODE_LABEL, True,
                     id="general Update covers a specific update"),
        pytest.param(("Node", Action.UPDATE_NODE_LABEL), NODE_UPDATE, False,
                     id="but not the other way round"),
        pytest.param(("Node", Action.UPDATE_NODE_LABEL), NODE_TAINT, False,
                     id="another bit does not match"),
        pytest.param(("*", NODE_ALL), NODE_LABEL, True,
                     id="the wildcard registration covers everything"),
        pytest.param(("*", Action.ADD), EVENT_NODE_ADD, True,
                     id="any resource with one action covers that action"),
        pytest.param(("*", Action.ADD), NODE_LABEL, False, id="and no other"),
        pytest.param(("Pod", Action.DELETE), EVENT_ASSIGNED_POD_DELETE, True,
                     id="Pod covers assigned pods"),
        pytest.param(("Node", NODE_ALL), EVENT_ASSIGNED_POD_DELETE, False,
                     id="other resources do not match"),
    ],
)  # fmt: skip
def test_which_registration_covers_which_event(world, registration, event, expected):
    case = Case(world, built(plugin("A", on(*registration))), ["A"])
    assert case.on(event) is (Strategy.AFTER_BACKOFF if expected else Strategy.SKIP)


def test_a_wildcard_event_asks_no_plugin(world):
    case = Case(world, built(plugin("A", on("*", Action.ALL, raises))), ["A"])
    assert case.on(UNSCHEDULABLE_TIMEOUT) is Strategy.AFTER_BACKOFF


def test_a_wildcard_event_about_another_pod_is_skipped(world):
    case = Case(world, built(plugin("A")), ["A"])
    assert case.on(FORCE_ACTIVATE, None, case.info.pod_info.pod) is Strategy.AFTER_BACKOFF
    assert case.on(FORCE_ACTIVATE, None, world.pod("b")) is Strategy.SKIP
    assert case.on(FORCE_ACTIVATE, None, object()) is Strategy.SKIP


def test_a_pod_of_an_unknown_profile_is_retried(world, caplog):
    caplog.set_level(logging.CRITICAL)
    case = Case(world, built(plugin("A", on("Node", NODE_ALL, SKIP))), ["A"], profile="other")
    assert case.on(EVENT_NODE_ADD) is Strategy.AFTER_BACKOFF


def test_hint_functions_get_the_pod_and_both_objects(world):
    seen = []

    def hint(pod, old, new):
        seen.append((pod.metadata.name, old, new))
        return Hint.SKIP

    Case(world, built(plugin("A", on("Node", NODE_ALL, hint))), ["A"]).on(
        NODE_LABEL, "before", "after"
    )
    assert seen == [("a", "before", "after")]


def test_a_hint_that_keeps_failing_is_reported_in_full_once(world, caplog):
    case = Case(world, built(plugin("A", on("Node", NODE_ALL, raises))), ["A"])
    for event in (NODE_LABEL, NODE_LABEL, EVENT_NODE_ADD):
        case.on(event)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert {record.msg for record in errors} == {"Queueing hint failed"}
    told = [record.values for record in errors]
    assert [(values["plugin"], values["event"]) for values in told] == [
        ("A", "NodeUpdateNodeLabel"),
        ("A", "NodeAdd"),
    ]
    assert {key_of(values["pod"].metadata) for values in told} == {"shop/a"}
    assert "hint broke" in caplog.text


def test_hint_durations_are_measured_by_answer(world, caplog):
    caplog.set_level(logging.CRITICAL)
    hint_map = built(*(plugin(name, on("Node", NODE_ALL, hint)) for name, hint in
                       {"Skips": SKIP, "Fails": raises, "Queues": QUEUE}.items()))  # fmt: skip
    for name in ("Skips", "Fails", "Queues"):
        Case(world, hint_map, [name]).on(NODE_LABEL)
    cells = world.metrics.queueing_hint_execution_duration_seconds.cells()
    assert {labels: cell.count for labels, cell in cells.items()} == {
        ("Skips", "NodeUpdateNodeLabel", "QueueSkip"): 1,
        ("Fails", "NodeUpdateNodeLabel", "Error"): 1,
        ("Queues", "NodeUpdateNodeLabel", "Queue"): 1,
    }
