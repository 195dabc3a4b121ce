"""Objects whose owners go, go; in the order, and with the exceptions, that were asked for."""

from __future__ import annotations

import pytest

from kubesched.playground.apimachinery.catalog import ResourceInfo

D, RS, CM = "deployments.apps", "replicasets.apps", "configmaps"


def reference(obj, *, blocks=False, controller=False):
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
        "controller": controller,
    }


def config_map(world, name, *owners, **metadata):
    owners = [reference(each) if "metadata" in each else each for each in owners]
    return world.create(CM, {"metadata": {"name": name, "ownerReferences": owners, **metadata}})


def names(world):
    return [
        each["metadata"]["name"]
        for each in world.list(CM, "default")
        if each["metadata"]["name"] != "kube-root-ca.crt"
    ]


def test_background_deletion_takes_the_whole_family(world):
    world.deployment(replicas=2)
    world.run(10)
    world.delete(D, "web")
    assert not world.exists(D, "web")
    world.run(10)
    assert world.list(RS) == []
    assert world.pods() == []


def test_foreground_deletion_keeps_the_owner_until_the_last_dependent_is_gone(world):
    world.deployment(replicas=2)
    world.run(10)
    world.delete(D, "web", propagation="Foreground")
    seen = []
    for _ in range(40):
        world.run(0.2)
        seen.append((world.exists(D, "web"), len(world.list(RS)), len(world.pods())))
    assert (True, 1, 2) in seen
    assert seen[-1] == (False, 0, 0)
    for has_deployment, sets, pods in seen:
        assert has_deployment or not sets
        assert sets or not pods


def test_orphaning_leaves_the_dependents_without_an_owner(world):
    world.deployment(replicas=2)
    world.run(10)
    world.delete(D, "web", propagation="Orphan")
    world.run(10)
    [replica_set] = world.list(RS)
    assert not world.exists(D, "web")
    assert "ownerReferences" not in replica_set["metadata"]
    assert len(world.active_pods()) == 2


def test_a_dependent_with_another_owner_stays_and_forgets_the_one_that_went(world):
    first, second = config_map(world, "first"), config_map(world, "second")
    config_map(world, "shared", first, second)
    world.settle()
    world.delete(CM, "first")
    world.settle()
    owners = world.get(CM, "shared")["metadata"]["ownerReferences"]
    assert [each["name"] for each in owners] == ["second"]
    world.delete(CM, "second")
    world.settle()
    assert names(world) == []


def test_a_chain_unravels_to_its_end(world):
    parent = config_map(world, "a")
    for name in "bcdef":
        parent = config_map(world, name, parent)
    world.settle()
    world.delete(CM, "a")
    world.settle()
    assert names(world) == []


def test_an_object_born_after_its_owner_is_gone_is_removed(world):
    parent = config_map(world, "parent")
    world.delete(CM, "parent")
    world.settle()
    config_map(world, "late", parent)
    world.settle()
    assert names(world) == []


def test_a_namesake_of_the_owner_inherits_nothing(world):
    parent = config_map(world, "parent")
    config_map(world, "child", parent)
    world.settle()
    world.delete(CM, "parent")
    config_map(world, "parent")
    world.settle()
    assert names(world) == ["parent"]


def test_an_owner_of_an_unknown_kind_is_waited_for_rather_than_guessed_about(world):
    owner = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u"}
    config_map(world, "child", owner)
    world.run(300)
    assert names(world) == ["child"]


def test_non_blocking_dependents_do_not_hold_a_foreground_deletion(world):
    parent = config_map(world, "parent")
    config_map(world, "child", reference(parent, blocks=False), finalizers=["example.com/wait"])
    world.settle()
    world.delete(CM, "parent", propagation="Foreground")
    world.settle()
    assert names(world) == ["child"]
    assert world.get(CM, "child")["metadata"]["deletionTimestamp"]


def test_a_blocking_dependent_with_a_finalizer_holds_the_owner(world):
    parent = config_map(world, "parent")
    config_map(world, "child", reference(parent, blocks=True), finalizers=["example.com/wait"])
    world.settle()
    world.delete(CM, "parent", propagation="Foreground")
    world.settle()
    assert names(world) == ["child", "parent"]
    world.patch(CM, "child", {"metadata": {"finalizers": None}})
    world.settle()
    assert names(world) == []


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
def test_objects_that_own_each_other_go(world, propagation):
    made = [config_map(world, "a")]
    for name in ("b", "c"):
        made.append(config_map(world, name, reference(made[-1], blocks=True)))
    circle = {"metadata": {"ownerReferences": [reference(made[-1], blocks=True)]}}
    world.api.patch(CM, "default", "a", circle)
    world.settle()
    world.delete(CM, "a", propagation=propagation)
    world.run(5)
    assert names(world) == []


def test_a_cluster_scoped_owner_counts(world):
    node = world.get("nodes", "node-0")
    assert world.exists("leases.coordination.k8s.io", "node-0", "kube-node-lease")
    world.delete("nodes", node["metadata"]["name"])
    world.settle()
    assert not world.exists("leases.coordination.k8s.io", "node-0", "kube-node-lease")


def test_kinds_that_come_later_are_collected_like_any_other(world):
    widgets = ResourceInfo(
        group="example.com",
        version="v1",
        kind="Widget",
        plural="widgets",
        singular="widget",
        custom=True,
    )
    world.registry.catalog.add_custom([widgets])
    parent = world.create("widgets.example.com", {"metadata": {"name": "parent"}})
    config_map(world, "child", parent)
    world.settle()
    assert names(world) == ["child"]
    world.delete("widgets.example.com", "parent")
    world.settle()
    assert names(world) == []


@pytest.mark.parametrize("resource", ["statefulsets.apps", "daemonsets.apps"])
def test_every_workload_takes_its_pods_along(world, resource):
    world.workload(resource)
    world.run(20)
    assert world.pods()
    world.delete(resource, "web")
    world.run(20)
    assert world.pods() == []
    assert world.list("controllerrevisions.apps") == []
