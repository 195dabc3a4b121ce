"""JSON objects: encoding, copying, timestamps, keys, owners and conditions.

Nothing here depends on a particular kind. Objects from the store are shared and must be treated as
frozen; `copy_json` makes a copy that may be changed.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec

from kubesched.base.errors import BadRequest

JsonObject: TypeAlias = dict[str, Any]
Json: TypeAlias = Any
"""Any JSON value, as clients may send anything."""
ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
"""Event type of a watch."""

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
POD_GROUP_FINALIZER = "scheduling.k8s.io/podgroup-protection"

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()

encode = _ENCODER.encode
decode = _DECODER.decode


def copy_json(value: Json) -> Json:
    """Deep-copy a JSON value; raises if it is not JSON."""
    kind = type(value)
    if kind is dict:
        return {key: copy_json(item) for key, item in value.items()}
    if kind is list:
        return [copy_json(item) for item in value]
    if value is None or kind in (str, int, float, bool):
        return value
    raise TypeError(f"not a JSON value: {value!r}")


def sorted_json(value: Json) -> Json:
    """A copy with sorted keys, so that equal values encode to equal bytes.

    An encoder of msgspec that sorts takes quadratic time for some orders of keys.
    """
    if isinstance(value, dict):
        return {key: sorted_json(value[key]) for key in sorted(value)}
    return [sorted_json(item) for item in value] if isinstance(value, list) else value


def timestamp(now: float) -> str:
    """RFC 3339 with whole seconds, like `metav1.Time`."""
    return _timestamp(int(now))


@lru_cache(maxsize=64)
def _timestamp(second: int) -> str:
    return _utc(datetime.datetime.fromtimestamp(second, datetime.UTC).isoformat())


def micro_timestamp(now: float) -> str:
    """RFC 3339 with microseconds, like `metav1.MicroTime`."""
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return _utc(moment.isoformat(timespec="microseconds"))


def _utc(text: str) -> str:
    return text.removesuffix("+00:00") + "Z"


def parse_timestamp(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp."""
    return datetime.datetime.fromisoformat(text).timestamp()


def name_of(obj: JsonObject) -> str:
    name: str = obj["metadata"].get("name", "")
    return name


def namespace_of(obj: JsonObject) -> str:
    namespace: str = obj["metadata"].get("namespace", "")
    return namespace


def labels_of(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def value_at(obj: Json, path: Sequence[str]) -> Json:
    """The value at a path of fields; None if a part of the path is missing."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


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
    """The owner reference of the managing controller, if any."""
    for owner in obj["metadata"].get("ownerReferences") or _NO_OWNERS:
        if owner.get("controller"):
            return owner
    return None


def is_controlled_by(obj: JsonObject, uid: str) -> bool:
    owner = controller_of(obj)
    return owner is not None and owner.get("uid") == uid


def controller_reference(owner: JsonObject) -> JsonObject:
    """The owner reference that a controller sets on the objects it creates."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def object_reference(obj: JsonObject) -> JsonObject:
    """An ObjectReference to the object, as used in events."""
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
    """Set one condition; its transition time changes only with its status."""
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


def without_zeros(status: dict[str, Any], *keep: str) -> dict[str, Any]:
    """Omit empty fields, as Go does, except those in `keep`."""
    return {
        key: value
        for key, value in status.items()
        if key in keep or value not in (0, None, [], {}, "")
    }


def scaled_value(value: int | str, total: int, *, round_up: bool) -> int:
    """Resolve `value`: a number, or a percentage of `total`."""
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    if digits == value or not digits.isdecimal():
        raise BadRequest(f'expected a number or a percentage, found "{value}"')
    share = int(digits) * total
    return -(-share // 100) if round_up else share // 100


def is_percent(value: int | str | None) -> bool:
    return isinstance(value, str)
