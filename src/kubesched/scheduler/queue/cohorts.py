"""Cohorts: pods rejected by the same plugins, and the events and hints that concern them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubesched.api.core_v1 import Pod
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.hints import HintEvaluator, QueueingHint, ResolvedEvent, Strategy

if TYPE_CHECKING:
    from kubesched.scheduler.queue.waiting_classes import Member, WaitingClass

PreCheck = Callable[[Pod], bool]
"""Restricts a move to some pods. It may distinguish pods of one class only by UID."""

CohortKey = tuple[str, frozenset[str], frozenset[str], str]
"""Profile, unschedulable plugins, pending plugins, gating plugin."""


class Cohort:
    """Pods rejected by the same plugins: the same events concern all of them."""

    __slots__ = (
        "_per_class",
        "_relevant",
        "alone",
        "classes",
        "gating_plugin",
        "key",
        "pending",
        "profile",
        "rejectors",
        "unschedulable",
    )

    def __init__(self, key: CohortKey) -> None:
        self.key = key
        self.profile, self.unschedulable, self.pending, self.gating_plugin = key
        self.rejectors = self.unschedulable | self.pending
        self.alone: dict[str, Member] = {}
        self.classes: dict[bytes, WaitingClass] = {}
        self._relevant: dict[ResolvedEvent, tuple[QueueingHint, ...]] = {}
        self._per_class: dict[ResolvedEvent, bool] = {}

    def is_concerned(self, event: ResolvedEvent) -> bool:
        """True if this event can help. Gated pods react only to events of their gate."""
        if event.is_wildcard:
            return True
        if self.gating_plugin and self.gating_plugin not in event.interested_plugins:
            return False
        return (
            self.profile not in event.hints_by_profile
            or not self.rejectors
            or bool(self.hints(event))
        )

    def hints(self, event: ResolvedEvent) -> tuple[QueueingHint, ...]:
        """The hints of these plugins for this event; none for a wildcard."""
        relevant = self._relevant.get(event)
        if relevant is None:
            hints = () if event.is_wildcard else event.hints_by_profile.get(self.profile, ())
            relevant = tuple(hint for hint in hints if hint.plugin in self.rejectors)
            self._relevant[event] = relevant
        return relevant

    def asks_per_class(self, event: ResolvedEvent) -> bool:
        """True if one answer holds for all pods of a class."""
        answer = self._per_class.get(event)
        if answer is None:
            answer = self._per_class[event] = all(hint.reads for hint in self.hints(event))
        return answer

    def judge(
        self, event: ResolvedEvent, old: object, new: object, evaluator: HintEvaluator
    ) -> Callable[[QueuedPodInfo], Strategy]:
        """The event's effect on pods of this cohort, asked once per spec where hints allow it."""
        hints = self.hints(event)
        if not hints:  # plugins do not decide: a wildcard, or an unknown profile
            return lambda info: evaluator.evaluate(info, event, old, new)
        by_shape: dict[bytes, Strategy] = {}
        is_shared = all(hint.reads == "spec" for hint in hints)

        def ask(info: QueuedPodInfo) -> Strategy:
            pod_info = info.pod_info
            shape = pod_info.shape_key if is_shared and pod_info.class_key else None
            if not shape:
                return evaluator.ask(hints, info, event, old, new)
            answer = by_shape.get(shape)
            if answer is None:
                answer = by_shape[shape] = evaluator.ask(hints, info, event, old, new)
            return answer

        return ask


def cohort_key(info: QueuedPodInfo) -> CohortKey:
    return (
        info.pod_info.pod.spec.scheduler_name,
        frozenset(info.unschedulable_plugins),
        frozenset(info.pending_plugins),
        info.gating_plugin,
    )


def since(info: QueuedPodInfo) -> float:
    """When the pod's wait began, or when it was last flushed."""
    flushed = info.flush_timestamp
    return info.timestamp if flushed is None else max(info.timestamp, flushed)
