"""Patches in the two supported forms, which the API server distinguishes by content type.

Pairs a body with its content type. The caller builds the body.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.api import codec

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

CONTENT_TYPES = (MERGE_PATCH, STRATEGIC_MERGE_PATCH)


@dataclass(frozen=True, slots=True)
class Patch:
    """A change, ready to send."""

    content_type: str
    body: bytes


def merge_patch(change: object) -> Patch:
    """RFC 7386: maps are merged, everything else is replaced, null removes."""
    return Patch(MERGE_PATCH, codec.encode(change))


def strategic_merge_patch(change: object) -> Patch:
    """Kubernetes' own: like a merge patch, but lists with a merge key are merged by it."""
    return Patch(STRATEGIC_MERGE_PATCH, codec.encode(change))
