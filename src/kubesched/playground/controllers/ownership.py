"""Ownership: finds dependents, adopts matching orphans, releases those that stopped matching.

Upstream's rule: an object has at most one managing controller. Only objects without a controller
are adopted, and an owner that is being deleted neither adopts nor releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_of,
    controller_reference,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    owners_of,
    spec_of,
    uid_of,
)
from kubesched.playground.apimachinery.selectors import selector_matches
from kubesched.playground.client.controller import Controller, ControllerContext, settling_s
from kubesched.playground.client.informers import BY_NAMESPACE, Index, Informer
from kubesched.playground.client.local import LocalApi


def selector_of(owner: JsonObject) -> JsonObject | None:
    """`spec.selector`, as most kinds have it."""
    selector: JsonObject | None = spec_of(owner).get("selector")
    return selector


class Dependents:
    """The objects of one resource, indexed by managing controller."""

    def __init__(self, api: LocalApi, informer: Informer) -> None:
        self._api = api
        self._informer = informer
        informer.add_index(BY_CONTROLLER)
        informer.add_index(ORPHANS)

    def of(self, owner: JsonObject) -> list[JsonObject]:
        """The dependents of an owner, in order of appearance."""
        return self.of_uid(uid_of(owner))

    def of_uid(self, owner_uid: str) -> list[JsonObject]:
        return self._informer.find(BY_CONTROLLER, owner_uid)

    def count(self, owner_uid: str) -> int:
        return self._informer.count(BY_CONTROLLER, owner_uid)

    def claim(
        self,
        owner: JsonObject,
        selector: JsonObject | None,
        accepts: Callable[[JsonObject], bool] | None = None,
    ) -> list[JsonObject]:
        """The owner's dependents after adopting and releasing; `accepts` may reject orphans."""
        claimed: list[JsonObject] = []
        may_change = not is_deleting(owner)
        for obj in self.of(owner):
            if selector_matches(selector, labels_of(obj)):
                claimed.append(obj)
            elif may_change:
                self._release(obj, uid_of(owner))
        if may_change:
            for obj in self.orphans(namespace_of(owner), selector):
                if is_deleting(obj) or (accepts is not None and not accepts(obj)):
                    continue
                adopted = self._adopt(obj, owner)
                if adopted is not None:
                    claimed.append(adopted)
        return claimed

    def orphans(self, namespace: str, selector: JsonObject | None) -> list[JsonObject]:
        """Matching objects without a controller; an index on one label narrows the search."""
        pairs = (selector or {}).get("matchLabels") or {}
        value = namespace
        for key, label in pairs.items():
            value = _orphan_label(namespace, key, label)
            break
        candidates = self._informer.find(ORPHANS, value)
        return [obj for obj in candidates if selector_matches(selector, labels_of(obj))]

    def _adopt(self, obj: JsonObject, owner: JsonObject) -> JsonObject | None:
        metadata = {
            "uid": uid_of(obj),  # rejects a new object of the same name
            "ownerReferences": [*owners_of(obj), controller_reference(owner)],
            "resourceVersion": obj["metadata"].get("resourceVersion"),
        }
        return self._patch(obj, metadata)

    def _release(self, obj: JsonObject, owner_uid: str) -> None:
        references = [owner for owner in owners_of(obj) if owner.get("uid") != owner_uid]
        self._patch(obj, {"uid": uid_of(obj), "ownerReferences": references or None})

    def _patch(self, obj: JsonObject, metadata: JsonObject) -> JsonObject | None:
        try:
            return self._api.patch_object(self._informer.resource, obj, {"metadata": metadata})
        except NotFound:
            return None


def owner_key(obj: JsonObject, kind: str, group: str) -> str | None:
    """Key of the managing controller if it is of this kind and group."""
    reference = controller_of(obj)
    if reference is None or reference.get("kind") != kind:
        return None
    if reference.get("apiVersion", "").rpartition("/")[0] != group:
        return None
    return f"{namespace_of(obj)}/{reference.get('name', '')}"


class OwnerController(Controller[Any]):
    """Controller of owner objects; a changed dependent queues its owner."""

    resource: ClassVar[str]
    kind: ClassVar[str]
    group: ClassVar[str] = "apps"

    def __init__(self, context: ControllerContext, dependents: str = "pods") -> None:
        super().__init__(context)
        self.owners = self.watch(self.resource, self.owner_changed, BY_NAMESPACE)
        self.dependents = Dependents(self.api, self.watch(dependents, self._dependent_changed))

    def look_at(self, owner: str, pause_s: float = 0.0) -> None:
        """Queue an owner by key."""
        self.queue.add_after(owner, pause_s)

    def selector(self, owner: JsonObject) -> JsonObject | None:
        return selector_of(owner)

    def pause_s(self, obj: JsonObject) -> float:
        """How long to batch changes of this dependent before its owner is synced."""
        owner = controller_of(obj)
        return settling_s(self.dependents.count(owner.get("uid", ""))) if owner else 0.0

    def owner_changed(self, kind: str, owner: JsonObject, old: JsonObject | None) -> None:
        self.look_at(key_of(owner))

    def _dependent_changed(self, kind: str, obj: JsonObject, old: JsonObject | None) -> None:
        for key in self._concerned(obj, old):
            self.look_at(key, self.pause_s(obj))

    def _concerned(self, obj: JsonObject, old: JsonObject | None) -> Iterator[str]:
        """Keys of the owners affected by a change: current, former, or potential adopters."""
        owner = owner_key(obj, self.kind, self.group)
        if old is not None and owners_of(old) is not owners_of(obj):
            former = owner_key(old, self.kind, self.group)
            if former is not None and former != owner:
                yield former
        if owner is not None:
            yield owner
            return
        if controller_of(obj) is None and not is_deleting(obj):
            for candidate in self.owners.find(BY_NAMESPACE, namespace_of(obj)):
                if selector_matches(self.selector(candidate), labels_of(obj)):
                    yield key_of(candidate)


def _index_by_controller(obj: JsonObject) -> tuple[str, ...]:
    owner = controller_of(obj)
    return (owner.get("uid", ""),) if owner is not None else ()


def _index_orphans(obj: JsonObject) -> tuple[str, ...]:
    if controller_of(obj) is not None:
        return ()
    namespace = namespace_of(obj)
    labels = labels_of(obj)
    return (namespace, *(_orphan_label(namespace, key, value) for key, value in labels.items()))


def _orphan_label(namespace: str, key: str, value: str) -> str:
    return f"{namespace}/{key}={value}"


BY_CONTROLLER = Index(_index_by_controller, "ownership")
ORPHANS = Index(_index_orphans, "ownership")
