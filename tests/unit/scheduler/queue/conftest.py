"""A queue with its dependencies, for every test of the queue: a clock moved by hand, plugins made
of dictionaries.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from kubesched.api.core_v1 import Pod, PodSpec, PodStatus
from kubesched.api.meta import ObjectMeta
from kubesched.base.clock import ManualClock
from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.config.references import DEFAULT_REFERENCE
from kubesched.framework.events import Action, ClusterEvent, Resource
from kubesched.framework.status import unschedulable
from kubesched.scheduler.queue import PluginEvents, QueueSettings, SchedulingQueue, build_hint_map
from kubesched.scheduler.queue.nominator import Nominator

PROFILE = "default-scheduler"
NAMESPACE = "shop"
POD_UPDATE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE)


class PrioritySort:
    """The default order: priority, then who came first."""

    def less(self, a, b):
        return self.sort_key(a) < self.sort_key(b)

    def sort_key(self, info):
        return (-(info.pod_info.pod.spec.priority or 0), info.timestamp)


class QueueWorld:
    """The queue and everything it talks to."""

    def __init__(
        self,
        *,
        registered=None,
        profiles=(PROFILE,),
        queue_sort=None,
        signers=None,
        narrows=False,
        **settings,
    ):
        """`registered`: plugin -> list of ClusterEventWithHint, for every profile."""
        self.clock = ManualClock()
        self.registry = MetricsRegistry()
        self.metrics = SchedulerMetrics(self.registry)
        self.known_pods: dict[tuple[str, str], Pod] = {}
        self.closed_gates: set[tuple[str, str]] = set()
        self.gate_calls: list[tuple[str, str]] = []
        self.wakes = 0
        registered = registered or {}
        self.queue = SchedulingQueue(
            clock=self.clock,
            queue_sort=queue_sort or PrioritySort(),
            hints=build_hint_map(
                {
                    profile: [
                        PluginEvents(name, lambda events=events: events)
                        for name, events in registered.items()
                    ]
                    for profile in profiles
                },
                reference=settings.get("reference", DEFAULT_REFERENCE),
                narrows=narrows,
            ),
            pre_enqueue={
                profile: {name: self._gate(name) for name in ("GateA", "GateB")}
                for profile in profiles
            },
            nominator=Nominator(self),
            metrics=self.metrics,
            random=Random(7),
            signers=signers,
            settings=QueueSettings(**settings),
        )
        self.queue.on_ready = self._woken

    # What the queue asks for.

    def get(self, namespace, name):
        return self.known_pods.get((namespace, name))

    def _woken(self):
        self.wakes += 1

    def _gate(self, plugin):
        def pre_enqueue(pod):
            name = pod.metadata.name
            self.gate_calls.append((plugin, name))
            return unschedulable("not yet") if (plugin, name) in self.closed_gates else None

        return pre_enqueue

    # What a test does.

    def pod(
        self,
        name,
        *,
        priority=None,
        nominated="",
        uid=None,
        labels=None,
        node_name="",
        profile=PROFILE,
    ):
        pod = Pod(
            metadata=ObjectMeta(
                name=name, namespace=NAMESPACE, uid=uid or f"uid-{name}", labels=labels
            ),
            spec=PodSpec(scheduler_name=profile, priority=priority, node_name=node_name),
            status=PodStatus(nominated_node_name=nominated),
        )
        self.known_pods[NAMESPACE, name] = pod
        return pod

    def changed(self, pod, **labels):
        """A newer version of a pod, which the informer knows."""
        newer = structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels))
        self.known_pods[NAMESPACE, pod.metadata.name] = newer
        return newer

    def add(self, name, **fields):
        pod = self.pod(name, **fields)
        self.queue.add(pod)
        return pod

    def close_gate(self, name, plugin="GateA"):
        self.closed_gates.add((plugin, name))

    def open_gate(self, name, plugin="GateA"):
        self.closed_gates.discard((plugin, name))

    def pop(self, name=None):
        info = self.queue.pop()
        if name is not None:
            assert info is not None, f"{name} was expected, nothing came"
            assert info.pod_info.name == name
        return info

    def fail(self, info, *plugins, pending=()):
        """What the failure handler does: say who rejected the pod and give it back."""
        info.unschedulable_plugins = set(plugins) | set(pending)
        info.pending_plugins = set(pending)
        info.gating_plugin, info.gating_plugin_events = "", ()
        return self.queue.add_unschedulable_if_not_present(info)

    def reject(self, name, *plugins, pending=(), **fields):
        """Add, pop and reject a pod; returns it."""
        pod = self.add(name, **fields)
        self.fail(self.pop(name), *plugins, pending=pending)
        return pod

    def move(self, event, old=None, new=None, pre_check=None):
        self.queue.move_all_to_active_or_backoff_queue(event, old, new, pre_check)

    def update(self, old, *events, **labels):
        new = self.changed(old, **labels)
        self.queue.update(old, new, events or (POD_UPDATE,))
        return new

    def advance(self, seconds):
        self.clock.advance(seconds)

    # What a test looks at.

    def where(self, name):
        """active, backoff, error backoff, unschedulable, gated, in flight or None."""
        self.queue.check_invariants()
        place = self.queue.place_of(NAMESPACE, name)
        if place == "backoff" and f"{NAMESPACE}/{name}" in self.queue._backoff._error:
            return "error backoff"
        if place is None and f"uid-{name}" in self.queue.in_flight_uids():
            return "in flight"
        return place

    def info(self, name):
        return self.queue.get_pod(NAMESPACE, name)

    def incoming(self):
        """(queue, event) -> how many pods entered."""
        cells = self.metrics.queue_incoming_pods_total.cells()
        return {f"{queue}/{event}": int(cell.value) for (queue, event), cell in cells.items()}

    def pending(self):
        """Sizes as the metric shows them."""
        return tuple(
            int(self.metrics.pending_pods.labels(queue).current())
            for queue in ("active", "backoff", "unschedulable", "gated")
        )

    def rejections(self):
        """plugin -> `unschedulable_pods`, without the zeros."""
        cells = self.metrics.unschedulable_pods.cells()
        return {plugin: int(cell.value) for (plugin, _), cell in cells.items() if cell.value}

    def drain(self):
        """Names in the order in which they are popped."""
        names = []
        while (info := self.queue.pop()) is not None:
            names.append(info.pod_info.name)
            self.queue.done(info.pod_info.uid)
        return names


@pytest.fixture
def make_world():
    return QueueWorld


@pytest.fixture
def world():
    return QueueWorld()
