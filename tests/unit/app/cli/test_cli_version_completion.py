"""Proves `kubesched version` and the completion scripts, which bash is asked to run."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from command_tree import walk

from kubesched import __version__
from kubesched.app.cli.completion import candidates, complete_for_kubectl, complete_why
from kubesched.app.cli.main import main, parser_of


def test_version_is_one_line(capsys):
    assert main(["version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"kubesched {__version__} (kube-scheduler v1.37.0, Python ")
    assert out.count("\n") == 1


@pytest.mark.parametrize(("form", "read"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_version_can_be_read_by_programs(form, read, capsys):
    assert main(["version", "-o", form]) == 0
    versions = read(capsys.readouterr().out)
    assert versions["version"] == __version__
    assert versions["kubernetesVersion"] == "v1.37.0"
    assert versions["references"] == ["v1.36.4", "v1.37.0"]
    assert set(versions) == {
        "version",
        "kubernetesVersion",
        "references",
        "pythonVersion",
        "platform",
    }


@pytest.fixture
def script(capsys):
    def build(shell: str) -> str:
        assert main(["completion", shell]) == 0
        return capsys.readouterr().out

    return build


ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

COMPLETE = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_kubesched
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected", "unexpected"),
    [
        pytest.param([""], {"config", "version", "completion"}, {"view"}, id="commands"),
        pytest.param(["ver"], {"version"}, {"config"}, id="the start of a command"),
        pytest.param(["config", ""], {"view", "validate"}, {"version"}, id="subcommands"),
        pytest.param(
            ["config", "view", "--"],
            {"--config", "--output", "--feature-gates"},
            {"view"},
            id="options",
        ),
        pytest.param(["config", "view", "-o", "j"], {"json"}, {"yaml"}, id="values of an option"),
        pytest.param(["completion", ""], {"bash", "zsh", "fish"}, {"config"}, id="choices"),
        pytest.param(
            ["--debug", "config", ""], {"view"}, {"version"}, id="behind an option of kubesched"
        ),
    ],
)
def test_bash_completes(words, expected, unexpected, script):
    call = ["bash", "-c", script("bash") + COMPLETE, "bash", "kubesched", *words]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT
    )
    assert done.stderr == ""
    offered = set(done.stdout.split())
    assert expected <= offered
    assert not (unexpected & offered)


def test_bash_completes_files(script, tmp_path):
    (tmp_path / "scheduler.yaml").touch()
    call = [
        "bash",
        "-c",
        script("bash") + COMPLETE,
        "bash",
        "kubesched",
        "config",
        "validate",
        "sch",
    ]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=ENVIRONMENT
    )
    assert done.stdout.split() == ["scheduler.yaml"]


def test_every_command_and_option_is_offered(monkeypatch):
    monkeypatch.setattr("kubesched.app.cli.completion.pod_names", lambda _words: [])
    for node in walk(parser_of()):
        offered = {word for word, _ in candidates([*node.words, ""])}
        assert set(node.subcommands) <= offered
        offered = {word for word, _ in candidates([*node.words, "-"])}
        assert node.flags <= offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_asks_the_program(shell, script):
    assert "kubesched completion words" in script(shell)


def test_an_unknown_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice" in capsys.readouterr().err


def test_bash_asks_for_pod_names(script, tmp_path):
    program = tmp_path / "kubesched"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$*" = "completion words explain pod -n web we" ] && printf "web-1\\t\\nweb-2\\t\\n"\n'
    )
    program.chmod(0o755)
    words = ["kubesched", "explain", "pod", "-n", "web", "we"]
    call = ["bash", "-c", script("bash") + COMPLETE, "bash", *words]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.stdout.split() == ["web-1", "web-2"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], {"explain", "config"}),
        (["explain", ""], {"pod", "pods", "schema"}),
        (["explain", "pod", "--fi"], {"--fix"}),
        (["explain", "pod", "a", "-o", ""], {"table", "wide", "json", "yaml"}),
        (["explain", "pod", "we"], {"web-1"}),
    ],
    ids=["commands", "subcommands", "options", "values", "pods"],
)
def test_kubectl_completes_the_plugin(words, expected, capsys, monkeypatch):
    monkeypatch.setattr("kubesched.app.cli.completion.pod_names", lambda _words: ["web-1"])
    monkeypatch.setattr("sys.argv", ["kubectl_complete-kubesched", *words])
    assert complete_for_kubectl() == 0
    *offered, directive = capsys.readouterr().out.split()
    assert expected <= set(offered)
    assert all(each.startswith(words[-1]) for each in offered)
    assert directive == ":4"


def test_kubectl_completes_why(capsys, monkeypatch):
    monkeypatch.setattr("kubesched.app.cli.completion.pod_names", lambda _words: ["web-1", "db-0"])
    monkeypatch.setattr("sys.argv", ["kubectl_complete-why", "we"])
    assert complete_why() == 0
    assert capsys.readouterr().out == "web-1\n:4\n"


def test_the_entry_points_exist():
    text = (Path(__file__).parents[4] / "pyproject.toml").read_text()
    scripts = tomllib.loads(text)["project"]["scripts"]
    assert {"kubesched", "kubectl-kubesched", "kubectl_complete-kubesched"} <= set(scripts)
    assert {"kubectl-why", "kubectl_complete-why"} <= set(scripts)
    for target in scripts.values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
