"""The page about the library runs as it is printed, and names every exported name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kubesched as ks

PAGE = Path(__file__).parents[4] / "docs/reference/library.md"


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})  # the page's own code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Result(500 placed, 0 pending)"
    assert len(lines) == 4


def test_every_name_is_on_the_page() -> None:
    text = PAGE.read_text()
    left_out = {"Compared", "Result", "Table", "__version__"}  # made by the others
    assert [name for name in ks.__all__ if name not in left_out and name not in text] == []


def test_every_column_is_on_the_page() -> None:
    with ks.Cluster(ks.nodes(1)) as cluster:
        columns = cluster.schedule().placements.columns
    assert [name for name in columns if f"`{name}`" not in PAGE.read_text()] == []
