"""SchedulingGates: keeps a pod out of the active queue until its gates are removed.

Mirrors upstream's `schedulinggates/scheduling_gates.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.core_v1 import Pod
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.interfaces import EnqueueExtensions, PreEnqueuePlugin
from kubesched.framework.status import Status, unresolvable


class SchedulingGates(PreEnqueuePlugin, EnqueueExtensions):
    """Rejects pods with `spec.schedulingGates` before they are queued."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return unresolvable(f"waiting for scheduling gates: [{names}]")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(
                Resource.POD,
                Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
                self.after_gates_eliminated,
            ),
        )

    def after_gates_eliminated(self, pod: Pod, old: Pod | None, new: Pod) -> Hint:
        return Hint.QUEUE if new.metadata.uid == pod.metadata.uid else Hint.SKIP
