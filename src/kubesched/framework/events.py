"""Cluster events that may make a rejected pod schedulable.

An event is a resource and a set of actions. Plugins register the events that can undo their
rejections, each with an optional hint function that inspects the objects and decides whether this
pod should be retried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import Any, Final

from kubesched.api.core_v1 import Pod

WILDCARD: Final = "*"


class Resource:
    """Resource names as in event labels. Third-party resources use `plural.version.group`."""

    POD: Final = "Pod"
    """Registrations only: stands for the three kinds of pod below."""
    ASSIGNED_POD: Final = "AssignedPod"
    UNSCHEDULED_POD: Final = "UnscheduledPod"
    """Another pod without a node."""
    TARGET_POD: Final = "TargetPod"
    """The waiting pod itself."""
    NODE: Final = "Node"
    PERSISTENT_VOLUME: Final = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM: Final = "PersistentVolumeClaim"
    CSI_NODE: Final = "storage.k8s.io/CSINode"
    CSI_DRIVER: Final = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT: Final = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY: Final = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS: Final = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM: Final = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE: Final = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS: Final = "resource.k8s.io/DeviceClass"
    POD_GROUP: Final = "scheduling.k8s.io/PodGroup"
    COMPOSITE_POD_GROUP: Final = "scheduling.k8s.io/CompositePodGroup"
    ANY: Final = WILDCARD


POD_RESOURCES: Final = (Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.TARGET_POD)
"""What `Pod` stands for in a registration."""


class Action(IntFlag):
    """Actions on a resource. Matching compares the numbers, so they equal upstream's."""

    NONE = 0
    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_NODE_PREEMPTION_POLICY = 256
    UPDATE_POD_LABEL = 512
    UPDATE_POD_SCALE_DOWN = 1024
    UPDATE_POD_SCALE_UP = 2048
    UPDATE_POD_TOLERATION = 4096
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 8192
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 16384
    UPDATE = 32764
    ALL = 32767


_ACTION_NAMES: Final = {
    action: name.title().replace("_", "") for name, action in Action.__members__.items() if action
}


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A resource and the actions on it."""

    resource: str
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """The event's name in metrics and logs, e.g. `NodeUpdateNodeTaint`."""
        return self.custom_label or self.resource + _ACTION_NAMES.get(self.action, "")

    @property
    def is_wildcard(self) -> bool:
        return self.resource == WILDCARD and self.action == Action.ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """True if this registration covers the incoming event.

        # Upstream: besides overlapping bits the incoming number must not exceed the registered
        # one, which makes a general incoming Update match only registrations that contain every
        # update bit.
        """
        if self.is_wildcard:
            return True
        resource_matches = self.resource in (WILDCARD, incoming.resource) or (
            self.resource == Resource.POD and incoming.resource in POD_RESOURCES
        )
        return (
            resource_matches
            and bool(self.action & incoming.action)
            and int(incoming.action) <= int(self.action)
        )


class Hint(Enum):
    """A hint function's answer."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFn = Callable[[Pod, Any, Any], Hint]
"""(pod, old object or None, new object or None) -> Hint. Exceptions are logged, count as QUEUE."""


Concerns = Callable[[Pod], bool]
NarrowFn = Callable[[Any, Any], Concerns | None]
"""(old object or None, new object or None) -> which waiting pods the event is about; None: any.

Upstream's PreQueueingHintFn, which returns names instead. An exception counts as None.
"""


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """One registration: the event and its hint function (None: always queue)."""

    event: ClusterEvent
    hint: HintFn | None = None
    narrow: NarrowFn | None = None
    """Called once per event, before any hint, if SchedulerPreQueueingHints is on."""


def on_event(
    resource: str, action: Action, hint: HintFn | None = None, *, narrow: NarrowFn | None = None
) -> ClusterEventWithHint:
    """A registration, e.g. `on_event(Resource.NODE, Action.ADD, self.after_node_added)`."""
    return ClusterEventWithHint(ClusterEvent(resource, action), hint, narrow)


UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(WILDCARD, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(WILDCARD, Action.ALL, "ForceActivate")

# Labels of queue transitions that are not cluster events.
SCHEDULE_ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF_Q: Final = "PopFromBackoffQ"

EVENT_ASSIGNED_POD_ADD: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
EVENT_ASSIGNED_POD_DELETE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
EVENT_ASSIGNED_POD_UPDATE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE)
EVENT_UNSCHEDULED_POD_ADD: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
EVENT_UNSCHEDULED_POD_UPDATE: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE)
EVENT_UNSCHEDULED_POD_DELETE: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.DELETE)
EVENT_NODE_ADD: Final = ClusterEvent(Resource.NODE, Action.ADD)
EVENT_NODE_DELETE: Final = ClusterEvent(Resource.NODE, Action.DELETE)
