"""Notes what every scheduler decides and tries, and checks the order in which pods are tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.api.host_ports import HostPort
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.groups.states import group_of
from kubesched.framework.handle import Lister
from kubesched.framework.interfaces import PermitPlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.ports import HostPortIndex
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Status
from kubesched.insight.state.virtual_loop import OWNER
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue
from kubesched.scheduler.groups.queued_group import QueuedGroup
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue

AUDITOR: Final = "SimulationAuditor"
MAX_ATTEMPTS_AT_ONE_INSTANT: Final = 100

Complain = Callable[[str, str], None]
"""(property, detail)"""


Decisions = dict[tuple[str, str, str], frozenset[str]]
"""(process, pod UID, node name) -> UIDs of the pods its watch had shown there at the choice."""

Attempts = dict[tuple[str, str, str], list[str]]
"""(process, pod UID, claim name) -> UIDs of the claims used in its attempts, in order."""


class SilentAuditor(PermitPlugin):
    """The auditor, which makes no decisions, in replays and second looks."""

    name = AUDITOR

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


def make_auditor(decisions: Decisions) -> type[SilentAuditor]:
    """A Permit plugin that adds every decision to `decisions`."""

    class Auditor(SilentAuditor):
        def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            table, listers = self.handle.table, self.handle.listers
            assert listers is not None, "a scheduler has listers"
            shown = {
                other.metadata.uid
                for other in listers.of(Pod).list()
                if other.spec.node_name == node_name
            }
            decisions[OWNER.get(), pod.metadata.uid, node_name] = frozenset(
                shown.intersection(table.pods[table.row_of[node_name]])
            )
            return None

    return Auditor


def audit_pops(
    queue: SchedulingQueue,
    complain: Complain,
    note_attempt: Callable[[Pod], None],
    now: Callable[[], float],
) -> None:
    """Check pop order: no ready pod has higher priority, or the same and is older.

    Notes every pop as the start of an attempt. An entity that is tried again and again at one
    instant is not popped any more, so that the run goes on and reports the violation.
    """
    groups = queue if isinstance(queue, GroupSchedulingQueue) else None
    pop = queue.pop if groups is None else groups.pop_entity
    tried: Counter[object] = Counter()
    tried_at = -1.0

    def audited() -> QueuedPodInfo | QueuedGroup | None:
        nonlocal tried_at
        popped = pop()
        if popped is not None:
            if now() != tried_at:
                tried_at = now()
                tried.clear()
            key = popped.root if isinstance(popped, QueuedGroup) else popped.pod_info.uid
            tried[key] += 1
            if tried[key] > MAX_ATTEMPTS_AT_ONE_INSTANT:
                complain("the world goes on", f"{popped} is tried again and again at one instant")
                return None
            ready: list[QueuedPodInfo | QueuedGroup] = [
                info
                for pod in queue.pods_in_active_q()
                if (info := queue.get_pod(pod.metadata.namespace, pod.metadata.name)) is not None
                and group_of(pod) is None
            ]
            ready += () if groups is None else groups.active_groups()
            first = min(ready, key=_rank, default=popped)
            if _rank(first) < _rank(popped):
                complain("the most important pod is tried first", f"{popped} before {first}")
            for info in popped if isinstance(popped, QueuedGroup) else (popped,):
                note_attempt(info.pod_info.pod)
        return popped

    setattr(queue, "pop" if groups is None else "pop_entity", audited)  # only of this queue


def note_claims(
    attempts: Attempts, process: str, claims: Lister[PersistentVolumeClaim], pod: Pod
) -> None:
    """Add the claims known when an attempt starts; they may be replaced while it waits."""
    for volume in pod.spec.volumes or ():
        source = volume.persistent_volume_claim
        claim = claims.get(pod.metadata.namespace, source.claim_name) if source else None
        if claim is None:
            continue
        tried = attempts.setdefault((process, pod.metadata.uid, claim.metadata.name), [])
        if tried[-1:] != [claim.metadata.uid]:
            tried.append(claim.metadata.uid)


def _rank(info: QueuedPodInfo | QueuedGroup) -> tuple[int, float]:
    if isinstance(info, QueuedGroup):
        return -info.priority, info.timestamp
    return -(info.pod_info.pod.spec.priority or 0), info.timestamp


class WatchedPorts(HostPortIndex):
    """The production index; also remembers ports that two pods shared until one was removed."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: set[tuple[int, int]] = set()
        self.blurred: dict[int, set[int]] = {}
        """Port numbers by row."""

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        self._shared.update((row, port.port) for port in ports if self.is_taken(row, port))
        super().add(row, ports)

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        for port in ports:
            if (row, port.port) in self._shared:
                self.blurred.setdefault(row, set()).add(port.port)
        super().remove(row, ports)


def watch_ports(table: NodeTable) -> None:
    """Must be called while the table is empty."""
    assert not table.row_of, "ports taken before are not known"
    table.ports = WatchedPorts()
