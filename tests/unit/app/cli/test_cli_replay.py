"""`kubesched replay` as a user runs it."""

import json

import pytest
from traces import SAMPLES, configuration, write_openb

from kubesched.app.cli.main import main


def run(capsys, *words):
    code = main(["replay", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def configs(tmp_path):
    paths = []
    for kind in ("LeastAllocated", "MostAllocated"):
        path = tmp_path / f"{kind}.yaml"
        path.write_text(configuration(kind))
        paths += ["--config", f"{kind}={path}"]
    return paths


def test_two_configurations_are_compared(capsys, tmp_path, configs):
    files = write_openb(tmp_path, 1)
    code, out, _ = run(capsys, *files, *configs, "--seeds", 3)
    assert code == 0
    assert "LeastAllocated (3 seeds)" in out
    assert "MostAllocated beside LeastAllocated" in out
    assert "shown" in out


def test_reports_are_equal_byte_for_byte_wherever_they_are_made(capsys, tmp_path, configs):
    files = write_openb(tmp_path, 2, pods=20)
    outputs = []
    for where in ("local:1", "local:2"):
        words = ("--executor", where, "--seeds", 2, "-o", "json")
        code, out, _ = run(capsys, *files, *configs, *words)
        assert code == 0
        outputs.append(out)
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])["cells"]) == 4


def test_results_are_kept_and_used_again(capsys, tmp_path, monkeypatch):
    results = tmp_path / "results"
    words = (SAMPLES / "openb", "--results", results, "-o", "json", "--seeds", 2)
    _, first, _ = run(capsys, *words)
    assert len(list(results.iterdir())) == 2
    monkeypatch.setattr("kubesched.lab.traces.cells.play_trace", None)
    _, again, _ = run(capsys, *words)
    assert again == first


def test_identical_configurations_show_nothing(capsys):
    words = ("--config", "a=default", "--config", "b=default", "--seeds", 2)
    code, out, _ = run(capsys, SAMPLES / "openb", *words)
    assert code == 0
    assert "Nothing shown: every pod went to the same node." in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gone.csv",), "gone.csv: No such file or directory"),
        ((SAMPLES / "openb", "--config", "gone.yaml"), "gone.yaml"),
        ((SAMPLES / "openb", "--config", "default", "--config", "default"), "two configurations"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(capsys, words, message):
    code, _, err = run(capsys, *words)
    assert code == 1
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        (SAMPLES / "openb", "--seeds", "0"),
        (SAMPLES / "openb", "--executor", "cloud"),
        (SAMPLES / "openb", "x", "--verify"),
        (SAMPLES / "openb", "--verify", "--config", "default"),
        (),
    ],
)
def test_wrong_usage(capsys, words):
    try:
        code = main(["replay", *map(str, words)])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
