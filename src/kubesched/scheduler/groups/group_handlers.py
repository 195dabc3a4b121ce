"""Event handlers that know groups: members wait in their group's entry, and groups have events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.framework.events import EVENT_UNSCHEDULED_POD_ADD, Action
from kubesched.framework.groups.states import Group, GroupStates
from kubesched.scheduler.event_gate import parkable
from kubesched.scheduler.event_handlers import EventHandlers
from kubesched.scheduler.groups.conditions import GroupConditions
from kubesched.scheduler.groups.group_queue import GroupSchedulingQueue


class GroupEventHandlers(EventHandlers):
    """Keeps the group states up to date: the cache first, then the queue."""

    _queue: GroupSchedulingQueue

    def __init__(
        self,
        *args: Any,  # noqa: ANN401  # those of EventHandlers
        groups: GroupStates,
        conditions: GroupConditions,
        **settings: Any,  # noqa: ANN401  # as above
    ) -> None:
        super().__init__(*args, **settings)
        self._groups = groups
        self._conditions = conditions

    @parkable
    def pod_added(self, pod: Pod) -> None:
        waits = not pod.spec.node_name and self._is_ours(pod)
        if waits:
            self._groups.pod_waits(pod)
        super().pod_added(pod)
        if waits:
            # Any new pod may complete a group that is gated.
            self._move(EVENT_UNSCHEDULED_POD_ADD, None, pod)

    def _add_resized(self, pod: Pod) -> None:
        super()._add_resized(pod)
        self._move(EVENT_UNSCHEDULED_POD_ADD, None, pod)

    @parkable
    def pod_updated(self, old: Pod, new: Pod) -> None:
        if not new.spec.node_name and self._is_ours(new):
            self._groups.pod_waits(new)
        super().pod_updated(old, new)

    @parkable
    def pod_deleted(self, pod: Pod, *, final_state_unknown: bool = False) -> None:
        # The queue goes first, so a PreEnqueue that runs now still counts the pod.
        super().pod_deleted(pod, final_state_unknown=final_state_unknown)
        self._groups.pod_deleted(pod)

    def generic(self, resource: str, action: Action) -> Callable[[object, object], None]:
        announce = super().generic(resource, action)
        if resource not in self._groups.resources:
            return announce

        def changed(old: Any, new: Any) -> None:  # noqa: ANN401  # groups
            if self.event_gate.is_held:
                self.event_gate.park(lambda: changed(old, new))
                return
            if old is not None and new is not None and _version(old) == _version(new):
                return
            if new is None:
                self._deleted(old)
            elif old is None:
                self.group_added(new)
            else:
                self._groups.put(new)
                if isinstance(new, PodGroup):
                    self._conditions.shown(new)
            announce(old, new)

        return changed

    def group_added(self, group: Group) -> None:
        self._groups.put(group)
        self._queue.group_added(group)

    def _deleted(self, group: Group) -> None:
        self._groups.remove(group)
        if isinstance(group, PodGroup):
            self._conditions.forget(group)
        self._queue.group_deleted(group)


def _version(group: Group) -> str:
    return group.metadata.resource_version
