"""`scripts/changelog`: from fragments to release notes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def changelog(tmp_path):
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("how")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n<!-- releases, newest first -->\n")
    module = runpy.run_path(str(ROOT / "scripts" / "changelog"))
    return tmp_path, module["main"]


def test_fragments_become_a_section_and_go(changelog, capsys):
    root, main = changelog
    (root / "changelog.d" / "b.md").write_text("second,\nin two lines\n")
    (root / "changelog.d" / "a.md").write_text("first\n")
    assert main([], root) == 0
    assert capsys.readouterr().out == "- first\n- second, in two lines\n"
    assert main(["1.2.3"], root) == 0
    page = (root / "CHANGELOG.md").read_text()
    assert page.startswith("# Changelog\n\n<!-- releases, newest first -->\n\n## 1.2.3 (20")
    assert page.endswith(")\n\n- first\n- second, in two lines\n")
    assert [path.name for path in (root / "changelog.d").iterdir()] == ["README.md"]

    (root / "changelog.d" / "c.md").write_text("third")
    assert main(["1.3.0"], root) == 0
    page = (root / "CHANGELOG.md").read_text()
    assert page.index("## 1.3.0") < page.index("## 1.2.3")


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "next"])
def test_only_versions_are_released(changelog, version):
    root, main = changelog
    (root / "changelog.d" / "a.md").write_text("first\n")
    assert main([version], root) == 2
    assert (root / "changelog.d" / "a.md").exists()


def test_nothing_is_released_twice_or_empty(changelog):
    root, main = changelog
    with pytest.raises(SystemExit, match="no fragments"):
        main(["1.0.0"], root)
    (root / "changelog.d" / "a.md").write_text(" \n")
    with pytest.raises(SystemExit, match=r"a\.md is empty"):
        main(["1.0.0"], root)
    (root / "changelog.d" / "a.md").write_text("first")
    main(["1.0.0"], root)
    (root / "changelog.d" / "a.md").write_text("again")
    with pytest.raises(SystemExit, match="there already"):
        main(["1.0.0"], root)


def test_this_projects_fragments_can_be_collected():
    module = runpy.run_path(str(ROOT / "scripts" / "changelog"))
    assert module["main"]([]) == 0
    assert module["MARK"] in (ROOT / "CHANGELOG.md").read_text()
