"""`kubesched conformance golden`: tables, JSON, exit codes and refusals."""

import json
import re
from pathlib import Path

import pytest

from kubesched.app.cli.main import main

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "pods": "10"}}}
POD = {"metadata": {"name": "web", "namespace": "default", "uid": "1"}, "spec": {}}
SCORES = {
    "DynamicResources": 0,
    "ImageLocality": 0,
    "NodeResourcesFit": 100,
    "TaintToleration": 300,
    "VolumeBinding": 0,
}
RIGHT = {
    "feasible": ["n1"],
    "total": {"n1": 400},
    "scores": {"n1": SCORES},
    "rejected": {},
    "message": "",
}


@pytest.fixture
def recorded(tmp_path):
    def write(**changes) -> Path:
        path = tmp_path / "recorded.jsonl"
        pending = [{"pod": POD, "expect": RIGHT | changes}]
        made = {"namespaces": {}, "nodes": [NODE], "pods": [], "pending": pending}
        path.write_text(json.dumps(made))
        return path

    return write


def run(capsys, *words):
    code = main(["conformance", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_agreement_is_shown_per_aspect_and_ends_with_0(capsys, recorded):
    code, out, _ = run(capsys, "golden", recorded())
    assert code == 0
    assert "1 of 1 pods on 1 clusters agree" in out
    assert re.search(r"score per plugin +5 +5 +100 %", out)
    assert "disagree" not in out


def test_disagreements_are_shown_readably_and_end_with_1(capsys, recorded):
    wrong = SCORES | {"NodeResourcesFit": 99}
    path = recorded(scores={"n1": wrong}, total={"n1": 399})
    code, out, _ = run(capsys, "golden", path)
    assert code == 1
    assert "0 of 1 pods on 1 clusters agree" in out
    assert re.search(r"score per plugin +5 +4 +80.00 %", out)
    assert (
        f"{path}:1: pod default/web, node n1, plugin NodeResourcesFit: score per plugin\n"
        "  expected  99\n"
        "  got       100\n"
    ) in out


def test_only_so_many_disagreements_are_shown(capsys, recorded):
    path = recorded(scores={"n1": {}}, total={}, feasible=[])
    _, out, _ = run(capsys, "golden", path, "--show", "2")
    assert "First 2 disagreements" in out
    assert out.count("  expected  ") == 2


def test_json_output_holds_the_same(capsys, recorded):
    code, out, _ = run(capsys, "golden", recorded(message="full"), "-o", "json")
    report = json.loads(out)
    assert code == 1
    assert (report["pods"], report["podsInAgreement"]) == (1, 0)
    assert {"aspect": "message", "compared": 1, "agreed": 0} in report["aspects"]
    (result,) = report["disagreements"]
    assert (result["pod"], result["expected"], result["got"]) == ("default/web", "full", "")


def test_an_unusable_file_is_an_error_of_one_line(capsys, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"pending": []}')
    code, out, err = run(capsys, "golden", path)
    assert (code, out) == (1, "")
    assert err == (
        f"error: {path}:1: not a recorded placement: Object missing required field `namespaces`\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="without a kind"),
        pytest.param(["golden"], id="without a file"),
        pytest.param(["golden", "f", "--limit", "0"], id="a limit of 0"),
        pytest.param(["golden", "f", "--limit", "x"], id="a limit that is no number"),
    ],
)
def test_wrong_calls_are_refused(capsys, words):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert err.startswith("error: ")
