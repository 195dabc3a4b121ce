"""Strategic merge patch: a merge patch that merges lists by key, with directives.

    $patch: replace | delete | merge     on an object or a list item
    $retainKeys: [...]                   fields an object keeps (unions such as a volume's source)
    $deleteFromPrimitiveList/<field>     values to drop from a list of primitives
    $setElementOrder/<field>             the order of the merged list

A merged list keeps the patch's items in the patch's order (or that of `$setElementOrder`) and the
other items in theirs. The two are interleaved by the order of the live list; items that are not in
the live list come first. Pure: the result shares unchanged parts.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery.objects import Json, JsonObject, encode
from kubesched.playground.apimachinery.schema.table import Field, ObjectType, TypeRef, types

PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList/"
SET_ORDER = "$setElementOrder/"
MAX_REPEATS = 16
"""Items of one list with the same merge key. Each of them copies the object it is merged into."""


def apply_strategic_patch(kind: ObjectType, document: JsonObject, patch: JsonObject) -> JsonObject:
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
            field_name = key[len(SET_ORDER) :]
            field = fields.get(field_name, _PLAIN)
            _check_order(field_name, order, patch.get(field_name), field)
            if isinstance(items := result.get(field_name), list):
                live = _live_order(document.get(field_name), patch.get(field_name), field.patch_key)
                result[field_name] = _ordered(items, order, live, field.patch_key)
    return result


def _retained(document: JsonObject, patch: JsonObject) -> JsonObject:
    keep = patch.get(RETAIN_KEYS)
    if keep is None:
        return dict(document)
    if not isinstance(keep, list):
        raise BadRequest(f"{RETAIN_KEYS} must be a list of field names")
    names = {name for name in keep if isinstance(name, str)}
    stray = [
        key
        for key in patch
        if not key.startswith("$") and patch[key] is not None and key not in names
    ]
    if stray:
        raise BadRequest(
            f"{RETAIN_KEYS} must list every field of the patch, {stray[0]!r} is missing"
        )
    return {key: value for key, value in document.items() if key in names}


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
            live = old if isinstance(old, list) else []
            merged = {encode(value): value for value in (*live, *new)}
            return _ordered(list(merged.values()), new, live)
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
    result: list[Any] = list(old)
    positions = _positions(result, key)
    stated: list[JsonObject] = []
    repeats: Counter[bytes] = Counter()
    for item in patch:
        if not isinstance(item, dict):
            raise BadRequest(
                f"a strategic merge patch of a list merged by {key!r} must consist of objects"
            )
        value = item.get(key)
        if value is None:
            raise BadRequest(f"map: {item} does not contain declared merge key: {key}")
        identity = encode(value)
        repeats[identity] += 1
        if repeats[identity] > MAX_REPEATS:
            raise BadRequest(f"more than {MAX_REPEATS} items with the merge key {key}: {value}")
        known = positions.setdefault(identity, [])
        if item.get(PATCH) == "delete":
            if known:
                result[known.pop(0)] = _GONE
            continue
        stated.append(item)
        if known:
            result[known[0]] = _merge_object(result[known[0]], item, fields)
        else:
            # New items are merged into an empty object, which applies and removes their directives
            # and nulls.
            known.append(len(result))
            result.append(_merge_object({}, item, fields))
    return _ordered([item for item in result if item is not _GONE], stated, old, key)


_GONE = object()


def _positions(items: list[Any], key: str) -> dict[bytes, list[int]]:
    """Positions of the items, by merge key value."""
    positions: dict[bytes, list[int]] = {}
    for index, item in enumerate(items):
        if isinstance(item, dict):
            positions.setdefault(encode(item.get(key)), []).append(index)
    return positions


def _delete_primitives(result: JsonObject, field: str, values: Json) -> None:
    if not isinstance(values, list):
        raise BadRequest(f"{DELETE_FROM}{field} must be a list")
    present = result.get(field)
    if isinstance(present, list):
        gone = {encode(value) for value in values}
        result[field] = [value for value in present if encode(value) not in gone]


def _check_order(field_name: str, order: Json, patch: Json, field: Field) -> None:
    """Reject a `$setElementOrder` that omits or reorders the patch's own items."""
    if not isinstance(order, list):
        raise BadRequest("invalid patch format of setElementOrder list")
    if not order or not isinstance(patch, list):
        return
    positions = iter(_identity(entry, field.patch_key) for entry in order)
    for item in patch:
        if isinstance(item, dict) and PATCH in item:
            continue
        if _identity(item, field.patch_key) not in positions:  # consumes the skipped positions
            raise BadRequest(
                f"The order in patch list:\n{patch}\n"
                f" doesn't match {SET_ORDER}{field_name} list:\n{order}\n"
            )


def _live_order(live: Json, patch: Json, patch_key: str) -> list[Any]:
    """The live list that `$setElementOrder` sees, after the patch's deletions and additions.

    # Upstream: additions take the places that deletions freed at the end of the array, and count as
    live items.
    """
    if not isinstance(live, list):
        return []
    if not patch_key or not isinstance(patch, list):
        return live
    gone = {
        _identity(item, patch_key)
        for item in patch
        if isinstance(item, dict) and item.get(PATCH) == "delete"
    }
    kept = [item for item in live if _identity(item, patch_key) not in gone]
    known = _ranks(kept, patch_key)
    added = [
        item
        for item in patch
        if not (isinstance(item, dict) and PATCH in item)
        and _identity(item, patch_key) not in known
    ]
    return kept + added[: len(live) - len(kept)]


def _ordered(items: list[Any], order: list[Any], live: list[Any], patch_key: str = "") -> list[Any]:
    """Sort the items that `order` names, and interleave the others by their live order."""
    ranks = _ranks(order, patch_key)
    live_ranks = _ranks(live, patch_key)
    keyed = [(_identity(item, patch_key), item) for item in items]
    named = sorted((pair for pair in keyed if pair[0] in ranks), key=lambda pair: ranks[pair[0]])
    others = [pair for pair in keyed if pair[0] not in ranks]
    merged: list[Any] = []
    position = 0
    for identity, item in named:
        rank = live_ranks.get(identity)
        while rank is not None and position < len(others):
            other = live_ranks.get(others[position][0])
            if other is None or other > rank:
                break
            merged.append(others[position][1])
            position += 1
        merged.append(item)
    return merged + [item for _identity_of, item in others[position:]]


def _ranks(items: list[Any], patch_key: str) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for item in items:
        ranks.setdefault(_identity(item, patch_key), len(ranks))
    return ranks


def _identity(item: Json, patch_key: str) -> bytes:
    """Identity of a list item: the value of its merge key, or the plain value itself."""
    return encode(item.get(patch_key) if patch_key and isinstance(item, dict) else item)


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
