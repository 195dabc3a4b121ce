"""YAML (and JSON) text as a tree of values with line and column.

Built from PyYAML's event stream rather than its loaders, because the loaders drop positions,
silently accept duplicate keys, resolve scalars differently from Kubernetes' decoder
(sigs.k8s.io/yaml on go-yaml v2, then JSON), and recurse without a bound. Here plain scalars have
the same meaning as there:

    y yes on true / n no off false      booleans, also capitalized or in capitals
    ~ null and nothing                  null
    1e3  0x1F  0b11  0o17  017  1_000   numbers (017 is octal: 15)
    12:30  2001-12-14                   text
    anything in quotes                  text

So `schedulerName: yes` is a boolean and is rejected later, exactly as kube-scheduler does.

Not done here: duplicate keys and merges (`fields` resolves them where the path is known), and type
checks (`schema`). Everything is bounded: bytes, nesting depth, and the number of nodes after alias
expansion. Nothing recurses over unchecked input.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from kubesched.base.errors import ConfigError, FieldProblem

MAX_BYTES = 4 * 1024 * 1024
"""Four times what fits into a ConfigMap; no scheduler configuration comes close."""

MAX_DEPTH = 150
"""API objects need a dozen levels, schemas in them a few dozen; Python's stack has room for 400."""

MAX_ALIASED_NODES = 200_000
"""Values that aliases may add to the document."""

ScalarValue = None | bool | int | float | str
Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""Any JSON value."""


@dataclass(slots=True)
class Node:
    """One value and where it starts (both counted from 1)."""

    line: int
    column: int
    size: int = field(default=1, repr=False)  # nodes in this subtree, aliases expanded
    height: int = field(default=1, repr=False)
    closed: bool = field(default=False, repr=False)  # False while its children are being read


@dataclass(slots=True)
class Scalar(Node):
    """A leaf: `value` as resolved, `text` as written, `plain` if it was written without quotes."""

    value: ScalarValue = None
    text: str = ""
    plain: bool = True


@dataclass(slots=True)
class Sequence(Node):
    """A list."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Mapping(Node):
    """A map as written, including repeated keys and `<<` entries."""

    entries: list[tuple[Scalar, Node]] = field(default_factory=list)


Report = Callable[[str, str, Node], None]
"""Receives a problem: field path, message, and its node."""


class YamlError(ValueError):
    """The text is not one YAML document, or exceeds a bound."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.message = message
        self.line = line
        self.column = column


class DuplicateKeyError(YamlError):
    """A map has a key twice."""


def load(data: bytes, max_nodes: int = sys.maxsize) -> Any:  # noqa: ANN401  # any JSON value
    """The value of the single document in `data`, as Kubernetes' clients read it.

    Raises:
        YamlError: also for duplicate keys and for what JSON cannot say.
    """

    def report(_path: str, message: str, node: Node) -> None:
        told = message.removeprefix(f"strict decoding error: line {node.line}: ")
        kind = YamlError if told == message else DuplicateKeyError
        raise kind(told, node.line, node.column)

    return to_plain(parse_text(data, max_nodes), "", report, json=False)


def parse(data: bytes, source: str = "") -> Node:
    """The single document in `data`.

    Raises:
        ConfigError: the text is not YAML, holds several documents, or exceeds a bound.
    """
    try:
        if len(data) > MAX_BYTES:
            raise YamlError(f"file is too large: {len(data)} bytes, at most {MAX_BYTES} are read")
        return parse_text(data)
    except YamlError as error:
        problem = FieldProblem("", error.message, error.line, error.column)
        raise ConfigError([problem], source=source) from error.__cause__


def parse_text(data: bytes, max_nodes: int = sys.maxsize) -> Node:
    """Like `parse`, of any size; raises `YamlError`."""
    text = _decode(data)
    if is_json(data):
        # JSON may be indented with tabs, which PyYAML's scanner rejects. Tabs inside JSON
        # strings are always escaped, so the replacement loses nothing and keeps the columns.
        text = text.replace("\t", " ")
    return _Builder(text, max_nodes).build()


def fields(
    mapping: Mapping, path: str, report: Report, *, json: bool
) -> dict[str, tuple[Scalar, Node]]:
    """The entries of a map by name (key and value), `<<` merges resolved, duplicate keys reported.

    Upstream: strict decoding does not allow overriding; a key that is both merged in and written,
    or merged in twice, counts as a duplicate.
    """
    by_name: dict[str, tuple[Scalar, Node]] = {}

    def add(entries: list[tuple[Scalar, Node]]) -> None:
        for key, value in entries:
            if _is_merge(key):
                for merged in _merged_mappings(value, path, report):
                    add(merged.entries)
                continue
            name = _key_name(key)
            if name is None:
                report(path, f"unsupported map key {key.text!r}", key)
            elif name not in by_name:
                by_name[name] = (key, value)
            elif json:
                where = child(path, name)
                report(where, f'strict decoding error: duplicate field "{where}"', key)
            else:
                report(
                    child(path, name),
                    f'strict decoding error: line {key.line}: key "{name}" already set in map',
                    key,
                )

    add(mapping.entries)
    return by_name


def to_plain(node: Node, path: str, report: Report, *, json: bool) -> Plain:
    """The value as plain Python data, as decoded from JSON."""
    if isinstance(node, Mapping):
        entries = fields(node, path, report, json=json)
        return {
            name: to_plain(value, child(path, name), report, json=json)
            for name, (_, value) in entries.items()
        }
    if isinstance(node, Sequence):
        return [
            to_plain(item, f"{path}[{index}]", report, json=json)
            for index, item in enumerate(node.items)
        ]
    assert isinstance(node, Scalar)
    if isinstance(node.value, float) and not math.isfinite(node.value):
        report(path, f"{node.text} cannot be said in JSON", node)
        return None
    return node.value


def from_plain(value: Plain) -> Node:
    """Nodes for data that is not from a file; their positions are 0."""
    if isinstance(value, dict):
        entries = [
            (Scalar(0, 0, value=name, text=name, plain=False), from_plain(item))
            for name, item in value.items()
        ]
        return Mapping(0, 0, entries=entries)
    if isinstance(value, list):
        return Sequence(0, 0, items=[from_plain(item) for item in value])
    return Scalar(0, 0, value=value, text=str(value), plain=False)


def child(path: str, name: str) -> str:
    """The path of a field inside the object at `path`."""
    return f"{path}.{name}" if path else name


def is_json(data: bytes) -> bool:
    """Whether the text is JSON: it starts with a brace, which is upstream's rule."""
    return data.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")


# -- building the tree ----------------------------------------------------------------------------


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        raise YamlError(
            f"not UTF-8 text: {error.reason} (byte 0x{data[error.start]:02x})", line, column
        ) from error


class _Builder:
    """Turns the event stream into nodes with an explicit stack instead of recursion."""

    def __init__(self, text: str, max_nodes: int) -> None:
        loader: type[yaml.Loader | yaml.CLoader] = getattr(yaml, "CLoader", yaml.Loader)
        self._text = text
        self._loader = loader
        self._anchors: dict[str, Node] = {}
        self._open: list[Node] = []
        self._keys: list[Scalar | None] = []  # per open map: the key whose value is next
        self._root: Node | None = None
        self._count = 0
        self._max_nodes = max_nodes

    def build(self) -> Node:
        try:
            for event in self._events():
                self._handle(event)
        except yaml.MarkedYAMLError as error:
            raise _syntax_error(error) from error
        except yaml.reader.ReaderError as error:
            raise _character_error(self._text, error) from error
        except yaml.YAMLError as error:
            raise YamlError(f"not valid YAML: {error}") from error
        if self._root is None:
            return Scalar(1, 1, closed=True)
        return self._root

    def _events(self) -> Iterator[yaml.Event]:
        loader = self._loader(self._text)
        try:
            while (event := loader.get_event()) is not None:
                yield event
        finally:
            loader.dispose()

    def _handle(self, event: yaml.Event) -> None:
        mark = event.start_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if isinstance(event, yaml.MappingStartEvent):
            self._begin(Mapping(line, column), event.anchor)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._begin(Sequence(line, column), event.anchor)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._end()
        elif isinstance(event, yaml.ScalarEvent):
            scalar = _scalar(event, line, column)
            self._remember(event.anchor, scalar)
            self._attach(scalar)
        elif isinstance(event, yaml.AliasEvent):
            self._attach(self._aliased(str(event.anchor), line, column))
        elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
            raise YamlError(
                "the file holds several YAML documents; exactly one is read",
                line,
                column,
            )

    def _begin(self, node: Node, anchor: str | None) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YamlError(f"nested deeper than {MAX_DEPTH} levels", node.line, node.column)
        if self._awaits_key():
            raise YamlError("invalid map key: only scalars can be keys", node.line, node.column)
        self._remember(anchor, node)
        self._open.append(node)
        self._keys.append(None)

    def _end(self) -> None:
        node = self._open.pop()
        self._keys.pop()
        node.closed = True
        self._attach(node)

    def _remember(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node

    def _aliased(self, name: str, line: int, column: int) -> Node:
        node = self._anchors.get(name)
        if node is None:
            raise YamlError(f"unknown anchor '{name}' referenced", line, column)
        if not node.closed:
            raise YamlError(f"anchor '{name}' value contains itself", line, column)
        return node

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1], Mapping) and self._keys[-1] is None

    def _attach(self, node: Node) -> None:
        """Adds a finished node to its parent."""
        self._count += 1
        if self._count > self._max_nodes:
            raise YamlError(f"more than {self._max_nodes} nodes", node.line, node.column)
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if self._awaits_key():
            if not isinstance(node, Scalar):
                raise YamlError("invalid map key: only scalars can be keys", node.line, node.column)
            self._keys[-1] = node
        elif isinstance(parent, Mapping):
            key = self._keys[-1]
            assert key is not None
            parent.entries.append((key, node))
            self._keys[-1] = None
        else:
            assert isinstance(parent, Sequence)
            parent.items.append(node)
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if parent.size - self._count > MAX_ALIASED_NODES:
            raise YamlError("document contains excessive aliasing", parent.line, parent.column)
        if parent.height > MAX_DEPTH:
            raise YamlError(f"nested deeper than {MAX_DEPTH} levels", parent.line, parent.column)


def _syntax_error(error: yaml.MarkedYAMLError) -> YamlError:
    mark = error.problem_mark or error.context_mark
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    if mark is None:
        return YamlError(f"not valid YAML: {problem}")
    return YamlError(f"not valid YAML: {problem}", mark.line + 1, mark.column + 1)


def _character_error(text: str, error: yaml.reader.ReaderError) -> YamlError:
    # The position counts bytes in the C reader and characters in the Python one, so control
    # characters are searched for here to get the right line with both.
    match = _UNPRINTABLE.search(text)
    offset = match.start() if match else 0
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    shown = f"#x{ord(match.group()):04x}" if match else str(error.reason)
    return YamlError(f"not valid YAML: character {shown} is not allowed", line, column)


_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


# -- merges and keys ------------------------------------------------------------------------------


def _is_merge(key: Scalar) -> bool:
    return key.plain and key.text == "<<"


def _merged_mappings(value: Node, path: str, report: Report) -> list[Mapping]:
    candidates = value.items if isinstance(value, Sequence) else [value]
    merged = [node for node in candidates if isinstance(node, Mapping)]
    if len(merged) != len(candidates):
        report(path, "map merge requires map or sequence of maps as the value", value)
        return []
    return merged


def _key_name(key: Scalar) -> str | None:
    """A key as JSON spells it: numbers and booleans become text; null is not allowed."""
    value = key.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return key.text
    return None if value is None else str(value)


# -- scalars as go-yaml v2 resolves them ----------------------------------------------------------

_TAG = "tag:yaml.org,2002:"


def _spellings(*words: str) -> Iterator[str]:
    for word in words:
        yield from (word, word.capitalize(), word.upper())


_WORDS: dict[str, ScalarValue] = {
    **dict.fromkeys(_spellings("y", "yes", "true", "on"), True),
    **dict.fromkeys(_spellings("n", "no", "false", "off"), False),
    **dict.fromkeys(("", "~", *_spellings("null")), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys(
        (f"{sign}{word}" for sign in ("", "+") for word in (".inf", ".Inf", ".INF")), float("inf")
    ),
    **dict.fromkeys((f"-{word}" for word in (".inf", ".Inf", ".INF")), float("-inf")),
}

_LONGEST_INTEGER = len("-0b") + 64
_INTEGER = re.compile(
    r"[-+]?(0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)"
    r"|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def _scalar(event: yaml.ScalarEvent, line: int, column: int) -> Scalar:
    text, tag = event.value, event.tag
    plain = tag is None and bool(event.implicit[0])
    if plain:
        value = resolve_plain(text)
    elif tag is None or tag == "!":
        value = text
    else:
        value = _resolve_tagged(text, tag, line, column)
    return Scalar(line, column, closed=True, value=value, text=text, plain=plain)


def _resolve_tagged(text: str, tag: str, line: int, column: int) -> ScalarValue:
    if tag == f"{_TAG}binary":
        raise YamlError("!!binary is not supported; write the base64 text itself", line, column)
    kinds: dict[str, type | tuple[type, ...]] = {
        f"{_TAG}bool": bool,
        f"{_TAG}int": int,
        f"{_TAG}float": (int, float),
        f"{_TAG}null": type(None),
    }
    if tag not in kinds:
        # !!str, !!timestamp and private tags keep the text.
        return text
    value = resolve_plain(text)
    wanted = kinds[tag]
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        short = tag.replace(_TAG, "!!")
        raise YamlError(f"cannot decode `{text}` as a {short}", line, column)
    return float(value) if tag == f"{_TAG}float" and isinstance(value, int) else value


def resolve_plain(text: str) -> ScalarValue:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _float(text)
    if text[0] not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    match = _INTEGER.fullmatch(digits) if len(digits) <= _LONGEST_INTEGER else None
    if match:
        value = _integer(match, negative=digits[0] == "-")
        if -(2**63) <= value < 2**64:
            return value
    value_or_text = _float(digits)
    return text if isinstance(value_or_text, str) else value_or_text


def _integer(match: re.Match[str], *, negative: bool) -> int:
    for group, base in (("hex", 16), ("bin", 2), ("oct", 8), ("dec", 10)):
        if match[group] is not None:
            return int(match[group], base) * (-1 if negative else 1)
    raise AssertionError("one of the groups matches")


def _float(text: str) -> float | str:
    if not _FLOAT.fullmatch(text):
        return text
    value = float(text)
    # Go's parser rejects numbers out of range, so the scalar stays text.
    return text if value in (float("inf"), float("-inf")) else value
