"""Proves the queue against a slow, literal model of its specification, over random histories.

The model keeps plain lists, visits every pod for every event, knows no cohorts, no heaps and no cached verdicts, and
interleaves pods and events in one list as the specification words it. After each step both must agree on every entry in
every place, on what pods in flight have seen, on nominations, counters and wake-ups, and the queue must agree with
itself. In particular no pod is ever lost and none is in two places.

Upstream leaves the order of equals open; here it is the order of arrival, so even that is compared.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from math import floor, inf
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubesched.api.core_v1 import Pod, PodSchedulingGroup, PodSpec, PodStatus
from kubesched.api.meta import ObjectMeta
from kubesched.clock import ManualClock
from kubesched.framework.events import (
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    EVENT_UNSCHEDULABLE_POD_ADD,
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
)
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.status import unschedulable
from kubesched.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.queue import PluginEvents, QueueSettings, SchedulingQueue, build_hint_map
from kubesched.queue.nominator import Nominator

LOGGER = logging.getLogger("kubesched.queue")
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
POD_LABEL = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
POD_TOLERATION = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
POD_UPDATE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE)
NOBODY_CARES = ClusterEvent(Resource.CSI_NODE, Action.ADD)
MOVES = [
    EVENT_NODE_ADD,
    NODE_TAINT,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_UNSCHEDULABLE_POD_ADD,
    NOBODY_CARES,
    UNSCHEDULABLE_TIMEOUT,
]
UPDATES = [[POD_LABEL], [POD_TOLERATION], [POD_UPDATE], [POD_LABEL, POD_TOLERATION]]
NAMES = ["a", "b", "c", "d"]
REJECTORS = ["Fit", "Own", "Class", "Mute"]
GATES = ["GateA", "GateB"]
NAMESPACE = "ns"


def hint_of_pod(pod, old, new):
    """Depends on the very pod: never to be shared."""
    if new == "broken":
        raise RuntimeError("hint broke on purpose")
    return Hint.QUEUE if (len(str(new)) + ord(pod.metadata.name)) % 2 else Hint.SKIP


def hint_of_own_update(pod, old, new):
    own = isinstance(new, Pod) and new.metadata.uid == pod.metadata.uid
    return Hint.QUEUE if own else Hint.SKIP


def hint_of_class(pod, old, new):
    """Depends on the pod's class alone: may be shared."""
    return Hint.QUEUE if (len(str(new)) + int(pod.metadata.labels["class"])) % 2 else Hint.SKIP


def on(event, hint=None, *, per_class=False):
    return ClusterEventWithHint(event, hint, per_class)


REGISTRATIONS = {
    "one": {
        "Fit": [on(ClusterEvent(Resource.NODE, Action.ADD), hint_of_pod)],  # and, implied, taints
        "Own": [on(ClusterEvent(Resource.POD, Action.ALL), hint_of_own_update)],
        "Class": [on(ClusterEvent(Resource.NODE, Action.ALL), hint_of_class, per_class=True)],
        "Mute": [],
        "GateA": [
            on(ClusterEvent(Resource.POD, Action.UPDATE), hint_of_own_update),
            on(NODE_TAINT),
        ],
        "GateB": [],
    },
    "two": {
        "Fit": [on(ClusterEvent(Resource.NODE, Action.ALL))],
        "Class": [on(ClusterEvent(Resource.POD, Action.DELETE), hint_of_class, per_class=True)],
        "GateA": [on(ClusterEvent(Resource.POD, Action.DELETE), hint_of_class, per_class=True)],
    },
}
PROFILES = ["one", "two", "unknown"]


@dataclass
class Entry:
    """What the specification keeps about a queued pod."""

    pod: Pod
    timestamp: float
    first_attempt: float | None = None
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    expiry: float | None = None
    unschedulable: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    gate: str = ""
    was_flushed: bool = False
    flushed_at: float | None = None

    @property
    def name(self):
        return self.pod.metadata.name

    @property
    def uid(self):
        return self.pod.metadata.uid

    @property
    def profile(self):
        return self.pod.spec.scheduler_name

    @property
    def rejectors(self):
        return self.unschedulable | self.pending


class Model:
    """The specification, word by word. Places are lists in order of arrival."""

    def __init__(self, clock, closed_gates, known_pods, config):
        self.clock = clock
        self.closed_gates = closed_gates
        self.known_pods = known_pods
        self.config = config
        self.active: list[Entry] = []
        self.plain: list[Entry] = []
        self.error: list[Entry] = []
        self.pool: list[Entry] = []
        self.in_flight: list[tuple] = []  # ("pod", uid) and ("event", event, old, new), interleaved
        self.nominated: list[
            tuple[str, str, str]
        ] = []  # (node, name, uid) in order of registration
        self.cycle = 0
        self.wakes = 0
        self.incoming: Counter = Counter()
        self.unschedulable_pods: Counter = Counter()

    # Order.

    def rank(self, entry):
        return (-(entry.pod.spec.priority or 0), entry.timestamp)

    def plain_rank(self, entry):
        expiry = self.expiry_of(entry)
        return (expiry, *self.rank(entry)) if self.config.pop_from_backoff_q else (expiry,)

    def find(self, place, name):
        return next((entry for entry in place if entry.name == name), None)

    def drop(self, place, name):
        entry = self.find(place, name)
        if entry is not None:
            place.remove(entry)
        return entry

    def put(self, place, entry):
        self.drop(place, entry.name)
        place.append(entry)

    def take_first(self, place, rank):
        first = min(place, key=rank, default=None)
        if first is not None:
            place.remove(first)
        return first

    def replace(self, place, entry, pod, rank):
        """A new version of the pod: keeps its turn among equals unless its rank changed."""
        before = rank(entry)
        entry.pod = pod
        if rank(entry) != before:
            place.remove(entry)
            place.append(entry)

    # Backoff.

    def trunc(self, instant):
        return floor(instant) if self.config.pop_from_backoff_q else instant

    def expiry_of(self, entry):
        if entry.expiry is not None:
            return entry.expiry
        count = entry.errors if entry.errors > 0 else entry.rejections
        if self.config.max_backoff_s == 0 or count == 0:
            return -inf
        rest = min(self.config.max_backoff_s, self.config.initial_backoff_s * 2 ** (count - 1))
        entry.expiry = self.trunc(entry.timestamp + rest)
        return entry.expiry

    def is_backing_off(self, entry):
        return not self.expiry_of(entry) < self.trunc(self.clock.monotonic())

    # PreEnqueue.

    def pre_enqueue(self, entry):
        plugins = list(GATES) if entry.profile in REGISTRATIONS else []
        if entry.gate in plugins:
            plugins.remove(entry.gate)
            plugins.insert(0, entry.gate)
        for plugin in plugins:
            if (plugin, entry.name) in self.closed_gates:
                if plugin not in entry.rejectors:
                    self.unschedulable_pods[plugin, entry.profile] += 1
                entry.unschedulable.add(plugin)
                entry.gate = plugin
                return
        entry.gate = ""

    # Moves.

    def to_pool(self, entry, label):
        if self.find(self.pool, entry.name) is None:
            self.incoming["unschedulable", label] += 1
            self.pool.append(entry)
        else:
            self.pool[self.pool.index(self.find(self.pool, entry.name))] = entry

    def to_active(self, entry, label, from_backoff=False):
        if not (from_backoff and self.config.pop_from_backoff_q):
            self.pre_enqueue(entry)
        if entry.gate:
            if not any(
                self.find(place, entry.name) for place in (self.active, self.plain, self.error)
            ):
                entry.was_flushed = False
                self.to_pool(entry, label)
            return False
        if entry.first_attempt is None:
            entry.first_attempt = self.clock.monotonic()
        for place in (self.pool, self.plain, self.error):
            self.drop(place, entry.name)
        self.put(self.active, entry)
        self.incoming["active", label] += 1
        if label in ("UnschedulablePodAdd", "UnschedulablePodUpdate"):
            self.nominate(entry.pod, None)
        return True

    def to_backoff(self, entry, label):
        if self.config.pop_from_backoff_q:
            self.pre_enqueue(entry)
            if entry.gate:
                entry.was_flushed = False
                self.to_pool(entry, label)
                return False
        self.drop(self.pool, entry.name)
        self.put(self.plain if entry.rejectors else self.error, entry)
        self.incoming["backoff", label] += 1
        return True

    def requeue(self, entry, strategy, label):
        if strategy == "skip":
            self.to_pool(entry, label)
            return "pool"
        if strategy == "after backoff" and self.is_backing_off(entry):
            return "backoff" if self.to_backoff(entry, label) else "pool"
        return "active" if self.to_active(entry, label) else "pool"

    def is_poppable(self, place):
        return place == "active" or (place == "backoff" and self.config.pop_from_backoff_q)

    # Hints.

    def registered(self):
        """Every (profile, event, plugin, hint), the implied ones included."""
        for profile, plugins in REGISTRATIONS.items():
            for plugin, registrations in plugins.items():
                adds = taints = False
                for registration in registrations:
                    event = registration.event
                    yield profile, event, plugin, registration.hint
                    if event.resource == "Node":
                        adds |= bool(event.action & Action.ADD)
                        taints |= bool(event.action & Action.UPDATE_NODE_TAINT)
                if adds and not taints:
                    yield profile, NODE_TAINT, plugin, None

    def evaluate(self, entry, event, old, new):
        if not entry.rejectors:
            return "after backoff"
        if event.is_wildcard:
            if new is not None and not (isinstance(new, Pod) and new.metadata.uid == entry.uid):
                return "skip"
            return "after backoff"
        if entry.profile not in REGISTRATIONS:
            return "after backoff"
        result = "skip"
        for profile, registered, plugin, hint in self.registered():
            if (
                profile != entry.profile
                or not registered.matches(event)
                or plugin not in entry.rejectors
            ):
                continue
            try:
                answer = Hint.QUEUE if hint is None else hint(entry.pod, old, new)
            except RuntimeError:
                answer = Hint.QUEUE
            if answer is Hint.SKIP:
                continue
            if plugin in entry.pending:
                return "immediately"
            result = "after backoff"
        return result

    def evaluate_in_flight(self, entry):
        if not entry.rejectors:
            return "after backoff"
        if self.config.generic_workload and entry.pod.spec.scheduling_group is not None:
            return "after backoff"
        if ("pod", entry.uid) not in self.in_flight:
            return "after backoff"
        best = "skip"
        for event, old, new in self.seen_by(entry.uid):
            strategy = self.evaluate(entry, event, old, new)
            if strategy == "immediately":
                return strategy
            if strategy == "after backoff":
                best = strategy
        return best

    # In flight.

    def is_flying(self, uid):
        return ("pod", uid) in self.in_flight

    def seen_by(self, uid):
        after = self.in_flight[self.in_flight.index(("pod", uid)) + 1 :]
        return [item[1:] for item in after if item[0] == "event"]

    def record(self, event, old, new):
        if any(item[0] == "pod" for item in self.in_flight):
            self.in_flight.append(("event", event, old, new))

    def fly(self, entry):
        entry.attempts += 1
        if self.is_flying(entry.uid):
            return False
        self.in_flight.append(("pod", entry.uid))
        self.cycle += 1
        for plugin in entry.rejectors:
            self.unschedulable_pods[plugin, entry.profile] -= 1
        return True

    # Nominations.

    def unnominate(self, uid):
        self.nominated = [item for item in self.nominated if item[2] != uid]

    def nominate(self, pod, node):
        """`node`: an override, or None to follow the status."""
        self.unnominate(pod.metadata.uid)
        if node is None:
            node = pod.status.nominated_node_name
            if not node:
                return
        known = self.known_pods.get(pod.metadata.name)
        if known is None or known.spec.node_name:
            return
        self.nominated.append((node, pod.metadata.name, pod.metadata.uid))

    def renominate(self, old, new):
        kept = None
        if not old.status.nominated_node_name and not new.status.nominated_node_name:
            kept = next((node for node, _, uid in self.nominated if uid == old.metadata.uid), None)
        self.unnominate(old.metadata.uid)
        self.nominate(new, kept)

    # Operations.

    def add(self, pod):
        if self.to_active(Entry(pod, self.clock.monotonic()), "UnschedulablePodAdd"):
            self.wakes += 1

    def update(self, old, new, events):
        if self.is_flying(new.metadata.uid):
            for event in events:
                self.in_flight.append(("event", event, old, new))
            return
        name = old.metadata.name
        for place, rank in (
            (self.active, self.rank),
            (self.plain, self.plain_rank),
            (self.error, self.expiry_of),
        ):
            entry = self.find(place, name)
            if entry is not None:
                self.replace(place, entry, new, rank)
                self.renominate(old, new)
                return
        entry = self.find(self.pool, name)
        if entry is not None:
            entry.pod = new
            self.renominate(old, new)
            for event in events:
                strategy = self.evaluate(entry, event, old, new)
                place = self.requeue(entry, strategy, event.label)
                if place != "pool":
                    self.wakes += self.is_poppable(place)
                    return
            return
        if self.to_active(Entry(new, self.clock.monotonic()), "UnschedulablePodUpdate"):
            self.wakes += 1

    def delete(self, pod):
        self.unnominate(pod.metadata.uid)
        name = pod.metadata.name
        if (
            self.drop(self.active, name)
            or self.drop(self.plain, name)
            or self.drop(self.error, name)
        ):
            return
        entry = self.drop(self.pool, name)
        if entry is not None:
            for plugin in entry.rejectors:
                self.unschedulable_pods[plugin, entry.profile] -= 1

    def pop(self):
        while True:
            entry = self.take_first(self.active, self.rank)
            if entry is None and self.config.pop_from_backoff_q:
                entry = self.take_first(self.plain, self.plain_rank)
                if entry is not None:
                    self.incoming["active", "PopFromBackoffQ"] += 1
            if entry is None or self.fly(entry):
                return entry

    def pop_specific(self, pod):
        self.activate_one(pod)
        entry = self.drop(self.active, pod.metadata.name)
        return entry if entry is not None and self.fly(entry) else None

    def fail(self, entry):
        try:
            if any(
                self.find(place, entry.name)
                for place in (self.pool, self.active, self.plain, self.error)
            ):
                return False
            if entry.rejectors:
                entry.rejections += 1
                entry.errors = 0
            else:
                entry.errors += 1
            entry.timestamp = self.clock.monotonic()
            entry.expiry = None
            entry.was_flushed = False
            entry.flushed_at = None
            for plugin in entry.rejectors:
                self.unschedulable_pods[plugin, entry.profile] += 1
            place = self.requeue(entry, self.evaluate_in_flight(entry), "ScheduleAttemptFailure")
            self.wakes += self.is_poppable(place)
            return True
        finally:
            self.done(entry.uid)

    def done(self, uid):
        if not self.is_flying(uid):
            return
        self.in_flight.remove(("pod", uid))
        while self.in_flight and self.in_flight[0][0] == "event":
            self.in_flight.pop(0)

    def activate_one(self, pod):
        entry = self.find(self.pool, pod.metadata.name)
        if entry is not None:
            return self.to_active(entry, "ForceActivate")
        entry = self.drop(self.plain, pod.metadata.name) or self.drop(self.error, pod.metadata.name)
        return entry is not None and self.to_active(entry, "ForceActivate", from_backoff=True)

    def activate(self, pods):
        activated = False
        for pod in pods:
            if self.activate_one(pod):
                activated = True
            elif self.is_flying(pod.metadata.uid):
                self.record(FORCE_ACTIVATE, None, pod)
        self.wakes += activated

    def move_all(self, event, old, new, pre_check):
        if not event.is_wildcard and not any(
            registered.matches(event) for _, registered, _, _ in self.registered()
        ):
            return
        self.move([entry for entry in self.pool if pre_check(entry.pod)], event, old, new)

    def move(self, entries, event, old, new):
        activated = False
        for entry in entries:
            if entry.gate and not event.is_wildcard:
                own = [
                    registered
                    for _, registered, plugin, _ in self.registered()
                    if plugin == entry.gate
                ]
                if not any(registered.matches(event) for registered in own):
                    continue
            strategy = self.evaluate(entry, event, old, new)
            if strategy == "skip":
                continue
            self.drop(self.pool, entry.name)
            activated |= self.is_poppable(self.requeue(entry, strategy, event.label))
        self.record(event, old, new)
        self.wakes += activated

    def flush_backoff(self):
        activated = False
        for place, rank in ((self.plain, self.plain_rank), (self.error, self.expiry_of)):
            for entry in sorted(place, key=rank):
                if not self.is_backing_off(entry):
                    place.remove(entry)
                    activated |= self.to_active(entry, "BackoffComplete", from_backoff=True)
        self.wakes += activated

    def flush_leftovers(self):
        now = self.clock.monotonic()
        overdue = []
        for entry in self.pool:
            since = (
                entry.timestamp
                if entry.flushed_at is None
                else max(entry.timestamp, entry.flushed_at)
            )
            if now - since > self.config.max_in_unschedulable_s:
                entry.was_flushed = True
                entry.flushed_at = now
                overdue.append(entry)
        if overdue:
            self.move(overdue, UNSCHEDULABLE_TIMEOUT, None, None)

    def close(self):
        for kind, *rest in list(self.in_flight):
            if kind == "pod":
                self.done(rest[0])
        self.wakes += 1


class Lister:
    def __init__(self, pods):
        self.pods = pods

    def get(self, namespace, name):
        return self.pods.get(name)


class BySortKey:
    def less(self, a, b):
        raise AssertionError("a plugin that offers a sort key is never asked")

    def sort_key(self, info):
        return (-(info.pod_info.pod.spec.priority or 0), info.timestamp)


class ByLess:
    def less(self, a, b):
        return BySortKey.sort_key(self, a) < BySortKey.sort_key(self, b)


names = st.sampled_from(NAMES)
tokens = st.sampled_from(["", "x", "broken"])


class QueueMachine(RuleBasedStateMachine):
    """Does the same to the queue and to the model."""

    @initialize(
        pop_from_backoff_q=st.booleans(),
        generic_workload=st.booleans(),
        backoff=st.sampled_from([(1.0, 10.0), (0.25, 1.0), (1.0, 0.0)]),
        queue_sort=st.sampled_from([BySortKey, ByLess]),
    )
    def start(self, pop_from_backoff_q, generic_workload, backoff, queue_sort):
        LOGGER.setLevel(logging.CRITICAL)  # hints break on purpose here, thousands of times
        self.clock = ManualClock()
        self.metrics = SchedulerMetrics(MetricsRegistry())
        self.closed_gates: set[tuple[str, str]] = set()
        self.known_pods: dict[str, Pod] = {}
        self.flights: dict[str, tuple] = {}
        self.alive: set[str] = set()  # names of pods neither deleted nor bound
        self.serial = 0
        self.wakes = 0
        config = QueueSettings(
            initial_backoff_s=backoff[0],
            max_backoff_s=backoff[1],
            pop_from_backoff_q=pop_from_backoff_q,
            generic_workload=generic_workload,
        )
        self.model = Model(self.clock, self.closed_gates, self.known_pods, config)
        self.queue = SchedulingQueue(
            clock=self.clock,
            queue_sort=queue_sort(),
            hints=build_hint_map(
                {
                    profile: [
                        PluginEvents(plugin, lambda events=events: events)
                        for plugin, events in plugins.items()
                    ]
                    for profile, plugins in REGISTRATIONS.items()
                }
            ),
            pre_enqueue={
                profile: {plugin: self.gate(plugin) for plugin in GATES}
                for profile in REGISTRATIONS
            },
            nominator=Nominator(Lister(self.known_pods)),
            metrics=self.metrics,
            random=Random(3),
            settings=config,
        )
        self.queue.on_ready = self.woken

    def woken(self):
        self.wakes += 1

    def gate(self, plugin):
        return lambda pod: (
            unschedulable("no") if (plugin, pod.metadata.name) in self.closed_gates else None
        )

    def latest(self, name):
        """The pod as the informer last knew it, or a stranger."""
        return self.known_pods.get(name) or self.build(name, uid="stranger")

    def build(
        self, name, *, uid, priority=0, profile="one", klass="0", nominated="", grouped=False
    ):
        return Pod(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=uid, labels={"class": klass}),
            spec=PodSpec(
                scheduler_name=profile,
                priority=priority,
                scheduling_group=PodSchedulingGroup(pod_group_name="g") if grouped else None,
            ),
            status=PodStatus(nominated_node_name=nominated),
        )

    # Pods.

    @rule(
        name=names,
        priority=st.sampled_from([0, 0, 5]),
        profile=st.sampled_from(["one", "one", "two", "unknown"]),
        klass=st.sampled_from(["0", "1"]),
        nominated=st.sampled_from(["", "", "n1"]),
        grouped=st.booleans(),
    )
    def add(self, name, priority, profile, klass, nominated, grouped):
        known = self.known_pods.get(name)
        if known is None:
            self.serial += 1
            known = self.build(
                name,
                uid=f"{name}-{self.serial}",
                priority=priority,
                profile=profile,
                klass=klass,
                nominated=nominated,
                grouped=grouped,
            )
            self.known_pods[name] = known
        self.alive.add(name)
        self.queue.add(known)
        self.model.add(known)

    @rule(
        name=names,
        priority=st.sampled_from([0, 5]),
        klass=st.sampled_from(["0", "1"]),
        nominated=st.sampled_from(["", "n1", "n2"]),
        events=st.sampled_from(UPDATES),
        recreated=st.sampled_from([False, False, False, True]),
    )
    def update(self, name, priority, klass, nominated, events, recreated):
        old = self.latest(name)
        uid = old.metadata.uid
        if recreated or uid == "stranger":
            self.serial += 1
            uid = f"{name}-{self.serial}"
        new = self.build(
            name,
            uid=uid,
            priority=priority,
            profile=old.spec.scheduler_name,
            klass=klass,
            nominated=nominated,
        )
        self.known_pods[name] = new
        self.alive.add(name)
        self.queue.update(old, new, events)
        self.model.update(old, new, events)

    @rule(name=names)
    def delete(self, name):
        pod = self.known_pods.pop(name, None)
        if pod is not None:
            self.alive.discard(name)
            self.queue.delete(pod)
            self.model.delete(pod)

    # Attempts.

    @rule()
    def pop(self):
        self.took(self.queue.pop(), self.model.pop())

    @rule(name=names)
    def pop_specific(self, name):
        pod = self.latest(name)
        self.took(self.queue.pop_specific_pod(pod), self.model.pop_specific(pod))

    def took(self, info, entry):
        assert (info is None) == (entry is None)
        if info is not None:
            assert info.pod_info.uid == entry.uid
            # The algorithm finds the class of the pod while trying it.
            klass = info.pod_info.pod.metadata.labels["class"]
            info.pod_info.class_key = f"{entry.profile}/{klass}".encode()
            self.flights[entry.uid] = (info, entry)

    @precondition(lambda self: self.flights)
    @rule(
        data=st.data(),
        rejected_by=st.sets(st.sampled_from(REJECTORS), max_size=2),
        pending=st.sets(st.sampled_from(REJECTORS), max_size=1),
    )
    def fail_some(self, data, rejected_by, pending):
        self.fail(data.draw(st.sampled_from(sorted(self.flights))), rejected_by, pending)

    def fail(self, uid, rejected_by, pending):
        info, entry = self.flights.pop(uid)
        info.unschedulable_plugins, entry.unschedulable = (
            set(rejected_by | pending),
            set(rejected_by | pending),
        )
        info.pending_plugins, entry.pending = set(pending), set(pending)
        info.gating_plugin, info.gating_plugin_events, entry.gate = "", (), ""
        queued = self.queue.add_unschedulable_if_not_present(info)
        assert queued == self.model.fail(entry)
        if queued:
            self.alive.add(entry.name)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def bind_some(self, data):
        self.bind(data.draw(st.sampled_from(sorted(self.flights))))

    def bind(self, uid):
        _, entry = self.flights.pop(uid)
        self.queue.done(uid)
        self.model.done(uid)
        self.landed(entry.name)

    def landed(self, name):
        """A flight ended without a way back; another entry or flight under that name may live on."""
        if name not in self.found():
            self.alive.discard(name)

    def found(self):
        """Names of pods in any queue or in flight."""
        queued = {pod.metadata.name for pod in self.queue.pending_pods()[0]}
        return queued | {uid.partition("-")[0] for uid in self.queue.in_flight_uids()}

    # Events and time.

    @rule(event=st.sampled_from(MOVES), new=tokens, max_priority=st.sampled_from([None, 0]))
    def move_all(self, event, new, max_priority):
        def pre_check(pod):
            return max_priority is None or (pod.spec.priority or 0) <= max_priority

        new = None if event.is_wildcard else new
        restriction = None if max_priority is None else pre_check
        self.queue.move_all_to_active_or_backoff_queue(event, None, new, restriction)
        self.model.move_all(event, None, new, pre_check)

    @rule(chosen=st.lists(names, max_size=3, unique=True))
    def activate(self, chosen):
        pods = [self.latest(name) for name in chosen]
        self.queue.activate({pod.metadata.name: pod for pod in pods})
        self.model.activate(pods)

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 3.0, 301.0]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def flush_backoff(self):
        self.queue.flush_backoff_completed()
        self.model.flush_backoff()

    @rule()
    def flush_leftovers(self):
        self.queue.flush_unschedulable_leftovers()
        self.model.flush_leftovers()

    @rule(plugin=st.sampled_from(GATES), name=names)
    def toggle_gate(self, plugin, name):
        self.closed_gates ^= {(plugin, name)}

    @rule(name=names, node=st.sampled_from([None, "", "n1", "n2"]))
    def nominate(self, name, node):
        pod = self.latest(name)
        info = None if node is None else NominatingInfo(override=True, node_name=node)
        self.queue.nominator.add_nominated_pod(self.queue._entries.new(pod).pod_info, info)
        self.model.nominate(pod, node)

    @precondition(lambda self: self.serial > 20)
    @rule()
    def close(self):
        self.queue.close()
        self.model.close()
        flown = [entry.name for _, entry in self.flights.values()]
        self.flights.clear()
        for name in flown:
            self.landed(name)

    # What must agree.

    @invariant()
    def the_queue_agrees_with_itself(self):
        if hasattr(self, "queue"):
            self.queue.check_invariants()

    @invariant()
    def the_queue_agrees_with_the_model(self):
        if not hasattr(self, "queue"):
            return
        queue, model = self.queue, self.model
        assert [self.seen(info) for info in queue._pool] == [
            self.expected(entry) for entry in model.pool
        ]
        for real, places in (
            (queue._active, [model.active]),
            (queue._backoff._plain, [model.plain]),
            (queue._backoff._error, [model.error]),
        ):
            expected = {entry.name: self.expected(entry) for place in places for entry in place}
            assert {info.pod_info.name: self.seen(info) for info in real} == expected
        assert queue.scheduling_cycle == model.cycle
        assert self.wakes == model.wakes

    @invariant()
    def pods_in_flight_have_seen_the_same(self):
        if not hasattr(self, "queue"):
            return
        flying = [item[1] for item in self.model.in_flight if item[0] == "pod"]
        assert self.queue.in_flight_uids() == flying
        for uid in flying:
            seen = [
                (recorded.event.event, recorded.old, recorded.new)
                for recorded in self.queue._in_flight.events_since_pop(uid)
            ]
            assert seen == self.model.seen_by(uid)
        events = [item[1].label for item in self.model.in_flight if item[0] == "event"]
        expected = Counter(events) + Counter({"PodPopped": len(flying)})
        gauge = self.queue._in_flight._gauge
        shown = Counter(
            {
                label: int(cell.value)
                for (label,), cell in self.metrics.inflight_events.cells().items()
            }
        )
        for label, delta in gauge._deltas.items():
            shown[label] += delta
        assert {label: count for label, count in shown.items() if count} == dict(expected)

    @invariant()
    def metrics_and_nominations_agree(self):
        if not hasattr(self, "queue"):
            return
        incoming = self.metrics.queue_incoming_pods_total.cells()
        assert {labels: int(cell.value) for labels, cell in incoming.items()} == dict(
            self.model.incoming
        )
        rejections = self.metrics.unschedulable_pods.cells()
        assert {labels: int(cell.value) for labels, cell in rejections.items() if cell.value} == {
            labels: count for labels, count in self.model.unschedulable_pods.items() if count
        }
        by_node: dict[str, list] = {}
        for node, name, uid in self.model.nominated:
            by_node.setdefault(node, []).append((NAMESPACE, name, uid))
        references = self.queue.nominator.references()
        assert {node: [tuple(ref) for ref in refs] for node, refs in references.items()} == by_node

    @invariant()
    def no_pod_is_lost(self):
        if not hasattr(self, "queue"):
            return
        assert self.alive <= self.found()

    @staticmethod
    def seen(info):
        expiry = info.backoff_expiration
        return (
            info.pod_info.pod, info.pod_info.uid, info.timestamp, info.initial_attempt_timestamp, info.attempts,
            info.unschedulable_count, info.consecutive_errors_count, expiry, info.unschedulable_plugins,
            info.pending_plugins, info.gating_plugin, info.was_flushed_from_unschedulable, info.flush_timestamp,
        )  # fmt: skip

    @staticmethod
    def expected(entry):
        return (
            entry.pod, entry.uid, entry.timestamp, entry.first_attempt, entry.attempts,
            entry.rejections, entry.errors, entry.expiry, entry.unschedulable,
            entry.pending, entry.gate, entry.was_flushed, entry.flushed_at,
        )  # fmt: skip

    def teardown(self):
        """Whatever happened, popping in the end gives everything poppable in the model's order."""
        LOGGER.setLevel(logging.NOTSET)
        if not hasattr(self, "queue"):
            return
        while True:
            info, entry = self.queue.pop(), self.model.pop()
            assert (info and info.pod_info.uid) == (entry and entry.uid)
            if info is None:
                break


TestQueueAgainstModel = QueueMachine.TestCase
TestQueueAgainstModel.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestQueueAgainstModel.pytestmark = [pytest.mark.timeout(300)]


class Driver:
    """The same machine with dice instead of Hypothesis: far longer histories, weighted towards what is rare.

    Hypothesis finds the short story behind a failure; reaching deep states takes thousands of steps.
    """

    def __init__(self, seed):
        self.random = Random(seed)
        choose = self.choose = self.random.choice
        self.machine = machine = QueueMachine()
        machine.start(
            pop_from_backoff_q=bool(seed % 2),
            generic_workload=choose([True, False, False]),
            backoff=choose([(1.0, 10.0), (1.0, 10.0), (0.25, 1.0), (1.0, 0.0)]),
            queue_sort=choose([BySortKey, ByLess]),
        )
        self.steps = {
            self.add: 6,
            self.update: 3,
            lambda: machine.delete(choose(NAMES)): 1,
            machine.pop: 4,
            lambda: machine.pop_specific(choose(NAMES)): 1,
            self.fail: 6,
            self.bind: 1,
            lambda: machine.move_all(
                choose(MOVES), choose(["", "x", "broken"]), choose([None, None, 0])
            ): 4,
            lambda: machine.activate(self.random.sample(NAMES, choose([1, 2]))): 2,
            lambda: machine.wait(choose([0.0, 0.25, 0.25, 1.0, 3.0])): 4,
            self.long_wait: 1,
            machine.flush_backoff: 2,
            lambda: machine.toggle_gate(choose(GATES), choose(NAMES)): 2,
            lambda: machine.nominate(choose(NAMES), choose([None, "", "n1", "n2"])): 1,
        }

    def run(self, count):
        steps, weights = list(self.steps), list(self.steps.values())
        for step in self.random.choices(steps, weights, k=count):
            step()
            for check in (
                self.machine.the_queue_agrees_with_itself,
                self.machine.the_queue_agrees_with_the_model,
                self.machine.pods_in_flight_have_seen_the_same,
                self.machine.metrics_and_nominations_agree,
                self.machine.no_pod_is_lost,
            ):
                check()
        self.machine.teardown()

    def add(self):
        self.machine.add(
            name=self.choose(NAMES),
            priority=self.choose([0, 0, 5]),
            profile=self.choose(["one", "one", "one", "two", "two", "unknown"]),
            klass=self.choose(["0", "1"]),
            nominated=self.choose(["", "", "n1"]),
            grouped=self.choose([False, False, True]),
        )

    def update(self):
        self.machine.update(
            name=self.choose(NAMES),
            priority=self.choose([0, 5]),
            klass=self.choose(["0", "1"]),
            nominated=self.choose(["", "", "n1", "n2"]),
            events=self.choose(UPDATES),
            recreated=self.random.random() < 0.1,
        )

    def fail(self):
        flights = sorted(self.machine.flights)
        if flights:
            rejected_by = set(self.random.sample(REJECTORS, self.choose([0, 1, 1, 2])))
            pending = set(self.random.sample(REJECTORS, self.choose([0, 0, 1])))
            self.machine.fail(self.choose(flights), rejected_by, pending)

    def bind(self):
        flights = sorted(self.machine.flights)
        if flights:
            self.machine.bind(self.choose(flights))

    def long_wait(self):
        self.machine.wait(self.choose([299.0, 300.0, 300.25]))
        self.machine.flush_leftovers()


@pytest.mark.parametrize("seed", range(8))
def test_a_long_random_history_agrees_with_the_model(seed):
    Driver(seed).run(1500)
