"""Rules for RuntimeClasses."""

from __future__ import annotations

from kubesched.api.field_errors import FieldError, invalid, required
from kubesched.embedded.apimachinery.object_meta import label_problems, validate_labels
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import unchanged
from kubesched.embedded.resources.validation import scheduling


def validate_runtime_class(obj: JsonObject) -> list[FieldError]:
    handler = obj.get("handler") or ""
    if not handler:
        problems = [required("handler")]
    else:
        problems = [invalid("handler", handler, detail) for detail in label_problems(handler)]
    placement = obj.get("scheduling") or {}
    problems += validate_labels(placement.get("nodeSelector") or {}, "scheduling.nodeSelector")
    return problems + scheduling.tolerations(
        placement.get("tolerations") or (), "scheduling.tolerations"
    )


def validate_runtime_class_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    return unchanged(new.get("handler"), old.get("handler"), "handler")
