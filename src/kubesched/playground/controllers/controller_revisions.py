"""Stored versions (ControllerRevisions) of the pod templates of StatefulSets and DaemonSets.

A revision is an immutable copy of the template, with the template's hash in its name. Returning to
an old template renumbers its revision, as `kubectl rollout undo` and `history` expect.
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
"""Attempts to find a free name. More collisions of salted hashes are not accidental."""
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
        """The owner's revisions, newest last."""
        owned = self._revisions.claim(owner, selector_of(owner))
        return sorted(owned, key=lambda revision: (revision.get("revision", 0), name_of(revision)))

    def ensure_current(self, owner: JsonObject, revisions: list[JsonObject]) -> JsonObject:
        """Return the revision of the current template, created or renumbered to be the newest."""
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
        """Delete the oldest unused revisions beyond the history limit."""
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
    """The template as a patch for `kubectl rollout undo`, with sorted keys as upstream has it."""
    template = spec_of(owner).get("template") or {}
    data: JsonObject = sorted_json({"spec": {"template": {**template, "$patch": "replace"}}})
    return data


def template_of(revision: JsonObject) -> JsonObject:
    """The pod template stored in a revision."""
    template = revision["data"]["spec"]["template"]
    return {key: value for key, value in template.items() if key != "$patch"}


def hash_of(revision: JsonObject) -> str:
    """The hash in the revision's name."""
    return name_of(revision).rpartition("-")[2]


def safe_encode(text: str) -> str:
    """Encode text with Kubernetes' safe alphabet for hashes in names, which cannot form words."""
    return "".join(_SAFE_LETTERS[ord(letter) % len(_SAFE_LETTERS)] for letter in text)


def compute_hash(value: Any, collision_count: int = 0) -> str:  # noqa: ANN401 (any JSON value)
    """Short, stable hash of a JSON value, for use in names.

    The format is that of Kubernetes (32-bit FNV-1a in the safe alphabet). The value differs:
    upstream hashes Go's in-memory representation, which cannot be reproduced here.
    """
    text = json.dumps(normalized(value), sort_keys=True, separators=(",", ":"))
    digest = _FNV_OFFSET
    for byte in f"{text}{collision_count or ''}".encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return safe_encode(str(digest))


def normalized(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """The value without nulls and empty members, which a template treats as absent."""
    if isinstance(value, dict):
        members = ((key, normalized(member)) for key, member in value.items())
        return {key: member for key, member in members if member not in (None, {}, [])}
    if isinstance(value, list):
        return [normalized(member) for member in value]
    return value


def without_label(template: JsonObject, label: str) -> JsonObject:
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
