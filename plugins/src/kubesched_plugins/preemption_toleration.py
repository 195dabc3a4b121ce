"""PreemptionToleration: pods that may stay although pods of higher priority want their place.

Annotations of a pod's PriorityClass say from which priority on, and for how long after it was
scheduled, the pod cannot be preempted. Everything else is DefaultPreemption's.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from kubesched.framework import CycleState, Handle, PodInfo, Status, error_status
from kubesched.framework.api import Pod, PodDisruptionBudget, PriorityClass
from kubesched_plugins.preempting import Node, PreemptingPlugin, no_victims, reprieve

MINIMUM_PREEMPTABLE_PRIORITY: Final = (
    "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
)
TOLERATION_SECONDS: Final = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreemptionTolerationArgs:
    """`PreemptionTolerationArgs` of `kubescheduler.config.k8s.io/v1`."""

    api_version: str = ""
    kind: str = ""
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            raise ValueError("minCandidateNodesPercentage: not in valid range [0, 100]")
        if self.min_candidate_nodes_absolute < 0:
            raise ValueError("minCandidateNodesAbsolute: not in valid range [0, inf)")
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError(
                "minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be zero"
            )


class Policy(NamedTuple):
    """What the annotations of a PriorityClass say."""

    minimum_preemptable_priority: int
    toleration_seconds: int
    """Negative: for ever."""


class PreemptionToleration(PreemptingPlugin):
    """Preemption that spares pods whose PriorityClass tolerates it."""

    name = "PreemptionToleration"
    args_type = PreemptionTolerationArgs
    args: PreemptionTolerationArgs
    lists = (PodDisruptionBudget, PriorityClass)

    def __init__(self, args: PreemptionTolerationArgs | None, handle: Handle) -> None:
        args = args or PreemptionTolerationArgs()
        super().__init__(
            args,
            handle,
            percentage=args.min_candidate_nodes_percentage,
            absolute=args.min_candidate_nodes_absolute,
        )
        self.now = handle.clock.now
        self._policies: dict[str, tuple[PriorityClass, Policy | None]] = {}

    def makes_room_for(self, state: CycleState, pod: Pod, terminating: PodInfo) -> bool:
        return terminating.priority < (pod.spec.priority or 0)

    def select_victims(self, node: Node) -> Any:  # noqa: ANN401  # victims or a Status
        """Remove all pods that do not tolerate it, then let the important ones stay."""
        preemptor, possible = node.preemptor, []
        for pod in node.pods:
            if pod.priority >= preemptor.priority:
                continue
            exempted = self.exempted(pod.pod, preemptor.pod)
            if isinstance(exempted, Status):
                return exempted
            if not exempted:
                possible.append(pod)
                if failed := node.take(pod):
                    return failed
        if not possible:
            return no_victims(node)
        if rejection := node.rejection():
            return rejection
        return reprieve(node, possible)

    def exempted(self, victim: Pod, preemptor: Pod) -> bool | Status:
        """True if the victim may not be preempted by the preemptor."""
        class_name = victim.spec.priority_class_name
        if not class_name:
            return False
        listers = self.handle.listers
        priority_class: PriorityClass | None = (
            None if listers is None else listers.of(PriorityClass).get("", class_name)
        )
        if priority_class is None:
            return error_status(f'priorityclass.scheduling.k8s.io "{class_name}" not found')
        if preemptor.spec.preemption_policy == "Never":
            return True
        policy = self._policy_of(priority_class)
        if policy is None:
            return False
        if (preemptor.spec.priority or 0) >= policy.minimum_preemptable_priority:
            return False
        if policy.toleration_seconds < 0:
            return True
        for condition in victim.status.conditions or ():
            if condition.type == "PodScheduled":
                since = condition.last_transition_time
                if condition.status != "True" or not since:
                    return True
                scheduled_at = datetime.fromisoformat(since).timestamp()
                return scheduled_at + policy.toleration_seconds > self.now()
        return True

    def _policy_of(self, priority_class: PriorityClass) -> Policy | None:
        """None if the annotations are wrong, which is logged once per version of the class."""
        name = priority_class.metadata.name
        known = self._policies.get(name)
        if known is None or known[0] is not priority_class:
            try:
                known = priority_class, policy_of(priority_class)
            except ValueError as error:
                known = priority_class, None
                log.warning(
                    "Failed to parse preemption toleration policy of PriorityClass %s, whose pods"
                    " therefore do not tolerate preemption: %s",
                    name,
                    error,
                )
            self._policies[name] = known
        return known[1]


def policy_of(priority_class: PriorityClass) -> Policy:
    """The policy that the annotations give; ValueError if one is not an integer."""
    annotations = priority_class.metadata.annotations or {}
    minimum, seconds = priority_class.value + 1, 0
    if MINIMUM_PREEMPTABLE_PRIORITY in annotations:
        minimum = _integer(annotations[MINIMUM_PREEMPTABLE_PRIORITY], 32)
    if TOLERATION_SECONDS in annotations:
        seconds = _integer(annotations[TOLERATION_SECONDS], 64)
    return Policy(minimum, seconds)


def _integer(text: str, bits: int) -> int:
    number = int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None
    if number is None or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"{text!r} is not an integer of {bits} bits")
    return number
