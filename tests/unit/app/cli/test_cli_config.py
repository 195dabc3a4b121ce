"""Proves `kubesched config`: what it prints, for people and for programs, and its exit codes."""

from __future__ import annotations

import io
import json
import sys

import pytest
import yaml

from kubesched.app.cli import terminal
from kubesched.app.cli.main import main
from kubesched.config.load import default_config, load

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.fixture
def config_file(tmp_path):
    def write(text: str, name: str = "scheduler.yaml") -> str:
        path = tmp_path / name
        path.write_text(HEADER + text, encoding="utf-8")
        return str(path)

    return write


# -- view -----------------------------------------------------------------------------------------


def test_without_a_file_the_defaults_are_shown(capsys):
    assert main(["config", "view"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Profile default-scheduler"
    score = next(line for line in lines if line.split()[0] == "score")
    assert score.split(maxsplit=1)[1] == (
        "TaintToleration(3), NodeAffinity(2), NodeResourcesFit(1), VolumeBinding(1), "
        "PodTopologySpread(2), InterPodAffinity(2), DynamicResources(2), "
        "NodeResourcesBalancedAllocation(1), ImageLocality(1)"
    )
    points = [line.split()[0] for line in lines[2:17]]
    assert points == [
        "preEnqueue",
        "queueSort",
        "preFilter",
        "filter",
        "postFilter",
        "podGroupPostFilter",
        "preScore",
        "score",
        "reserve",
        "permit",
        "preBind",
        "bind",
        "postBind",
        "placementGenerate",
        "placementScore",
    ]
    assert any("hardPodAffinityWeight=1" in line for line in lines)


def test_the_view_of_an_earlier_release_has_the_points_of_that_release(capsys):
    assert main(["config", "view", "--reference-version", "1.36"]) == 0
    out = capsys.readouterr().out
    points = dict(line.split(maxsplit=1) for line in out.splitlines()[1:16])
    assert points["preFilter"].startswith("NodeAffinity, NodePorts,")
    assert "podGroupPostFilter" not in points
    assert main(["config", "view", "--reference-version", "1.36", "-o", "yaml"]) == 0
    (profile,) = yaml.safe_load(capsys.readouterr().out)["profiles"]
    assert "podGroupPostFilter" not in profile["plugins"]
    assert profile["plugins"]["preFilter"]["enabled"][0] == {"name": "NodeAffinity"}


def test_piped_output_is_plain_and_one_line_per_row(capsys):
    main(["config", "view"])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


@pytest.mark.parametrize(("form", "read"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_machine_output_is_a_configuration_with_the_same_meaning(form, read, capsys):
    assert main(["config", "view", "-o", form]) == 0
    out = capsys.readouterr().out
    shown = read(out)
    assert shown["kind"] == "KubeSchedulerConfiguration"
    (profile,) = shown["profiles"]
    assert profile["plugins"]["multiPoint"] == {"disabled": [{"name": "*"}]}
    assert profile["plugins"]["bind"] == {"enabled": [{"name": "DefaultBinder"}]}
    assert profile["plugins"]["score"]["enabled"][0] == {"name": "TaintToleration", "weight": 3}
    again = load(out.encode())
    assert again.profiles[0].plugin_config == default_config().profiles[0].plugin_config


def test_a_file_is_shown_with_its_effect(config_file, capsys):
    path = config_file(
        "profiles:\n"
        "- schedulerName: packer\n"
        "  plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: "
        "9}]}}\n"
        "  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: "
        "MostAllocated}}}]\n"
        "- schedulerName: plain\n"
    )
    assert main(["config", "view", "--config", path]) == 0
    out = capsys.readouterr().out
    assert "Profile packer" in out
    assert "Profile plain" in out
    assert "NodeResourcesFit(9)\n" in out
    assert 'scoringStrategy={"type": "MostAllocated"' in out


def test_gates_change_what_is_shown(capsys):
    assert main(["config", "view", "--feature-gates=GenericWorkload=true"]) == 0
    assert "GangScheduling" in capsys.readouterr().out


def test_bad_gates_are_an_error(capsys):
    assert main(["config", "view", "--feature-gates=Foo=true"]) == 1
    assert capsys.readouterr().err == ("error: --feature-gates: unrecognized feature gate: Foo\n")


def test_a_bad_file_is_not_shown(config_file, capsys):
    path = config_file("parallelism: 0\npodInitialBackoffSeconds: -1\n")
    assert main(["config", "view", "--config", path]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: 2 problems\n  {path}:3:14: parallelism: Invalid value")


def test_a_missing_file_is_an_error(capsys):
    assert main(["config", "view", "--config", "/nowhere/x.yaml"]) == 1
    assert capsys.readouterr().err == (
        "error: /nowhere/x.yaml: cannot read the configuration file: No such file or directory\n"
    )


# -- validate -------------------------------------------------------------------------------------


def test_a_good_file_is_ok(config_file, capsys):
    path = config_file("")
    assert main(["config", "validate", path]) == 0
    assert capsys.readouterr().out == f"{path}: ok\n"


def test_problems_are_printed_as_compilers_print_them(config_file, capsys):
    path = config_file(
        "parallelism: 0\nprofiles: [{plugins: {filter: {enabled: [{name: Ghost}]}}}]\n"
    )
    assert main(["config", "validate", path]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{path}:3:14: parallelism: Invalid value: 0: should be an integer value greater than zero",
        f'{path}:4:42: profiles[0].plugins.filter.enabled[0]: FilterPlugin "Ghost" does not exist',
    ]
    assert captured.err == f"{path}: 2 problems\n"


def test_warnings_do_not_fail_a_file(config_file, capsys):
    path = config_file("profiles: [{plugins: {score: {disabled: [{name: Ghost}]}}}]\n")
    assert main(["config", "validate", path]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert 'warning: disabling "Ghost" has no effect' in first
    assert last == f"{path}: ok"


def test_several_files_are_checked_and_one_bad_one_fails(config_file, capsys):
    good, bad = config_file("", "good.yaml"), config_file("foo: 1\n", "bad.yaml")
    assert main(["config", "validate", good, bad, "/nowhere"]) == 1
    captured = capsys.readouterr()
    assert f"{good}: ok" in captured.out
    assert 'unknown field "foo"' in captured.out
    assert "/nowhere: cannot read the configuration file" in captured.out
    assert captured.err == f"{bad}: 1 problem\n/nowhere: 1 problem\n"


def test_standard_input_is_read(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(HEADER.encode())))
    assert main(["config", "validate", "-"]) == 0
    assert capsys.readouterr().out == "-: ok\n"


@pytest.mark.parametrize(("form", "read"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_results_can_be_read_by_programs(form, read, config_file, capsys):
    path = config_file("parallelism: 0\n")
    assert main(["config", "validate", "-o", form, path]) == 1
    assert read(capsys.readouterr().out) == [
        {
            "file": path,
            "valid": False,
            "problems": [
                {
                    "field": "parallelism",
                    "message": "Invalid value: 0: should be an integer value greater than zero",
                    "line": 3,
                    "column": 14,
                }
            ],
            "warnings": [],
        }
    ]


THIRD_PARTY = """
from dataclasses import dataclass

from kubesched.framework.interfaces import FilterPlugin

@dataclass(frozen=True)
class PickyArgs:
    max_pods: int = 5

class Picky(FilterPlugin):
    name = "Picky"
    args_type = PickyArgs

    def filter(self, state, pod, node_info):
        return None

class Unrelated:
    pass

class Nameless(FilterPlugin):
    def filter(self, state, pod, node_info):
        return None

class Idle(FilterPlugin):
    name = "Idle"

class Raising(Picky):
    name = "Raising"
    args_type = None

    def __init__(self, args, handle):
        raise KeyError("size")

class Impostor(Picky):
    name = "NodeResourcesFit"

class Double(Picky):
    pass
"""


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    (tmp_path / "house_rules.py").write_text(THIRD_PARTY)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("third_party")
def test_a_third_party_plugin_is_placed_where_it_belongs(config_file, capsys):
    path = config_file(
        "profiles: [{plugins: {multiPoint: {enabled: [{name: 'house_rules:Picky'}]}}}]\n"
    )
    assert main(["config", "view", "--config", path]) == 0
    placed = [
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if "house_rules:Picky" in line
    ]
    assert placed == ["filter"]


@pytest.mark.usefixtures("third_party")
def test_arguments_of_a_third_party_plugin_are_checked_against_its_record(config_file, capsys):
    path = config_file(
        "profiles:\n"
        "- plugins: {filter: {enabled: [{name: 'house_rules:Picky'}]}}\n"
        "  pluginConfig: [{name: 'house_rules:Picky', args: {maxPods: many}}]\n"
    )
    assert main(["config", "validate", path]) == 1
    assert capsys.readouterr().out == (
        f"{path}:5:62: profiles[0].pluginConfig[0].args.maxPods: Invalid value: "
        '"many": expected an integer, found a string\n'
    )


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("no_such_module:X", "cannot be imported", id="a module that is missing"),
        pytest.param("house_rules:Unrelated", "is not a class derived", id="no plugin class"),
        pytest.param("house_rules:Nothing", "has no Nothing", id="a class that is missing"),
        pytest.param(
            "house_rules:Nameless", "has no name: set the class", id="a class without a name"
        ),
        pytest.param(
            "house_rules:Idle",
            "implements neither filter nor filter_nodes",
            id="nothing implemented",
        ),
        pytest.param(
            "house_rules:Impostor",
            "has the name of a default plugin, NodeResourcesFit",
            id="a default plugin's name",
        ),
        pytest.param(
            "NodeResourceFit",
            'does not exist; did you mean "NodeResourcesFit"?',
            id="a typing error",
        ),
    ],
)
def test_a_third_party_plugin_that_cannot_be_used_is_a_problem(name, message, config_file, capsys):
    path = config_file(f"profiles: [{{plugins: {{filter: {{enabled: [{{name: '{name}'}}]}}}}}}]\n")
    assert main(["config", "validate", path]) == 1
    out = capsys.readouterr().out
    assert f"{path}:3:42: profiles[0].plugins.filter.enabled[0]: " in out
    assert message in out


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        pytest.param(
            ("Raising",),
            "initializing plugin \"house_rules:Raising\": KeyError: 'size'",
            id="a constructor that raises",
        ),
        pytest.param(
            ("Picky", "Double"),
            'plugins "house_rules:Picky" and "house_rules:Double" have the same name, Picky',
            id="two plugins of one name",
        ),
    ],
)
def test_third_party_plugins_are_constructed(names, message, config_file, capsys):
    enabled = ", ".join(f"{{name: 'house_rules:{name}'}}" for name in names)
    path = config_file(f"profiles: [{{plugins: {{filter: {{enabled: [{enabled}]}}}}}}]\n")
    assert main(["config", "validate", path]) == 1
    assert f"{path}:3:13: profiles[0].plugins: {message}\n" in capsys.readouterr().out
    assert main(["config", "validate", "--no-import", path]) == 0


# -- on a terminal --------------------------------------------------------------------------------


@pytest.fixture
def on_terminal(monkeypatch):
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.usefixtures("on_terminal")
def test_a_terminal_gets_colours_and_lines_that_fit(capsys):
    assert main(["config", "view"]) == 0
    out = capsys.readouterr().out
    assert "\x1b[" in out
    plain = [_without_colour(line) for line in out.splitlines()]
    assert max(len(line) for line in plain) <= 100


@pytest.mark.usefixtures("on_terminal")
def test_a_terminal_gets_coloured_problems_with_the_same_words(config_file, capsys):
    path = config_file("foo: '[bold]'\nprofiles: [{schedulerName: ''}]\n")
    assert main(["config", "validate", path]) == 1
    out = capsys.readouterr().out
    assert "\x1b[" in out
    assert _without_colour(out).splitlines() == [
        f'{path}:3:1: foo: strict decoding error: unknown field "foo"',
        f"{path}:4:28: profiles[0].schedulerName: Required value",
    ]


def _without_colour(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_validating_without_imports_runs_no_code_of_the_file(
    config_file, capsys, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_plugin.py").write_text("raise SystemExit('code ran')")
    path = config_file(
        "parallelism: 0\n"
        "profiles:\n"
        "- plugins: {multiPoint: {enabled: [{name: 'evil_plugin:Plugin'}]}}\n"
    )
    assert main(["config", "validate", "--no-import", path]) == 1
    assert "parallelism: Invalid value: 0" in capsys.readouterr().out
    assert "evil_plugin" not in sys.modules


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host", "http://", "http://h:99999", "x"]
)
def test_extenders_must_be_reached_over_http(config_file, capsys, url):
    path = config_file(f"extenders: [{{urlPrefix: '{url}', filterVerb: filter}}]")
    for flags in ([], ["--no-import"]):
        assert main(["config", "validate", *flags, path]) == 1
        problem = f'extenders[0].urlPrefix: Invalid value: "{url}": must be an http or https URL'
        assert problem in capsys.readouterr().out
