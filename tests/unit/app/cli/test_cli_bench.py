"""`kubesched bench`: listing and running; tables, files, exit codes and refusals."""

import json
import subprocess
import sys

import msgspec
import pytest

from kubesched.app.cli.main import main
from kubesched.lab.benchmarking.results import Report

QUICK = ("--repeats", "1", "--warmup", "0")


def run(capsys, *words):
    code = main(["bench", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_help_loads_neither_numpy_nor_asyncio():
    script = (
        "import sys\nfrom kubesched.app.cli.main import main\nmain(['bench', 'run', '--help'])\n"
        "print([m for m in ('numpy', 'asyncio', 'aiohttp', 'yaml', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_list_shows_our_workloads(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert "Basic/medium" in out
    assert "plain pods, all alike" in out


def test_list_of_a_file_says_what_is_not_supported(capsys, tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(
        "- name: Claims\n  featureGates: {DRADerivedAttributes: true}\n"
        "  workloadTemplate: [{opcode: createNodes, count: 1}]\n  workloads: [{name: one}]\n"
    )
    code, out, _ = run(capsys, "list", path, "-o", "json")
    assert code == 0
    (result,) = json.loads(out)
    assert result["name"] == "Claims/one"
    assert result["notSupported"].startswith("DRADerivedAttributes: derived device attributes")


def test_run_prints_a_table_and_tells_its_stages(capsys):
    code, out, err = run(capsys, "run", "Basic/tiny", *QUICK, "--plugins")
    assert code == 0
    header, row, *_ = out.splitlines()
    assert header.split()[:5] == ["WORKLOAD", "CONTESTANT", "NODES", "PODS", "PODS/S"]
    assert row.split()[:4] == ["Basic/tiny", "kubesched", "10", "100"]
    assert "NodeResourcesFit" in out
    assert err.splitlines() == ["Basic/tiny: repeat 1 of 1"]


def test_a_parameter_is_replaced(capsys):
    words = ("Basic/tiny", *QUICK, "--param", "nodes=7", "--percentage-of-nodes-to-score", "50")
    code, out, _ = run(capsys, "run", *words)
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["Basic/tiny", "kubesched", "7"]


def test_run_writes_a_report(capsys, tmp_path):
    code, out, _ = run(
        capsys,
        "run",
        "Basic/tiny",
        *QUICK,
        "--both",
        "--output-dir",
        tmp_path / "out",
        "-o",
        "json",
    )
    assert code == 0
    written = (tmp_path / "out/report.json").read_bytes()
    assert written == out.encode()
    report = msgspec.json.decode(written, type=Report)
    assert [result.contestant for result in report.results] == [
        "kubesched",
        "kubesched-no-classes",
    ]


def test_what_is_not_supported_is_said_and_the_rest_is_run(capsys, tmp_path):
    path = tmp_path / "some.yaml"
    path.write_text(
        "- name: Claims\n  featureGates: {DRADerivedAttributes: true}\n"
        "  workloadTemplate: [{opcode: createNodes, count: 1}]\n  workloads: [{name: one}]\n"
        "- name: Plain\n  workloadTemplate: [{opcode: createNodes, count: 1}, "
        "{opcode: createPods, count: 1, collectMetrics: true}]\n  workloads: [{name: one}]\n"
    )
    code, out, err = run(capsys, "run", path, *QUICK)
    assert code == 0
    assert "Plain/one" in out
    assert "not run: Claims/one: not supported: DRADerivedAttributes" in err


def test_a_workload_that_gets_stuck_ends_with_1_and_its_reason(capsys, tmp_path):
    path = tmp_path / "stuck.yaml"
    path.write_text(
        "- name: Stuck\n  workloadTemplate: [{opcode: createPods, count: 1, collectMetrics: "
        "true}]\n"
        "  workloads: [{name: one}]\n"
    )
    code, out, err = run(capsys, "run", path, *QUICK)
    assert (code, out) == (1, "")
    assert "not run: Stuck/one: 1 pods of namespace-0 cannot be scheduled" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        pytest.param(("run", "Basics"), "no workload 'Basics'", id="unknown name"),
        pytest.param(("run", "gone.yaml"), "gone.yaml: No such file", id="missing file"),
        pytest.param(
            ("run", "Basic", "--param", "x=1"), "no workload has a parameter x", id="param"
        ),
        pytest.param(
            ("run", "Basic", "--against", "kube-scheduler"), "needs --mode end-to-end", id="against"
        ),
        pytest.param(
            ("run", "--mode", "end-to-end", "--control-plane", "real", "--assets", "/nowhere"),
            "/nowhere does not hold etcd",
            id="programs that are not there",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(capsys, words, complaint):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert complaint in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [("run", "--repeats", "0"), ("run", "--mode", "x"), ("run", "--param", "nodes"), ()],
)
def test_wrong_usage_ends_with_2(capsys, words):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert err.startswith("error: ")


def test_mistakes_in_a_file_are_listed_with_their_lines(capsys, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "- name: A\n  workloadTemplate: [{opcode: x}, {opcode: y}]\n  workloads: [{name: one}]\n"
    )
    code, _, err = run(capsys, "run", path)
    assert code == 1
    assert err.startswith("error: 2 problems\n")
    assert f"{path}:2:22: [0].workloadTemplate[0].opcode: unknown opcode 'x'" in err
