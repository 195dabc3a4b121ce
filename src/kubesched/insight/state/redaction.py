"""Redacts objects to what scheduling reads (table in `fields`), optionally with pseudonyms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import inspect, structs

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.fields import ANNOTATIONS_READ, FIELDS, Treatment
from kubesched.insight.state.pseudonyms import Pseudonyms

Change = Callable[[Any], Any]


class Redaction:
    """Applies the table to records. Without pseudonyms, names are kept."""

    def __init__(self, pseudonyms: Pseudonyms | None = None) -> None:
        self._pseudonyms = pseudonyms
        self._changes: dict[type[Any], dict[str, Change]] = {}

    def state(self, state: ClusterState) -> ClusterState:
        """A state of redacted objects."""
        redacted = ClusterState(state.source)
        redacted.notes = list(state.notes)
        if self._pseudonyms is not None:
            self._pseudonyms.agree_on_ephemeral_claims(state.of(Pod))
            redacted.source = "a cluster under pseudonyms"
            redacted.notes = [note.partition(":")[0] for note in state.notes]  # errors name users
        redacted.resource_versions = dict(state.resource_versions)
        redacted.finished_count = state.finished_count
        for obj in state:
            redacted.put(self.record(obj))
        return redacted

    def record(self, obj: Any) -> Any:  # noqa: ANN401  # any record
        """The record with every field treated; the same object if nothing changes."""
        record = type(obj)
        changes = self._changes.get(record)
        if changes is None:
            changes = self._changes[record] = self._changes_of(record)
        new: dict[str, Any] = {}
        for name, change in changes.items():
            value = getattr(obj, name)
            if value is not None and (changed := change(value)) is not value:
                new[name] = changed
        return structs.replace(obj, **new) if new else obj

    def _changes_of(self, record: type[Any]) -> dict[str, Change]:
        table = FIELDS.get(record, {})
        changes: dict[str, Change] = {}
        for field in structs.fields(record):
            name = field.name
            if holds_text(record, name):
                change = self._change(table.get(name, Treatment.DROP), _default(field))
                if change is not None:
                    changes[name] = change
            if holds_records(record, name) and table.get(name) is not Treatment.DROP:
                changes[name] = self._nested
        return changes

    def _change(self, treatment: Treatment, default: object) -> Change | None:
        """The change for a field's value; None if it is kept."""
        pseudonyms = self._pseudonyms
        if treatment is Treatment.DROP:
            return lambda _value: default
        if treatment is Treatment.ANNOTATIONS:
            return self._annotations
        if treatment is Treatment.KEEP or pseudonyms is None:
            return None
        if treatment is Treatment.LABELS:
            return partial(_each_value, pseudonyms.label)
        return partial(
            _each_text,
            {
                Treatment.NAME: pseudonyms.name,
                Treatment.IMAGE: pseudonyms.image,
                Treatment.ADDRESS: pseudonyms.address,
            }[treatment],
        )

    def _nested(self, value: Any) -> Any:  # noqa: ANN401  # a record, or a list or dictionary of records
        if isinstance(value, Record):
            return self.record(value)
        if isinstance(value, list):
            return [self._nested(item) for item in value]
        if isinstance(value, dict):
            return {key: self._nested(item) for key, item in value.items()}
        return value

    def _annotations(self, annotations: dict[str, str]) -> dict[str, str] | None:
        kept: dict[str, str] = {}
        for key, value in annotations.items():
            treatment = ANNOTATIONS_READ.get(key)
            if treatment is Treatment.NAME and self._pseudonyms is not None:
                kept[key] = self._pseudonyms.name(value)
            elif treatment is not None:
                kept[key] = value
        return kept or None


def _each_text(change: Callable[[str], str], value: Any) -> Any:  # noqa: ANN401  # a text, or texts in a list or as keys
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [change(item) for item in value]
    return {change(key): item for key, item in value.items()}


def _each_value(change: Callable[[str], str], value: Any) -> Any:  # noqa: ANN401  # as above, or labels
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    return _each_text(change, value)


def _default(field: structs.FieldInfo) -> object:
    made = field.default_factory
    return field.default if not callable(made) else made()


# -- field contents ------------------------------------------------------------------------------


_types_by_record: dict[type[Any], dict[str, inspect.Type]] = {}


def _types(record: type[Any]) -> dict[str, inspect.Type]:
    types = _types_by_record.get(record)
    if types is None:
        info = inspect.type_info(record)
        assert isinstance(info, inspect.StructType)
        types = _types_by_record[record] = {field.name: field.type for field in info.fields}
    return types


def holds_text(record: type[Any], name: str) -> bool:
    """Whether a field holds text outside nested records."""
    return _holds_text(_types(record)[name])


def holds_records(record: type[Any], name: str) -> bool:
    return any(True for _ in nested_records(record, name))


def nested_records(record: type[Any], name: str) -> list[type[Any]]:
    """The record types reachable from a field."""
    return _nested_records(_types(record)[name])


def _holds_text(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.ListType):
        return _holds_text(kind.item_type)
    if isinstance(kind, inspect.UnionType):
        return any(_holds_text(member) for member in kind.types)
    return isinstance(kind, inspect.StrType | inspect.AnyType | inspect.DictType)


def _nested_records(kind: inspect.Type) -> list[type[Any]]:
    if isinstance(kind, inspect.StructType):
        return [kind.cls]
    if isinstance(kind, inspect.ListType):
        return _nested_records(kind.item_type)
    if isinstance(kind, inspect.DictType):
        return _nested_records(kind.value_type)
    if isinstance(kind, inspect.UnionType):
        return [nested for member in kind.types for nested in _nested_records(member)]
    return []
