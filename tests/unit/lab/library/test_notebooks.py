"""The notebooks run from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(ROOT)
    cells = re.findall(r"```python\n(.*?)```", notebook.read_text(), re.DOTALL)
    assert len(cells) >= 3
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells, 1):
        exec(compile(cell, f"{notebook.name}, cell {number}", "exec"), names)  # the page's own code
    assert "axes" in names
