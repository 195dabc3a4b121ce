"""CONTRIBUTING.md names every package, and no file that does not exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kubesched"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_package_is_in_the_table():
    table = re.findall(r"^\| (`.+?`) \| ", TEXT, re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert named == packages


def test_every_package_inside_a_room_is_named_in_its_row():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", TEXT, re.MULTILINE))
    rooms = ("app", "base", "insight", "lab", "scheduler")
    packages = {
        room: {p.parent.name for p in SOURCE.glob(f"{room}/*/__init__.py")} for room in rooms
    }
    assert all(packages.values())
    missing = {(room, p) for room in rooms for p in packages[room] if f"`{p}`" not in rows[room]}
    assert missing == set()


def test_every_file_it_names_exists():
    paths = re.findall(r"`((?:src|tests|docs|scripts)/[\w/.-]+)`", TEXT)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
