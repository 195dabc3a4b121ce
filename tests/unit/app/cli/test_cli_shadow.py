"""`kubesched shadow report` as a user runs it; the how-to plays a recording."""

from __future__ import annotations

import json

import pytest

from kubesched.app.cli.main import main
from kubesched.testing import Cluster, make_node, make_pod

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  shadow:
    of: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}]
"""


def run(capsys, *words):
    code = main(["shadow", "report", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def saved(tmp_path):
    nodes = [make_node(f"n{i}").capacity(cpu="8", memory="8Gi", pods=9).build() for i in range(2)]
    with Cluster(nodes, CONFIG) as cluster:
        for i in range(3):
            cluster.add(make_pod(f"p{i}").cpu("2").memory("1Gi").build())
            cluster.settle()
        path = tmp_path / "shadow.json"
        path.write_text(json.dumps({"shadows": cluster.assembly.shadows.report()}))
    return path


def test_the_report_tells_agreement_pairs_causes_and_sums(capsys, saved):
    code, out, _ = run(capsys, "--from", saved)
    assert code == 0
    assert "packing beside default-scheduler: 3 decisions" in out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert lines["different"][1] == "1"
    pair = next(line for line in lines.values() if line[0] in ("n0", "n1"))
    assert {pair[0], pair[1]} == {"n0", "n1"}
    assert pair[3] == "NodeResourcesFit"
    assert lines["default-scheduler"][1:4] == ["3", "2", "2"]
    assert lines["packing"][1] == "3"
    code, out, _ = run(capsys, "--from", saved, "-o", "json")
    assert json.loads(out) == json.loads(saved.read_text())


def test_promoting_prints_the_patch(capsys, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    code, out, _ = run(capsys, "--promote", "--config", path)
    assert code == 0
    assert "-- schedulerName: packing\n-  shadow:\n-    of: default-scheduler\n" in out
    path.write_text(CONFIG.replace("of: default-scheduler", "of: nobody"))
    code, _, err = run(capsys, "--promote", "--config", path)
    assert (code, "shadow.of" in err) == (1, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "name one of --from and --recording"),
        (("--promote",), "--promote needs --config"),
        (("--from", "missing"), "missing: No such file"),
        (("--from", __file__), "not an answer of /debug/shadow"),
    ],
)
def test_bad_sources_are_named(capsys, words, text):
    code, _, err = run(capsys, *words)
    assert code in (1, 2)
    assert text in err


def test_a_profile_that_is_not_there_is_named(capsys, saved):
    code, _, err = run(capsys, "--from", saved, "--profile", "x")
    assert (code, "there are: packing" in err) == (1, True)
