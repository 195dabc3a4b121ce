from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kubesched_plugins.golden import compare, differences
from kubesched_plugins.golden.__main__ import main

SUCCESS = {"code": "Success", "reasons": []}


def a_case(score: int) -> dict[str, object]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    args = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "TargetLoadPackingArgs",
        "watcherAddress": "http://watcher",
    }
    load = [{"name": "", "type": "CPU", "operator": "AVG", "value": 15.0}]
    return {
        "id": "one",
        "plugin": "TargetLoadPacking",
        "input": {
            "args": args,
            "nodes": [
                {"metadata": {"name": "n"}, "status": {"allocatable": amounts, "capacity": amounts}}
            ],
            "pods": [],
            "pod": {
                "metadata": {"name": "p", "namespace": "default", "uid": "p"},
                "spec": {
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "200m"}}}],
                },
            },
            "metrics": {"window_end": 1000, "nodes": {"n": load}},
            "recently_scheduled": [],
        },
        "result": {
            "args_effective": {
                "MetricProvider": {
                    "Type": "",
                    "Address": "",
                    "Token": "",
                    "InsecureSkipVerify": False,
                },
                "WatcherAddress": "http://watcher",
                "DefaultRequests": {"cpu": "1"},
                "DefaultRequestsMultiplier": "1.5",
                "TargetUtilization": 40,
            },
            "nodes": [{"node": "n", "score": score, "score_status": SUCCESS, "normalized": score}],
            "normalize_status": SUCCESS,
        },
    }


def test_agreement_and_difference_show_in_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same, other = tmp_path / "same.jsonl.gz", tmp_path / "other.jsonl"
    # 15 % and 200 of 4000 millicores make 20 %, half of the target: 40 + 60 / 2.
    same.write_bytes(gzip.compress(json.dumps(a_case(70)).encode()))
    other.write_text(json.dumps(a_case(71)) + "\n")
    assert main([str(same)]) == 0
    assert "1 of 1 cases agree" in capsys.readouterr().out
    assert main([str(same), str(other)]) == 1
    shown = capsys.readouterr().out
    assert "one: nodes[0].score\n  recorded 71\n  answered 70\n" in shown
    assert "0 of 1 cases agree" in shown


def test_a_file_that_cannot_be_played_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = tmp_path / "strange.jsonl"
    strange.write_text('{"plugin": "NetworkOverhead"}\n')
    assert main([str(strange)]) == 2
    assert "no player for cases of NetworkOverhead" in capsys.readouterr().err
    assert main([str(tmp_path / "missing")]) == 2
    assert main([]) == 2


def test_a_missing_answer_is_a_difference() -> None:
    assert [found.path for found in differences({"a": [1], "b": 2}, {"a": [1, 2]})] == ["a", "b"]
    assert not compare(a_case(70)).differences
