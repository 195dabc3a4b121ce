"""Results as columns: for pandas, polars, DuckDB, pyarrow and notebooks.

A table offers the Arrow PyCapsule interface, so that libraries of data frames read numbers without
a copy. It needs `nanoarrow`, a small library that builds Arrow's C structures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from kubesched.base.errors import KubeschedError

Column = list[str] | npt.NDArray[np.int64] | npt.NDArray[np.float64]
"""Strings, integers, or floats in which NaN stands for a missing number."""

SHOWN_ROWS = 10


class MissingLibrary(KubeschedError, ImportError):
    """A library that the user asked for, and that kubesched does not require, is not installed."""


class Table:
    """Named columns of equal length."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        lengths = {len(column) for column in self.columns.values()}
        assert len(lengths) <= 1, f"columns of different lengths: {lengths}"
        self._length = lengths.pop() if lengths else 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> Column:
        try:
            return self.columns[name]
        except KeyError:
            there = ", ".join(self.columns)
            raise KeyError(f"there is no column {name!r}; there are {there}") from None

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows as dictionaries; missing numbers are None."""
        lists = [_plain(column) for column in self.columns.values()]
        for values in zip(*lists, strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def to_pandas(self) -> Any:  # noqa: ANN401  # a pandas.DataFrame
        """Raises MissingLibrary without pandas."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise MissingLibrary("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.columns)

    # -- Arrow -------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as one batch; the protocol lets a producer ignore `requested_schema`."""
        del requested_schema
        return self._stream().__arrow_c_stream__()

    def __arrow_c_schema__(self) -> object:
        return self._stream()._get_cached_schema().__arrow_c_schema__()

    def _stream(self) -> Any:  # noqa: ANN401  # a nanoarrow stream
        try:
            import nanoarrow
            from nanoarrow.c_array_stream import CArrayStream
        except ModuleNotFoundError:
            text = "Arrow needs nanoarrow: pip install 'kubesched[data]'"
            raise MissingLibrary(text) from None
        fields, children = {}, []
        for name, column in self.columns.items():
            fields[name], buffers, nulls = _arrow(nanoarrow, column)
            child = nanoarrow.c_array_from_buffers(fields[name], len(self), buffers, nulls)
            children.append(child)
        schema = nanoarrow.struct(fields)
        batch = nanoarrow.c_array_from_buffers(schema, len(self), [None], 0, children=children)
        return CArrayStream.from_c_arrays([batch], nanoarrow.c_schema(schema))

    # -- notebooks ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = []
        for number, row in enumerate(self.rows()):
            if number == SHOWN_ROWS:
                break
            cells = "".join(f"<td>{escape(_shown(value))}</td>" for value in row.values())
            body.append(f"<tr>{cells}</tr>")
        rest = len(self) - SHOWN_ROWS
        more = f"<p>and {rest:,} more rows</p>" if rest > 0 else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return f"{table}{more}"


def _plain(column: Column) -> Sequence[Any]:
    if isinstance(column, list):
        return column
    values: list[Any] = column.tolist()
    if column.dtype == np.float64:
        return [None if value != value else value for value in values]  # NaN is not itself
    return values


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _arrow(nanoarrow: Any, column: Column) -> tuple[Any, list[Any], int]:  # noqa: ANN401  # the module
    """Type, buffers (validity first) and number of nulls of a column."""
    if isinstance(column, list):
        texts = "".join(column)
        data = texts.encode()
        parts = column if len(data) == len(texts) else [text.encode() for text in column]
        ends = np.zeros(len(column) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, parts), np.int64, len(column)), out=ends[1:])
        return nanoarrow.large_string(), [None, ends, data], 0
    if column.dtype == np.int64:
        return nanoarrow.int64(), [None, column], 0
    missing = np.isnan(column)
    nulls = int(np.count_nonzero(missing))
    validity = np.packbits(~missing, bitorder="little") if nulls else None
    return nanoarrow.float64(), [validity, column], nulls
