"""Rules for RuntimeClasses."""

from __future__ import annotations

from kubesched.api.field_errors import required
from kubesched.embedded.apimachinery.object_meta import label_problems, validate_labels
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import Problems, refused, unchanged
from kubesched.embedded.resources.validation import scheduling


def validate_runtime_class(obj: JsonObject) -> Problems:
    handler = obj.get("handler") or ""
    if not handler:
        yield required("handler")
    else:
        yield from refused("handler", handler, label_problems(handler))
    placement = obj.get("scheduling") or {}
    yield from validate_labels(placement.get("nodeSelector") or {}, "scheduling.nodeSelector")
    yield from scheduling.tolerations(placement.get("tolerations") or (), "scheduling.tolerations")


def validate_runtime_class_update(new: JsonObject, old: JsonObject) -> Problems:
    return unchanged(new.get("handler"), old.get("handler"), "handler")
