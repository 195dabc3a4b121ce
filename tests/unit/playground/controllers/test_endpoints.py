"""Services with a selector have EndpointSlices and Endpoints that follow their pods."""

from __future__ import annotations

import pytest

from kubesched.playground.controllers.endpoints import MAX_ENDPOINTS

SLICES = "endpointslices.discovery.k8s.io"


def service(world, name="web", **spec):
    body = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    return world.create("services", {"metadata": {"name": name}, "spec": body})


def endpoints(world):
    return [endpoint for entry in world.list(SLICES) for endpoint in entry["endpoints"]]


def test_ready_pods_are_behind_their_service(world):
    service(world)
    world.deployment("web", replicas=3)
    world.run(10)
    [entry] = world.list(SLICES)
    assert entry["metadata"]["labels"] == {
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert entry["ports"] == [{"name": "", "protocol": "TCP", "port": 8080}]
    pods = {pod["metadata"]["name"]: pod for pod in world.pods()}
    assert {item["targetRef"]["name"] for item in entry["endpoints"]} == set(pods)
    for item in entry["endpoints"]:
        pod = pods[item["targetRef"]["name"]]
        assert item["addresses"] == [pod["status"]["podIP"]]
        assert item["nodeName"] == pod["spec"]["nodeName"]
        assert item["conditions"] == {"ready": True, "serving": True, "terminating": False}
    [subset] = world.get("endpoints", "web")["subsets"]
    assert len(subset["addresses"]) == 3
    assert subset["ports"] == [{"protocol": "TCP", "port": 8080}]


def test_pods_come_and_go(world):
    service(world)
    world.deployment("web", replicas=2)
    world.run(10)
    world.patch("deployments.apps", "web", {"spec": {"replicas": 1}})
    world.settle()
    going = [item for item in endpoints(world) if item["conditions"]["terminating"]]
    assert [item["conditions"]["ready"] for item in going] == [False]
    world.run(10)
    assert len(endpoints(world)) == 1
    world.delete("deployments.apps", "web")
    world.run(10)
    assert endpoints(world) == []
    assert "subsets" not in world.get("endpoints", "web")


def test_a_pod_that_is_not_ready_is_listed_apart(world):
    service(world)
    world.pod("slow", readinessGates=[{"conditionType": "example.com/up"}])
    world.run(5)
    assert [item["conditions"]["ready"] for item in endpoints(world)] == [False]
    [subset] = world.get("endpoints", "web")["subsets"]
    assert "addresses" not in subset
    assert len(subset["notReadyAddresses"]) == 1


def test_named_ports_are_those_of_each_pod(world):
    service(world, ports=[{"port": 80, "targetPort": "http"}])
    for name, number in (("a", 8080), ("b", 9090)):
        ports = [{"name": "http", "containerPort": number}]
        world.pod(name, containers=[{"name": "main", "image": "x", "ports": ports}])
    world.run(5)
    assert sorted(entry["ports"][0]["port"] for entry in world.list(SLICES)) == [8080, 9090]
    assert len(world.get("endpoints", "web")["subsets"]) == 2


def test_a_large_service_has_several_slices(make_world):
    world = make_world(nodes=3)
    service(world)
    world.deployment("web", replicas=MAX_ENDPOINTS + 20)
    world.run(30)
    assert sorted(len(entry["endpoints"]) for entry in world.list(SLICES)) == [20, MAX_ENDPOINTS]


@pytest.mark.parametrize("spec", [{"selector": None}, {"type": "ExternalName", "externalName": "x.example", "selector": None}])  # fmt: skip
def test_a_service_without_a_selector_is_left_alone(world, spec):
    service(world, **spec)
    world.run(2)
    assert world.list(SLICES) == []


def test_they_go_with_the_service_and_come_back_when_deleted(world):
    service(world)
    world.deployment("web", replicas=1)
    world.run(10)
    [entry] = world.list(SLICES)
    world.delete(SLICES, entry["metadata"]["name"])
    world.run(1)
    assert len(endpoints(world)) == 1
    world.delete("services", "web")
    world.run(5)
    assert world.list(SLICES) == []
    assert not world.exists("endpoints", "web")


def test_a_quiet_service_costs_no_writes(world):
    service(world)
    world.deployment("web", replicas=2)
    world.run(10)
    before = [entry["metadata"]["resourceVersion"] for entry in world.list(SLICES)]
    world.restart()
    world.run(5)
    assert [entry["metadata"]["resourceVersion"] for entry in world.list(SLICES)] == before
