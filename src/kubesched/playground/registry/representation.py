"""Stored versions on their way out: as JSON of the served API version, as metadata only, or as a list of either.

Encodings are kept on the entry, so that a thousand watchers of one write cost one encoding.
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
    return encode(entry.obj)  # for the one scheduler in this process: not worth keeping


def _converted(convert: Callable[[JsonObject], JsonObject], entry: Entry) -> bytes:
    # Nearly always read once, by the one that wrote it: not worth keeping.
    return encode(convert(entry.with_managed_fields()))


def _as_version(api_version: str, entry: Entry) -> bytes:
    """A custom object under the version asked for: without conversion only the label differs."""
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
    """How entries of a resource are written for a client; managed fields are omitted from stored versions only."""
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
