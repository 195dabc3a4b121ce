"""Objects to bytes and back.

Decoding goes straight into records and drops unknown fields. Where an object must be forwarded or
written back completely, `Preserved` keeps the original text with the record and merges changes of
the record into it.

Kubernetes treats an explicit `null` like an absent field. Records accept it for all optional
fields; for others (a null string, for example) decoding is retried without the nulls. Any other
problem becomes a `MalformedObject`, which names object and field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from kubesched.api.meta import ListMeta, Record
from kubesched.api.names import object_key
from kubesched.base.errors import BadRequest

T = TypeVar("T")
R = TypeVar("R", bound=Record)

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything the decoder raises for bad input; RecursionError if it is nested too deeply."""

JSONObject = dict[str, Any]


class MalformedObject(BadRequest):
    """Invalid input: `what` it was, the `field`, and the problem."""

    def __init__(self, what: str, field: str, problem: str) -> None:
        at = f"{field}: " if field else ""
        super().__init__(f"{what}: {at}{problem}")
        self.what = what
        self.field = field
        self.problem = problem


class ListOf(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A list response: its metadata and items."""

    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    metadata: ListMeta = ListMeta()
    items: list[T] = msgspec.field(default_factory=list)


# -- typed ---------------------------------------------------------------------------------------


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """The JSON decoder of a type, cached."""
    cached = _decoders.get(type_)
    if cached is None:
        cached = _decoders[type_] = msgspec.json.Decoder(type_)
    return cached


def decode(data: bytes | str, type_: type[T]) -> T:
    """One object; raises MalformedObject."""
    try:
        return decoder(type_).decode(data)
    except DECODE_ERRORS as error:
        return _decode_without_nulls(data, type_, error)


def decode_list(
    data: bytes | str,
    type_: type[T],
    on_malformed: Callable[[MalformedObject], None] | None = None,
) -> ListOf[T]:
    """A list of objects of one kind; raises MalformedObject.

    `on_malformed`, if given, is called for items that cannot be decoded, and the others are
    returned.
    """
    try:
        return decode(data, ListOf[type_])  # type: ignore[valid-type]  # the parameter is a run-time value
    except MalformedObject as error:
        if on_malformed is None:
            raise
        try:
            listed = decode(data, ListOf[Any])
        except MalformedObject:
            raise error from None
    items = []
    for item in listed.items:
        try:
            items.append(convert(item, type_))
        except MalformedObject as error:
            on_malformed(error)
    return ListOf(
        kind=listed.kind, api_version=listed.api_version, metadata=listed.metadata, items=items
    )


def convert(value: object, type_: type[T]) -> T:
    """A record from plain JSON values (dictionaries, lists); raises MalformedObject."""
    try:
        return msgspec.convert(value, type_)
    except DECODE_ERRORS as error:
        try:
            return msgspec.convert(without_nulls(value), type_)
        except DECODE_ERRORS:
            raise _malformed(error, type_, value) from None


_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Compact JSON of a record or of plain values."""
    return _encoder.encode(value)


def to_json(record: Record) -> JSONObject:
    """A record as plain JSON values."""
    return cast("JSONObject", msgspec.to_builtins(record))


def _decode_without_nulls(data: bytes | str, type_: type[T], error: Exception) -> T:
    try:
        value = msgspec.json.decode(data)
    except DECODE_ERRORS as not_json:
        raise MalformedObject(
            _type_name(type_), "", f"not valid JSON: {reworded(not_json)}"
        ) from None
    try:
        return msgspec.convert(without_nulls(value), type_)
    except DECODE_ERRORS:
        raise _malformed(error, type_, value) from None


def without_nulls(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Without fields that are null: to an API server they are the same as absent ones."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def _malformed(error: Exception, type_: type[Any], value: object) -> MalformedObject:
    problem, _, path = str(error).partition(" - at `$")
    return MalformedObject(_named(type_, value), path.rstrip("`").lstrip("."), reworded(problem))


def _named(type_: type[Any], value: object) -> str:
    """Kind and name of a possibly malformed object."""
    what = _type_name(type_)
    metadata = value.get("metadata") if isinstance(value, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str):
        return what
    namespace = metadata.get("namespace")
    return f"{what} {object_key(namespace if isinstance(namespace, str) else '', name)}"


def reworded(error: object) -> str:
    """A decoder's message in our style: lower case first, no quotes around type names."""
    message = str(error)
    if not message.startswith("JSON"):
        message = message[:1].lower() + message[1:]
    return message.replace("`", "")


def _type_name(type_: type[Any]) -> str:
    arguments = getattr(type_, "__args__", ())
    return f"{arguments[0].__name__}List" if arguments else type_.__name__


# -- whole ---------------------------------------------------------------------------------------


class Preserved(Generic[R]):
    """A record together with the JSON it came from, unknown fields included."""

    __slots__ = ("raw", "record")

    def __init__(self, record: R, raw: bytes) -> None:
        self.record = record
        self.raw = raw

    def json(self) -> JSONObject:
        """A fresh copy of the original object."""
        return cast("JSONObject", msgspec.json.decode(self.raw))

    def merged_json(self, changed: R) -> JSONObject:
        """The original object with all differences between `record` and `changed`.

        Fields unknown to the record survive, also inside list items that are unchanged or
        identified by name.
        """
        if changed is self.record:
            return self.json()
        return cast("JSONObject", _merge(self.json(), self.record, changed))

    def with_record(self, changed: R) -> Preserved[R]:
        """The changed object, again preserved."""
        return Preserved(changed, encode(self.merged_json(changed)))

    def __repr__(self) -> str:
        return f"<Preserved {self.record!r}>"


def decode_preserved(data: bytes | str, type_: type[R]) -> Preserved[R]:
    """One object, preserved completely; raises MalformedObject."""
    raw = data.encode() if isinstance(data, str) else bytes(data)
    return Preserved(decode(raw, type_), raw)


def _merge(raw: object, old: object, new: object) -> object:
    """Updates `raw`, decoded as `old`, with the differences between `old` and `new`."""
    if old == new:
        return raw
    if isinstance(raw, dict) and isinstance(new, Record) and type(old) is type(new):
        return _merge_record(raw, old, new)
    if isinstance(raw, dict) and isinstance(old, dict) and isinstance(new, dict):
        merged = {k: v for k, v in raw.items() if k in new or k not in old}
        for key, value in new.items():
            merged[key] = _merge(raw.get(key), old.get(key), value)
        return merged
    if isinstance(raw, list) and isinstance(old, list) and isinstance(new, list):
        return _merge_list(raw, old, new)
    return msgspec.to_builtins(new)


def _merge_record(raw: JSONObject, old: Record, new: Record) -> JSONObject:
    merged = dict(raw)
    written = msgspec.to_builtins(new)
    names = zip(new.__struct_fields__, new.__struct_encode_fields__, strict=True)
    for attribute, name in names:
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before == after:
            continue
        if name not in written:  # back to the default, which is absent
            merged.pop(name, None)
        else:
            merged[name] = _merge(raw.get(name), before, after)
    return merged


def _merge_list(raw: Sequence[object], old: list[object], new: list[object]) -> list[object]:
    left = list(range(len(old))) if len(raw) == len(old) else []
    merged: list[object] = []
    for value in new:
        match = next((i for i in left if old[i] == value), None)
        if match is None:
            match = next((i for i in left if _same_identity(old[i], value)), None)
        if match is None:
            merged.append(msgspec.to_builtins(value))
        else:
            left.remove(match)
            merged.append(_merge(raw[match], old[match], value))
    return merged


def _same_identity(old: object, new: object) -> bool:
    """True for two versions of the same list item, by the fields Kubernetes uses as keys."""
    if type(old) is not type(new) or not isinstance(new, Record):
        return False
    for attribute in ("uid", "name", "type"):
        if getattr(new, attribute, ""):
            return bool(getattr(old, attribute) == getattr(new, attribute))
    return False
