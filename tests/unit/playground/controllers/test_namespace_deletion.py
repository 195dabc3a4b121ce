"""A namespace that is deleted empties first, then goes."""

from __future__ import annotations

import pytest

from kubesched.base.errors import Forbidden


def test_everything_in_it_goes_then_the_namespace_itself(world):
    world.create("namespaces", {"metadata": {"name": "team"}}, "")
    world.create("configmaps", {"metadata": {"name": "settings"}}, "team")
    world.workload("deployments.apps", namespace="team", replicas=2)
    world.run(10)
    world.delete("namespaces", "team")
    assert world.get("namespaces", "team")["status"]["phase"] == "Terminating"
    world.run(0.1)
    assert world.exists("namespaces", "team")
    assert len(world.pods(namespace="team")) == 2
    world.run(30)
    assert not world.exists("namespaces", "team")
    assert world.pods(namespace="team") == []
    assert world.list("deployments.apps", "team") == []


def test_an_empty_namespace_goes_at_once(world):
    world.create("namespaces", {"metadata": {"name": "empty"}}, "")
    world.settle()
    world.delete("namespaces", "empty")
    world.settle()
    assert not world.exists("namespaces", "empty")


def test_content_with_a_finalizer_holds_the_namespace(world):
    world.create("namespaces", {"metadata": {"name": "held"}}, "")
    world.create(
        "configmaps", {"metadata": {"name": "x", "finalizers": ["example.com/wait"]}}, "held"
    )
    world.delete("namespaces", "held")
    world.run(60)
    conditions = world.get("namespaces", "held")["status"]["conditions"]
    told = {each["type"]: (each["status"], each["message"]) for each in conditions}
    assert told["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert told["NamespaceFinalizersRemaining"] == (
        "True",
        "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource "
        "instances",
    )
    assert told["NamespaceDeletionContentFailure"][0] == "False"
    world.patch("configmaps", "x", {"metadata": {"finalizers": None}}, "held")
    world.settle()
    assert not world.exists("namespaces", "held")


def test_nothing_new_enters_while_it_goes(world):
    world.create("namespaces", {"metadata": {"name": "held"}}, "")
    world.create(
        "configmaps", {"metadata": {"name": "x", "finalizers": ["example.com/wait"]}}, "held"
    )
    world.delete("namespaces", "held")
    world.settle()
    with pytest.raises(Forbidden, match="being terminated"):
        world.create("configmaps", {"metadata": {"name": "y"}}, "held")


def test_pods_go_before_what_they_use(world):
    world.create("namespaces", {"metadata": {"name": "team"}}, "")
    world.create("configmaps", {"metadata": {"name": "settings"}}, "team")
    metadata = {"name": "p", "finalizers": ["example.com/wait"]}
    world.create(
        "pods",
        {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "team",
    )
    world.run(5)
    world.delete("namespaces", "team")
    world.run(60)
    assert world.exists("configmaps", "settings", "team")
    world.patch("pods", "p", {"metadata": {"finalizers": None}}, "team")
    world.run(1)
    assert not world.exists("namespaces", "team")
