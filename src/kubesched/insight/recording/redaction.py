"""Removes annotations that scheduling does not read from recorded objects.

Annotations may hold private data: `kubectl apply` stores the whole manifest in one, including
environment variables and commands. Decisions depend on them only in that any change is an event. So
they are replaced by a single digest, under a key that is not stored anywhere.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Final

from msgspec import structs

from kubesched.api.meta import ObjectMeta
from kubesched.insight.state.fields import ANNOTATIONS_READ

OTHERS: Final = "kubesched/other-annotations"
_KEY: Final = os.urandom(32)


def redacted(parts: dict[str, Any]) -> dict[str, Any]:
    """An object's top-level parts in their recorded form."""
    kept = dict(parts)
    if isinstance(meta := parts.get("metadata"), ObjectMeta):
        kept["metadata"] = _stripped(meta)
    return kept


def _stripped(meta: ObjectMeta) -> ObjectMeta:
    annotations = meta.annotations
    if not annotations or annotations.keys() <= ANNOTATIONS_READ:
        return meta
    kept = {key: value for key, value in annotations.items() if key in ANNOTATIONS_READ}
    digest = hashlib.blake2b(key=_KEY, digest_size=8)
    for key in sorted(annotations.keys() - ANNOTATIONS_READ):
        digest.update(f"{key}\0{annotations[key]}\0".encode("utf-8", "surrogatepass"))
    kept[OTHERS] = digest.hexdigest()
    return structs.replace(meta, annotations=kept)
