"""JSON objects as the server handles them: encoding, copying, timestamps and common metadata fields.

Everything here is independent of any particular kind. An object handed out by the store is shared and must be treated
as frozen; `copy_json` is how a caller gets one of its own.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

JsonObject: TypeAlias = dict[str, Any]
Json: TypeAlias = Any
"""Any JSON value: what a client sent may be anything."""

_ENCODER = msgspec.json.Encoder()
_SORTING_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder()

encode = _ENCODER.encode
decode = _DECODER.decode


def copy_json(value: Json) -> Json:
    """An independent copy of a JSON value; proves on the way that it is one."""
    kind = type(value)
    if kind is dict:
        return {key: copy_json(item) for key, item in value.items()}
    if kind is list:
        return [copy_json(item) for item in value]
    if value is None or kind in (str, int, float, bool):
        return value
    raise TypeError(f"not a JSON value: {value!r}")


def sorted_json(value: Json) -> Json:
    """A copy whose objects have their keys in order, so that equal values are equal bytes."""
    return decode(_SORTING_ENCODER.encode(value))


def name_of(obj: JsonObject) -> str:
    name: str = obj["metadata"].get("name", "")
    return name


def namespace_of(obj: JsonObject) -> str:
    namespace: str = obj["metadata"].get("namespace", "")
    return namespace


def labels_of(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def full_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def timestamp(now: float) -> str:
    """RFC 3339 with whole seconds, as `metav1.Time` is written."""
    return _timestamp(int(now))


@lru_cache(maxsize=64)
def _timestamp(second: int) -> str:
    return datetime.datetime.fromtimestamp(second, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(now: float) -> str:
    """RFC 3339 with six digits, as `metav1.MicroTime` is written."""
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp."""
    return datetime.datetime.fromisoformat(text).timestamp()
