"""Parses dumps into the objects of a `ClusterState`.

Reads any combination of `kubectl get -o json` and `-o yaml` output: single objects, Lists of one or
several kinds, concatenated JSON values (including JSON lines), several YAML documents.

An indented JSON list, as printed by kubectl, is decoded while it is read (`StreamedList`): it has
nearly two gigabytes for 150,000 pods, more than half of it indentation. Other JSON is read
completely and decoded directly into records, item by item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from kubesched.api import codec
from kubesched.api.codec import DECODE_ERRORS, MalformedObject
from kubesched.api.core_v1 import Pod
from kubesched.api.kinds import Kind, find_kind
from kubesched.api.meta import ListMeta
from kubesched.api.yaml_nodes import Mapping, Sequence, YamlError, load, parse_text
from kubesched.client.informers.sharing import Sharing
from kubesched.insight.state.archive import is_header, read_header
from kubesched.insight.state.cluster_state import ClusterState, Problem, StateError

LONGEST_BEGINNING = 4096
"""Bytes within which a list must be recognizable."""

_KIND_FIRST = re.compile(rb'\s*\{\s*"apiVersion"\s*:\s*"([^"\\]*)"\s*,\s*"kind"\s*:\s*"([^"\\]*)"')
"""The beginning of every object from kubectl. Other objects need a second pass."""
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_SPACE = re.compile(rb"[ \t\r\n]*")
_MARKER = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_YAML_LIST = re.compile(rb"\s*(?:(?:apiVersion|kind): [\w./]+\n)*items:\n(?=- )")
_YAML_ALIAS = re.compile(rb"[:,\[{-]\s*\*\w")
_YAML_NEXT = re.compile(rb"\n(?=[^\s#])")
"""The end of an item: the next line is not indented."""


class _Identity(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""


class _Document(msgspec.Struct):
    """A List, or a single object of which only the identity is read."""

    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    items: list[msgspec.Raw] | None = None


_raws = msgspec.json.Decoder(list[msgspec.Raw])
_identity = msgspec.json.Decoder(_Identity)
_document = msgspec.json.Decoder(_Document)


class DocumentReader:
    """Reads one file; problems are collected, everything else is added to the state."""

    def __init__(
        self, state: ClusterState, file: str, problems: list[Problem], sharing: Sharing
    ) -> None:
        self._state = state
        self._sharing = sharing
        self._file = file
        self._problems = problems
        self._lines_before = 0
        """Lines of the file before the current text."""

    def read(self, chunks: Iterator[bytes]) -> None:
        """Read a file's contents.

        Raises:
            StateError: the content is too large.
        """
        first = b""
        while len(first) < LONGEST_BEGINNING and (chunk := next(chunks, b"")):
            first += chunk
        if b"\0" in first:
            raise StateError("not a dump: neither JSON nor YAML has NUL bytes in it")
        streamed = StreamedList.begin(first, chunks)
        if streamed is None:
            chunks = chain((first,), chunks)
        else:
            self._read_pieces(streamed)
            chunks, self._lines_before = streamed.rest(), streamed.lines
        self._read_whole(memoryview(b"".join(chunks)))

    def _read_whole(self, view: memoryview) -> None:
        start = _skip_space(view, 3 if bytes(view[:3]) == b"\xef\xbb\xbf" else 0)
        if start == len(view):
            return
        if view[start] in b"{[":
            self._read_json(view, start)
        else:
            self._read_yaml(bytes(view))

    # -- JSON --------------------------------------------------------------------------------------

    def _read_pieces(self, streamed: StreamedList) -> None:
        beginning = _document.decode(streamed.beginning + b"]}")
        kind = beginning.kind.removesuffix("List")
        for text in streamed.pieces():
            self._lines_before = streamed.lines
            try:
                items = _raws.decode(text)
            except DECODE_ERRORS:
                return  # malformed, or not split between items
            if not kind and not all(map(_KIND_FIRST.match, items)):
                return  # the list names their kind after the items
            for item in items:
                self._json_object(item, beginning.api_version, kind, text)

    def _read_json(self, view: memoryview, start: int) -> None:
        while start < len(view):
            end = len(view)
            try:
                document = _document.decode(view[start:])
            except DECODE_ERRORS as error:
                if (trailing := _TRAILING.search(str(error))) is None:
                    self._json_problem(view, start, error)
                    return
                end = _end_of_value(view, start + int(trailing[1]))
                try:
                    document = _document.decode(view[start:end])
                except DECODE_ERRORS as inner:
                    self._json_problem(view, start, inner)
                    return
            self._json_document(view, start, end, document)
            start = _skip_space(view, end)

    def _json_document(self, view: memoryview, start: int, end: int, document: _Document) -> None:
        if document.items is None:
            self._json_object(view[start:end], "", "", view)
            return
        self._note_revision(document)
        kind = document.kind.removesuffix("List")
        for item in document.items:
            self._json_object(item, document.api_version, kind, view)

    def _note_revision(self, document: _Document) -> None:
        kind = find_kind(document.api_version, document.kind.removesuffix("List"))
        try:
            metadata = msgspec.json.decode(document.metadata, type=ListMeta)
        except DECODE_ERRORS:
            return  # kubectl's own Lists have no revision
        if kind is not None and metadata.resource_version:
            self._state.resource_versions[kind.resource] = metadata.resource_version
            self._state.missing.pop(kind.resource, None)

    def _json_object(
        self,
        raw: Any,  # noqa: ANN401  # any buffer
        api_version: str,
        kind_name: str,
        view: memoryview,
    ) -> None:
        """Read one object; items of a typed list (`PodList`) take their kind from the list."""
        begin = _KIND_FIRST.match(raw)
        try:
            if begin is not None:
                own = begin[1].decode(), begin[2].decode()
            else:
                identity = _identity.decode(raw)
                own = identity.api_version, identity.kind
            if is_header(*own):
                read_header(raw, self._state)
                return
            kind = self._kind(own[0] or api_version, own[1] or kind_name)
            if kind is not None:
                self._put(codec.decode(raw, kind.record))
        except (MalformedObject, StateError) as error:
            self._problem(_line(view, raw), str(error))
        except DECODE_ERRORS as error:
            self._problem(_line(view, raw), codec.reworded(error))

    def _json_problem(self, view: memoryview, start: int, error: Exception) -> None:
        at = _AT_BYTE.search(str(error))
        offset = len(view) if at is None else start + int(at[1])
        message = codec.reworded(error)
        if isinstance(error, msgspec.ValidationError):
            offset, message = start, f"neither an object nor a list: {message}"
        self._problem(_line_at(view, offset), _AT_BYTE.sub("", message).rstrip())

    # -- YAML --------------------------------------------------------------------------------------

    def _read_yaml(self, text: bytes) -> None:
        starts = [match.end() for match in _MARKER.finditer(text)]
        ends = [match.start() for match in _MARKER.finditer(text)]
        line, previous = 1, 0
        for begin, end in zip([0, *starts], [*ends, len(text)], strict=True):
            line += text.count(b"\n", previous, begin)
            previous = begin
            self._yaml_document(text[begin:end], line)

    def _yaml_document(self, text: bytes, line: int) -> None:
        try:
            text, line = self._yaml_items(text, line)
            value = load(text)
        except YamlError as error:
            self._problem(line + (error.line or 1) - 1, error.message)
            return
        if value is None:
            return
        if not isinstance(value, dict):
            self._problem(line, "neither an object nor a list")
            return
        items = value.get("items")
        if not isinstance(items, list):
            self._yaml_object(value, "", "", text, line, None)
            return
        api_version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
        for index, item in enumerate(items):
            self._yaml_object(item, api_version, kind.removesuffix("List"), text, line, index)

    def _yaml_items(self, text: bytes, line: int) -> tuple[bytes, int]:
        """Read items of kubectl's list one by one: at once, 150,000 pods would take many gigabytes.

        Returns the remaining text and its line: the list without these items, or another document.
        """
        match = _YAML_LIST.match(text)
        if match is None or _YAML_ALIAS.search(text):
            return text, line
        beginning, at = match[0], match.end()
        while text.startswith(b"- ", at):
            after = _YAML_NEXT.search(text, at)
            end = len(text) if after is None else after.end()
            item = b"  " + text[at + 2 : end]
            try:
                value = load(item)
            except YamlError:
                break  # malformed, or dependent on its context
            if not isinstance(value, dict) or not value.get("kind") or not value.get("apiVersion"):
                break
            self._yaml_object(value, "", "", item, line + beginning.count(b"\n"), None)
            line += item.count(b"\n")
            at = end
        else:
            beginning = beginning[:-1] + b" []\n"
        return beginning + text[at:], line

    def _yaml_object(
        self,
        value: Any,  # noqa: ANN401  # any JSON value
        api_version: str,
        kind_name: str,
        text: bytes,
        line: int,
        index: int | None,
    ) -> None:
        try:
            if not isinstance(value, dict):
                raise MalformedObject("object", "", "expected a mapping")
            own = value.get("apiVersion"), value.get("kind")
            kind = self._kind(str(own[0] or api_version), str(own[1] or kind_name))
            if kind is not None:
                self._put(codec.convert(value, kind.record))
        except MalformedObject as error:
            self._problem(line + _item_line(text, index), str(error))

    # -- both --------------------------------------------------------------------------------------

    def _kind(self, api_version: str, kind: str) -> Kind[Any] | None:
        if not kind:
            raise MalformedObject("object", "kind", "missing")
        if not api_version:
            raise MalformedObject(kind, "apiVersion", "missing")
        known = find_kind(api_version, kind)
        if known is None:
            self._state.skip(api_version, kind)
        return known

    def _put(self, obj: Any) -> None:  # noqa: ANN401  # a record of any kind
        if not obj.metadata.name:
            raise MalformedObject(type(obj).__name__, "metadata.name", "missing")
        if isinstance(obj, Pod):
            self._sharing.share(obj)
        self._state.put(obj)

    def _problem(self, line: int, message: str) -> None:
        self._problems.append(Problem(self._file, self._lines_before + line, message))


def _skip_space(view: memoryview, start: int) -> int:
    space = _SPACE.match(view, start)
    assert space is not None, "it may be empty"
    return space.end()


def _end_of_value(view: memoryview, after: int) -> int:
    """The end of a value, given a position in or right after what follows it."""
    while view[after - 1] not in b"}]":
        after -= 1
    return after


def _address(buffer: Any) -> int:  # noqa: ANN401  # any buffer
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def _line(view: memoryview, part: Any) -> int:  # noqa: ANN401  # any buffer
    """The line in which a part of the text begins."""
    return _line_at(view, _address(part) - _address(view))


def _line_at(view: memoryview, offset: int) -> int:
    return 1 + _line_breaks(view[:offset])


def _item_line(text: bytes, index: int | None) -> int:
    """Lines from a document's start to its item; parsed again, which is fine for an error path."""
    try:
        root = parse_text(text)
    except YamlError:
        return 0
    if index is None or not isinstance(root, Mapping):
        return root.line - 1 if isinstance(root, Mapping) else 0
    items = next(value for key, value in root.entries if key.text == "items")
    return items.items[index].line - 1 if isinstance(items, Sequence) else 0


PIECE_BYTES = 64 << 10
"""Text decoded at a time: small enough for the allocator to reuse its memory."""
LONGEST_ITEM = 8 << 20
"""Text of this size without the end of an item is not a list of objects."""
_BEGINNING = re.compile(
    rb'\s*\{(?:\s*"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,|\s*"metadata"\s*:\s*\{[^{}\[\]]*\}\s*,)*'
    rb'\s*"items"\s*:\s*\[(\s*\n[ \t]*)\{'
)


class StreamedList:
    """Pieces of an indented JSON list, each with its items.

    Items begin and end on their own lines with equal indentation, so text that ends with the line
    `        }` should hold whole items; the decoder verifies this. The caller handles a wrong guess
    and the end of the list: `rest` is a stream of the same list without the items already read.
    """

    def __init__(
        self, beginning: bytes, indentation: bytes, pending: bytes, chunks: Iterator[bytes]
    ) -> None:
        self.beginning = beginning
        """The text up to and including the bracket that opens the items."""
        self.lines = _line_breaks(beginning)
        """Lines before the most recent piece."""
        self._last_line = indentation + b"}"
        self._pending = pending
        self._chunks = chunks

    @classmethod
    def begin(cls, first: bytes, chunks: Iterator[bytes]) -> StreamedList | None:
        """A list that begins with this text; None if it is not an indented list."""
        match = _BEGINNING.match(first)
        if match is None:
            return None
        indentation = match[1][match[1].rindex(b"\n") :]
        return cls(first[: match.start(1)], indentation, first[match.start(1) :], chunks)

    def pieces(self) -> Iterator[memoryview]:
        """Pieces as `[item, …]`; a piece counts as read once the next one is requested."""
        while True:
            end = self._pending.rfind(self._last_line) + len(self._last_line)
            if end >= len(self._last_line):
                yield memoryview(b"[%b]" % self._pending[:end].lstrip(b",\r"))
                self.lines += _line_breaks(self._pending[:end])
                self._pending = self._pending[end:]
            more = list(_up_to(PIECE_BYTES, self._chunks))
            if not more or len(self._pending) > LONGEST_ITEM:
                self._pending = b"".join((self._pending, *more))
                return
            self._pending = b"".join((self._pending, *more))

    def rest(self) -> Iterator[bytes]:
        """The unread items, as a list that begins like this one.

        Lines count from the first unread piece, without those of the beginning.
        """
        yield self.beginning.replace(b"\n", b" ")
        yield self._pending.lstrip(b",\r")
        yield from self._chunks


def _line_breaks(text: bytes | memoryview) -> int:
    """Count line breaks; `bytes.count` takes five times as long for a single character."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def _up_to(size: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        size -= len(chunk)
        if size <= 0:
            return
