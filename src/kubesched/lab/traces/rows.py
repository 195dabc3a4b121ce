"""Rows of CSV and JSON-lines files, compressed or not, with line numbers and typed fields.

A row provides `text`, `integer` and `number` by column. A missing or malformed value raises
TraceError with file, line and column.
"""

from __future__ import annotations

import csv
import errno
import gzip
import hashlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubesched.base.files import read_file
from kubesched.lab.traces.trace import TraceError

_GZIP = b"\x1f\x8b"
MAX_BYTES = 8 << 30
"""Size limit of a file, compressed and decompressed."""
_MISSING = ("", "nan", "NaN", "NULL", "null", "None")
"""Spellings of an absent value in published tables."""


def read_bytes(path: str) -> bytes:
    """Read and decompress a file.

    Raises:
        TraceError: the file does not exist or cannot be read.
    """
    try:
        data = read_file(path, MAX_BYTES)
        return _unpacked(data) if data[:2] == _GZIP else data
    except (OSError, EOFError) as error:
        raise TraceError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _unpacked(data: bytes) -> bytes:
    with gzip.open(io.BytesIO(data)) as file:
        unpacked = file.read(MAX_BYTES + 1)
    if len(unpacked) > MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return unpacked


def read_text(path: str) -> str:
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text (byte {error.start})") from None


def digest_of(paths: Sequence[str], *options: object) -> str:
    """A hash of the files' bytes, in order, and of the reader options."""
    digest = hashlib.sha256(repr(options).encode())
    for path in paths:
        data = read_bytes(path)
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class Row:
    """One line, by column."""

    __slots__ = ("_values", "file", "line")

    def __init__(self, file: str, line: int, values: Mapping[str, Any]) -> None:
        self.file = file
        self.line = line
        self._values = values

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def error(self, column: str, message: str) -> TraceError:
        return TraceError(f"{self.where}: {column}: {message}")

    def get(self, column: str) -> Any:  # noqa: ANN401  # as the file has it
        """The value, or None if absent. `a.b` reads an object, or a column `a.b` or `a_b`."""
        value = self._values.get(column)
        if value is None and "." in column:
            value = self._nested(column)
        if isinstance(value, str) and value.strip() in _MISSING:
            return None
        return value

    def _nested(self, column: str) -> Any:  # noqa: ANN401  # as above
        outer, _, inner = column.partition(".")
        value = self._values.get(outer)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = self._object(outer, value)
        if isinstance(value, Mapping):
            return value.get(inner)
        return self._values.get(f"{outer}_{inner}")

    def _object(self, column: str, text: str) -> Any:  # noqa: ANN401  # as above
        """A nested record in a CSV cell: JSON, or with single quotes as Python tools write it."""
        try:
            return json.loads(
                text if '"' in text else text.replace("'", '"').replace("None", "null")
            )
        except ValueError:
            raise self.error(column, f"{text!r} is not an object") from None

    def text(self, column: str, default: str | None = None) -> str:
        value = self.get(column)
        if value is None:
            if default is None:
                raise self.error(column, "missing")
            return default
        return str(value).strip()

    def number(self, column: str, default: float | None = None) -> float:
        value = self.get(column)
        if value is None:
            if default is None:
                raise self.error(column, "missing")
            return default
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise self.error(column, f"{value!r} is not a number") from None
        if not math.isfinite(number):
            raise self.error(column, f"{value!r} is not a number")
        return number

    def integer(self, column: str, default: int | None = None, *, least: int = 0) -> int:
        value = self.get(column)
        if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
            number = int(value)  # as a float, large ones would be rounded
        elif isinstance(value, int):
            number = value
        else:
            whole = self.number(column, default)
            number = int(whole)
            if number != whole:
                raise self.error(column, f"{value!r} is not a whole number")
        if number < least:
            raise self.error(column, f"{number} is less than {least}")
        return number


def columns_of(text: str) -> list[str]:
    """The header of a CSV file."""
    first = text.partition("\n")[0]
    return [name.strip() for name in next(csv.reader([first]), [])]


def csv_rows(path: str, needed: Sequence[str]) -> Iterator[Row]:
    """The rows of a CSV file with a header.

    Raises:
        TraceError: a required column is missing, or a row's length differs from the header's.
    """
    reader = csv.reader(io.StringIO(read_text(path)))
    header = [name.strip() for name in next(reader, [])]
    missing = [name for name in needed if name not in header]
    if missing:
        raise TraceError(f"{path}:1: no column {', '.join(missing)}; there are {', '.join(header)}")
    for fields in reader:
        if not fields:
            continue
        if len(fields) != len(header):
            raise TraceError(
                f"{path}:{reader.line_num}: {len(fields)} fields, but the header has {len(header)}"
            )
        yield Row(path, reader.line_num, dict(zip(header, fields, strict=True)))


def json_rows(path: str) -> Iterator[Row]:
    """The objects of a JSON-lines file."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise TraceError(f"{path}:{number}: not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise TraceError(f"{path}:{number}: expected an object")
        yield Row(path, number, value)
