"""The garbage collector: deletes objects whose owners are gone.

    Background  the owner is deleted first, its dependents afterwards
    Foreground  the owner stays, marked, until all its blocking dependents are gone
    Orphan      the owner stays, marked, until no dependent references it

The graph only maps each owner's uid to its dependents. Each decision asks the server, by uid,
whether an owner still exists, so a new object of the same name never inherits dependents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    JsonObject,
    is_deleting,
    name_of,
    namespace_of,
    owners_of,
    uid_of,
)
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import EveryResource


@dataclass(frozen=True, slots=True)
class ObjectId:
    """Resource, namespace and name of an object."""

    resource: str
    namespace: str
    name: str


Task = tuple[Literal["owner", "dependent"], ObjectId]


class GarbageCollector(Controller[Task]):
    """Deletes, orphans and unblocks objects by their owner references."""

    name = "garbagecollector"

    def __init__(self, context: ControllerContext, everything: EveryResource) -> None:
        super().__init__(context)
        self._dependents: dict[str, dict[ObjectId, None]] = {}
        everything.follow(self._changed)

    def sync(self, key: Task) -> float | None:
        role, where = key
        obj = self._get(where)
        if obj is None:
            return None
        if role == "owner":
            self._sync_owner(where, obj)
        else:
            self._sync_dependent(where, obj)
        return None

    # -- owners being deleted --------------------------------------------------------------------

    def _sync_owner(self, where: ObjectId, owner: JsonObject) -> None:
        finalizers = owner["metadata"].get("finalizers") or ()
        if not is_deleting(owner):
            return
        if ORPHAN_FINALIZER in finalizers:
            for dependent in list(self._dependents.get(uid_of(owner), ())):
                self._drop_owners(dependent, {uid_of(owner)})
            self.api.remove_finalizer(where.resource, owner, ORPHAN_FINALIZER)
        elif FOREGROUND_FINALIZER in finalizers:
            blocking = self._blocking_dependents(uid_of(owner))
            if not blocking:
                self.api.remove_finalizer(where.resource, owner, FOREGROUND_FINALIZER)
            for dependent in blocking:
                self.queue.add(("dependent", dependent))

    def _blocking_dependents(self, owner_uid: str) -> list[ObjectId]:
        blocking = []
        for where in self._dependents.get(owner_uid, ()):
            obj = self._get(where)
            if obj is not None and any(
                owner.get("uid") == owner_uid and owner.get("blockOwnerDeletion")
                for owner in owners_of(obj)
            ):
                blocking.append(where)
        return blocking

    # -- dependents ------------------------------------------------------------------------------

    def _sync_dependent(self, where: ObjectId, obj: JsonObject) -> None:
        finalizers = obj["metadata"].get("finalizers") or ()
        if is_deleting(obj) and FOREGROUND_FINALIZER not in finalizers:
            return
        if is_deleting(obj):
            self.queue.add(("owner", where))
            return
        if not owners_of(obj):
            return
        gone: set[str] = set()
        waiting: set[str] = set()
        solid = False
        for reference in owners_of(obj):
            owner = self._owner(reference, where.namespace)
            uid = reference.get("uid", "")
            if owner is None:
                gone.add(uid)
            elif self._is_waiting_for(owner, reference):
                waiting.add(uid)
            else:
                solid = True
        if solid:
            # Other owners remain: only remove the references to absent or terminating owners.
            if gone or waiting:
                self._drop_owners(where, gone | waiting)
        elif waiting and self._dependents.get(uid_of(obj)):
            if self._closes_a_circle(obj):
                references = [{**owner, "blockOwnerDeletion": False} for owner in owners_of(obj)]
                self._write(where, obj, {"ownerReferences": references})
            self.api.delete_object(where.resource, obj, propagation="Foreground")
        elif ORPHAN_FINALIZER in finalizers:
            self.api.delete_object(where.resource, obj, propagation="Orphan")
        else:
            self.api.delete_object(where.resource, obj, propagation="Background")

    def _closes_a_circle(self, obj: JsonObject) -> bool:
        """Whether a dependent of the object waits for its own dependents to go.

        Upstream's test for objects that own each other: they would wait for each other for ever.
        """
        return any(
            dependent is not None
            and is_deleting(dependent)
            and FOREGROUND_FINALIZER in (dependent["metadata"].get("finalizers") or ())
            for dependent in map(self._get, self._dependents.get(uid_of(obj), ()))
        )

    @staticmethod
    def _is_waiting_for(owner: JsonObject, reference: JsonObject) -> bool:
        finalizers = owner["metadata"].get("finalizers") or ()
        return (
            is_deleting(owner)
            and FOREGROUND_FINALIZER in finalizers
            and bool(reference.get("blockOwnerDeletion"))
        )

    def _owner(self, reference: JsonObject, namespace: str) -> JsonObject | None:
        """The owner if it exists; an owner in another namespace counts as absent."""
        info = self.api.catalog.find_kind(
            reference.get("apiVersion", ""), reference.get("kind", "")
        )
        if info is None:
            # The kind is not served. Waiting is safer than deleting on a guess.
            raise NotFound(
                f"no resource serves {reference.get('apiVersion')} {reference.get('kind')}"
            )
        try:
            owner = self.api.get(
                info, namespace if info.namespaced else "", reference.get("name", "")
            )
        except NotFound:
            return None
        return owner if uid_of(owner) == reference.get("uid") else None

    # -- writes ----------------------------------------------------------------------------------

    def _drop_owners(self, where: ObjectId, uids: set[str]) -> None:
        obj = self._get(where)
        if obj is None:
            return
        references = [owner for owner in owners_of(obj) if owner.get("uid") not in uids]
        self._write(where, obj, {"ownerReferences": references or None})

    def _write(self, where: ObjectId, obj: JsonObject, metadata: JsonObject) -> None:
        patch = {"metadata": {"uid": uid_of(obj), **metadata}}
        self.api.patch(where.resource, where.namespace, where.name, patch)

    # -- the graph -------------------------------------------------------------------------------

    def _get(self, where: ObjectId) -> JsonObject | None:
        try:
            return self.api.get(where.resource, where.namespace, where.name)
        except NotFound:
            return None

    def _changed(
        self, resource: ResourceInfo, kind: str, obj: JsonObject, old: JsonObject | None
    ) -> None:
        if (
            old is not None
            and kind == "MODIFIED"
            and owners_of(old) is owners_of(obj)
            and not is_deleting(obj)
        ):
            return  # a heartbeat or status change, irrelevant for ownership
        where = ObjectId(resource.key, namespace_of(obj), name_of(obj))
        before = {owner.get("uid", "") for owner in owners_of(old)} if old is not None else set()
        after = {owner.get("uid", "") for owner in owners_of(obj)} if kind != "DELETED" else set()
        if kind == "DELETED":
            before |= {owner.get("uid", "") for owner in owners_of(obj)}
        if before or after:
            self._relink(where, before, after)
        if kind == "DELETED":
            for dependent in self._dependents.get(uid_of(obj), ()):
                self.queue.add(("dependent", dependent))
        elif is_deleting(obj):
            finalizers = obj["metadata"].get("finalizers") or ()
            if FOREGROUND_FINALIZER in finalizers or ORPHAN_FINALIZER in finalizers:
                self.queue.add(("owner", where))
        elif after and after != before:
            # Its owner may have been deleted before it was created.
            self.queue.add(("dependent", where))
        if before != after or kind == "DELETED":
            self._wake_owners(obj, old)

    def _relink(self, where: ObjectId, before: set[str], after: set[str]) -> None:
        for uid in sorted(before - after):
            known = self._dependents.get(uid)
            if known is not None:
                known.pop(where, None)
                if not known:
                    del self._dependents[uid]
        for uid in sorted(after - before):
            self._dependents.setdefault(uid, {})[where] = None

    def _wake_owners(self, obj: JsonObject, old: JsonObject | None) -> None:
        """Queue owners in foreground deletion that may have lost their last blocking dependent."""
        for version in (obj, old):
            for reference in owners_of(version) if version is not None else ():
                info = self.api.catalog.find_kind(
                    reference.get("apiVersion", ""), reference.get("kind", "")
                )
                if info is not None:
                    namespace = namespace_of(obj) if info.namespaced else ""
                    owner = ObjectId(info.key, namespace, reference.get("name", ""))
                    owner_object = self._get(owner)
                    if owner_object is not None and is_deleting(owner_object):
                        self.queue.add(("owner", owner))
