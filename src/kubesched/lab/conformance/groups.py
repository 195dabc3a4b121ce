"""Recorded sequences of pod groups, played in memory and compared step by step.

The player acts as API server and kubelet: a binding takes effect at once and the pod runs, a
deleted pod is gone at once. Time passes only as the recording says: a millisecond before each step,
and whole seconds in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import Node, Pod, PodCondition
from kubesched.api.kinds import find_kind
from kubesched.api.meta import Record
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.api.times import format_time
from kubesched.base.clock import ManualClock
from kubesched.config.features import FeatureGates, from_map
from kubesched.config.load import load
from kubesched.insight.state.cluster import Cluster
from kubesched.lab.conformance.comparison import Aspect, Finding
from kubesched.lab.conformance.recordings import RecordingError
from kubesched.lab.conformance.sequences import GroupSequence, GroupStep, Json
from kubesched.playground.registry.patching.verb import apply_merge_patch
from kubesched.scheduler.groups.conditions import INITIALLY_SCHEDULED

_EPOCH_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
_FLUSH_EVERY_S = 30
_MAX_IN_UNSCHEDULABLE_S = 300.0
_NEVER_S = 1e9
_CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 1
percentageOfNodesToScore: 100
"""

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Node, Pod, PodGroup, CompositePodGroup, PodDisruptionBudget)
}

_GATED = PodCondition(
    type="PodScheduled",
    status="False",
    reason="SchedulingGated",
    message="Scheduling is blocked due to non-empty scheduling gates",
)
"""What an API server writes when a pod with gates is created."""


class GroupWorld(Cluster):
    """The cluster that a sequence is played in."""

    def __init__(self, gates: FeatureGates) -> None:
        super().__init__(
            config=load(_CONFIG, "sequence", gates),
            gates=gates,
            clock=ManualClock(_EPOCH_S + 0.1),
            max_in_unschedulable_s=_NEVER_S,
        )
        self._numbers: dict[str, int] = {}
        self._seconds = 0
        self.evictions: list[str] = []

    def perform(self, step: GroupStep) -> None:
        """Carry out a step and let the scheduler finish."""
        self.clock.advance(0.001)
        self.evictions.clear()
        if step.op == "create":
            self._create(step.object)
        elif step.op == "patch":
            self._patch(step)
        elif step.op == "delete":
            if (gone := self._stored(step)) is not None:
                self.delete(gone)
        else:
            for _ in range(step.seconds):
                self._second()
        self.settle()

    def _create(self, manifest: Json) -> None:
        kind = find_kind(str(manifest.get("apiVersion")), str(manifest.get("kind")))
        if kind is None:
            raise RecordingError(f"an object of unknown kind {manifest.get('kind')} is created")
        obj: Any = codec.convert(manifest, kind.record)
        if isinstance(obj, Pod):
            self._numbers[obj.metadata.uid] = len(self._numbers) + 1
            if obj.spec.scheduling_gates:
                obj = structs.replace(obj, status=structs.replace(obj.status, conditions=[_GATED]))
        self.add(obj)

    def _patch(self, step: GroupStep) -> None:
        stored = self._stored(step)
        if stored is None:
            raise RecordingError(f"{step.kind} {step.name} is patched and does not exist")
        merged = apply_merge_patch(msgspec.to_builtins(stored), step.patch)
        self.update(codec.convert(merged, type(stored)))

    def _stored(self, step: GroupStep) -> Record | None:
        kind = _KINDS.get(step.kind)
        if kind is None:
            raise RecordingError(f"{step.kind} {step.name}: a step cannot change this kind")
        named = (obj for obj in self.objects(kind) if obj.metadata.name == step.name)
        return next(named, None)

    def _second(self) -> None:
        self._seconds += 1
        self.clock.advance(1.0)
        self.loop.stall(1.0)
        self._fire_timers()
        queue = self.assembly.scheduler.queue
        queue.flush_backoff_completed()
        if self._seconds % _FLUSH_EVERY_S == 0:
            queue.flush_unschedulable_leftovers(_MAX_IN_UNSCHEDULABLE_S)
        self._work()

    def bound(self, pod: Pod, node_name: str) -> None:
        started = format_time(_EPOCH_S + self._numbers[pod.metadata.uid])
        status = structs.replace(pod.status, phase="Running", start_time=started)
        super().bound(structs.replace(pod, status=status), node_name)

    def evicted(self, pod: Pod) -> None:
        self.evictions.append(pod.metadata.name)
        super().evicted(pod)

    def seen(self) -> Json:
        """What the recording says about the same moment."""
        seen: Json = {"pods": {pod.metadata.name: told_about_pod(pod) for pod in self.objects(Pod)}}
        groups = {
            group.metadata.name: told
            for group in self.objects(PodGroup)
            if (told := told_about_group(group))
        }
        if groups:
            seen["podGroups"] = groups
        if self.evictions:
            seen["evicted"] = sorted(self.evictions)
        return seen


def compare_groups(sequence: GroupSequence) -> Iterator[tuple[int, list[Finding]]]:
    """Play a sequence; the findings of each step, up to the first that differs."""
    gates = from_map(sequence.gates)
    with GroupWorld(gates) as world:
        for number, step in enumerate(sequence.steps):
            world.perform(step)
            findings = list(_compare(step.expect, world.seen()))
            yield number, findings
            if not all(finding.agrees for finding in findings):
                return


def _compare(expected: Json, got: Json) -> Iterator[Finding]:
    for aspect, part in (
        (Aspect.PODS, "pods"),
        (Aspect.POD_GROUPS, "podGroups"),
        (Aspect.EVICTIONS, "evicted"),
    ):
        yield Finding(aspect, _known(expected.get(part)), _known(got.get(part)))


def _known(told: Any) -> Any:  # noqa: ANN401  # JSON
    """Without the message of groups that are scheduled.

    # Upstream: a retry right after the success may still see the group as it was before, and
    # patch an unschedulable message into the condition that says True.
    """
    if not isinstance(told, dict):
        return told
    return {
        name: {key: value for key, value in one.items() if key != "message"}
        if one.get("status") == "True"
        else one
        for name, one in told.items()
    }


def told_about_pod(pod: Pod) -> Json:
    """Its node, or why it has none."""
    if pod.spec.node_name:
        return {"node": pod.spec.node_name}
    told: Json = {}
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled":
            told = {"reason": condition.reason, "message": condition.message}
    if pod.status.nominated_node_name:
        told["nominated"] = pod.status.nominated_node_name
    return {name: value for name, value in told.items() if value}


def told_about_group(group: PodGroup) -> Json:
    """Its conditions."""
    told: Json = {}
    for condition in group.status.conditions or ():
        fields = {
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
        }
        shown = {name: value for name, value in fields.items() if value}
        if condition.type == INITIALLY_SCHEDULED:
            told |= shown
        else:
            told[condition.type] = shown
    return told
