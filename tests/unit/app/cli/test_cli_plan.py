"""`kubesched plan` from the command line."""

from __future__ import annotations

import json

import pytest
import yaml
from dumps import dump_of_two_nodes

from kubesched.app.cli.main import main

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: nginx, resources: {requests: {cpu: "%s"}}}
"""


@pytest.fixture
def words(tmp_path):
    dump = dump_of_two_nodes(tmp_path, used_cpu="3")
    return ["plan", "--from", str(dump)]


def file_of(tmp_path, cpu):
    path = tmp_path / "pod.yaml"
    path.write_text(POD % cpu)
    return str(path)


def test_a_pod_that_fits(words, tmp_path, capsys):
    assert main([*words, "-f", file_of(tmp_path, "2")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 placed."
    assert "default/web   n1     b" in lines
    assert "all    cpu         37.5 %   62.5 %   3" in lines
    assert lines[-1] == "cpu runs out first."


def test_a_pod_that_does_not_fit(words, tmp_path, capsys):
    assert main([*words, "-f", file_of(tmp_path, "8")]) == 2
    out = capsys.readouterr().out
    assert out.startswith("0 placed, 1 not placed.\n")
    assert "Never: 0/2 nodes are available: 2 Insufficient cpu." in out


def test_what_cannot_be_evicted_is_said(words, capsys):
    assert main([*words, "--drain", "n0"]) == 2
    assert "default/old         n0     it has no controller" in capsys.readouterr().out


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_for_programs(form, read, words, tmp_path, capsys):
    assert main([*words, "-f", file_of(tmp_path, "2"), "-o", form]) == 0
    told = read(capsys.readouterr().out)
    assert told["isComplete"] is True
    assert told["placed"] == [
        {"pod": "default/web", "node": "n1", "zone": "b", "wasPending": False}
    ]


def test_extenders_are_off_with_a_note(words, tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders:\n- {urlPrefix: 'http://127.0.0.1:1', filterVerb: filter}\n"
    )
    assert main([*words, "--config", str(config)]) == 0
    assert "note: extenders were not asked: http://127.0.0.1:1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--drain", "n9"], 1, 'error: --drain: there is no node "n9"\n'),
        (["-f", "nowhere.yaml"], 1, "error: nowhere.yaml: No such file or directory\n"),
        (["--add-nodes", "x"], 2, "'x': expected N:FILE or N:like=NODE"),
    ],
)
def test_bad_input_is_one_sentence(more, code, message, words, capsys):
    assert main([*words, *more]) == code
    assert message in capsys.readouterr().err


def test_extenders_are_left_out_with_a_note(words, tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n"
        "- {urlPrefix: 'http://127.0.0.1:1', filterVerb: filter, weight: 1}\n"
    )
    line = [*words, "-f", file_of(tmp_path, "1"), "--config", str(path), "-o", "json"]
    assert main(line) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["placed"][0]["node"] == "n1"
    assert "extenders were not asked" in plan["notes"][0]


def test_replicas_of_workloads_that_exist(words, capsys):
    assert main([*words, "--replicas", "deployment/gone=3"]) == 1
    assert "--replicas: there is no pod of Deployment" in capsys.readouterr().err
    assert main([*words, "--replicas", "web=3"]) == 2
    assert "expected N, or KIND/NAME=N" in capsys.readouterr().err
    assert main([*words, "--replicas", "3", "--replicas", "4"]) == 2
