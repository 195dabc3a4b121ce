"""What explain, plan and capacity say with a plugin: they know it by its configuration alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"

NAME = "kubesched_plugins.coscheduling:Coscheduling"


def pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {POD_GROUP_LABEL: "g"}},
        "spec": {"containers": [{"name": "c", "image": "app", "resources": resources}]},
    }


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """`--from` and `--config` of a cluster with two pods of three."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    specs = {"g": {"minMember": 3}, "big": {"minMember": 1, "minResources": {"cpu": "9"}}}
    groups = [
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        for name, spec in specs.items()
    ]
    items = [node, *groups, pod("a"), pod("b")]
    dump, config = tmp_path / "dump.json", tmp_path / "config.yaml"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    enabled = {"enabled": [{"name": NAME}]}
    plugins = {"multiPoint": enabled, "queueSort": {**enabled, "disabled": [{"name": "*"}]}}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(json.dumps({**head, "profiles": [{"plugins": plugins}]}))
    return ["--from", str(dump), "--config", str(config)]


def said(*words: str) -> str:
    """What the command prints in a process of its own, which knows no plugin beforehand."""
    command = [sys.executable, "-m", "kubesched", *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert "skipped objects" not in done.stderr
    return done.stdout


def test_explain_names_the_plugin_and_its_reason(
    files: list[str],
) -> None:
    text = said("explain", "pod", "a", "-o", "wide", *files)
    assert "cannot find enough sibling pods, current pods number: 2, minMember of group: 3" in text
    assert "Coscheduling" in text


def test_plan_places_the_group_when_it_is_complete(files: list[str], tmp_path: Path) -> None:
    third = tmp_path / "third.json"
    third.write_text(json.dumps(pod("c")))
    told = json.loads(said("plan", "-f", str(third), "-o", "json", *files))
    assert "cannot find enough sibling pods" not in json.dumps(told)
    assert '"default/c"' in json.dumps(told)


def test_capacity_says_what_stops_the_next_one(files: list[str], tmp_path: Path) -> None:
    big = pod("big")
    big["metadata"]["labels"] = {POD_GROUP_LABEL: "big"}
    file = tmp_path / "big.json"
    file.write_text(json.dumps(big))
    text = said("capacity", "-f", str(file), *files)
    assert "default/big: 0 fit." in text
    assert "resource gap: map[cpu:5000m]" in text
