from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from kubesched.framework import CycleState, NodeColumns, Rule, Scope, ScorePlugin
from kubesched.framework.api import Pod
from kubesched.testing import Cluster, check_plugin, make_node, make_pod
from kubesched_plugins.golden.clusters import config_of
from kubesched_plugins.node_resource_topology import NodeResourceTopologyMatch
from kubesched_plugins.node_resource_topology.fingerprint import fingerprint_of, pod_sum, xxh64
from kubesched_plugins.node_resource_topology.topology import (
    Config,
    NodeResourceTopology,
    qos_of,
    topology_of,
)

NAME = "NodeResourceTopologyMatch"
OVER_RESERVE = {"cacheResyncPeriodSeconds": 5}


def zones_of(
    name: str, *cpus: str, scope: str = "pod", fingerprint: str = "", **attributes: str
) -> NodeResourceTopology:
    """A node with single-numa-node, and zones with this much CPU left."""
    told = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": scope}
    told |= attributes | ({"nodeTopologyPodsFingerprint": fingerprint} if fingerprint else {})
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "available": cpu},
                {"name": "memory", "available": "16Gi"},
            ],
        }
        for number, cpu in enumerate(cpus)
    ]
    manifest = {
        "metadata": {"name": name},
        "zones": zones,
        "attributes": [{"name": key, "value": value} for key, value in told.items()],
    }
    return msgspec.convert(manifest, NodeResourceTopology)


def node(name: str) -> object:
    return make_node(name).capacity(cpu="8", memory="32Gi", pods=20).build()


def guaranteed(name: str, cpu: str, **spec: object) -> Pod:
    resources = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": resources, "limits": resources}}
    return make_pod(name).spec(containers=[container], **spec).build()


def cluster_of(*objects: object, args: dict[str, Any] | None = None) -> Cluster:
    config = config_of({NAME: args}, "NodeResourcesFit")
    return Cluster(objects, config, plugins=[NodeResourceTopologyMatch])


def started(cluster: Cluster, name: str) -> None:
    pod = cluster.pod(name)
    cluster.update(msgspec.structs.replace(pod, status=running(pod)))


def running(pod: Pod) -> Any:
    return msgspec.structs.replace(pod.status, phase="Running")


def test_a_pod_goes_where_one_zone_has_enough_and_waits_otherwise() -> None:
    with cluster_of(
        node("split"), node("whole"), zones_of("split", "3", "3"), zones_of("whole", "1", "5")
    ) as cluster:
        cluster.add(guaranteed("fits", "4"), guaranteed("waits", "6"))
        cluster.settle()
        assert cluster.node_of("fits") == "whole"
        message = (cluster.condition("waits") or ("", ""))[1]
        assert message.startswith(
            "0/2 nodes are available: 1 Insufficient cpu, 1 cannot align pod."
        )
        cluster.update(zones_of("split", "6", "0"))
        cluster.advance(2)
        assert cluster.node_of("waits") == "split"


def test_a_node_without_zones_is_not_judged() -> None:
    with cluster_of(node("n")) as cluster:
        cluster.add(guaranteed("p", "6"))
        cluster.settle()
        assert cluster.node_of("p") == "n"


def test_containers_are_aligned_one_by_one() -> None:
    resources = {"cpu": "3", "memory": "1Gi"}
    containers = [
        {"name": name, "resources": {"requests": resources, "limits": resources}}
        for name in ("a", "b")
    ]
    pod = make_pod("p").spec(containers=containers)
    with cluster_of(node("n"), zones_of("n", "3", "3", scope="container")) as cluster:
        cluster.add(pod.build())
        cluster.settle()
        assert cluster.node_of("p") == "n"
    with cluster_of(node("n"), zones_of("n", "5", "2", scope="container")) as cluster:
        cluster.add(pod.build())
        cluster.settle()
        assert "cannot align container" in (cluster.condition("p") or ("", ""))[1]


def test_the_newest_object_counts_without_a_cache() -> None:
    with cluster_of(node("n"), zones_of("n", "4", "0")) as cluster:
        cluster.add(guaranteed("a", "4"), guaranteed("b", "4"))
        cluster.settle()
        assert cluster.placements() == {"default/a": "n", "default/b": "n"}, "the object is late"


def test_a_cache_takes_reserved_pods_off_every_zone_until_an_object_counts_them() -> None:
    before, after = fingerprint_of([]), fingerprint_of([pod_sum("default", "a")])
    with cluster_of(
        node("n"), zones_of("n", "4", "4", fingerprint=before), args=OVER_RESERVE
    ) as cluster:
        cluster.add(guaranteed("a", "3"), guaranteed("b", "3"))
        cluster.settle()
        assert cluster.placements() == {"default/a": "n"}
        assert "1 cannot align pod" in (cluster.condition("b") or ("", ""))[1]
        started(cluster, "a")
        cluster.update(zones_of("n", "1", "4", fingerprint=before))  # of before: not believed
        cluster.advance(2)
        assert cluster.node_of("b") == ""
        cluster.update(zones_of("n", "1", "4", fingerprint=after))
        cluster.advance(5)
        assert cluster.node_of("b") == "n"


def test_pods_that_have_not_started_stay_reserved_when_an_object_is_believed() -> None:
    before = fingerprint_of([])
    with cluster_of(
        node("n"), zones_of("n", "4", "0", fingerprint=before), args=OVER_RESERVE
    ) as cluster:
        cluster.add(guaranteed("a", "3"))
        cluster.settle()
        cluster.update(zones_of("n", "4", "0", fingerprint=before))  # as every few seconds
        cluster.add(guaranteed("b", "3"))
        cluster.settle()
        assert cluster.placements() == {"default/a": "n"}
        cluster.delete(cluster.pod("a"))
        cluster.update(zones_of("n", "4", "0", fingerprint=before))
        cluster.advance(5)
        assert cluster.node_of("b") == "n"


def test_nodes_with_pods_of_other_schedulers_are_not_believed_until_they_are_counted() -> None:
    foreign = guaranteed("f", "2", nodeName="n", schedulerName="another")
    foreign = msgspec.structs.replace(foreign, status=running(foreign))
    with cluster_of(
        node("n"), zones_of("n", "4", "4", fingerprint=fingerprint_of([])), args=OVER_RESERVE
    ) as cluster:
        cluster.add(foreign)
        cluster.add(guaranteed("p", "1"))
        cluster.settle()
        assert "1 invalid node topology data" in (cluster.condition("p") or ("", ""))[1]
        counted = fingerprint_of([pod_sum("default", "f")])
        cluster.update(zones_of("n", "2", "4", fingerprint=counted))
        cluster.advance(2)
        assert cluster.node_of("p") == "n"


@pytest.mark.parametrize("detect", ["None", "OnlyExclusiveResources"])
def test_foreign_pods_can_be_ignored(detect: str) -> None:
    args = {**OVER_RESERVE, "cache": {"foreignPodsDetect": detect}}
    shared = make_pod("f").cpu("500m").on("n").spec(schedulerName="another").build()
    with cluster_of(node("n"), zones_of("n", "4"), shared, args=args) as cluster:
        cluster.add(guaranteed("p", "1"))
        cluster.settle()
        assert cluster.node_of("p") == "n"


def test_a_change_of_the_kubelet_is_believed_at_once() -> None:
    with cluster_of(node("n"), zones_of("n", "3", "3"), args=OVER_RESERVE) as cluster:
        cluster.add(guaranteed("p", "5"))
        cluster.settle()
        assert cluster.node_of("p") == ""
        cluster.update(zones_of("n", "3", "3", topologyManagerPolicy="none"))
        cluster.advance(2)
        assert cluster.node_of("p") == "n"


def test_nodes_with_reserved_pods_can_be_discarded() -> None:
    with cluster_of(node("n"), zones_of("n", "4"), args={"discardReservedNodes": True}) as cluster:
        waits = cluster.loop.create_future()
        cluster.client.before["bind_pod"] = lambda *_: waits
        cluster.add(guaranteed("a", "1"))
        cluster.settle()
        cluster.add(guaranteed("b", "1"))
        cluster.settle()
        assert "1 invalid node topology data" in (cluster.condition("b") or ("", ""))[1]
        del cluster.client.before["bind_pod"]
        waits.set_result(None)
        cluster.settle()
        assert cluster.node_of("a") == "n"
        cluster.update(zones_of("n", "3"))
        cluster.advance(2)
        assert cluster.node_of("b") == "n"


class ByName(ScorePlugin):
    """Decides between nodes that are as good as each other."""

    name = "ByName"

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        return np.array([int(nodes.name_at(at)[1:]) for at in range(len(nodes))])

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        return Rule(Scope.NODE)


def without_ties(args: dict[str, Any]) -> str:
    config = json.loads(config_of({NAME: args, "ByName": None}, "NodeResourcesFit"))
    for enabled in config["profiles"][0]["plugins"]["multiPoint"]["enabled"]:
        if enabled["name"] in (NAME, "NodeResourcesFit"):
            enabled["weight"] = 10
    return json.dumps(config)


@pytest.mark.parametrize(
    "strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"]
)
@pytest.mark.parametrize("cache", [{}, OVER_RESERVE, {"discardReservedNodes": True}], ids=str)
def test_kept_answers_are_those_of_a_full_evaluation(strategy: str, cache: dict[str, Any]) -> None:
    """The same history with and without answers shared by pods of a class."""
    placements = []
    for classes in (True, False):
        random = Random(strategy)
        names = [f"n{number}" for number in range(5)]
        args = {"scoringStrategy": {"type": strategy}, **cache}
        with Cluster(
            map(node, names),
            without_ties(args),
            plugins=[NodeResourceTopologyMatch, ByName],
            classes=classes,
        ) as cluster:
            for step in range(40):
                if random.random() < 0.5:
                    name = random.choice(names)
                    known = [pod for pod in cluster.objects(Pod) if pod.spec.node_name == name]
                    seen = [pod for pod in known if pod.status.phase == "Running"]
                    sums = [pod_sum("default", pod.metadata.name) for pod in seen]
                    cpus = [random.choice(["500m", "2", "4"]) for _ in range(2)]
                    scope = random.choice(["pod", "container"])
                    print_ = fingerprint_of(sums)
                    cluster.put(zones_of(name, *cpus, scope=scope, fingerprint=print_))
                for name in random.sample(sorted(cluster.placements()), k=min(2, step // 5)):
                    if random.random() < 0.2:
                        cluster.delete(cluster.pod(name.partition("/")[2]))
                    else:
                        started(cluster, name.partition("/")[2])
                cluster.add(guaranteed(f"p{step}", random.choice(["100m", "1", "3"])))
                cluster.settle()
                if not cluster.node_of(f"p{step}"):  # when it is tried again is another subject
                    cluster.delete(cluster.pod(f"p{step}"))
            placements.append(cluster.placements())
    assert placements[0] == placements[1]
    assert len(set(placements[0].values())) > 1


def test_the_plugin_keeps_the_contract() -> None:
    zones = [zones_of(f"node-{number}", "2", "1") for number in range(3)]
    check_plugin(NodeResourceTopologyMatch, objects=zones, examples=30)


# -- what objects say ------------------------------------------------------------------------------


def test_zones_that_make_no_sense_are_named_once_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    zone = {"type": "Node", "resources": [{"name": "cpu", "available": "4"}]}
    broken = {"type": "Node", "resources": [{"name": "cpu", "available": "many"}]}
    manifest = {
        "metadata": {"name": "n"},
        "zones": [
            {"name": "node-0", **zone},
            {"name": "node-0", **zone},
            {"name": "socket", **zone},
            {"name": "node-64", **zone},
            {"name": "node-1", **broken},
            {"name": "die", "type": "Die"},
        ],
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
    }
    obj = msgspec.convert(manifest, NodeResourceTopology)
    found = topology_of(obj)
    assert [(zone.id, dict(zone.available)) for zone in found.zones] == [
        (0, {"cpu": 4 * 10**9}),
        (1, {}),
    ]
    with cluster_of(node("n"), obj) as cluster:
        cluster.update(obj)
        cluster.add(guaranteed("p", "4"))
        cluster.settle()
        assert "cannot align container" in (cluster.condition("p") or ("", ""))[1], "no memory"
    assert caplog.text.count("NodeResourceTopology n: ") == 1
    assert 'zone "node-0" is there twice; the first one counts' in caplog.text
    assert 'zone "socket": the name is not node-ID' in caplog.text
    assert 'zone "node-1", cpu: ' in caplog.text


def test_objects_without_a_fingerprint_are_read_once_by_the_cache(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with cluster_of(node("n"), zones_of("n", "4"), args=OVER_RESERVE) as cluster:
        cluster.update(zones_of("n", "8"))
        cluster.add(guaranteed("p", "6"))
        cluster.settle()
        assert cluster.node_of("p") == ""
    assert caplog.text.count("has no pod fingerprint") == 1


@pytest.mark.parametrize(
    ("policies", "attributes", "expected"),
    [
        ([], {}, Config()),
        (["SingleNUMANodePodLevel"], {}, Config("single-numa-node", "pod")),
        (["Restricted"], {}, Config()),
        (["BestEffortContainerLevel", "SingleNUMANodePodLevel"], {}, Config("best-effort")),
        (
            ["SingleNUMANodePodLevel"],
            {"topologyManagerScope": "container", "topologyManagerPolicy": "nonsense"},
            Config("single-numa-node", "container"),
        ),
        ([], {"topologyManagerMaxNUMANodes": "5000"}, Config(max_numa_nodes=1024)),
        ([], {"topologyManagerMaxNUMANodes": "1"}, Config()),
    ],
)
def test_the_topology_manager_is_read_from_policies_and_attributes(
    policies: list[str], attributes: dict[str, str], expected: Config
) -> None:
    given = [{"name": name, "value": value} for name, value in attributes.items()]
    manifest = {"metadata": {"name": "n"}, "topologyPolicies": policies, "attributes": given}
    assert topology_of(msgspec.convert(manifest, NodeResourceTopology)).config == expected


def test_sums_of_the_xxhash_family() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


def test_pod_level_resources_decide_about_the_quality_of_service() -> None:
    whole = {"cpu": "1", "memory": "1Gi"}
    pod = make_pod("p").spec(resources={"requests": whole, "limits": whole}).build()
    assert qos_of(pod) == "Guaranteed"
    assert qos_of(make_pod("q").spec(containers=[{"name": "c"}]).build()) == "BestEffort"
    assert qos_of(make_pod("r").cpu("1").build()) == "Burstable"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"scoringStrategy": {"type": "Fastest"}}, "scoringStrategy.type"),
        ({"scoringStrategy": {"resources": []}}, "scoringStrategy.type"),
        ({"preemptionMode": "Maybe"}, "preemptionMode"),
        ({"cache": {"resyncMethod": "Often"}}, "cache.resyncMethod"),
    ],
)
def test_wrong_arguments_are_named(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        cluster_of(args=args)


def test_best_effort_pods_without_devices_are_not_judged() -> None:
    with cluster_of(node("n"), zones_of("n", "0")) as cluster:
        plugins = cluster.assembly.frameworks["default-scheduler"].score
        (plugin,) = (each for each in plugins if each.name == NAME)
        pod = make_pod("p").spec(containers=[{"name": "c"}]).build()
        cluster.add(pod)
        cluster.settle()
        assert cluster.node_of("p") == "n"
        assert plugin.score_nodes(CycleState(), pod, None) == 100
