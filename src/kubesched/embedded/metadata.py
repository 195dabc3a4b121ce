"""Rules for `metadata` that hold for every kind: names, labels, annotations, owners, finalizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubesched.embedded.failures import Cause, forbidden_field, invalid_value, required, too_long
from kubesched.embedded.names import check_label, check_path_segment, check_subdomain
from kubesched.embedded.objects import JsonObject
from kubesched.embedded.resources import ResourceInfo
from kubesched.embedded.selectors import is_label_key, is_label_value

ANNOTATIONS_LIMIT_BYTES = 256 * 1024

_KEY_HELP = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_HELP = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def validate_metadata(
    resource: ResourceInfo, obj: JsonObject, name_is_valid: Callable[[str], str] | None = None
) -> list[Cause]:
    metadata = obj["metadata"]
    causes: list[Cause] = []
    name = metadata.get("name", "")
    if not isinstance(name, str) or not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        help_text = (name_is_valid or check_subdomain)(name)
        if help_text:
            causes.append(invalid_value("metadata.name", name, help_text))
    if resource.namespaced:
        help_text = check_label(metadata.get("namespace", ""))
        if help_text:
            causes.append(
                invalid_value("metadata.namespace", metadata.get("namespace", ""), help_text)
            )
    labels = metadata.get("labels")
    if labels:
        causes += validate_labels(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations:
        causes += _validate_annotations(annotations)
    owners = metadata.get("ownerReferences")
    if owners:
        causes += _validate_owners(owners)
    finalizers = metadata.get("finalizers")
    if finalizers:
        causes += _validate_finalizers(finalizers)
    return causes


def validate_labels(labels: Any, path: str) -> list[Cause]:  # noqa: ANN401 (whatever the client sent)
    if not isinstance(labels, dict):
        return [invalid_value(path, labels, "must be an object")]
    causes = []
    for key, value in labels.items():
        if not is_label_key(key):
            causes.append(invalid_value(path, key, _KEY_HELP))
        if not isinstance(value, str) or not is_label_value(value):
            causes.append(invalid_value(path, value, _VALUE_HELP))
    return causes


def _validate_annotations(annotations: Any) -> list[Cause]:  # noqa: ANN401 (whatever the client sent)
    path = "metadata.annotations"
    if not isinstance(annotations, dict):
        return [invalid_value(path, annotations, "must be an object")]
    causes = []
    size = 0
    for key, value in annotations.items():
        if not is_label_key(key.lower()):
            causes.append(invalid_value(path, key, _KEY_HELP))
        if not isinstance(value, str):
            causes.append(invalid_value(f"{path}[{key}]", value, "must be a string"))
        else:
            size += len(key) + len(value)
    if size > ANNOTATIONS_LIMIT_BYTES:
        causes.append(too_long(path, ANNOTATIONS_LIMIT_BYTES))
    return causes


def _validate_owners(owners: Any) -> list[Cause]:  # noqa: ANN401 (whatever the client sent)
    path = "metadata.ownerReferences"
    causes = []
    controllers = []
    for index, owner in enumerate(owners):
        causes += [
            invalid_value(
                f"{path}[{index}].{field}", owner.get(field, ""), f"{field} must not be empty"
            )
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
        if owner.get("controller"):
            controllers.append(owner)
    if len(controllers) > 1:
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for '
        )
        detail += " and ".join(f"{each.get('kind')}/{each.get('name')}" for each in controllers[:2])
        causes.append(invalid_value(path, owners, detail))
    return causes


def _validate_finalizers(finalizers: Any) -> list[Cause]:  # noqa: ANN401 (whatever the client sent)
    path = "metadata.finalizers"
    causes = [
        invalid_value(path, each, _KEY_HELP)
        for each in finalizers
        if not isinstance(each, str) or not is_label_key(each)
    ]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        causes.append(
            invalid_value(
                path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"
            )
        )
    return causes


def validate_metadata_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """An object on its way out takes no new finalizers."""
    if old["metadata"].get("deletionTimestamp") is None:
        return []
    known = old["metadata"].get("finalizers") or ()
    added = [each for each in new["metadata"].get("finalizers") or () if each not in known]
    if not added:
        return []
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {added!r}"
    return [forbidden_field("metadata.finalizers", detail)]


def check_custom_name(name: str) -> str:
    return check_path_segment(name) or check_subdomain(name)
