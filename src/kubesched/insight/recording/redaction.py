"""What a recording leaves out of objects: annotations that scheduling does not read.

They hold what their authors put there: `kubectl apply` keeps the whole manifest in one, with
environment variables and commands. Decisions depend on the annotations in one way only: any change
is an event. So the rest of an object's annotations is written as one, a digest under a key that is
nowhere kept.
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
    """Top-level parts of an object as they are recorded."""
    kept = dict(parts)
    if isinstance(meta := parts.get("metadata"), ObjectMeta):
        kept["metadata"] = _stripped(meta)
    return kept


def _stripped(meta: ObjectMeta) -> ObjectMeta:
    annotations = meta.annotations
    if not annotations or annotations.keys() <= ANNOTATIONS_READ.keys():
        return meta
    kept = {key: value for key, value in annotations.items() if key in ANNOTATIONS_READ}
    digest = hashlib.blake2b(key=_KEY, digest_size=8)
    for key in sorted(annotations.keys() - ANNOTATIONS_READ.keys()):
        digest.update(f"{key}\0{annotations[key]}\0".encode("utf-8", "surrogatepass"))
    kept[OTHERS] = digest.hexdigest()
    return structs.replace(meta, annotations=kept)
