"""CONTRIBUTING.md names every package, and no file that does not exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_package_is_in_the_table():
    table = re.findall(r"^\| (`.+?`) \| ", TEXT, re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    packages = {path.parent.name for path in (ROOT / "src" / "kubesched").glob("*/__init__.py")}
    assert named == packages


def test_every_file_it_names_exists():
    paths = re.findall(r"`((?:src|tests|docs|scripts)/[\w/.-]+)`", TEXT)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
