"""kubectl reads: get in all its forms, describe, explain, discovery, watches."""

from __future__ import annotations

import asyncio
import json

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": "250m"}}}
        ]
    },
}
NODE = {
    "metadata": {"name": "n1"},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.36.4"},
    },
}


async def running_pod(cluster, kubectl) -> None:
    cluster.api.create("nodes", NODE)
    await kubectl("create", "-f", "-", stdin=json.dumps(POD))
    cluster.api.bind("default", "web", "n1")
    status = {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}
    cluster.api.patch("pods", "default", "web", {"status": status}, subresource="status")


async def test_get_prints_the_usual_columns(bare_cluster, kubectl):
    await running_pod(bare_cluster, kubectl)
    plain = (await kubectl("get", "pods")).out.splitlines()
    assert plain[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert plain[1].split()[:4] == ["web", "0/1", "Running", "0"]
    wide = (await kubectl("get", "pods", "-o", "wide")).out
    assert "NOMINATED NODE" in wide
    assert "10.0.0.7" in wide
    nodes = (await kubectl("get", "nodes")).out.splitlines()
    assert nodes[1].split()[:3] == ["n1", "Ready", "<none>"]
    assert (await kubectl("get", "pods", "-A", "--show-labels")).out.count("app=web") == 1


async def test_get_prints_machine_readable_forms(bare_cluster, kubectl):
    await running_pod(bare_cluster, kubectl)
    assert (await kubectl("get", "pod", "web", "-o", "json")).json["spec"]["nodeName"] == "n1"
    assert "nodeName: n1" in (await kubectl("get", "pod", "web", "-o", "yaml")).out
    columns = "NAME:.metadata.name,NODE:.spec.nodeName"
    assert (await kubectl("get", "pods", "-o", f"custom-columns={columns}")).out.split() == [
        "NAME",
        "NODE",
        "web",
        "n1",
    ]
    path = "{.items[*].spec.containers[*].image}"
    assert (await kubectl("get", "pods", "-o", f"jsonpath={path}")).out == "nginx:1"
    assert (await kubectl("get", "pods", "-o", "name")).out == "pod/web\n"
    assert (
        "managedFields"
        in (await kubectl("get", "pod", "web", "-o", "yaml", "--show-managed-fields")).out
    )


async def test_selectors_and_sorting(bare_cluster, kubectl):
    await running_pod(bare_cluster, kubectl)
    assert (await kubectl("get", "pods", "-l", "app in (web,api)", "-o", "name")).out == "pod/web\n"
    assert (
        await kubectl("get", "pods", "--field-selector", "spec.nodeName=n1", "-o", "name")
    ).out == "pod/web\n"
    assert (await kubectl("get", "pods", "-l", "app!=web", "-o", "name")).out == ""
    assert (await kubectl("get", "ns", "--sort-by=.metadata.name", "-o", "name")).out.startswith(
        "namespace/default"
    )
    refused = await kubectl.run("get", "pods", "--field-selector", "spec.image=x")
    assert refused.code == 1
    assert "field label not supported: spec.image" in refused.err


async def test_large_lists_come_in_pages(bare_cluster, kubectl):
    for index in range(12):
        bare_cluster.api.create(
            "configmaps", {"metadata": {"name": f"c{index:02}", "namespace": "default"}}
        )
    names = (
        await kubectl(
            "get",
            "cm",
            "-o",
            "name",
            "--chunk-size=5",
            "--field-selector=metadata.name!=kube-root-ca.crt",
        )
    ).out.split()
    assert names == [f"configmap/c{index:02}" for index in range(12)]


async def test_what_does_not_exist_is_said_so(bare_cluster, kubectl):
    missing = await kubectl.run("get", "pod", "ghost")
    assert (missing.code, missing.err) == (
        1,
        'Error from server (NotFound): pods "ghost" not found\n',
    )
    unknown = await kubectl.run("get", "unicorns")
    assert "the server doesn't have a resource type" in unknown.err


async def test_describe_tells_the_story_of_a_pod_and_a_node(bare_cluster, kubectl):
    await running_pod(bare_cluster, kubectl)
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
        "reason": "Scheduled",
        "message": "Successfully assigned default/web to n1",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "default-scheduler"},
    }
    uid = bare_cluster.api.get("pods", "default", "web")["metadata"]["uid"]
    event["involvedObject"]["uid"] = uid
    bare_cluster.api.create("events", event)
    pod = (await kubectl("describe", "pod", "web")).out
    for text in (
        "Node:             n1",
        "cpu:        250m",
        "PodScheduled",
        "Successfully assigned default/web to n1",
    ):
        assert text in pod
    node = (await kubectl("describe", "node", "n1")).out
    for text in ("Non-terminated Pods:", "web", "250m (6%)", "Allocatable:"):
        assert text in node


async def test_explain_walks_the_schema(bare_cluster, kubectl):
    spec = (await kubectl("explain", "pod.spec")).out
    assert "FIELD: spec <PodSpec>" in spec
    assert "tolerations\t<[]Toleration>" in spec
    assert "-required-" in spec
    deep = (await kubectl("explain", "deploy.spec.template.spec.containers.resources.limits")).out
    assert "map[string]Quantity" in deep
    whole = (await kubectl("explain", "poddisruptionbudget", "--recursive")).out
    assert "maxUnavailable\t<IntOrString>" in whole


async def test_discovery_lists_resources_and_versions(bare_cluster, kubectl):
    resources = (await kubectl("api-resources", "-o", "wide")).out
    assert "deployments" in resources
    assert "pdb" in resources
    versions = (await kubectl("api-versions")).out.split()
    assert {"v1", "apps/v1", "resource.k8s.io/v1", "storage.k8s.io/v1"} <= set(versions)
    assert "v1.37.0" in (await kubectl("version")).out
    assert (await kubectl("auth", "can-i", "delete", "nodes")).out == "yes\n"
    assert "kubernetes-admin" in (await kubectl("auth", "whoami")).out
    assert (await kubectl("get", "--raw", "/readyz")).out == "ok"


async def test_logs_say_that_nothing_runs_here(bare_cluster, kubectl):
    await running_pod(bare_cluster, kubectl)
    assert "is simulated (Running)" in (await kubectl("logs", "web")).out


async def test_a_watch_prints_changes_as_they_happen(bare_cluster, kubectl):
    watching = await kubectl.start("get", "pods", "-w", "--output-watch-events", "--no-headers")
    try:
        assert watching.stdout is not None
        await running_pod(bare_cluster, kubectl)
        words = []
        for awaited in ("ADDED", "DELETED"):
            while awaited not in words:
                line = await asyncio.wait_for(watching.stdout.readline(), 30)
                words.append(line.decode().split()[0])
            if awaited == "ADDED":  # before that, kubectl may not yet have asked
                bare_cluster.api.delete("pods", "default", "web", grace_period_s=0)
        assert words[0] == "ADDED"
        assert words[-1] == "DELETED"
    finally:
        watching.kill()
        await watching.communicate()


async def test_wait_returns_when_the_condition_holds(bare_cluster, kubectl):
    await running_pod(bare_cluster, kubectl)
    waiting = asyncio.create_task(
        kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=240s")
    )
    gone = asyncio.create_task(kubectl("wait", "pod/web", "--for=delete", "--timeout=240s"))
    conditions = [{"type": "Ready", "status": "True"}]
    bare_cluster.api.patch(
        "pods", "default", "web", {"status": {"conditions": conditions}}, subresource="status"
    )
    assert "condition met" in (await waiting).out
    bare_cluster.api.delete("pods", "default", "web", grace_period_s=0)
    await gone
