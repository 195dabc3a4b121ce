"""Results as data frames, by the Arrow interface and without it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from kubesched.lab.library.tables import MissingLibrary, Table

TABLE = Table(
    {
        "pod": ["a", "ü", ""],
        "attempts": np.array([1, 2, 3], dtype=np.int64),
        "margin": np.array([0.5, np.nan, 2.0]),
    }
)
ROWS = [
    {"pod": "a", "attempts": 1, "margin": 0.5},
    {"pod": "ü", "attempts": 2, "margin": None},
    {"pod": "", "attempts": 3, "margin": 2.0},
]


def test_rows() -> None:
    assert list(TABLE.rows()) == ROWS
    with pytest.raises(KeyError, match="no column 'node'; there are pod, attempts, margin"):
        TABLE["node"]


def test_other_libraries_read_it_by_arrow() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    assert nanoarrow.Array(TABLE).to_pylist() == ROWS


def test_numbers_are_not_copied() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    attempts = nanoarrow.Array(TABLE).child(1)
    assert np.shares_memory(np.array(attempts.buffer(1), copy=False), TABLE["attempts"])


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_data_frames(library: str) -> None:
    module = pytest.importorskip(library)
    read = module.table if library == "pyarrow" else module.DataFrame
    frame = read(TABLE)
    assert (frame.to_pylist() if library == "pyarrow" else frame.to_dicts()) == ROWS


def test_pandas() -> None:
    pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert list(frame.columns) == ["pod", "attempts", "margin"]
    assert frame["margin"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize("library", ["pandas", "nanoarrow"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingLibrary, match=f"needs {library}: pip install"):
        TABLE.to_pandas() if library == "pandas" else TABLE.__arrow_c_stream__()


def test_text_in_html_is_escaped() -> None:
    html = Table({"pod": ["<script>"]})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
