"""Strict reading of nodes into records, and writing of records, driven by their annotations.

Reading never raises: every problem is collected with field path, line and column, and the field
concerned keeps its default, so that one run finds everything. As with upstream's decoder

- field names are exact, unknown ones are problems, and so are duplicates;
- null means absent;
- a number is an integer if it has no fraction (`1e3`, `5.0`), text is never a number, and a
  number or boolean is never text.

Writing follows the Go tags: absent (None) and empty lists are left out, a field marked `OMIT_EMPTY`
also when it has its zero value.

Annotations: str, bool, int, float, bytes (base64), `Seconds`, `Int32`, `Int64`, records, list,
tuple[X, ...], dict[str, X], `RawArgs`, each optionally `| None`; anything else is left to msgspec.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from kubesched.api import times
from kubesched.api.meta import json_name
from kubesched.api.yaml_nodes import (
    Mapping,
    Node,
    Plain,
    Scalar,
    Sequence,
    child,
    fields,
    from_plain,
    is_json,
    parse,
    to_plain,
)
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config.field_problems import invalid, shown


class _Mark:
    """A named marker inside an annotation."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


OMIT_EMPTY = _Mark("OMIT_EMPTY")
_DURATION = _Mark("DURATION")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of an integer type."""

    bits: int

    def __contains__(self, value: int) -> bool:
        limit: int = 1 << (self.bits - 1)
        return -limit <= value < limit


Int32 = Annotated[int, Bounds(32)]
Int64 = Annotated[int, Bounds(64)]
Seconds = Annotated[float, _DURATION]
"""A duration: text such as `15s` in files, seconds in the program."""


@dataclass(frozen=True, slots=True)
class RawArgs:
    """Arguments of an unknown plugin: plain data, interpreted by the plugin.

    `node` keeps its position in the file, for error messages.
    """

    value: Plain = None
    node: Node | None = field(default=None, compare=False, repr=False)
    json: bool = field(default=False, compare=False, repr=False)


R = TypeVar("R")


class Decoder:
    """Collects problems and the position of every field while reading one document."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.problems: list[FieldProblem] = []
        self.given: set[str] = set()
        """The paths of fields that have a value."""
        self._seen: set[FieldProblem] = set()
        self._positions: dict[str, tuple[int, int]] = {}

    def read(self, node: Node, record: type[R], path: str) -> R:
        """Reads a record (struct or dataclass) at `node`; unreadable fields keep their default."""
        if _is_null(node):
            return record()
        annotation: object = record
        value = _reader(annotation)(self, node, path)
        return value if isinstance(value, record) else record()

    def report(self, path: str, message: str, node: Node) -> None:
        problem = FieldProblem(path, message, node.line or None, node.column or None)
        if problem not in self._seen:  # arguments are read twice: raw, then typed
            self._seen.add(problem)
            self.problems.append(problem)

    def report_unknown(self, path: str, name: str) -> None:
        """Report a field that is read but not known, if it is there."""
        if child(path, name) in self._positions:
            message = _unknown(name, ())
            self.problems.append(self.located(FieldProblem(child(path, name), message)))

    def located(self, problem: FieldProblem) -> FieldProblem:
        """The problem with the position of its field, or of the closest enclosing one."""
        path = problem.path
        while path:
            if path in self._positions:
                line, column = self._positions[path]
                return replace(problem, line=line, column=column)
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return problem

    def entries(self, mapping: Mapping, path: str) -> dict[str, tuple[Scalar, Node]]:
        entries = fields(mapping, path, self.report, json=self.json)
        for name, (key, value) in entries.items():
            self.locate(child(path, name), value if isinstance(value, Scalar) else key)
        return entries

    def locate(self, path: str, node: Node) -> None:
        self._positions[path] = (node.line, node.column)

    def wrong_type(self, path: str, node: Node, expected: str) -> object:
        """Reports the mismatch and returns a placeholder for the value."""
        if isinstance(node, Scalar):
            hint = (
                f"; quote it to make it text: {shown(node.text)}"
                if _wants_quotes(node, expected)
                else ""
            )
            message = (
                f"Invalid value: {_shown_scalar(node)}: expected {expected}, "
                f"found {_kind(node)}{hint}"
            )
        else:
            message = f"Invalid value: expected {expected}, found {_kind(node)}"
        self.report(path, message, node)
        return _NOTHING


def decode_file(
    data: bytes,
    source: str,
    record: type[R],
    check: Callable[[R], Iterable[FieldProblem]],
) -> R:
    """Decodes a YAML or JSON file to a record, validated by `check` as far as it could be decoded.

    Raises:
        ConfigError: with every problem, each with field path, line and column.
    """
    decoder = Decoder(json=is_json(data))
    decoded = decoder.read(parse(data, source), record, "")
    unread = {problem.path for problem in decoder.problems}
    late = [decoder.located(problem) for problem in check(decoded) if problem.path not in unread]
    problems = [*decoder.problems, *late]
    if problems:
        problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
        raise ConfigError(problems, source=source)
    return decoded


def decode_args(raw: RawArgs | None, record: type[R], path: str = "args") -> R:
    """Decodes a plugin's own arguments to its record, as strictly as the configuration itself.

    The record is a msgspec struct or a dataclass. Fields without default are required; a ValueError
    from `__post_init__` is reported as a problem.

    Raises:
        ConfigError: with every problem; positions are those of the configuration file.
    """
    raw = raw or RawArgs({})
    decoder = Decoder(json=raw.json)
    annotation: object = record
    args = _reader(annotation)(decoder, raw.node or from_plain(raw.value), path)
    if decoder.problems:
        raise ConfigError(decoder.problems)
    assert isinstance(args, record)  # otherwise there is a problem
    return args


def encode(record: Any) -> dict[str, Plain]:  # noqa: ANN401 - a struct or a dataclass
    """The record (struct or dataclass) as plain data under its JSON names."""
    out: dict[str, Plain] = {}
    kind: type = type(record)
    for spec in _field_specs(kind).values():
        value = getattr(record, spec.attribute)
        if value is None or (isinstance(value, (list, tuple, dict, bytes)) and not value):
            continue
        if spec.omit_empty and not value:
            continue
        out[spec.name] = spec.write(value)
    return out


# -- fields of a record ---------------------------------------------------------------------------

Reader = Callable[[Decoder, Node, str], object]
Writer = Callable[[Any], Plain]
_NOTHING = _Mark("NOTHING")


@dataclass(frozen=True, slots=True)
class Codec:
    """A marker inside an annotation: how values of this field are read and written."""

    read: Reader
    write: Writer


@dataclass(frozen=True, slots=True)
class _FieldSpec:
    attribute: str
    name: str
    read: Reader
    write: Writer
    omit_empty: bool
    required: bool


@cache
def _field_specs(record: type[Any]) -> dict[str, _FieldSpec]:
    hints = typing.get_type_hints(record, include_extras=True)
    return {
        name: _FieldSpec(
            attribute,
            name,
            _reader(hints[attribute]),
            _writer(hints[attribute]),
            OMIT_EMPTY in getattr(_without_none(hints[attribute]), "__metadata__", ()),
            required,
        )
        for attribute, name, required in _declared_fields(record)
    }


def json_fields(record: type[Any]) -> dict[str, object]:
    """JSON name -> annotation of every field of a record."""
    hints = typing.get_type_hints(record, include_extras=True)
    return {name: hints[attribute] for attribute, name, _ in _declared_fields(record)}


def _declared_fields(record: type[Any]) -> Iterator[tuple[str, str, bool]]:
    """Attribute, JSON name, and whether it is required."""
    if issubclass(record, msgspec.Struct):
        for field in msgspec.structs.fields(record):
            yield field.name, field.encode_name, field.required
        return
    for declared in dataclasses.fields(record):
        if declared.init:
            has_default = (
                declared.default is not dataclasses.MISSING
                or declared.default_factory is not dataclasses.MISSING
            )
            name = declared.metadata.get("name", json_name(declared.name))
            yield declared.name, name, not has_default


def _is_record(annotation: object) -> typing.TypeGuard[type]:
    return isinstance(annotation, type) and (
        issubclass(annotation, msgspec.Struct) or dataclasses.is_dataclass(annotation)
    )


def _without_none(annotation: object) -> object:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            return members[0]
    return annotation


# -- reading --------------------------------------------------------------------------------------


@cache
def _reader(annotation: object) -> Reader:
    annotation = _without_none(annotation)
    if typing.get_origin(annotation) is Annotated:
        base, *marks = typing.get_args(annotation)
        if _DURATION in marks:
            return _read_seconds
        if isinstance(marks[0], Codec):
            return marks[0].read
        bounds = next((mark for mark in marks if isinstance(mark, Bounds)), None)
        return _integer_reader(bounds) if bounds else _reader(base)
    origin = typing.get_origin(annotation)
    if origin is list or origin is tuple:
        return _list_reader(origin, typing.get_args(annotation)[0])
    if origin is dict:
        return _map_reader(typing.get_args(annotation)[1])
    if annotation in _LEAVES:
        return _LEAVES[annotation]
    return _record_reader(annotation) if _is_record(annotation) else _other_reader(annotation)


def _record_reader(record: type) -> Reader:
    def read(decoder: Decoder, node: Node, path: str) -> object:
        if not isinstance(node, Mapping):
            return decoder.wrong_type(path, node, "a map")
        specs = _field_specs(record)
        values = {}
        for name, (key, value) in decoder.entries(node, path).items():
            spec = specs.get(name)
            if spec is None:
                decoder.report(child(path, name), _unknown(name, specs), key)
            elif not _is_null(value):
                where = child(path, name)
                values[spec.attribute] = spec.read(decoder, value, where)
                if values[spec.attribute] is not _NOTHING:
                    decoder.given.add(where)
        return _built(record, values, decoder, node, path)

    return read


def _built(
    record: type, values: dict[str, object], decoder: Decoder, node: Node, path: str
) -> object:
    """The record, unless a required field is missing or its own check fails."""
    missing = [
        spec
        for spec in _field_specs(record).values()
        if spec.required and values.get(spec.attribute, _NOTHING) is _NOTHING
    ]
    for spec in missing:
        if spec.attribute not in values:  # otherwise a problem was already reported
            decoder.report(child(path, spec.name), "Required value", node)
    if missing:
        return _NOTHING
    try:
        return record(**{name: value for name, value in values.items() if value is not _NOTHING})
    except ValueError as error:
        decoder.report(path, str(error), node)
        return _NOTHING


def _unknown(name: str, known: typing.Iterable[str]) -> str:
    from difflib import get_close_matches

    by_lower = {field.lower(): field for field in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    hint = f'; did you mean "{by_lower[close[0]]}"?' if close else ""
    return f'strict decoding error: unknown field "{name}"{hint}'


def _list_reader(build: Callable[[list[object]], object], item: object) -> Reader:
    empty_record = item if _is_record(item) and item is not RawArgs else None

    def read(decoder: Decoder, node: Node, path: str) -> object:
        if not isinstance(node, Sequence):
            return decoder.wrong_type(path, node, "a list")
        read_item = _reader(item)
        values: list[object] = []
        for index, element in enumerate(node.items):
            where = f"{path}[{index}]"
            decoder.locate(where, element)
            is_empty = empty_record is not None and _is_null(element)
            written = Mapping(element.line, element.column) if is_empty else element
            value = read_item(decoder, written, where)
            if value is not _NOTHING:
                values.append(value)
            elif empty_record is not None and not _has_required(empty_record):
                values.append(empty_record())  # keeps the indexes of later items
        return build(values)

    return read


def _map_reader(value_type: object) -> Reader:
    def read(decoder: Decoder, node: Node, path: str) -> object:
        if not isinstance(node, Mapping):
            return decoder.wrong_type(path, node, "a map")
        read_value = _reader(value_type)
        values = {}
        for name, (_, item) in fields(node, path, decoder.report, json=decoder.json).items():
            value = read_value(decoder, item, f"{path}[{name}]")
            if value is not _NOTHING:
                values[name] = value
        return values

    return read


def _other_reader(annotation: object) -> Reader:
    """Reader for annotations only third parties use (enums, literals, unions), through msgspec."""

    def read(decoder: Decoder, node: Node, path: str) -> object:
        plain = to_plain(node, path, decoder.report, json=decoder.json)
        try:
            # Its signature does not cover arbitrary annotations, but it accepts them.
            return msgspec.convert(plain, typing.cast("Any", annotation), strict=True)
        except msgspec.ValidationError as error:
            decoder.report(path, f"Invalid value: {shown(plain)}: {error}", node)
            return _NOTHING

    return read


def _read_text(decoder: Decoder, node: Node, path: str) -> object:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node.value
    return decoder.wrong_type(path, node, "a string")


def _read_boolean(decoder: Decoder, node: Node, path: str) -> object:
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    return decoder.wrong_type(path, node, "a boolean")


def _number(node: Node) -> int | float | None:
    if not isinstance(node, Scalar) or isinstance(node.value, bool):
        return None
    return node.value if isinstance(node.value, (int, float)) else None


def _integer_reader(bounds: Bounds) -> Reader:
    def read(decoder: Decoder, node: Node, path: str) -> object:
        value = _number(node)
        if value is None or not math.isfinite(value) or value != int(value):
            return decoder.wrong_type(path, node, "an integer")
        if int(value) not in bounds:
            problem = invalid(path, int(value), f"does not fit into {bounds.bits} bits")
            decoder.report(path, problem.message, node)
            return _NOTHING
        return int(value)

    return read


def _read_number(decoder: Decoder, node: Node, path: str) -> object:
    value = _number(node)
    if value is None or not math.isfinite(value):
        return decoder.wrong_type(path, node, "a finite number")
    return float(value)


def _read_seconds(decoder: Decoder, node: Node, path: str) -> object:
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return decoder.wrong_type(path, node, 'a duration such as "15s"')
    try:
        return times.parse_duration(node.value)
    except ValueError as error:
        decoder.report(path, f"Invalid value: {shown(node.value)}: {error}", node)
        return _NOTHING


def _read_bytes(decoder: Decoder, node: Node, path: str) -> object:
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return decoder.wrong_type(path, node, "base64 text")
    try:
        return base64.b64decode(node.value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        # Not quoted: the value may be a key.
        decoder.report(path, f"Invalid value: not base64: {error}", node)
        return _NOTHING


def read_raw(decoder: Decoder, node: Node, path: str) -> RawArgs:
    return RawArgs(to_plain(node, path, decoder.report, json=decoder.json), node, decoder.json)


_LEAVES: dict[Any, Reader] = {
    str: _read_text,
    bool: _read_boolean,
    int: _integer_reader(Bounds(64)),
    float: _read_number,
    bytes: _read_bytes,
    RawArgs: read_raw,
}


def _has_required(record: type) -> bool:
    return any(spec.required for spec in _field_specs(record).values())


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _wants_quotes(node: Scalar, expected: str) -> bool:
    return node.plain and expected == "a string" and node.value is not None


def _shown_scalar(node: Scalar) -> str:
    value = node.value
    return node.text if isinstance(value, float) else shown(value)


def _kind(node: Node) -> str:
    if isinstance(node, Mapping):
        return "a map"
    if isinstance(node, Sequence):
        return "a list"
    assert isinstance(node, Scalar)
    kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    return kinds.get(type(node.value), "null")


# -- writing --------------------------------------------------------------------------------------


@cache
def _writer(annotation: object) -> Writer:
    annotation = _without_none(annotation)
    if typing.get_origin(annotation) is Annotated:
        base, *marks = typing.get_args(annotation)
        if isinstance(marks[0], Codec):
            return marks[0].write
        return times.format_duration if _DURATION in marks else _writer(base)
    origin = typing.get_origin(annotation)
    if origin in (list, tuple):
        write_item = _writer(typing.get_args(annotation)[0])
        return lambda values: [write_item(value) for value in values]
    if origin is dict:
        write_value = _writer(typing.get_args(annotation)[1])
        return lambda values: {name: write_value(value) for name, value in values.items()}
    if annotation is bytes:
        return lambda value: base64.b64encode(value).decode()
    if annotation is RawArgs:
        return lambda raw: raw.value
    if _is_record(annotation):
        return encode
    if annotation is float:
        return lambda value: int(value) if value == int(value) else value
    return lambda value: value
