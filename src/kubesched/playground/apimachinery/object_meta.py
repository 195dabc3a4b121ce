"""Rules for `metadata` that hold for every kind: names, labels, annotations, owners, finalizers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from kubesched.api.field_errors import forbidden, invalid, required, too_long
from kubesched.api.names import (
    dns_1123_label_problems,
    dns_1123_subdomain_problems,
    label_key_problems,
    label_value_problems,
)
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import Problems, refused

_PLAIN_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
ANNOTATIONS_LIMIT_BYTES = 256 * 1024

NameRule: TypeAlias = Callable[[str], tuple[str, ...]]
"""Returns the problems of a name."""


def validate_metadata(resource: ResourceInfo, obj: JsonObject, name_rule: NameRule) -> Problems:
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from refused("metadata.name", name, name_rule(name))
    if resource.namespaced:
        namespace = metadata.get("namespace", "")
        yield from refused("metadata.namespace", namespace, label_problems(namespace))
    labels = metadata.get("labels")
    if labels:
        yield from validate_labels(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations:
        yield from validate_annotations(annotations, "metadata.annotations")
    owners = metadata.get("ownerReferences")
    if owners:
        yield from _validate_owners(owners)
    finalizers = metadata.get("finalizers")
    if finalizers:
        yield from _validate_finalizers(finalizers)
        if not resource.custom and resource.group != "apiextensions.k8s.io":
            yield from _unqualified_finalizers(finalizers)


def validate_labels(labels: dict[str, str], path: str) -> Problems:
    for key, value in labels.items():
        yield from refused(path, key, label_key_problems(key))
        yield from refused(path, value, label_value_problems(value))


def validate_annotations(annotations: dict[str, str], path: str) -> Problems:
    # Upstream: annotation keys are checked in lower case, so their prefix may be in upper case.
    yield from (
        invalid(path, key, text) for key in annotations for text in label_key_problems(key.lower())
    )
    if sum(len(key) + len(value) for key, value in annotations.items()) > ANNOTATIONS_LIMIT_BYTES:
        yield too_long(path, ANNOTATIONS_LIMIT_BYTES)


def _validate_owners(owners: list[JsonObject]) -> Problems:
    path = "metadata.ownerReferences"
    controllers = []
    for owner in owners:
        yield from (
            # Upstream: the path has no index.
            invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        )
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for '
        )
        yield invalid(path, owners, detail + " and ".join(controllers[:2]))


def _validate_finalizers(finalizers: list[Any]) -> Problems:
    path = "metadata.finalizers"
    yield from (
        invalid(path, finalizer, text)
        for finalizer in finalizers
        for text in label_key_problems(finalizer)
    )
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        yield invalid(path, finalizers, detail)


def _unqualified_finalizers(finalizers: list[str]) -> Problems:
    """Built-in kinds accept only finalizers with a domain, and a few older ones."""
    neither = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"metadata.finalizers[{index}]", finalizer, neither)
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def validate_metadata_update(new: JsonObject, old: JsonObject) -> Problems:
    """An object marked for deletion accepts no new finalizers."""
    if old["metadata"].get("deletionTimestamp") is None:
        return []
    known = old["metadata"].get("finalizers") or ()
    added = [
        finalizer for finalizer in new["metadata"].get("finalizers") or () if finalizer not in known
    ]
    if not added:
        return []
    listed = ", ".join(f'"{name}"' for name in added)
    detail = (
        "no new finalizers can be added if the object is being deleted,"
        f" found new finalizers []string{{{listed}}}"
    )
    return [forbidden("metadata.finalizers", detail)]


def path_segment_problems(name: str) -> tuple[str, ...]:
    """The loosest rule: the name must be a valid URL path segment."""
    if name in (".", ".."):
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{char}'" for char in "/%" if char in name)


def subdomain_problems(name: str) -> tuple[str, ...]:
    """The usual rule: a DNS subdomain."""
    # Almost every name is a plain label, which this expression matches without backtracking.
    return () if _PLAIN_LABEL.fullmatch(name) else dns_1123_subdomain_problems(name)


def label_problems(name: str) -> tuple[str, ...]:
    """The stricter rule of namespaces, containers and volumes: a DNS label."""
    return () if _PLAIN_LABEL.fullmatch(name) else dns_1123_label_problems(name)
