"""`kubesched plugin`: a new package, the list, the check, and one sentence for what cannot be."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from kubesched.app.cli.main import main

FAULTY = """
from kubesched.framework import FilterPlugin, Rule, Scope, Verdicts, unschedulable

class Faulty(FilterPlugin):
    name = "Faulty"

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.pod_count > 0, unschedulable("full"))

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)

class Fine(Faulty):
    name = "Fine"

    def filter_rule(self, state, pod):
        return Rule(Scope.ROW)

class Clumsy(FilterPlugin):
    name = "Clumsy"

    def __init__(self, args, handle):
        raise ValueError("no disk")

    def filter(self, state, pod, node_info): ...
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "faulty_plugin", raising=False)
    (tmp_path / "faulty_plugin.py").write_text(FAULTY)
    return tmp_path


def test_a_new_package_has_what_it_needs(folder, capsys):
    assert main(["plugin", "new", "RackAware"]) == 0
    assert capsys.readouterr().out.startswith("rack-aware: the plugin RackAware")
    made = folder / "rack-aware"
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert files == {
        ".github/workflows/test.yaml",
        "README.md",
        "pyproject.toml",
        "scheduler.yaml",
        "src/rack_aware/__init__.py",
        "src/rack_aware/py.typed",
        "tests/test_plugin.py",
    }
    for name in files:
        assert not re.search(r"\{\{|\}\}", (made / name).read_text()), name
    assert 'RackAware = "rack_aware:RackAware"' in (made / "pyproject.toml").read_text()


@pytest.mark.slow
def test_a_new_package_is_clean(folder):
    assert main(["plugin", "new", "RackAware", "--dir", "made"]) == 0
    for words in (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]):
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder / "made", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("new 3x", 'error: "3x" cannot be the name of a class'),
        ("new rack-aware", 'error: "rack-aware" cannot be the name of a class'),
        ("new class", 'error: "class" cannot be the name of a class'),
        ("new rack", 'error: "rack": a plugin\'s name begins with a capital letter'),
        ("new NodeName", 'error: "NodeName" is the name of a default plugin'),
        ("new Json", 'error: "Json": a package "json" exists already'),
        ("new Racks --dir there", "error: there exists already"),
        ("check Nope", 'error: no plugin "Nope" is installed'),
        ("check nope:Nope", 'error: plugin "nope:Nope" cannot be imported: ModuleNotFoundError'),
        ("check faulty_plugin:Nope", "error: plugin"),
        ("check faulty_plugin:Rule", "is not a class derived from"),
        ("check faulty_plugin:Clumsy", 'error: initializing plugin "Clumsy": ValueError: no disk'),
        ("check faulty_plugin:Fine --args there/list.yaml", "the arguments must be a mapping"),
        ("check faulty_plugin:Fine --args there/bad.yaml", "error: there/bad.yaml: not YAML"),
        ("check faulty_plugin:Fine --only rule", 'error: there is no check "rule", only deter'),
        ("check faulty_plugin:Fine --args none.yaml", "error: none.yaml: No such file"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(folder, capsys, words, text):
    (folder / "there").mkdir()
    (folder / "there" / "list.yaml").write_text("[1]")
    (folder / "there" / "bad.yaml").write_text("a: [")
    assert main(["plugin", *words.split()]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_the_check_tells_what_is_broken(folder, capsys):
    assert main(["plugin", "check", "faulty_plugin:Faulty", "--examples", "60"]) == 1
    printed = capsys.readouterr().out
    assert "rules         broken\nFaulty: filter_rule keeps an answer" in printed
    assert "deterministic ok" in printed


def test_the_check_is_satisfied(folder, capsys):
    (folder / "args.yaml").write_text("{}")
    words = ["check", "faulty_plugin:Fine", "--examples", "10", "--args", "args.yaml"]
    assert main(["plugin", *words]) == 0
    assert "broken" not in capsys.readouterr().out


def test_the_list_tells_points_and_whether_answers_are_kept(capsys):
    assert main(["plugin", "list", "--all", "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["TaintToleration"]["points"] == ["preFilter", "filter", "preScore", "score"]
    assert rows["TaintToleration"]["kept"] == "kept as its rules say"
    assert rows["SchedulingGates"]["kept"] == "none to keep"


def test_a_package_that_is_installed_is_listed(folder, capsys, monkeypatch):
    info = folder / "faulty-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[kubesched.plugins]\nClumsy = faulty_plugin:Clumsy\nGone = gone_module:Gone\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    from kubesched.app.cli.plugin_lookup import installed_plugins

    installed_plugins.cache_clear()
    try:
        assert main(["plugin", "list"]) == 0
    finally:
        installed_plugins.cache_clear()
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert (
        "Clumsy faulty 1.2 filter not kept: no filter_rule, so every pod asks about every node"
        in lines
    )
    assert any(
        line.startswith('Gone faulty 1.2 plugin "Gone" cannot be imported') for line in lines
    )
