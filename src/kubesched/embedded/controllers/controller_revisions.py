"""ControllerRevisions: the versions of a pod template that StatefulSets and DaemonSets remember.

A revision is an immutable copy of the template under a name that ends in its hash. Going back to an
old template re-uses its revision under a new number, which is how `kubectl rollout undo` and
`kubectl rollout history` see it.
"""

from __future__ import annotations

from collections.abc import Collection

from kubesched.embedded.apimachinery.objects import (
    JsonObject,
    controller_reference,
    is_controlled_by,
    name_of,
    namespace_of,
    sorted_json,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.embedded.client.informers import InformerFactory
from kubesched.embedded.client.local import LocalApi
from kubesched.embedded.controllers.ownership import (
    Dependents,
    selector_of,
)
from kubesched.embedded.controllers.template_hash import compute_hash, normalized
from kubesched.errors import AlreadyExists

RESOURCE = "controllerrevisions.apps"
MAX_COLLISIONS = 16
"""Tries to find a free name; a template whose salted hashes collide this often is not an accident."""


class RevisionHistory:
    """The revisions of one kind of owner."""

    def __init__(self, api: LocalApi, informers: InformerFactory, hash_label: str) -> None:
        self._api = api
        self._hash_label = hash_label
        self._revisions = Dependents(api, informers.informer(RESOURCE))

    def revisions_of(self, owner: JsonObject) -> list[JsonObject]:
        """The owner's revisions, the newest last."""
        owned = self._revisions.claim(owner, selector_of(owner))
        return sorted(owned, key=lambda revision: (revision.get("revision", 0), name_of(revision)))

    def ensure_current(self, owner: JsonObject, revisions: list[JsonObject]) -> JsonObject:
        """The revision of the owner's present template, made or renumbered so that it is the newest."""
        data = revision_data(owner)
        newest = max((revision.get("revision", 0) for revision in revisions), default=0)
        for revision in reversed(revisions):
            if normalized(revision.get("data")) == normalized(data):
                if revision.get("revision", 0) == newest:
                    return revision
                return self._api.patch_object(RESOURCE, revision, {"revision": newest + 1})
        return self._create(owner, data, newest + 1)

    def truncate(
        self, owner: JsonObject, revisions: list[JsonObject], live: Collection[str]
    ) -> None:
        """Delete the oldest revisions that nothing uses, beyond the history limit."""
        unused = [revision for revision in revisions if name_of(revision) not in live]
        limit = int(spec_of(owner).get("revisionHistoryLimit", 10))
        for old in unused[: max(0, len(unused) - limit)]:
            self._api.delete_object(RESOURCE, old)

    def _create(self, owner: JsonObject, data: JsonObject, number: int) -> JsonObject:
        labels = ((spec_of(owner).get("template") or {}).get("metadata") or {}).get("labels") or {}
        salt = int(status_of(owner).get("collisionCount") or 0)
        for collision in range(salt, salt + MAX_COLLISIONS):
            template_hash = compute_hash(data, collision)
            name = f"{name_of(owner)[:223]}-{template_hash}"
            revision = {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": name,
                    "namespace": namespace_of(owner),
                    "labels": {**labels, self._hash_label: template_hash},
                    "ownerReferences": [controller_reference(owner)],
                },
                "data": data,
                "revision": number,
            }
            try:
                return self._api.create(RESOURCE, revision)
            except AlreadyExists:
                existing = self._api.get(RESOURCE, namespace_of(owner), name)
                if is_controlled_by(existing, uid_of(owner)) and existing.get("data") == data:
                    return existing
        raise AlreadyExists(f"no free revision name for {namespace_of(owner)}/{name_of(owner)}")


def revision_data(owner: JsonObject) -> JsonObject:
    """The template as a patch that `kubectl rollout undo` can apply, with sorted keys as upstream writes it."""
    template = spec_of(owner).get("template") or {}
    data: JsonObject = sorted_json({"spec": {"template": {**template, "$patch": "replace"}}})
    return data


def template_of(revision: JsonObject) -> JsonObject:
    """The pod template that a revision remembers."""
    template = revision["data"]["spec"]["template"]
    return {key: value for key, value in template.items() if key != "$patch"}


def hash_of(revision: JsonObject) -> str:
    """The hash in the revision's name."""
    return name_of(revision).rpartition("-")[2]
