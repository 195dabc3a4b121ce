"""`kubectl top`: usage of pods and nodes, declared by annotation or taken from requests."""

from __future__ import annotations

import pytest

ROOT = "/apis/metrics.k8s.io/v1beta1"


@pytest.fixture
def used(api, make_pod):
    api.create("nodes", {"metadata": {"name": "n"}})
    for name, declared, cpu in (
        ("plain", {}, "250m"),
        ("busy", {"kubelet.kubesched.io/cpu-usage": "2", "kubelet.kubesched.io/memory-usage": "1Gi"}, "1"),
        ("odd", {"kubelet.kubesched.io/cpu-usage": "much"}, "100m"),
    ):  # fmt: skip
        containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
        pod = make_pod(name, nodeName="n", containers=containers)
        pod["metadata"] |= {"annotations": declared, "labels": {"name": name}}
        api.create("pods", pod)
        api.patch("pods", "default", name, {"status": {"phase": "Running"}}, subresource="status")
    api.create("pods", make_pod("pending"))
    return api


async def test_pods(http, used):
    listed = await http.get(f"{ROOT}/namespaces/default/pods")
    assert listed["kind"] == "PodMetricsList"
    usage = {item["metadata"]["name"]: item["containers"][0]["usage"] for item in listed["items"]}
    assert usage == {
        "plain": {"cpu": "250m", "memory": "0"},
        "busy": {"cpu": "2", "memory": "1Gi"},
        "odd": {"cpu": "100m", "memory": "0"},
    }
    chosen = await http.get(f"{ROOT}/pods?labelSelector=name%3Dbusy")
    assert [item["metadata"]["name"] for item in chosen["items"]] == ["busy"]
    assert (await http.get(f"{ROOT}/namespaces/default/pods/busy"))["window"] == "15s"


async def test_nodes(http, used):
    node = await http.get(f"{ROOT}/nodes/n")
    assert node["usage"] == {"cpu": "2350m", "memory": "1Gi"}
    assert len((await http.get(f"{ROOT}/nodes"))["items"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/nodes/none", 404, id="no such node"),
        pytest.param("GET", "/namespaces/default/pods/pending", 404, id="a pod that does not run"),
        pytest.param("GET", "/nodes?watch=true", 405, id="watch"),
        pytest.param("POST", "/nodes", 405, id="create"),
        pytest.param("DELETE", "/nodes/n", 405, id="delete"),
        pytest.param("PUT", "/nodes/n", 405, id="update"),
    ],
)
async def test_what_cannot_be_asked(http, used, method, path, status):
    assert (await http.call(method, ROOT + path, {} if method != "GET" else None))[0] == status
