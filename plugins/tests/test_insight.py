"""What explain, plan, capacity and the page say with a plugin: they know it by its configuration
alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.cookiejar import CookieJar
from http.server import ThreadingHTTPServer
from importlib import util
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from kubesched.app.cli.main import main

ROOT: Final = Path(__file__).parents[1]
POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
TOLERATION: Final = "preemption-toleration.scheduling.x-k8s.io/"
QUEUE_SORT, POST_FILTER = "queueSort", "postFilter"
ALONE: Final = "CapacityScheduling"
"""Its commands are processes of their own."""
JSON = dict[str, Any]


def pod(name: str, cpu: str = "1", limit: str = "", node: str = "", **more: Any) -> JSON:
    """A pod; it runs if it has a node."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts, "limits": {**amounts, "cpu": limit or cpu}}
    labels, namespace = more.pop("labels", {}), more.pop("namespace", "default")
    spec = {"containers": [{"name": "c", "image": "app", "resources": resources}], **more}
    made: JSON = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    made["metadata"] = {"name": name, "namespace": namespace, "labels": labels}
    if node:
        spec["nodeName"] = node
        condition = {"type": "PodScheduled", "status": "True"}
        made["status"] = {"phase": "Running", "conditions": [condition]}
    return made


def node(name: str) -> JSON:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"allocatable": amounts, "capacity": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def obj(
    kind: str, api: str, name: str, annotations: dict[str, str] | None = None, **more: Any
) -> JSON:
    meta: JSON = {"name": name, "annotations": annotations or {}}
    if "namespace" in more:
        meta["namespace"] = more.pop("namespace")
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


def pod_group(name: str, **spec: Any) -> JSON:
    return obj("PodGroup", "scheduling.x-k8s.io/v1alpha1", name, namespace="default", spec=spec)


def priority_class(name: str, value: int, **annotations: str) -> JSON:
    named = {TOLERATION + key.replace("_", "-"): text for key, text in annotations.items()}
    return obj("PriorityClass", "scheduling.k8s.io/v1", name, named, value=value)


def zones(name: str, *cpus: str) -> JSON:
    """As a node's agent tells them."""
    told = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": key, "capacity": all_of_it, "allocatable": all_of_it, "available": left}
                for key, all_of_it, left in (("cpu", "2", cpu), ("memory", "4Gi", "4Gi"))
            ],
        }
        for number, cpu in enumerate(cpus)
    ]
    attributes = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
    listed = [{"name": key, "value": value} for key, value in attributes.items()]
    api = "topology.node.k8s.io/v1alpha2"
    return obj("NodeResourceTopology", api, name, attributes=listed, zones=told)


@dataclass(frozen=True)
class Scene:
    """A cluster with a pod `a` that waits, a pod to come, and what has to be said."""

    plugin: str
    """In `kubesched_plugins`."""
    items: Sequence[JSON]
    new: JSON
    explain: Sequence[str]
    plan: Sequence[str]
    capacity: Sequence[str]
    args: JSON | None = None
    takes_over: str = ""
    """The extension point at which it replaces a default plugin."""

    def config(self, address: str) -> JSON:
        name = f"kubesched_plugins.{self.plugin}"
        args = {**(self.args or {})}
        if "metricProvider" in args:
            args["metricProvider"] = {**args["metricProvider"], "address": address}
        plugins: JSON = {"multiPoint": {"enabled": [{"name": name}]}}
        if self.takes_over:
            plugins[self.takes_over] = {"enabled": [{"name": name}], "disabled": [{"name": "*"}]}
        profile = {"plugins": plugins, "pluginConfig": [{"name": name, "args": args}]}
        api = "kubescheduler.config.k8s.io/v1"
        return {"apiVersion": api, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}


QUOTA = obj(
    "ElasticQuota",
    "scheduling.x-k8s.io/v1alpha1",
    "quota",
    namespace="team",
    spec={"min": {"cpu": 4, "memory": "8Gi"}, "max": {"cpu": 3, "memory": "8Gi", "pods": 10}},
)
OF_LOAD: Final = [
    node("busy"),
    node("idle"),
    *(pod(f"agent-{n}", "1", "4", node=n) for n in ("busy", "idle")),
]
BY_LOAD: JSON = {
    "items": [*OF_LOAD, pod("a", "500m")],
    "new": pod("c", "500m"),
    "explain": ["idle is the best"],
    "plan": ["default/c idle"],
    "capacity": ["default/c: 11 fit.", "Insufficient cpu"],
}
SCENES: Final = {
    "Coscheduling": Scene(
        "coscheduling:Coscheduling",
        [
            node("n"),
            pod_group("g", minMember=3),
            pod_group("big", minMember=1, minResources={"cpu": "9"}),
            pod("a", labels={POD_GROUP_LABEL: "g"}),
            pod("b", labels={POD_GROUP_LABEL: "big"}),
        ],
        pod("c", labels={POD_GROUP_LABEL: "big"}),
        ["cannot find enough sibling pods, current pods number: 1, minMember of group: 3"],
        ["0 placed, 1 not placed, 2 pending", "resource gap: map[cpu:5000m]"],
        ["default/c: 0 fit.", "resource gap: map[cpu:5000m]"],
        takes_over=QUEUE_SORT,
    ),
    "CapacityScheduling": Scene(
        "capacity_scheduling:CapacityScheduling",
        [
            node("n"),
            QUOTA,
            pod("running", node="n", namespace="team"),
            pod("a", "3", namespace="team"),
        ],
        pod("c", namespace="team"),
        ["Pod team/a is rejected in PreFilter because ElasticQuota team is more than Max"],
        ["1 placed, 1 pending as before", "team/c n"],
        # Reserve counts replicas in the quota, which has room for two; the node has it for three.
        [
            "team/c: 2 fit.",
            "Pod team/c-2 is rejected in PreFilter because ElasticQuota team is more",
        ],
        takes_over=POST_FILTER,
    ),
    "NodeResourceTopologyMatch": Scene(
        "node_resource_topology:NodeResourceTopologyMatch",
        [node("n"), zones("n", "2", "2"), pod("a", "3")],
        pod("c"),
        ["cannot align pod", "NodeResourceTopologyMatch"],
        ["1 placed, 1 pending as before", "default/c n"],
        # Reserve takes replicas off both zones, with 2 CPUs each.
        ["default/c: 2 fit.", "1 cannot align pod"],
        {"cacheResyncPeriodSeconds": 5},
    ),
    "PreemptionToleration": Scene(
        "preemption_toleration:PreemptionToleration",
        [
            node("n"),
            priority_class("batch", 1, minimum_preemptable_priority="100", toleration_seconds="-1"),
            priority_class("web", 50),
            priority_class("urgent", 100),
            pod("running", "3", node="n", priorityClassName="batch", priority=1),
            pod("a", "4", priorityClassName="web", priority=50),
        ],
        pod("c", "4", priorityClassName="urgent"),
        ["0/1 nodes are available: 1 No victims found on node n for preemptor pod a."],
        ["1 placed, 1 evicted", "default/running n preemption"],
        ["default/c: 0 fit.", "Insufficient cpu"],
        takes_over=POST_FILTER,
    ),
    "TargetLoadPacking": Scene(
        "trimaran:TargetLoadPacking",
        args={"metricProvider": {"type": "Prometheus"}},
        **BY_LOAD,
    ),
    "LoadVariationRiskBalancing": Scene(
        "trimaran:LoadVariationRiskBalancing",
        args={"metricProvider": {"type": "KubernetesMetricsServer"}},
        **BY_LOAD,
    ),
    "LowRiskOverCommitment": Scene(
        "trimaran:LowRiskOverCommitment",
        args={"metricProvider": {"type": "Prometheus"}},
        **BY_LOAD,
    ),
}


@contextmanager
def load(folder: Path) -> Iterator[str]:
    """The example's stand-in for Prometheus and metrics.k8s.io."""
    spec = util.spec_from_file_location("load", ROOT / "examples" / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CPU, module.MEMORY = 4, 8 * 2**30
    told = {
        "busy": {"cpu": [0.9, 0.05], "memory": [0.9, 0.05]},
        "idle": {"cpu": [0.1, 0.05], "memory": [0.1, 0.05]},
    }
    module.Handler.file = folder / "load.json"
    module.Handler.file.write_text(json.dumps(told))
    with ThreadingHTTPServer(("127.0.0.1", 0), module.Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def said(*words: str) -> str:
    """What the command prints in a process of its own, which knows no plugin beforehand."""
    command = [sys.executable, "-m", "kubesched", *words]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=120
    )
    assert "skipped objects" not in done.stderr
    return " ".join(done.stdout.split()) + done.stderr


def said_here(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints in this process, which saves a second for each."""
    main(list(words))
    told = capsys.readouterr()
    assert "skipped objects" not in told.err
    return " ".join(told.out.split()) + told.err


def shown(namespace: str, *files: str) -> str:
    """What the page says about the pod."""
    command = [sys.executable, "-m", "kubesched", "page", *files]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(
                r"page at (http://127\.0\.0\.1:\d+)(/\?token=\S+)\n", process.stdout.readline()
            )
            assert found is not None
            opener = build_opener(HTTPCookieProcessor(CookieJar()))
            opener.open(found[1] + found[2], timeout=60).close()
            with opener.open(f"{found[1]}/api/explain?pod={namespace}/a", timeout=60) as answer:
                text: str = answer.read().decode(errors="replace")  # columns beside text
                return text
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_a_plugin_is_at_work_wherever_decisions_are_explained(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = SCENES[name]
    # That a command finds a plugin which nothing has imported yet is shown with one of them.
    tell = said if name == ALONE else partial(said_here, capsys)

    def file(at: str, content: JSON) -> str:
        (tmp_path / at).write_text(json.dumps(content))
        return str(tmp_path / at)

    with load(tmp_path) as address:
        dump = file("dump.json", {"apiVersion": "v1", "kind": "List", "items": list(scene.items)})
        files = ["--from", dump, "--config", file("config.json", scene.config(address))]
        new = file("new.json", scene.new)
        namespace = scene.new["metadata"]["namespace"]
        answers: dict[str, tuple[Sequence[str], Callable[[], str]]] = {
            "explain": (
                scene.explain,
                lambda: tell("explain", "pod", "a", "-n", namespace, "-o", "wide", *files),
            ),
            "plan": (scene.plan, lambda: tell("plan", "-f", new, *files)),
            "capacity": (scene.capacity, lambda: tell("capacity", "-f", new, *files)),
            "page": (scene.explain, lambda: shown(namespace, *files)),
        }
        for command, (texts, ask) in answers.items():
            answer = ask()
            for text in texts:
                assert text in answer, f"{command}: {answer}"


def test_a_plugin_that_preempts_by_its_own_rules_is_rehearsed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = SCENES["PreemptionToleration"]
    waiting = pod("a", "4", priorityClassName="urgent", priority=100)
    items = [*scene.items[:-1], waiting]
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": items}))
    (tmp_path / "config.json").write_text(json.dumps(scene.config("")))
    files = ["--from", str(tmp_path / "dump.json"), "--config", str(tmp_path / "config.json")]
    told = said_here(capsys, "explain", "pod", "a", *files)
    assert "the scheduler would evict 1 pod from n." in told
    assert "Would preempt on n: default/running" in told
