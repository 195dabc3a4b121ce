"""SchedulingGates: keeps a pod out of the active queue until its gates are removed.

Mirrors upstream's `schedulinggates/scheduling_gates.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.core_v1 import Pod
from kubesched.framework.events import Action, ClusterEventWithHint, Resource, on_event
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
        return (on_event(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),)
