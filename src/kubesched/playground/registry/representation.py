"""Encodings of stored entries: JSON of a served API version, metadata only, or lists.

Encodings are cached on the entry, so all watchers of one write share one encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from kubesched.playground.apimachinery.bodies import from_stored
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.conversion import CONVERTED
from kubesched.playground.apimachinery.objects import JsonObject, decode, encode
from kubesched.playground.storage.store import Entry

Encoder: TypeAlias = Callable[[Entry], bytes]


def _stored(entry: Entry) -> bytes:
    return entry.body


def _without_managers(entry: Entry) -> bytes:
    return encode(entry.obj)  # read only by the scheduler in this process: not cached


def _converted(convert: Callable[[JsonObject], JsonObject], entry: Entry) -> bytes:
    # Almost always read once, by its writer: not cached.
    return encode(convert(entry.with_managed_fields()))


def _custom(resource: ResourceInfo, entry: Entry) -> bytes:
    """A custom object in the requested version, with the defaults that its schema has now."""
    if resource.has_defaults:
        return encode(from_stored(resource, decode(entry.body)))
    if entry.obj.get("apiVersion") == resource.api_version:
        return entry.body
    return entry.variant(
        resource.api_version,
        lambda entry: encode(from_stored(resource, entry.with_managed_fields())),
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
        return partial(_custom, resource)
    return _without_managers if omits_managed_fields else _stored


def encode_list(
    resource: ResourceInfo, metadata: JsonObject, entries: Iterable[Entry], *, metadata_only: bool
) -> bytes:
    """A list; as upstream, only custom objects in it state their kind."""
    kind, api_version = resource.kind, resource.api_version
    if metadata_only:
        kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
    encoder = encoder_for(resource, metadata_only=metadata_only)
    items = [encoder(entry) for entry in entries]
    if metadata_only or not resource.custom:
        prefixes = (
            encode({"kind": kind, "apiVersion": api_version})[:-1] + b",",
            encode({"apiVersion": api_version, "kind": kind})[:-1] + b",",
        )
        items = [_without_kind(item, prefixes) for item in items]
    head = encode({"kind": f"{kind}List", "apiVersion": api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


def _without_kind(body: bytes, prefixes: tuple[bytes, bytes]) -> bytes:
    for prefix in prefixes:
        if body.startswith(prefix):
            return b"{" + body[len(prefix) :]
    obj = decode(body)
    return encode({key: obj[key] for key in obj if key not in ("kind", "apiVersion")})


def encode_watch_event(event_type: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), body)
