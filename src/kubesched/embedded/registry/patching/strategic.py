"""Strategic merge patch: a merge patch that knows which lists are maps, with directives for the rest.

    $patch: replace | delete | merge     on an object or a list item
    $retainKeys: [...]                   an object keeps only these fields (unions such as a volume's source)
    $deleteFromPrimitiveList/<field>     values to drop from a list of primitives
    $setElementOrder/<field>             the order a merged list must come out in

Pure: the result shares what was not touched.
"""

from __future__ import annotations

from typing import Any

from kubesched.embedded.objects import Json, JsonObject
from kubesched.embedded.resources.schema.table import Field, ObjectType, TypeRef, types
from kubesched.errors import BadRequest

PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList/"
SET_ORDER = "$setElementOrder/"


def apply_strategic_patch(kind: ObjectType, document: JsonObject, patch: JsonObject) -> JsonObject:
    """The document with the patch laid over it by the merge rules of its kind."""
    return _merge_object(document, patch, kind.fields)


def _merge_object(document: JsonObject, patch: JsonObject, fields: dict[str, Field]) -> JsonObject:
    directive = patch.get(PATCH)
    if directive == "replace":
        replacement: JsonObject = _without_directives(patch)
        return replacement
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadRequest(f"unknown {PATCH} type {directive!r} in a strategic merge patch")
    result = _retained(document, patch)
    for key, value in patch.items():
        if key in (PATCH, RETAIN_KEYS) or key.startswith(SET_ORDER):
            continue
        if key.startswith(DELETE_FROM):
            _delete_primitives(result, key[len(DELETE_FROM) :], value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_value(key, result.get(key), value, patch, fields)
    for key, order in patch.items():
        if key.startswith(SET_ORDER):
            _order_list(result, key[len(SET_ORDER) :], order, patch, fields)
    return result


def _retained(document: JsonObject, patch: JsonObject) -> JsonObject:
    keep = patch.get(RETAIN_KEYS)
    if keep is None:
        return dict(document)
    if not isinstance(keep, list):
        raise BadRequest(f"{RETAIN_KEYS} must be a list of field names")
    stray = [
        key
        for key in patch
        if not key.startswith("$") and patch[key] is not None and key not in keep
    ]
    if stray:
        raise BadRequest(
            f"{RETAIN_KEYS} must list every field of the patch, {stray[0]!r} is missing"
        )
    return {key: value for key, value in document.items() if key in keep}


def _merge_value(
    key: str, old: Json, new: Json, patch: JsonObject, fields: dict[str, Field]
) -> Json:
    field = fields.get(key, _PLAIN)
    if isinstance(new, dict):
        base = old if isinstance(old, dict) else {}
        return _merge_object(base, new, _fields_below(field.type))
    if isinstance(new, list):
        if field.patch_key:
            return _merge_list(old if isinstance(old, list) else [], new, field)
        if field.merges_values:
            present = list(old) if isinstance(old, list) else []
            return present + [item for item in new if item not in present]
    return new


_PLAIN = Field(name="", type=TypeRef("scalar", "any"))


def _fields_below(ref: TypeRef) -> dict[str, Field]:
    if ref.shape == "list":
        assert ref.item is not None
        ref = ref.item
    return types()[ref.name].fields if ref.shape == "object" else {}


def _merge_list(old: list[Any], patch: list[Any], field: Field) -> list[Any]:
    key = field.patch_key
    fields = _fields_below(field.type)
    if any(isinstance(item, dict) and item.get(PATCH) == "replace" for item in patch):
        return [_without_directives(item) for item in patch if item.get(PATCH) != "replace"]
    result = list(old)
    for item in patch:
        if not isinstance(item, dict):
            raise BadRequest(
                f"a strategic merge patch of a list merged by {key!r} must consist of objects"
            )
        value = item.get(key)
        if value is None:
            raise BadRequest(f"map: {item} does not contain declared merge key: {key}")
        index = _position(result, key, value)
        if item.get(PATCH) == "delete":
            if index is not None:
                del result[index]
        elif index is None:
            # New items are merged over nothing, so that their directives and nulls take effect and disappear.
            result.append(_merge_object({}, item, fields))
        else:
            result[index] = _merge_object(result[index], item, fields)
    return result


def _position(items: list[Any], key: str, value: Json) -> int | None:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get(key) == value:
            return index
    return None


def _delete_primitives(result: JsonObject, field: str, values: Json) -> None:
    if not isinstance(values, list):
        raise BadRequest(f"{DELETE_FROM}{field} must be a list")
    present = result.get(field)
    if isinstance(present, list):
        result[field] = [value for value in present if value not in values]


def _order_list(
    result: JsonObject,
    field_name: str,
    order: Json,
    patch: JsonObject,
    fields: dict[str, Field],
) -> None:
    """Sort the merged list: items the client named in its order, items it does not know behind their old neighbours."""
    items = result.get(field_name)
    if not isinstance(order, list):
        raise BadRequest(f"{SET_ORDER}{field_name} must be a list")
    if not isinstance(items, list):
        return
    key = fields.get(field_name, _PLAIN).patch_key

    def identity(item: Json) -> Json:
        return item.get(key) if key and isinstance(item, dict) else item

    ranks = [identity(entry) for entry in order]
    named = sorted(
        (item for item in items if identity(item) in ranks),
        key=lambda item: ranks.index(identity(item)),
    )
    merged: list[Any] = []
    waiting = list(named)
    for item in items:
        if identity(item) in ranks:
            if waiting:
                merged.append(waiting.pop(0))
        else:
            merged.append(item)
    result[field_name] = merged


def _without_directives(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            key: _without_directives(item)
            for key, item in value.items()
            if key not in (PATCH, RETAIN_KEYS)
            and not key.startswith((DELETE_FROM, SET_ORDER))
            and item is not None
        }
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    return value
