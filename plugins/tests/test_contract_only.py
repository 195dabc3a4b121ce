"""The package stands on the public contract alone."""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALLOWED = {"kubesched.framework", "kubesched.framework.api", "kubesched.testing"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_only_the_contract_is_imported(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    ours = {name for name in imported if name.split(".")[0] == "kubesched"}
    assert ours <= ALLOWED
    if "golden" not in path.parts:
        assert "kubesched.testing" not in ours, (
            "the test kit is for comparisons, not for production"
        )


def test_entry_points_name_plugins_by_their_own_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["kubesched.plugins"]
    assert points
    for name, target in points.items():
        module, _, attribute = target.partition(":")
        assert getattr(import_module(module), attribute).name == name
        assert name in (ROOT / "README.md").read_text()
