"""The library: clusters in a few lines, and the same answers as the commands give."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from pathlib import Path

import pytest

import kubesched as ks
from kubesched.api.core_v1 import Pod
from kubesched.framework import CycleState, NodeInfo, ScorePlugin
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlannedCluster

PACKING = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def test_importing_the_package_imports_no_scheduler() -> None:
    script = "import sys, kubesched; print(sorted(m for m in sys.modules if 'kubesched' in m))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['kubesched', 'kubesched.base', 'kubesched.base.version']"


def test_every_exported_name_exists() -> None:
    for name in ks.__all__:
        assert getattr(ks, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        ks.Clutser  # noqa: B018  # the access is the test


def test_placements_are_those_of_a_plan() -> None:
    nodes, pods = ks.nodes(20, cpu=8, zones=3), ks.pods(60, cpu="500m", memory="1Gi")
    state = ClusterState("memory")
    for node in nodes:
        state.put(node)
    with PlannedCluster(state, seed=3) as world:
        world.add(*pods)
        world.settle()
        expected = world.placements()
    with ks.Cluster(nodes, seed=3) as cluster:
        result = cluster.schedule(pods)
    assert {row["pod"]: row["node"] for row in result.placements.rows()} == expected
    assert (result.placed, result.pending) == (60, 0)


def test_a_row_tells_runner_up_and_margin() -> None:
    small, large = ks.nodes(1, cpu=4, name="small"), ks.nodes(1, cpu=64, name="large")
    with ks.Cluster(small, large) as cluster:
        result = cluster.schedule(ks.pods(1, cpu=2))
        explained = cluster.explain("pod-0")
    (row,) = result.placements.rows()
    assert (row["node"], row["runner_up"], row["attempts"]) == ("large-0", "small-0", 1)
    totals = {row.node: row.total or 0 for row in explained.matrix}
    assert row["margin"] == totals["large-0"] - totals["small-0"]


def test_members_of_a_gang_have_nodes_and_no_margin() -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    spec = {"schedulingGroup": {"podGroupName": "gang"}}
    with ks.Cluster(ks.nodes(5, cpu=2), group, feature_gates="GenericWorkload=true") as cluster:
        result = cluster.schedule(ks.pods(3, cpu=2, spec=spec))
    assert len({row["node"] for row in result.placements.rows()} - {""}) == 3
    assert {row["margin"] for row in result.placements.rows()} == {None}


def test_a_pending_pod_has_the_schedulers_message() -> None:
    with ks.Cluster(ks.nodes(2, cpu=4)) as cluster:
        result = cluster.schedule(ks.pods(1, cpu=5))
    (row,) = result.placements.rows()
    assert (row["node"], row["margin"]) == ("", None)
    assert row["reason"].startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_another_configuration_starts_over_the_same_objects() -> None:
    with ks.Cluster(ks.nodes(4, cpu=4)) as cluster:
        spread = cluster.schedule(ks.pods(4, cpu=1))
        assert sorted(row["node"] for row in spread.placements.rows()) == [
            f"node-{number}" for number in range(4)
        ]
        packed = cluster.schedule(ks.pods(3, cpu=1, name="more"), config=PACKING)
        assert len({row["node"] for row in packed.placements.rows()}) == 1
        assert cluster.node_of("pod-0")


def test_time_goes_on_under_another_configuration() -> None:
    with ks.Cluster(ks.nodes(1, cpu=2)) as cluster:
        cluster.add(ks.pods(1, cpu=3), runs_for=30)
        cluster.run(until=100)
        cluster.schedule(config=PACKING)
        assert cluster.now == 100
        cluster.add(ks.nodes(1, cpu=4, name="large"))
        (row,) = cluster.run(until=200).placements.rows()
    assert (row["node"], row["left"]) == ("large-0", "ended")


class LastNode(ScorePlugin):
    """Prefers nodes with a high number."""

    name = "LastNode"

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return int(node.node.metadata.name.rpartition("-")[2])


def test_a_plugin_of_the_notebook_decides() -> None:
    config = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {disabled: [{name: "*"}], enabled: [{name: LastNode}]}}
"""
    with ks.Cluster(ks.nodes(5)) as cluster:
        result = cluster.schedule(ks.pods(3), config=config, plugins=[LastNode])
    assert {row["node"] for row in result.placements.rows()} == {"node-4"}


def test_time_passes_and_pods_end() -> None:
    with ks.Cluster(ks.nodes(1, cpu=2)) as cluster:
        cluster.add(ks.pods(2, cpu=2), runs_for=100.25)
        cluster.add(ks.pods(1, cpu=1, name="late"), after=250.5)
        first = cluster.run(until=50)
        assert (first.placed, first.pending) == (1, 1)
        whole = cluster.run(until=300)
        assert cluster.now == pytest.approx(300)
    rows = {row["pod"]: row for row in whole.placements.rows()}
    assert rows["default/pod-0"]["left"] == rows["default/pod-1"]["left"] == "ended"
    assert rows["default/pod-1"]["wait"] == pytest.approx(100.25, abs=1.1)  # and its backoff
    assert rows["default/late-0"]["node"] == "node-0"
    times = whole.utilisation["time"]
    assert len(times) > 100
    assert list(times) == sorted(times)
    assert max(whole.utilisation["cpu"]) == 1.0


def test_a_node_goes_and_takes_its_pods() -> None:
    with ks.Cluster(ks.nodes(2, cpu=2)) as cluster:
        cluster.schedule(ks.pods(2, cpu=2))
        cluster.delete(f"node/{cluster.node_of('pod-0')}", after=10)
        result = cluster.run(until=20)
    assert sorted(row["left"] for row in result.placements.rows()) == ["", "evicted"]


def test_controllers_make_pods_and_replace_them() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
    }
    with pytest.raises(ks.InputError, match="Deployment web: nothing makes its pods"):
        ks.Cluster(ks.nodes(2), deployment)
    with ks.Cluster(ks.nodes(2), deployment, controllers=True) as cluster:
        result = cluster.schedule()
        assert result.placed == 3
        cluster.delete("node/node-0")
        again = cluster.schedule()
    alive = [row for row in again.placements.rows() if not row["left"]]
    assert [row["node"] for row in alive] == ["node-1"] * 3


def test_plan_and_capacity_are_those_of_the_commands() -> None:
    with ks.Cluster(ks.nodes(3, cpu=4)) as cluster:
        cluster.schedule(ks.pods(3, cpu=1))
        assert cluster.capacity(ks.pods(1, cpu=1, name="x")).replicas == 9
        assert cluster.plan(drain=["node-0"], force=True).is_complete
        with pytest.raises(ks.InputError, match="'web'"):
            cluster.plan(scale=["web"])


def test_objects_come_from_text_and_files(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus:\n"
    text += "  allocatable: {cpu: 2, pods: 9}\n"
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    for source in (text, file, ks.load(file)):
        with ks.Cluster(source) as cluster:
            assert cluster.schedule(ks.pods(1, cpu=1)).placed == 1


def test_a_live_cluster_is_read_where_a_loop_runs() -> None:
    """As in a notebook."""

    async def cell() -> None:
        ks.load(kubeconfig="no-such-file")

    with pytest.raises(ks.KubeschedError, match="kubeconfig no-such-file: no such file"):
        asyncio.run(cell())


def given_node(cpu: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a"},
        "status": {"allocatable": {"cpu": cpu, "pods": 9}},
    }


def given_pod(resources: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "x", "resources": resources}]},
    }


def closed() -> ks.Cluster:
    cluster = ks.Cluster(ks.nodes(1))
    cluster.close()
    return cluster


def test_dictionaries_may_leave_out_what_an_api_server_sets() -> None:
    nodes = {"apiVersion": "v1", "kind": "NodeList", "items": [given_node(2)]}
    with ks.Cluster(nodes) as cluster:
        cluster.add(given_pod({}), runs_for=10)
        (row,) = cluster.run(until=20).placements.rows()
    assert (row["pod"], row["node"], row["left"]) == ("default/a", "a", "ended")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ks.nodes(1, cpu="3 cores"), r"Node node-0: status\.capacity\.cpu: '3 cores'"),
        (lambda: ks.nodes(1, memory=-1), r"status\.capacity\.memory: -1 is less than 0"),
        (lambda: ks.nodes(-1), "node: -1 of them cannot be made"),
        (
            lambda: ks.pods(1, spec={"nodeNmae": "a"}),
            "Pod default/pod-0: unknown field 'spec.nodeNmae'",
        ),
        (lambda: ks.pods(1, spec={"priority": "high"}), "Pod default/pod-0: "),
        (
            lambda: ks.Cluster({"apiVersion": "v1", "kind": "Pud"}),
            "scheduling reads no 'Pud' of 'v1'",
        ),
        (lambda: ks.Cluster(3), "not int"),
        (lambda: ks.load(), "one of them"),
        (lambda: ks.load(recording="x", at="y"), "load: at: .* not 'y'"),
        (lambda: ks.Cluster().delete("node/x"), "node/x: there is none"),
        (lambda: ks.Cluster().explain("x"), "pod default/x does not exist"),
        (lambda: ks.Cluster().run(until=-1), "until=-1 is no second from 0.0 on"),
        (lambda: ks.Cluster().run(until=math.nan), "until=nan is no second"),
        (lambda: ks.Cluster().add(ks.pods(1), after=-1), "seconds from 0 on"),
        (lambda: ks.Cluster().add(ks.pods(1), after=math.nan), "seconds from 0 on"),
        (lambda: ks.nodes("3"), "node: '3' of them cannot be made"),
        (lambda: ks.nodes(1, zones=-1), "node: zones: -1 of them"),
        (lambda: ks.nodes(1, labels={"a": 1}), r"Node node-0: metadata\.labels"),
        (lambda: ks.nodes(1, taints=["a"]), r"Node node-0: spec\.taints"),
        (lambda: ks.pods(1, labels=["a"]), r"Pod default/pod-0: metadata\.labels"),
        (lambda: ks.pods(1, cpu=[1]), r"^Pod default/pod-0: spec.*requests"),
        (lambda: ks.pods(1, spec="x"), "pod default/pod-0: spec: fields are needed"),
        (lambda: ks.Cluster(ks.nodes(1), ks.nodes(1)), "Node node-0: there are two of it"),
        (lambda: ks.Cluster({"apiVersion": "v1", "kind": "Node", "metadata": "x"}), "metadata"),
        (lambda: ks.Cluster({"apiVersion": "v1", "kind": "Node"}), r"metadata\.name is missing"),
        (
            lambda: ks.Cluster(given_node("2 cores")),
            r"Node a: status\.allocatable\.cpu: '2 cores': quantities must match",
        ),
        (lambda: ks.Cluster(given_node(-1)), r"status\.allocatable\.cpu: -1 is less than 0"),
        (
            lambda: ks.Cluster(given_pod({"requests": {"cpu": "lots"}})),
            r"Pod a: spec\.containers\[0\]\.resources\.requests\.cpu: 'lots'",
        ),
        (lambda: ks.Cluster(config={"kind": "x"}), "config: .* is no file, YAML text or record"),
        (lambda: ks.Cluster(feature_gates={"A": True}), "feature_gates: 'A=true,B=false' is"),
        (lambda: ks.Cluster().run(until="x"), "until=x is no second"),
        (lambda: ks.Cluster().add(ks.pods(1), runs_for="x"), "seconds from 0 on"),
        (lambda: ks.Cluster().delete(3), "3: there is none"),
        (lambda: ks.Cluster().explain(3), "pod default/3 does not exist"),
        (lambda: ks.Cluster().plan(drain="node-0"), r"plan: \['node-0'\] is needed, a list"),
        (lambda: ks.Cluster().capacity(ks.pods(1), limit=-1), "capacity: limit: a number from 0"),
        (lambda: closed().schedule(ks.pods(1)), "the cluster is closed"),
        (lambda: closed().run(until=1), "the cluster is closed"),
    ],
)
def test_wrong_input_names_object_and_field(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ks.InputError, match=message):
        call()


def test_classes_that_are_no_plugins_are_named() -> None:
    nameless = type("Nameless", (ScorePlugin,), {"score": LastNode.score})
    with pytest.raises(ks.KubeschedError, match="plugins: Nameless has no name"):
        ks.Cluster(plugins=[nameless])
    with pytest.raises(ks.KubeschedError, match=r"plugins: \[LastNode\] is needed, a list"):
        ks.Cluster(plugins=LastNode)  # type: ignore[arg-type]


def test_a_result_shows_itself_in_a_notebook() -> None:
    with ks.Cluster(ks.nodes(3, cpu=4, labels={"x": "<b>"})) as cluster:
        cluster.add(ks.pods(20, cpu=1, name="p"))
        html = cluster.run(until=60)._repr_html_()
    assert "12 placed, 8 pending" in html
    assert html.count("<rect") == 3
    assert "and 10 more rows" in html
    assert "polyline" in html
