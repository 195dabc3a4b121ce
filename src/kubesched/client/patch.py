"""The four ways to change part of an object, as the API server tells them apart: by content type.

Responsible for pairing a body with its content type. The caller builds the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubesched.api import codec

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

CONTENT_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


@dataclass(frozen=True, slots=True)
class Patch:
    """A change, ready to be sent."""

    content_type: str
    body: bytes


def json_patch(operations: Sequence[Mapping[str, Any]]) -> Patch:
    """RFC 6902: a list of `{"op": ..., "path": ..., "value": ...}`, all or nothing."""
    return Patch(JSON_PATCH, codec.encode(operations))


def merge_patch(change: object) -> Patch:
    """RFC 7386: maps are merged, everything else is replaced, null removes."""
    return Patch(MERGE_PATCH, codec.encode(change))


def strategic_merge_patch(change: object) -> Patch:
    """Kubernetes' own: like a merge patch, but lists with a merge key are merged by it."""
    return Patch(STRATEGIC_MERGE_PATCH, codec.encode(change))


def apply_patch(wanted: object) -> Patch:
    """Server-side apply: the fields we want to own. JSON is YAML, so JSON is what is sent."""
    return Patch(APPLY_PATCH, codec.encode(wanted))
