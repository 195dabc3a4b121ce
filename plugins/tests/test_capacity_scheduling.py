from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubesched.framework.api import Pod
from kubesched.testing import Cluster, check_plugin, make_node, make_pod
from kubesched_plugins.capacity_scheduling import CapacityScheduling, ElasticQuota
from kubesched_plugins.golden.clusters import config_of


def quota(namespace: str, *, name: str = "", **spec: Any) -> ElasticQuota:
    manifest = {
        "metadata": {"namespace": namespace, "name": name or f"eq-{namespace}"},
        "spec": {key: {"cpu": cpu, "memory": "100Gi"} for key, cpu in spec.items()},
    }
    return msgspec.convert(manifest, ElasticQuota)


def pod(namespace: str, name: str, cpu: str = "1", priority: int = 0, **spec: Any) -> Pod:
    made = make_pod(name, namespace).request("cpu", cpu)
    return made.spec(priority=priority, **spec).build()


def cluster_of(*objects: object, cpu: str = "4") -> Cluster:
    node = make_node("n").capacity(cpu=cpu, memory="64Gi", pods=30).build()
    config = config_of({"CapacityScheduling": None}, "NodeResourcesFit")
    return Cluster([node, *objects], config, plugins=[CapacityScheduling])


def plugin_of(cluster: Cluster) -> CapacityScheduling:
    (plugin,) = cluster.assembly.frameworks["default-scheduler"].post_filter
    assert isinstance(plugin, CapacityScheduling)
    return plugin


def message(cluster: Cluster, namespace: str, name: str) -> str:
    return (cluster.condition(name, namespace) or ("", ""))[1]


def test_a_namespace_borrows_up_to_its_max_and_to_what_others_are_sure_of() -> None:
    with cluster_of(
        quota("a", min="1", max="3"), quota("b", min="1", max="8"), cpu="16"
    ) as cluster:
        cluster.add(*(pod("a", f"p{number}") for number in range(3)))
        cluster.settle()
        assert sorted(cluster.placements()) == ["a/p0", "a/p1"], "two are guaranteed in all"
        assert "total ElasticQuota used is more than min" in message(cluster, "a", "p2")
        cluster.update(quota("b", min="5", max="8"))
        cluster.add(pod("a", "p3"))
        cluster.advance(15)
        assert len(cluster.placements()) == 3
        assert sum("is more than Max" in message(cluster, "a", name) for name in ("p2", "p3")) == 1


def test_what_was_borrowed_is_taken_back_from_pods_of_any_priority() -> None:
    with cluster_of(quota("a", min="2", max="4"), quota("b", min="2", max="4")) as cluster:
        cluster.add(*(pod("a", f"p{number}", priority=100 + number) for number in range(4)))
        cluster.settle()
        assert len(cluster.placements()) == 4
        cluster.add(pod("b", "owner", priority=1))
        cluster.settle()
        assert cluster.client.deleted == ["a/p0"]
        cluster.advance(15)
        assert cluster.node_of("owner", "b") == "n"


def test_a_quota_beyond_its_min_preempts_only_its_own_less_important_pods() -> None:
    with cluster_of(quota("a", min="1", max="4"), quota("b", min="3", max="4")) as cluster:
        cluster.add(pod("a", "low", priority=1), *(pod("b", f"p{n}") for n in range(3)))
        cluster.settle()
        cluster.add(pod("a", "high", priority=10))
        cluster.settle()
        assert cluster.client.deleted == ["a/low"]


def test_namespaces_without_a_quota_are_left_to_themselves() -> None:
    with cluster_of(quota("a", min="0", max="1"), cpu="1") as cluster:
        cluster.add(pod("other", "low"))
        cluster.settle()
        cluster.add(pod("a", "p", priority=100))
        cluster.settle()
        assert not cluster.client.deleted
        cluster.add(pod("other", "high", priority=1))
        cluster.settle()
        assert cluster.client.deleted == ["other/low"]


def test_a_quota_that_comes_later_counts_the_pods_that_are_there() -> None:
    with cluster_of(cpu="16") as cluster:
        cluster.add(pod("a", "before", "2"))
        cluster.settle()
        cluster.add(quota("a", min="3", max="3"))
        assert plugin_of(cluster).quotas.used == {"cpu": 2000}
        cluster.add(pod("a", "large", "2"))
        cluster.settle()
        assert "ElasticQuota a is more than Max" in message(cluster, "a", "large")
        cluster.delete(cluster.pod("before", "a"))
        cluster.advance(15)
        assert cluster.node_of("large", "a") == "n"
        cluster.delete(quota("a"))
        assert plugin_of(cluster).quotas.used == {}


def test_a_pod_that_cannot_be_bound_gives_its_part_back() -> None:
    with cluster_of(quota("a", min="1", max="1"), cpu="16") as cluster:

        def fail(*_: object) -> None:
            raise ConnectionError("no")

        cluster.client.before["bind_pod"] = fail
        cluster.add(pod("a", "p"))
        cluster.settle()
        assert plugin_of(cluster).quotas.used == {"cpu": 0}
        del cluster.client.before["bind_pod"]
        cluster.advance(15)
        assert cluster.node_of("p", "a") == "n"
        assert plugin_of(cluster).quotas.used == {"cpu": 1000}


def test_a_resized_pod_counts_as_it_is_now() -> None:
    with cluster_of(quota("a", min="8", max="8"), cpu="16") as cluster:
        cluster.add(pod("a", "p"))
        cluster.settle()
        bigger = pod("a", "p", "3").spec.containers
        current = cluster.pod("p", "a")
        spec = msgspec.structs.replace(current.spec, containers=bigger)
        cluster.update(msgspec.structs.replace(current, spec=spec))
        assert plugin_of(cluster).quotas.used == {"cpu": 3000}


def test_what_makes_no_sense_is_logged_and_nothing_gets_stuck(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = msgspec.convert(
        {"metadata": {"namespace": "b", "name": "x"}, "spec": {"min": {"cpu": "lots"}}},
        ElasticQuota,
    )
    with cluster_of(quota("a", min="4", max="2"), wrong, cpu="16") as cluster:
        cluster.add(quota("a", min="4", max="8", name="another"))
        cluster.add(pod("a", "p", "3"), pod("b", "q", "3"))
        cluster.settle()
        assert cluster.node_of("p", "a") == "n", "of two quotas the first by name counts"
        assert cluster.node_of("q", "b") == "n", "as without a quota"
    assert "ElasticQuota a/eq-a: min is more than max" in caplog.text
    assert "several ElasticQuotas; the oldest one counts, another" in caplog.text
    assert "ElasticQuota b/x is not used: " in caplog.text


def test_the_plugin_keeps_the_contract() -> None:
    check_plugin(CapacityScheduling, objects=[quota("default", min="1", max="2")], examples=20)
