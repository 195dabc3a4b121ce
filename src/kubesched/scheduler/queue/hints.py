"""Queueing hints: which events may help which rejected pods.

A plugin that can reject pods registers the events that could change its verdict, each with an
optional queueing hint. `build_hint_map` collects these registrations, `HintMap` finds the plugins
interested in an event, and `HintEvaluator` decides for one pod.

An incoming event is *resolved* once into everything that depends on its kind alone (label,
interested plugins), so resources and action bits are compared only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final, NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import get_logger
from kubesched.base.metrics import SchedulerMetrics
from kubesched.config.references import DEFAULT_REFERENCE, Reference
from kubesched.framework.engine import Fields, fields_read, reads
from kubesched.framework.events import (
    POD_RESOURCES,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Concerns,
    Hint,
    HintFn,
    NarrowFn,
    Resource,
)
from kubesched.framework.queued_pod import QueuedPodInfo

log = get_logger(__name__)

EXTENDER: Final = "Extender"
"""The rejecting plugin's name for all HTTP extenders."""

_UNSCHEDULABLE_PODS: Final = (Resource.UNSCHEDULED_POD, Resource.TARGET_POD)
_DEFAULT_RESOURCES: Final = (
    *POD_RESOURCES,
    Resource.NODE,
    Resource.PERSISTENT_VOLUME,
    Resource.PERSISTENT_VOLUME_CLAIM,
    Resource.CSI_NODE,
    Resource.CSI_DRIVER,
    Resource.CSI_STORAGE_CAPACITY,
    Resource.STORAGE_CLASS,
    Resource.RESOURCE_CLAIM,
    Resource.DEVICE_CLASS,
)


class Strategy(Enum):
    """The effect of an event on a rejected pod; the value is the queue that it decides on."""

    SKIP = "unschedulable"
    """None: the pod stays in its queue."""
    AFTER_BACKOFF = "backoff"
    """Retry once its backoff has expired."""
    IMMEDIATELY = "active"
    """The awaited change has happened: retry without backoff."""


class QueueingHint(NamedTuple):
    """One plugin's interest in one registered event."""

    plugin: str
    decide: HintFn
    reads: Fields | None
    """With "class" one call serves all pods of a class key, with "spec" all of a shape key."""
    narrow: NarrowFn | None = None


class Narrowed(NamedTuple):
    """The pods that an event is about, according to the plugins that can tell."""

    by_plugin: Mapping[str, Sequence[Concerns]]

    def includes(self, pod: Pod) -> bool:
        return any(concerns(pod) for tests in self.by_plugin.values() for concerns in tests)

    def asks(self, plugin: str, pod: Pod) -> bool:
        tests = self.by_plugin.get(plugin)
        return tests is None or any(concerns(pod) for concerns in tests)


class PluginEvents(NamedTuple):
    """A plugin that can reject pods, and its `events_to_register`, or None without any."""

    plugin: str
    events_to_register: Callable[[], Sequence[ClusterEventWithHint]] | None


class ResolvedEvent:
    """An event with everything that depends on its kind; one object per kind."""

    __slots__ = (
        "event",
        "hints_by_profile",
        "interested_plugins",
        "is_about_target",
        "is_wildcard",
        "label",
        "narrowing",
    )

    def __init__(
        self,
        event: ClusterEvent,
        label: str,
        hints_by_profile: Mapping[str, tuple[QueueingHint, ...]],
        interested_plugins: frozenset[str],
    ) -> None:
        self.event = event
        self.label = label
        self.is_wildcard = event.is_wildcard
        self.is_about_target = event.resource == Resource.TARGET_POD
        self.hints_by_profile = hints_by_profile
        """The hints for this event per known profile; possibly empty."""
        self.interested_plugins = interested_plugins
        """Plugins of any profile with a registration that covers this event."""
        self.narrowing = tuple(
            hint for hints in hints_by_profile.values() for hint in hints if hint.narrow
        )

    @property
    def is_of_interest(self) -> bool:
        return self.is_wildcard or bool(self.interested_plugins)

    def __repr__(self) -> str:
        return f"<ResolvedEvent {self.label}>"


class HintMap:
    """Every registration of every profile."""

    def __init__(
        self,
        by_profile: Mapping[str, Mapping[ClusterEvent, Sequence[QueueingHint]]],
        reference: Reference = DEFAULT_REFERENCE,
        group_resources: Sequence[str] = (),
    ) -> None:
        self.by_profile = by_profile
        self._group_resources = group_resources
        self._labels_target_pods = reference.target_pod_events
        self._events_by_plugin = _events_by_plugin(by_profile)
        self._resolved: dict[ClusterEvent, ResolvedEvent] = {}

    def resolve(self, event: ClusterEvent) -> ResolvedEvent:
        """The hints for this kind of event, computed once per kind."""
        resolved = self._resolved.get(event)
        if resolved is None:
            resolved = self._resolved[event] = self._resolve(event)
        return resolved

    def events_of(self, plugin: str) -> tuple[ClusterEvent, ...]:
        """Every event the plugin registered, over all profiles."""
        return self._events_by_plugin.get(plugin, ())

    def actions_by_resource(self) -> dict[str, Action]:
        """The union of all registrations but those for pods: the informer handlers to install."""
        # Groups are kept as nodes and pods are, whatever plugins register for.
        actions = dict.fromkeys(self._group_resources, Action.ALL)
        for hints_by_event in self.by_profile.values():
            for event in hints_by_event:
                if event.resource not in POD_RESOURCES:
                    before = actions.get(event.resource, Action.NONE)
                    actions[event.resource] = before | event.action
        return actions

    def _resolve(self, event: ClusterEvent) -> ResolvedEvent:
        hints_by_profile: dict[str, tuple[QueueingHint, ...]] = {}
        for profile, hints_by_event in self.by_profile.items():
            matching = [
                hints for registered, hints in hints_by_event.items() if registered.matches(event)
            ]
            hints_by_profile[profile] = tuple(hint for hints in matching for hint in hints)
        interested = frozenset(hint.plugin for hints in hints_by_profile.values() for hint in hints)
        return ResolvedEvent(event, self._label_of(event), hints_by_profile, interested)

    def _label_of(self, event: ClusterEvent) -> str:
        if self._labels_target_pods or event.resource not in _UNSCHEDULABLE_PODS:
            return event.label
        return replace(event, resource="UnschedulablePod").label


def build_hint_map(
    profiles: Mapping[str, Sequence[PluginEvents]],
    *,
    has_extenders: bool = False,
    group_resources: Sequence[str] = (),
    reference: Reference = DEFAULT_REFERENCE,
    narrows: bool = False,
) -> HintMap:
    """Collect the events that could undo a rejection, from every plugin of every profile.

    `profiles` lists, per scheduler name, the plugins that implement PreEnqueue, PreFilter, Filter,
    Reserve or Permit: only these can reject a pod. With `narrows` they may say which pods an event
    is about.

    Raises:
        KubeschedError: names every plugin that failed to register.
    """
    defaults = _default_events(group_resources)
    problems: list[str] = []
    cause: Exception | None = None
    by_profile: dict[str, dict[ClusterEvent, list[QueueingHint]]] = {}
    for profile, plugins in profiles.items():
        hints_by_event = by_profile[profile] = {}
        if has_extenders:
            _register(EXTENDER, defaults, hints_by_event, reference, narrows)
        for plugin, events_to_register in plugins:
            try:
                events = defaults if events_to_register is None else _checked(events_to_register())
            except Exception as error:  # any failure must stop startup
                problems.append(
                    f'plugin "{plugin}" of profile "{profile}" cannot register its events: {error}'
                )
                cause = cause or error
                continue
            _register(plugin, events, hints_by_event, reference, narrows)
    if problems:
        raise KubeschedError("; ".join(problems)) from cause
    return HintMap(by_profile, reference, group_resources)


class HintEvaluator:
    """Decides an event's effect on one pod, and measures the duration of hints."""

    def __init__(self, clock: Clock, metrics: SchedulerMetrics) -> None:
        self._clock = clock
        self._durations = metrics.queueing_hint_execution_duration_seconds
        self._narrowings = metrics.pre_queueing_hint_evaluations_total
        self._reported: set[tuple[str, str]] = set()

    def narrow(self, event: ResolvedEvent, old: object, new: object) -> Narrowed | None:
        """The waiting pods that the event is about; None if it may be any."""
        if not event.narrowing or event.is_wildcard or (old is None and new is None):
            return None
        by_plugin: dict[str, list[Concerns]] = {}
        for hint in event.narrowing:
            assert hint.narrow is not None, "only such hints are listed"
            try:
                concerns = hint.narrow(old, new)
            except Exception:  # third-party code: ask all pods
                log.exception("PreQueueingHint failed, all pods are evaluated", plugin=hint.plugin)
                return None
            result = "all_pods" if concerns is None else "narrowed"
            self._narrowings.labels(hint.plugin, result).inc()
            if concerns is None:
                return None
            by_plugin.setdefault(hint.plugin, []).append(concerns)
        return Narrowed(by_plugin)

    def evaluate(
        self,
        info: QueuedPodInfo,
        event: ResolvedEvent,
        old: object,
        new: object,
        narrowed: Narrowed | None = None,
    ) -> Strategy:
        """The verdict for one pod and one event."""
        rejectors = info.rejector_plugins
        if not rejectors:
            return Strategy.AFTER_BACKOFF
        if event.is_wildcard or event.is_about_target:
            is_meant = new is None or (
                isinstance(new, Pod) and new.metadata.uid == info.pod_info.uid
            )
            # Upstream asks the hints about updates of other pods in flight, too.
            if event.is_wildcard or not is_meant:
                return Strategy.AFTER_BACKOFF if is_meant else Strategy.SKIP
        profile = info.pod_info.pod.spec.scheduler_name
        hints = event.hints_by_profile.get(profile)
        if hints is None:
            log.error("Pod waits for an unknown profile", pod=info.pod_info.pod, profile=profile)
            return Strategy.AFTER_BACKOFF
        pod = info.pod_info.pod
        relevant = [
            hint
            for hint in hints
            if hint.plugin in rejectors and (narrowed is None or narrowed.asks(hint.plugin, pod))
        ]
        return self.ask(relevant, info, event, old, new)

    def evaluate_all(
        self, info: QueuedPodInfo, events: Iterable[tuple[ResolvedEvent, object, object]]
    ) -> Strategy:
        """The verdict for one pod and several events, of which a later one may help more."""
        best = Strategy.SKIP
        for event, old, new in events:
            pod = info.pod_info.pod
            log.info("Checking event for in-flight pod", v=5, pod=pod, event=event.label)
            strategy = self.evaluate(info, event, old, new)
            if strategy is Strategy.SKIP:
                continue
            best = strategy
            if strategy is Strategy.IMMEDIATELY or not info.pending_plugins:
                break
        return best

    def ask(
        self,
        relevant: Iterable[QueueingHint],
        info: QueuedPodInfo,
        event: ResolvedEvent,
        old: object,
        new: object,
    ) -> Strategy:
        """The verdict of these hints, all from plugins that rejected the pod."""
        strategy = Strategy.SKIP
        for hint in relevant:
            if self._call(hint, info.pod_info.pod, event, old, new) is Hint.SKIP:
                continue
            if hint.plugin in info.pending_plugins:
                return Strategy.IMMEDIATELY
            if not info.pending_plugins:
                return Strategy.AFTER_BACKOFF
            strategy = Strategy.AFTER_BACKOFF
        return strategy

    def _call(
        self, hint: QueueingHint, pod: Pod, event: ResolvedEvent, old: object, new: object
    ) -> Hint:
        """The hint's answer. A failing hint counts as Queue, so the pod is not stuck."""
        started = self._clock.monotonic()
        try:
            answer = hint.decide(pod, old, new)
            if answer is Hint.SKIP:
                label = "QueueSkip"
            elif answer is Hint.QUEUE:
                label = "Queue"
            else:
                raise TypeError(f"expected a Hint, got {type(answer).__name__}")
        except Exception:  # third-party code: retry the pod and report the failure
            self._report(hint, pod, event)
            answer, label = Hint.QUEUE, "Error"
        elapsed = self._clock.monotonic() - started
        self._durations.labels(hint.plugin, event.label, label).observe(elapsed)
        return answer

    def _report(self, hint: QueueingHint, pod: Pod, event: ResolvedEvent) -> None:
        """Log the current exception, with traceback only once: thousands of pods may follow."""
        is_news = (hint.plugin, event.label) not in self._reported
        self._reported.add((hint.plugin, event.label))
        told = {"plugin": hint.plugin, "event": event.label, "pod": pod}
        if is_news:
            log.exception("Queueing hint failed", **told)
        else:
            log.info("Queueing hint failed again", v=5, **told)


@reads("spec")
def always_queue(pod: Pod, old: Any, new: Any) -> Hint:  # noqa: ANN401  # any object
    """The default hint."""
    return Hint.QUEUE


@reads("spec")
def never_queue(pod: Pod, old: Any, new: Any) -> Hint:  # noqa: ANN401  # any object
    """The answer about other pods to who waits for a change of the pod itself."""
    return Hint.SKIP


def _register(
    plugin: str,
    events: Iterable[ClusterEventWithHint],
    hints_by_event: dict[ClusterEvent, list[QueueingHint]],
    reference: Reference,
    narrows: bool,
) -> None:
    def add(resource: str, action: Action, hint: QueueingHint) -> None:
        hints_by_event.setdefault(ClusterEvent(resource, action), []).append(hint)

    always = QueueingHint(plugin, always_queue, fields_read(always_queue))
    never = QueueingHint(plugin, never_queue, fields_read(never_queue))
    node_actions = Action.NONE
    for registration in events:
        resource, action = registration.event.resource, registration.event.action
        if resource == Resource.NODE:
            node_actions |= action
        decide = registration.hint or always_queue
        narrow = registration.narrow if narrows else None
        hint = QueueingHint(plugin, decide, fields_read(decide), narrow)
        for specific in POD_RESOURCES if resource == Resource.POD else (resource,):
            add(specific, action, hint)
        if resource == Resource.TARGET_POD and not reference.target_pod_events:
            add(Resource.ASSIGNED_POD, action, never)
    # Waiting for new nodes implies waiting for their taints, even though hints are always on.
    if (
        reference.node_additions_imply_taints
        and node_actions & Action.ADD
        and not node_actions & Action.UPDATE_NODE_TAINT
    ):
        add(Resource.NODE, Action.UPDATE_NODE_TAINT, always)


def _default_events(group_resources: Sequence[str]) -> tuple[ClusterEventWithHint, ...]:
    """For plugins without `events_to_register`: any event may help."""
    resources = (*_DEFAULT_RESOURCES, *group_resources)
    return tuple(ClusterEventWithHint(ClusterEvent(resource, Action.ALL)) for resource in resources)


def _checked(events: Sequence[ClusterEventWithHint]) -> Sequence[ClusterEventWithHint]:
    for event in events:
        if not isinstance(event, ClusterEventWithHint):
            raise TypeError(f"expected ClusterEventWithHint, got {type(event).__name__}")
    return events


def _events_by_plugin(
    by_profile: Mapping[str, Mapping[ClusterEvent, Sequence[QueueingHint]]],
) -> dict[str, tuple[ClusterEvent, ...]]:
    events: dict[str, dict[ClusterEvent, None]] = {}
    for hints_by_event in by_profile.values():
        for event, hints in hints_by_event.items():
            for hint in hints:
                if hint.decide is not never_queue:
                    events.setdefault(hint.plugin, {})[event] = None
    return {plugin: tuple(registered) for plugin, registered in events.items()}
