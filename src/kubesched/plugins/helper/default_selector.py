"""The selector for default spreading: pods of the same Services and the same workload.

Mirrors upstream's `helper/spread.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import Pod, ReplicationController, Service
from kubesched.api.meta import LabelSelector
from kubesched.api.selectors import Selector, SelectorError, from_label_selector, from_map
from kubesched.framework.handle import Lister, Listers
from kubesched.plugins.helper.live_groups import LiveGroups

SOURCE_KINDS = (Service, ReplicationController, ReplicaSet, StatefulSet)
_CONTROLLERS: Final[Mapping[tuple[str, str], type[Any]]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}


def sources_of(listers: Listers, pod: Pod) -> list[Lister[Any]]:
    """The listers that `DefaultSelectors` reads for a pod."""
    owner = owner_of(pod)
    kind = None if owner is None else _CONTROLLERS.get(owner[:2])
    return [listers.of(Service)] if kind is None else [listers.of(Service), listers.of(kind)]


def owner_of(pod: Pod) -> tuple[str, str, str] | None:
    """The pod's controller, as looked up for default spreading."""
    owner = pod.metadata.controller()
    return None if owner is None else (owner.api_version, owner.kind, owner.name)


class DefaultSelectors:
    """Finds the selector of a pod's Services and controller.

    Services are indexed by one of the labels they select on, so the cost does not grow with their
    number.
    """

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self._services: LiveGroups[Service, Mapping[str, str]] = LiveGroups(
            listers.of(Service), _namespace_and_pair, _selector
        )

    def of(self, pod: Pod) -> Selector:
        """Combines the selectors of the pod's Services and of its controller.

        Empty if it has neither. The owner is looked up by name; its UID is not compared.
        """
        labels = self._of_services(pod)
        selected = self._selected_by_owner(pod)
        if isinstance(selected, LabelSelector):
            try:
                return from_map(labels).add(*from_label_selector(selected).requirements)
            except SelectorError:
                return from_map(labels)
        return from_map(labels | selected if selected else labels)

    def _selected_by_owner(self, pod: Pod) -> LabelSelector | dict[str, str] | None:
        owner = owner_of(pod)
        kind = None if owner is None else _CONTROLLERS.get(owner[:2])
        if owner is None or kind is None:
            return None
        controller: Any = self._listers.of(kind).get(pod.metadata.namespace, owner[2])
        return None if controller is None else controller.spec.selector

    def close(self) -> None:
        self._services.close()

    def _of_services(self, pod: Pod) -> dict[str, str]:
        """The combined selector of the Services that select the pod."""
        selected: dict[str, str] = {}
        namespace, own = pod.metadata.namespace, pod.metadata.labels or {}
        for pair in own.items():
            for wanted in self._services.members((namespace, pair)):
                if all(own.get(key) == value for key, value in wanted.items()):
                    selected.update(wanted)
        return selected


def _namespace_and_pair(service: Service) -> Hashable:
    selector = service.spec.selector
    return service.metadata.namespace, min(selector.items()) if selector else None


def _selector(service: Service) -> Mapping[str, str] | None:
    """None for a Service that adds nothing to a pod's selector."""
    return service.spec.selector or None
