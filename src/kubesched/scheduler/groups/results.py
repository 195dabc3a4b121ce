"""Results of a group cycle: per member, and per group of the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.tree import GroupNode, PlacedPod
from kubesched.framework.nominating_info import KEEP_NOMINATION, NominatingInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Code, Status
from kubesched.scheduler.algorithm import ScheduleResult

SUCCESS = Status(Code.SUCCESS)
UNSCHEDULABLE_TEXT = "pod group is unschedulable"


class PodGroupUnschedulable(Exception):
    """The group as a whole cannot be placed."""

    def __init__(self) -> None:
        super().__init__(UNSCHEDULABLE_TEXT)


def group_unschedulable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE, reasons, error=PodGroupUnschedulable())


@dataclass(slots=True, eq=False)
class MemberResult:
    """What became of one member."""

    info: QueuedPodInfo
    status: Status
    state: CycleState
    result: ScheduleResult | None = None
    """The node, if there is one."""
    nomination: NominatingInfo = KEEP_NOMINATION
    seconds: float = 0.0


class Verdict:
    """The status of a group.

    # Upstream: groups of a tree may share one status object, and a reason that is added to each of
    # them is added to all.
    """

    __slots__ = ("status",)

    def __init__(self, status: Status) -> None:
        self.status = status

    def add_reason(self, reason: str) -> None:
        status = self.status
        self.status = Status(
            status.code, (*status.reasons, reason), error=status.error, plugin=status.plugin
        )


@dataclass(slots=True, eq=False)
class GroupResult:
    """What became of one group."""

    node: GroupNode
    verdict: Verdict
    members: list[MemberResult] = field(default_factory=list)
    any_scheduled: bool = False
    waits_for_preemption: bool = False

    @property
    def status(self) -> Status:
        return self.verdict.status

    def placed(self) -> Sequence[PlacedPod]:
        return [
            PlacedPod(member.info.pod_info, member.result.node_name, member.state)
            for member in self.members
            if member.result is not None and member.status.is_success
        ]
