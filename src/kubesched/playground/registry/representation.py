"""Encodings of stored entries: JSON of a served API version, metadata only, or lists.

Encodings are cached on the entry, so all watchers of one write share one encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.conversion import CONVERTED
from kubesched.playground.apimachinery.objects import JsonObject, encode
from kubesched.playground.storage.store import Entry

Encoder: TypeAlias = Callable[[Entry], bytes]


def _stored(entry: Entry) -> bytes:
    return entry.body


def _without_managers(entry: Entry) -> bytes:
    return encode(entry.obj)  # read only by the scheduler in this process: not cached


def _converted(convert: Callable[[JsonObject], JsonObject], entry: Entry) -> bytes:
    # Almost always read once, by its writer: not cached.
    return encode(convert(entry.with_managed_fields()))


def _as_version(api_version: str, entry: Entry) -> bytes:
    """A custom object in the requested version; without conversion only `apiVersion` differs."""
    if entry.obj.get("apiVersion") == api_version:
        return entry.body
    return entry.variant(
        api_version,
        lambda entry: encode({**entry.with_managed_fields(), "apiVersion": api_version}),
    )


def _metadata_only(entry: Entry) -> bytes:
    return entry.variant("partial", lambda entry: encode(partial_metadata(entry)))


def partial_metadata(entry: Entry) -> JsonObject:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": entry.with_managed_fields()["metadata"],
    }


def encoder_for(
    resource: ResourceInfo, *, metadata_only: bool = False, omits_managed_fields: bool = False
) -> Encoder:
    """The encoder for a resource; only unconverted objects can omit managed fields."""
    if metadata_only:
        return _metadata_only
    if converted := CONVERTED.get((resource.api_version, resource.kind)):
        return partial(_converted, converted[1])
    if resource.custom:
        return partial(_as_version, resource.api_version)
    return _without_managers if omits_managed_fields else _stored


def encode_list(kind: str, api_version: str, metadata: JsonObject, items: Sequence[bytes]) -> bytes:
    head = encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


def encode_watch_event(event_type: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), body)
