"""The managers of an object, and how writes change them.

An entry is small: name, operation, time and the encoded field set, which objects of the same shape
share. A write other than an apply takes ownership of the fields it changes; removed fields and
fields that only the server writes have no owner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from kubesched.base.sized_cache import SizedCache, by_spelling
from kubesched.playground.apimachinery.managed_fields.compare import compare
from kubesched.playground.apimachinery.managed_fields.paths import (
    Layout,
    Path,
    Paths,
    from_fields_v1,
    paths_of,
    to_fields_v1,
)
from kubesched.playground.apimachinery.objects import JsonObject, decode, encode

_SERVER_METADATA = frozenset(
    f"f:{name}"
    for name in (
        "name",
        "namespace",
        "uid",
        "selfLink",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    )
)
_TYPE_META = ("f:apiVersion", "f:kind")
_INTERNED: SizedCache[bytes] = by_spelling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """One entry of `managedFields`."""

    name: str
    operation: str
    api_version: str
    time: str
    subresource: str = ""
    fields: bytes = b"{}"

    def paths(self) -> Paths:
        return _decode_fields(self.fields)

    @property
    def encoded(self) -> msgspec.Raw:
        """The entry as JSON, shared by objects that one writer created in the same second."""
        return _encode_manager(self)

    def to_json(self) -> JsonObject:
        entry: JsonObject = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": msgspec.Raw(self.fields),
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What distinguishes the entries of one object."""
        return self.name, self.operation, self.subresource, self.api_version


_ENCODED: SizedCache[msgspec.Raw] = by_spelling()


def _encode_manager(manager: Manager) -> msgspec.Raw:
    known = _ENCODED.get(manager)
    if known is None:
        body = encode(manager.to_json())
        known = msgspec.Raw(body)
        _ENCODED.keep(manager, len(body), known)
    return known


def encode_fields(paths: Paths | set[Path]) -> bytes:
    """Encode a set of paths; equal sets share one object."""
    body = encode(to_fields_v1(paths))
    known = _INTERNED.get(body)
    if known is None:
        _INTERNED.keep(body, len(body), body)
    return known or body


_PATHS: SizedCache[Paths] = by_spelling()


def _decode_fields(fields: bytes) -> Paths:
    known = _PATHS.get(fields)
    if known is None:
        known = from_fields_v1(decode(fields))
        _PATHS.keep(fields, len(fields), known)
    return known


def parse_managers(entries: object) -> tuple[Manager, ...]:
    """Parse managers from a client's or a stored JSON value."""
    if not isinstance(entries, (list, tuple)):
        return ()
    return tuple(
        Manager(
            name=entry.get("manager", ""),
            operation=entry.get("operation", "Update"),
            api_version=entry.get("apiVersion", ""),
            time=entry.get("time", ""),
            subresource=entry.get("subresource", ""),
            fields=encode_fields(from_fields_v1(entry.get("fieldsV1") or {})),
        )
        for entry in entries
        if isinstance(entry, dict) and entry
    )


def is_ownable(path: Path) -> bool:
    """Whether a client can own the field."""
    if path[0] in _TYPE_META:
        return False
    return not (path[0] == "f:metadata" and (len(path) == 1 or path[1] in _SERVER_METADATA))


def ownable(paths: Paths | set[Path]) -> set[Path]:
    return {path for path in paths if path and is_ownable(path)}


def creator(layout: Layout, obj: JsonObject, mine: Manager) -> tuple[Manager, ...]:
    """The managers of a new object: its creator owns every field."""
    fields = encode_fields(ownable(paths_of(layout, obj)))
    return (replace(mine, fields=fields),)


def after_update(
    managers: tuple[Manager, ...], layout: Layout, old: JsonObject, new: JsonObject, mine: Manager
) -> tuple[Manager, ...]:
    """The managers after a write other than an apply; `mine` is the writer, without fields."""
    difference = compare(layout, old, new)
    changed, removed = frozenset(difference.changed), frozenset(difference.removed)
    key = managers, changed, removed, mine
    known = _REMEMBERED.get(key)
    if known is None:
        known = _taken_over(managers, ownable(changed), ownable(removed), mine)
        _REMEMBERED.keep(key, 1 + len(changed) + len(removed), known)
    return known


_REMEMBERED: SizedCache[tuple[Manager, ...]] = SizedCache(16 * 1024, largest=1024)
"""By paths, as controllers and kubelets write the same fields of thousands of objects."""


def _taken_over(
    managers: tuple[Manager, ...], changed: set[Path], removed: set[Path], mine: Manager
) -> tuple[Manager, ...]:
    if not changed and not removed:
        return managers
    result: list[Manager] = []
    is_listed = False
    for entry in managers:
        if entry.identity == mine.identity:
            is_listed = True
            result += _nonempty(replace(entry, time=mine.time), (entry.paths() | changed) - removed)
        else:
            result += _without(entry, changed | removed)
    if not is_listed and changed:
        result.append(replace(mine, fields=encode_fields(changed)))
    return tuple(result)


def _without(entry: Manager, lost: set[Path]) -> list[Manager]:
    paths = entry.paths()
    if paths.isdisjoint(lost):
        return [entry]
    return _nonempty(entry, paths - lost)


def _nonempty(entry: Manager, paths: Paths | set[Path]) -> list[Manager]:
    return [replace(entry, fields=encode_fields(paths))] if paths else []
