"""Short names for pod templates: equal templates, equal hash.

The hash has the look of Kubernetes' (FNV-1a over 32 bits, in letters that form no words) but not its
value: that depends on how Go prints its types in memory, which cannot be reproduced here.
"""

from __future__ import annotations

import json
from typing import Any

from kubesched.embedded.apimachinery.objects import JsonObject

POD_TEMPLATE_HASH = "pod-template-hash"
CONTROLLER_REVISION_HASH = "controller-revision-hash"

_SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def safe_encode(text: str) -> str:
    """The text in letters that spell nothing offensive, as Kubernetes puts hashes into names."""
    return "".join(_SAFE_LETTERS[ord(letter) % len(_SAFE_LETTERS)] for letter in text)


def compute_hash(value: Any, collision_count: int = 0) -> str:  # noqa: ANN401 (any JSON value)
    """A short, stable name for a JSON value."""
    text = json.dumps(normalized(value), sort_keys=True, separators=(",", ":"))
    digest = _FNV_OFFSET
    for byte in f"{text}{collision_count or ''}".encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return safe_encode(str(digest))


def normalized(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """The value without nulls and empty members: absent, null and empty mean the same in a template."""
    if isinstance(value, dict):
        members = ((key, normalized(member)) for key, member in value.items())
        return {key: member for key, member in members if member not in (None, {}, [])}
    if isinstance(value, list):
        return [normalized(member) for member in value]
    return value


def without_label(template: JsonObject, label: str) -> JsonObject:
    """The template with one of its labels taken off."""
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
