"""What controllers read and write in every object: keys, owners, conditions.

Pure functions over JSON objects; nothing here talks to the server or knows a particular kind.
"""

from __future__ import annotations

from typing import Any

from kubesched.embedded.objects import JsonObject, timestamp
from kubesched.embedded.objects import labels_of as labels_of
from kubesched.embedded.objects import name_of as name_of
from kubesched.embedded.objects import namespace_of as namespace_of

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"


def split_key(key: str) -> tuple[str, str]:
    """Namespace ("" for cluster-scoped objects) and name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


def key_of(obj: JsonObject) -> str:
    """`namespace/name`, or `name` for cluster-scoped objects."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def uid_of(obj: JsonObject) -> str:
    return str(obj["metadata"].get("uid", ""))


def annotations_of(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def is_deleting(obj: JsonObject) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def spec_of(obj: JsonObject) -> dict[str, Any]:
    return obj.get("spec") or {}


def status_of(obj: JsonObject) -> dict[str, Any]:
    return obj.get("status") or {}


_NO_OWNERS: list[JsonObject] = []


def owners_of(obj: JsonObject) -> list[JsonObject]:
    return obj["metadata"].get("ownerReferences") or _NO_OWNERS


def controller_of(obj: JsonObject) -> JsonObject | None:
    """The owner reference that manages this object, if there is one."""
    for owner in obj["metadata"].get("ownerReferences") or _NO_OWNERS:
        if owner.get("controller"):
            return owner
    return None


def is_controlled_by(obj: JsonObject, uid: str) -> bool:
    owner = controller_of(obj)
    return owner is not None and owner.get("uid") == uid


def controller_reference(owner: JsonObject) -> JsonObject:
    """The owner reference a controller puts on what it makes."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def object_reference(obj: JsonObject) -> JsonObject:
    """An ObjectReference to the object, as events carry it."""
    metadata = obj["metadata"]
    reference = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    if metadata.get("namespace"):
        reference["namespace"] = metadata["namespace"]
    return reference


def condition(obj: JsonObject, condition_type: str) -> JsonObject | None:
    """The condition of this type in the object's status."""
    return find_condition(status_of(obj).get("conditions"), condition_type)


def find_condition(conditions: list[JsonObject] | None, condition_type: str) -> JsonObject | None:
    for entry in conditions or ():
        if entry.get("type") == condition_type:
            return entry
    return None


def is_condition_true(obj: JsonObject, condition_type: str) -> bool:
    entry = condition(obj, condition_type)
    return entry is not None and entry.get("status") == "True"


def with_condition(
    conditions: list[JsonObject] | None,
    condition_type: str,
    status: str,
    now: float,
    *,
    reason: str = "",
    message: str = "",
    extra: JsonObject | None = None,
) -> list[JsonObject]:
    """The conditions with one of them set; its transition time moves only when its status changes."""
    previous = find_condition(conditions, condition_type)
    moved = previous is None or previous.get("status") != status
    entry: JsonObject = {"type": condition_type, "status": status}
    if extra:
        entry.update(extra)
    entry["lastTransitionTime"] = (
        timestamp(now) if moved or previous is None else previous.get("lastTransitionTime")
    )
    if reason:
        entry["reason"] = reason
    if message:
        entry["message"] = message
    others = list(conditions or ())
    for position, other in enumerate(others):
        if other.get("type") == condition_type:
            others[position] = entry
            return others
    return [*others, entry]


def without_condition(conditions: list[JsonObject] | None, condition_type: str) -> list[JsonObject]:
    return [entry for entry in conditions or () if entry.get("type") != condition_type]
