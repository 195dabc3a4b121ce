"""The selector for default spreading: the pods of the same Services and the same workload.

Mirrors upstream's `helper/spread.go`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import Pod, ReplicationController, Service
from kubesched.api.selectors import Selector, SelectorError, from_label_selector, from_map
from kubesched.framework.handle import Lister, Listers

SOURCE_KINDS = (Service, ReplicationController, ReplicaSet, StatefulSet)


def sources_version(listers: Listers | None) -> Hashable:
    """Changes whenever an object changes that `default_selector` reads."""
    return None if listers is None else tuple([listers.of(kind).version for kind in SOURCE_KINDS])


def sources_of(listers: Listers | None) -> list[Lister[Any]]:
    """The listers that `default_selector` reads."""
    return [] if listers is None else [listers.of(kind) for kind in SOURCE_KINDS]


def workload_key(pod: Pod) -> tuple[Hashable, ...]:
    """The parts of a pod that `default_selector` reads."""
    meta = pod.metadata
    labels = tuple(meta.labels.items()) if meta.labels else ()
    owner = next((o for o in meta.owner_references or () if o.controller), None)
    who = None if owner is None else (owner.api_version, owner.kind, owner.name)
    return meta.namespace, labels, who


def default_selector(pod: Pod, listers: Listers | None) -> Selector:
    """The union of the Services' selectors that match the pod, and what its controller selects on.

    Empty when there is neither. The owner is looked up by name; its UID is not compared.
    """
    labels: dict[str, str] = {}
    if listers is None:
        return from_map(labels)
    namespace, own = pod.metadata.namespace, pod.metadata.labels or {}
    for service in listers.of(Service).list(namespace):
        wanted = service.spec.selector
        if wanted is None:
            continue
        if all(own.get(key) == value for key, value in wanted.items()):
            labels.update(wanted)
    owner = next((o for o in pod.metadata.owner_references or () if o.controller), None)
    if owner is None:
        return from_map(labels)
    match owner.api_version, owner.kind:
        case "v1", "ReplicationController":
            controller = listers.of(ReplicationController).get(namespace, owner.name)
            if controller is not None:
                labels.update(controller.spec.selector or {})
        case ("apps/v1", "ReplicaSet") | ("apps/v1", "StatefulSet"):
            kind = ReplicaSet if owner.kind == "ReplicaSet" else StatefulSet
            workload = listers.of(kind).get(namespace, owner.name)
            if workload is not None and workload.spec.selector is not None:
                try:
                    chosen = from_label_selector(workload.spec.selector)
                except SelectorError:
                    return from_map(labels)
                return from_map(labels).add(*chosen.requirements)
    return from_map(labels)
