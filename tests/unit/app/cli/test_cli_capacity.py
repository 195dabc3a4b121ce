"""`kubesched capacity` from the command line."""

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
  - {name: web, image: nginx, resources: {requests: {cpu: "1"}}}
"""


@pytest.fixture
def words(tmp_path):
    dump = dump_of_two_nodes(tmp_path, used_cpu="1")
    pod = tmp_path / "pod.yaml"
    pod.write_text(POD)
    return ["capacity", "-f", str(pod), "--from", str(dump)]


def test_the_count_the_zones_and_the_reasons(words, capsys):
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "default/web: 7 fit."
    assert lines[1].startswith("The next pod: not now. No node of 2 takes it")
    assert "a      3      1       1 Insufficient cpu" in lines
    assert "b      4      1       1 Insufficient cpu" in lines


def test_wide_lists_the_nodes(words, capsys):
    assert main([*words, "-o", "wide"]) == 0
    assert capsys.readouterr().out.endswith("NODE   PODS\nn0     3\nn1     4\n")


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_for_programs(form, read, words, capsys):
    assert main([*words, "-o", form]) == 0
    told = read(capsys.readouterr().out)
    assert (told["replicas"], told["zones"]) == (7, {"a": 3, "b": 4})


@pytest.mark.parametrize(("minimum", "code"), [("7", 0), ("8", 2)])
def test_the_minimum_is_a_gate(minimum, code, words):
    assert main([*words, "--min", minimum]) == code


def test_the_limit_ends_the_count(words, capsys):
    assert main([*words, "--max", "2"]) == 0
    assert capsys.readouterr().out.startswith("default/web: 2 or more fit.")


def test_bad_input_is_one_sentence(words, capsys):
    words[2] = "nowhere.yaml"
    assert main(words) == 1
    assert capsys.readouterr().err == "error: nowhere.yaml: No such file or directory\n"
