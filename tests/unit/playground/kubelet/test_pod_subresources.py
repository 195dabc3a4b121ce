"""Ephemeral containers and in-place resizing: what may be written, and what the kubelet makes of
it.
"""

from __future__ import annotations

import re

import pytest

from kubesched.base.errors import Invalid

RESOURCES = {
    "requests": {"cpu": "100m", "memory": "64Mi"},
    "limits": {"cpu": "200m", "memory": "128Mi"},
}


@pytest.fixture
def running(world):
    containers = [{"name": "c", "image": "i", "resources": RESOURCES}, {"name": "d", "image": "i"}]
    world.pod("p", containers=containers, nodeName="node-0")
    world.run(5)
    return world


def debug(world, *containers):
    patch = {"spec": {"ephemeralContainers": list(containers)}}
    return world.api.patch("pods", "default", "p", patch, "strategic", "ephemeralcontainers")


def resize(world, resources, name="c", **more):
    patch = {"spec": {"containers": [{"name": name, "resources": resources, **more}]}}
    return world.api.patch("pods", "default", "p", patch, "strategic", "resize")


def test_a_container_for_debugging_runs(running):
    written = debug(running, {"name": "dbg", "image": "busybox", "targetContainerName": "c"})
    assert written["metadata"]["generation"] == 2
    assert written["spec"]["ephemeralContainers"][0]["imagePullPolicy"] == "Always"
    running.run(2)
    [status] = running.get("pods", "p")["status"]["ephemeralContainerStatuses"]
    assert status["name"] == "dbg"
    assert "running" in status["state"]


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        pytest.param([{"name": "c", "image": "b"}],
                     'spec.ephemeralContainers[0].name: Duplicate value: "c"',
                     id="a name that is taken"),
        pytest.param([{"name": "x", "image": "b", "targetContainerName": "zz"}],
                     'targetContainerName: Not found: "zz"', id="no such target"),
        pytest.param([{"name": "x", "image": "b", "ports": [{"containerPort": 80}]}],
                     "ports: Forbidden: cannot be set for an Ephemeral Container", id="ports"),
        pytest.param([{"name": "x"}], "spec.ephemeralContainers[0].image: Required value",
                     id="no image"),
        pytest.param([{"name": "dbg", "image": "other"}],
                     'existing ephemeral containers "dbg" may not be changed', id="changing one"),
        pytest.param([{"name": "dbg", "$patch": "delete"}],
                     'existing ephemeral containers "dbg" may not be removed', id="removing one"),
    ],
)  # fmt: skip
def test_what_a_debugger_may_not_be(running, containers, words):
    debug(running, {"name": "dbg", "image": "busybox"})
    with pytest.raises(Invalid, match=re.escape(words)):
        debug(running, *containers)


def test_ephemeral_containers_come_later(world):
    with pytest.raises(Invalid, match="Forbidden: cannot be set on create"):
        world.pod("p", ephemeralContainers=[{"name": "x", "image": "y"}])


def test_a_resize_changes_resources_only_and_is_carried_out(running):
    written = resize(running, {"requests": {"cpu": "150m"}}, image="other")
    assert written["metadata"]["generation"] == 2
    assert written["spec"]["containers"][0]["image"] == "i"
    running.run(2)
    status = running.get("pods", "p")["status"]
    assert status["observedGeneration"] == 2
    [first, _second] = status["containerStatuses"]
    assert first["allocatedResources"] == {"cpu": "150m", "memory": "64Mi"}
    assert first["resources"]["limits"] == RESOURCES["limits"]


def test_a_resize_that_does_not_fit_waits_for_room(running):
    cpu = running.get("nodes", "node-0")["status"]["allocatable"]["cpu"]
    neighbour = {"name": "c", "image": "i", "resources": RESOURCES}
    running.pod("q", nodeName="node-0", containers=[neighbour])
    running.run(5)
    resize(running, {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}})
    running.run(2)
    status = running.get("pods", "p")["status"]
    pending = [entry for entry in status["conditions"] if entry["type"] == "PodResizePending"]
    assert [(entry["reason"], "cpu" in entry["message"]) for entry in pending] == [
        ("Deferred", True)
    ]
    assert status["containerStatuses"][0]["allocatedResources"] == RESOURCES["requests"]
    assert {entry["observedGeneration"] for entry in status["conditions"]} == {2}
    running.delete("pods", "q")
    running.run(10)
    status = running.get("pods", "p")["status"]
    assert "PodResizePending" not in {entry["type"] for entry in status["conditions"]}
    assert status["containerStatuses"][0]["allocatedResources"]["cpu"] == cpu


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        pytest.param({"requests": {"cpu": "250m"}},
                     'Invalid value: "250m": must be less than or equal to cpu limit of 200m',
                     id="more than the limit"),
        pytest.param({"requests": {"ephemeral-storage": "1Gi"}},
                     "spec: Forbidden: only cpu and memory resources are mutable",
                     id="another resource"),
        pytest.param({"limits": None},
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            id="no limits any more"),
    ],
)  # fmt: skip
def test_what_a_resize_may_not_do(running, resources, words):
    with pytest.raises(Invalid, match=re.escape(words)):
        resize(running, resources)


def test_a_resize_names_the_containers_that_exist(running):
    words = "spec.containers: Forbidden: containers may not be added or removed on resize"
    with pytest.raises(Invalid, match=re.escape(words)):
        resize(running, {"requests": {"cpu": "150m"}}, name="other", image="x")
    renamed = [{"op": "replace", "path": "/spec/containers/0/name", "value": "other"}]
    words = (
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
    )
    with pytest.raises(Invalid, match=re.escape(words)):
        running.api.patch("pods", "default", "p", renamed, "json", "resize")


def test_a_resize_keeps_the_quality_of_service(world):
    world.pod(
        "p", containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    )
    with pytest.raises(Invalid, match="Pod QOS Class may not change as a result of resizing"):
        resize(
            world,
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        )


@pytest.mark.parametrize(
    ("subresource", "words"),
    [
        pytest.param("exec", "no command can run in it", id="exec"),
        pytest.param("attach", "there is nothing to attach to", id="attach"),
        pytest.param("portforward", "it listens on no port", id="port-forward"),
    ],
)
async def test_what_needs_a_real_container_is_refused_kindly(
    http, api, make_pod, subresource, words
):
    api.create("pods", make_pod("p"))
    for method in ("GET", "POST"):
        path = f"/api/v1/namespaces/default/pods/p/{subresource}?command=ls"
        status, body = await http.call(method, path)
        assert (status, body["message"]) == (400, f"pod default/p is simulated: {words}")
    for method in ("PUT", "PATCH"):
        status, _body = await http.call(
            method, f"/api/v1/namespaces/default/pods/p/{subresource}", {}
        )
        assert status == 405
    status, _body = await http.call("POST", f"/api/v1/namespaces/default/pods/none/{subresource}")
    assert status == 404
