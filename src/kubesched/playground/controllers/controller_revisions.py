"""ControllerRevisions: the versions of a pod template that StatefulSets and DaemonSets remember.

A revision is an immutable copy of the template under a name that ends in its hash. Going back to an
old template re-uses its revision under a new number, which is how `kubectl rollout undo` and
`kubectl rollout history` see it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from kubesched.base.errors import AlreadyExists
from kubesched.playground.apimachinery.objects import (
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
from kubesched.playground.client.informers import InformerFactory
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controllers.ownership import (
    Dependents,
    selector_of,
)

RESOURCE = "controllerrevisions.apps"
MAX_COLLISIONS = 16
"""Tries to find a free name; a template whose salted hashes collide this often is not an accident.
"""
POD_TEMPLATE_HASH = "pod-template-hash"
CONTROLLER_REVISION_HASH = "controller-revision-hash"

_SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


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


def safe_encode(text: str) -> str:
    """The text in letters that spell nothing offensive, as Kubernetes puts hashes into names."""
    return "".join(_SAFE_LETTERS[ord(letter) % len(_SAFE_LETTERS)] for letter in text)


def compute_hash(value: Any, collision_count: int = 0) -> str:  # noqa: ANN401 (any JSON value)
    """A short, stable name for a JSON value.

    It has the look of Kubernetes' (FNV-1a over 32 bits, in letters that form no words) but not its
    value: that depends on how Go prints its types in memory, which cannot be reproduced here.
    """
    text = json.dumps(normalized(value), sort_keys=True, separators=(",", ":"))
    digest = _FNV_OFFSET
    for byte in f"{text}{collision_count or ''}".encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return safe_encode(str(digest))


def normalized(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """The value without nulls and empty members, which mean the same as absence in a template."""
    if isinstance(value, dict):
        members = ((key, normalized(member)) for key, member in value.items())
        return {key: member for key, member in members if member not in (None, {}, [])}
    if isinstance(value, list):
        return [normalized(member) for member in value]
    return value


def without_label(template: JsonObject, label: str) -> JsonObject:
    """The template with one of its labels taken off."""
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != label}
    return {**template, "metadata": {**metadata, "labels": labels}}


def with_label(template: JsonObject, label: str, value: str) -> JsonObject:
    metadata = template.get("metadata") or {}
    return {
        **template,
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), label: value}},
    }


def same_template(first: JsonObject, second: JsonObject) -> bool:
    """Whether two pod templates are equal, ignoring the hash label."""
    return bool(
        normalized(without_label(first, POD_TEMPLATE_HASH))
        == normalized(without_label(second, POD_TEMPLATE_HASH))
    )
