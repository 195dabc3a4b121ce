"""A slow, literal model of the specification of the scheduling queue.

It keeps plain lists, visits every pod for every event, knows no cohorts, no heaps and no cached
verdicts, and interleaves pods and events in one list as the specification words it.
`test_queue_model` plays random histories to it and to the queue.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import floor, inf

from kubesched.api.core_v1 import Pod
from kubesched.framework.engine import reads
from kubesched.framework.events import (
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    EVENT_UNSCHEDULED_POD_ADD,
    EVENT_UNSCHEDULED_POD_UPDATE,
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
)

NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
POD_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
POD_TOLERATION = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
POD_UPDATE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE)
NOBODY_CARES = ClusterEvent(Resource.CSI_NODE, Action.ADD)
MOVES = [
    EVENT_NODE_ADD,
    NODE_TAINT,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_UNSCHEDULED_POD_ADD,
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


@reads("class")
def hint_of_class(pod, old, new):
    """Depends on the pod's class alone: may be shared."""
    return Hint.QUEUE if (len(str(new)) + int(pod.metadata.labels["class"])) % 2 else Hint.SKIP


on = ClusterEventWithHint


REGISTRATIONS = {
    "one": {
        "Fit": [on(ClusterEvent(Resource.NODE, Action.ADD), hint_of_pod)],  # in 1.36 also taints
        "Own": [on(ClusterEvent(Resource.POD, Action.ALL), hint_of_own_update)],
        "Class": [on(ClusterEvent(Resource.NODE, Action.ALL), hint_of_class)],
        "Mute": [],
        "GateA": [
            on(ClusterEvent(Resource.POD, Action.UPDATE), hint_of_own_update),
            on(NODE_TAINT),
        ],
        "GateB": [],
    },
    "two": {
        "Fit": [on(ClusterEvent(Resource.NODE, Action.ALL))],
        "Class": [on(ClusterEvent(Resource.POD, Action.DELETE), hint_of_class)],
        "GateA": [on(ClusterEvent(Resource.POD, Action.DELETE), hint_of_class)],
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
        self.entities: Counter = Counter()
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

    def count(self, queue, label, strategy=None):
        self.incoming[queue, label] += 1
        decided = {"immediately": "active", "after backoff": "backoff", "skip": "unschedulable"}
        if strategy is None or decided[strategy] != queue:
            self.entities[queue, label, "pod"] += 1

    def to_pool(self, entry, label, strategy=None):
        if self.find(self.pool, entry.name) is None:
            self.count("unschedulable", label, strategy)
            self.pool.append(entry)
        else:
            self.pool[self.pool.index(self.find(self.pool, entry.name))] = entry

    def to_active(self, entry, label, from_backoff=False, strategy=None):
        if not (from_backoff and self.config.pop_from_backoff_q):
            self.pre_enqueue(entry)
        if entry.gate:
            if not any(
                self.find(place, entry.name) for place in (self.active, self.plain, self.error)
            ):
                entry.was_flushed = False
                self.to_pool(entry, label, strategy)
            return False
        if entry.first_attempt is None:
            entry.first_attempt = self.clock.monotonic()
        for place in (self.pool, self.plain, self.error):
            self.drop(place, entry.name)
        self.put(self.active, entry)
        self.count("active", label, strategy)
        if label in ("UnschedulablePodAdd", "UnschedulablePodUpdate"):  # 1.36 only
            self.nominate(entry.pod, None)
        return True

    def to_backoff(self, entry, label, strategy):
        if self.config.pop_from_backoff_q:
            self.pre_enqueue(entry)
            if entry.gate:
                entry.was_flushed = False
                self.to_pool(entry, label, strategy)
                return False
        self.drop(self.pool, entry.name)
        self.put(self.plain if entry.rejectors else self.error, entry)
        self.count("backoff", label, strategy)
        return True

    def requeue(self, entry, strategy, label):
        if strategy == "skip":
            self.to_pool(entry, label, strategy)
            return "pool"
        if strategy == "after backoff" and self.is_backing_off(entry):
            return "backoff" if self.to_backoff(entry, label, strategy) else "pool"
        return "active" if self.to_active(entry, label, strategy=strategy) else "pool"

    def is_poppable(self, place):
        return place == "active" or (place == "backoff" and self.config.pop_from_backoff_q)

    # Hints.

    def registered(self):
        """Every (profile, event, plugin, hint), with those that 1.36 implies."""
        implies_taints = self.config.reference.node_additions_imply_taints
        for profile, plugins in REGISTRATIONS.items():
            for plugin, registrations in plugins.items():
                adds = taints = False
                for registration in registrations:
                    event = registration.event
                    yield profile, event, plugin, registration.hint
                    if event.resource == "Node":
                        adds |= bool(event.action & Action.ADD)
                        taints |= bool(event.action & Action.UPDATE_NODE_TAINT)
                if implies_taints and adds and not taints:
                    yield profile, NODE_TAINT, plugin, None

    def evaluate(self, entry, event, old, new):
        if not entry.rejectors:
            return "after backoff"
        if event.is_wildcard:
            if new is not None and not (isinstance(new, Pod) and new.metadata.uid == entry.uid):
                return "skip"
            return "after backoff"
        if event.resource == "TargetPod" and new.metadata.uid != entry.uid:
            return "skip"
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

    def label_of(self, event):
        if self.config.reference.target_pod_events:
            return event.label
        for resource in ("UnscheduledPod", "TargetPod"):
            if event.resource == resource:
                return event.label.replace(resource, "UnschedulablePod")
        return event.label

    # Operations.

    def add(self, pod, event=EVENT_UNSCHEDULED_POD_ADD):
        if self.config.reference.gated_pods_are_nominated:
            self.nominate(pod, None)
            event = EVENT_UNSCHEDULED_POD_ADD
        if self.to_active(Entry(pod, self.clock.monotonic()), self.label_of(event)):
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
                place = self.requeue(entry, strategy, self.label_of(event))
                if place != "pool":
                    self.wakes += self.is_poppable(place)
                    return
            return
        self.add(new, EVENT_UNSCHEDULED_POD_UPDATE)

    def delete(self, pod):
        self.unnominate(pod.metadata.uid)
        name = pod.metadata.name
        entry = (
            self.drop(self.active, name)
            or self.drop(self.plain, name)
            or self.drop(self.error, name)
        )
        if entry is not None and not self.config.reference.rejectors_forgotten_everywhere:
            return
        entry = entry or self.drop(self.pool, name)
        if entry is not None:
            for plugin in entry.rejectors:
                self.unschedulable_pods[plugin, entry.profile] -= 1

    def pop(self):
        while True:
            entry = self.take_first(self.active, self.rank)
            if entry is None and self.config.pop_from_backoff_q:
                entry = self.take_first(self.plain, self.plain_rank)
                if entry is not None:
                    self.count("active", "PopFromBackoffQ")
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
            activated |= self.is_poppable(self.requeue(entry, strategy, self.label_of(event)))
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
