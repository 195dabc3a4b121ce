"""Who owns what: adopting orphans that match, letting go of what no longer matches.

Upstream's rule: an object belongs to at most one managing controller. A controller adopts objects
that match its selector and have no controller, and releases its own that stopped matching; while it
is being deleted it does neither.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.embedded.controllers.matching import LabelMatcher
from kubesched.embedded.controllers.metadata import (
    controller_of,
    controller_reference,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    owners_of,
    uid_of,
)
from kubesched.embedded.local import LocalApi
from kubesched.embedded.objects import JsonObject
from kubesched.errors import NotFound

PER_CONTROLLER = "by-controller"
"""Index: objects under the uid of the controller that manages them."""

ORPHANS = "orphans"
"""Index: objects without a managing controller, under their namespace."""


def claim(
    api: LocalApi,
    resource: str,
    owner: JsonObject,
    matches: LabelMatcher,
    owned: Iterable[JsonObject],
    orphans: Iterable[JsonObject],
) -> list[JsonObject]:
    """What belongs to `owner` now, after adopting and releasing; in the order given."""
    claimed: list[JsonObject] = []
    may_change = not is_deleting(owner)
    for obj in owned:
        if matches(labels_of(obj)):
            claimed.append(obj)
        elif may_change:
            _release(api, resource, obj, uid_of(owner))
    if may_change:
        for obj in orphans:
            if matches(labels_of(obj)) and not is_deleting(obj):
                adopted = _adopt(api, resource, obj, owner)
                if adopted is not None:
                    claimed.append(adopted)
    return claimed


def _adopt(api: LocalApi, resource: str, obj: JsonObject, owner: JsonObject) -> JsonObject | None:
    metadata = {
        "uid": uid_of(obj),  # a namesake created meanwhile is refused
        "ownerReferences": [*owners_of(obj), controller_reference(owner)],
        "resourceVersion": obj["metadata"].get("resourceVersion"),
    }
    try:
        return api.patch(
            resource, namespace_of(obj), name_of(obj), {"metadata": metadata}, kind="merge"
        )
    except NotFound:
        return None


def _release(api: LocalApi, resource: str, obj: JsonObject, owner_uid: str) -> None:
    references = [each for each in owners_of(obj) if each.get("uid") != owner_uid]
    metadata = {"uid": uid_of(obj), "ownerReferences": references or None}
    try:
        api.patch(resource, namespace_of(obj), name_of(obj), {"metadata": metadata}, kind="merge")
    except NotFound:
        return


def owner_key(obj: JsonObject, kind: str, group: str) -> str | None:
    """Key of the managing controller when it is of this kind and group."""
    reference = controller_of(obj)
    if reference is None or reference.get("kind") != kind:
        return None
    if reference.get("apiVersion", "").rpartition("/")[0] != group:
        return None
    return f"{namespace_of(obj)}/{reference.get('name', '')}"
