"""Budgets know how many pods they can spare, and evictions keep to it."""

from __future__ import annotations

import pytest

from kubesched.base.errors import TooManyRequests
from kubesched.playground.registry.deletion import DeleteOptions
from kubesched.playground.registry.eviction import evict

PDB = "poddisruptionbudgets.policy"


def budget(world, selector=None, **spec):
    selector = {"matchLabels": {"app": "web"}} if selector is None else selector
    return world.create(
        PDB, {"metadata": {"name": "guard"}, "spec": {"selector": selector, **spec}}
    )


def status(world):
    return world.get(PDB, "guard")["status"]


def numbers(world):
    fields = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    return tuple(status(world)[field] for field in fields)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"minAvailable": 2}, (5, 2, 5, 3), id="at least two"),
        pytest.param({"minAvailable": "50%"}, (5, 3, 5, 2), id="at least half, rounded up"),
        pytest.param({"maxUnavailable": 1}, (5, 4, 5, 1), id="at most one"),
        pytest.param({"maxUnavailable": "30%"}, (5, 3, 5, 2), id="at most a share, rounded up"),
        pytest.param({"maxUnavailable": 0}, (5, 5, 5, 0), id="none"),
        pytest.param({"minAvailable": "100%"}, (5, 5, 5, 0), id="all"),
        pytest.param({"minAvailable": 9}, (5, 9, 5, 0), id="more than there are"),
    ],
)
def test_what_can_be_spared(world, spec, expected):
    world.deployment(replicas=5)
    budget(world, **spec)
    world.run(10)
    assert numbers(world) == expected
    allowed = status(world)["conditions"][0]
    assert allowed["type"] == "DisruptionAllowed"
    assert allowed["status"] == ("True" if expected[3] else "False")
    assert allowed["reason"] == ("SufficientPods" if expected[3] else "InsufficientPods")
    assert status(world)["observedGeneration"] == 1


def test_pods_that_are_not_ready_do_not_count_as_healthy(world):
    world.is_scheduling = False
    world.deployment(replicas=3)
    budget(world, minAvailable=1)
    world.run(10)
    assert numbers(world) == (3, 1, 0, 0)


def test_the_deployment_counts_not_each_of_its_replica_sets(world):
    world.deployment(replicas=4, strategy={"rollingUpdate": {"maxSurge": 4, "maxUnavailable": 0}})
    budget(world, maxUnavailable=1)
    world.run(10)
    containers = [{"name": "main", "image": "web:2"}]
    world.patch(
        "deployments.apps", "web", {"spec": {"template": {"spec": {"containers": containers}}}}
    )
    world.run(0.1)
    assert len(world.active_pods()) == 8
    assert status(world)["expectedPods"] == 4


def test_scaling_changes_what_is_expected(world):
    world.deployment(replicas=2)
    budget(world, maxUnavailable="50%")
    world.run(10)
    world.patch("deployments.apps", "web", {"spec": {"replicas": 6}})
    world.run(10)
    assert numbers(world) == (6, 3, 6, 3)


def test_an_eviction_is_charged_at_once_and_settled_when_the_pod_goes(world):
    world.deployment(replicas=3)
    budget(world, maxUnavailable=1)
    world.run(10)
    first, second, _ = (pod["metadata"]["name"] for pod in world.pods())
    evict(world.api.registry, "default", first, DeleteOptions())
    with pytest.raises(TooManyRequests):
        evict(world.api.registry, "default", second, DeleteOptions())
    world.run(10)
    assert "disruptedPods" not in status(world)
    assert numbers(world) == (3, 2, 3, 1)
    evict(world.api.registry, "default", second, DeleteOptions())


def test_pods_without_an_owner_count_only_for_plain_numbers(world):
    for index in range(3):
        world.pod(f"loose-{index}")
    budget(world, minAvailable=1)
    world.run(10)
    assert numbers(world) == (3, 1, 3, 2)
    world.patch(PDB, "guard", {"spec": {"minAvailable": None, "maxUnavailable": 1}})
    world.run(10)
    assert numbers(world) == (0, 0, 3, 0)
    assert "UnmanagedPods" in world.reasons("guard")


def test_an_owner_that_cannot_be_scaled_allows_nothing(world):
    world.workload("daemonsets.apps")
    budget(world, maxUnavailable=1)
    world.run(10)
    assert status(world)["disruptionsAllowed"] == 0
    assert status(world)["conditions"][0]["reason"] == "SyncFailed"
    assert "CalculateExpectedPodCountFailed" in world.reasons("guard")


def test_an_eviction_that_never_happens_is_given_back_after_two_minutes(world):
    world.deployment(replicas=3)
    budget(world, maxUnavailable=1)
    world.run(10)
    name = world.pods()[0]["metadata"]["name"]
    guard = world.get(PDB, "guard")
    since = "2026-01-01T00:00:10Z"
    charged = {**guard["status"], "disruptedPods": {name: since}, "disruptionsAllowed": 0}
    world.api.update_status(PDB, {**guard, "status": charged})
    world.run(60)
    assert numbers(world) == (3, 2, 2, 0)
    world.run(70)
    assert numbers(world) == (3, 2, 3, 1)
    assert "NotDeleted" in world.reasons(name)


def test_an_empty_selector_means_every_pod(world):
    world.pod("a")
    world.pod("b", labels={"other": "x"})
    budget(world, selector={}, minAvailable=1)
    world.run(10)
    assert numbers(world) == (2, 1, 2, 1)
