"""kubectl writes: create, apply (both ways), patch, edit, label, taint, delete, and what it is told
when it is wrong.
"""

from __future__ import annotations

import json
import stat

import pytest

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web, tier: front}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: nginx:1
        ports: [{containerPort: 80}]
      - name: side
        image: busybox:1
"""


async def test_apply_creates_configures_and_leaves_alone(bare_cluster, kubectl):
    assert (
        await kubectl("apply", "-f", "-", stdin=MANIFEST)
    ).out == "deployment.apps/web created\n"
    assert (
        await kubectl("apply", "-f", "-", stdin=MANIFEST)
    ).out == "deployment.apps/web unchanged\n"
    changed = (
        MANIFEST.replace("nginx:1", "nginx:2")
        .replace(", tier: front", "")
        .replace("replicas: 2", "replicas: 5")
    )
    assert "will be" not in (await kubectl("diff", "-f", "-", stdin=MANIFEST)).out
    assert (
        await kubectl("apply", "-f", "-", stdin=changed)
    ).out == "deployment.apps/web configured\n"
    web = bare_cluster.api.get("deployments.apps", "default", "web")
    assert web["metadata"]["labels"] == {"app": "web"}
    assert web["spec"]["replicas"] == 5
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"


async def test_apply_is_a_three_way_merge(bare_cluster, kubectl):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    bare_cluster.api.patch(
        "deployments.apps", "default", "web", {"metadata": {"labels": {"owner": "someone"}}}
    )
    without_side = MANIFEST[: MANIFEST.index("      - name: side")].replace(", tier: front", "")
    await kubectl("apply", "-f", "-", stdin=without_side)
    web = bare_cluster.api.get("deployments.apps", "default", "web")
    assert web["metadata"]["labels"] == {"app": "web", "owner": "someone"}, (
        "others' labels stay, dropped ones go"
    )
    assert [container["name"] for container in web["spec"]["template"]["spec"]["containers"]] == [
        "main"
    ]


async def test_server_side_apply_and_its_conflicts(bare_cluster, kubectl):
    await kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST)
    await kubectl("scale", "deployment/web", "--replicas=7")
    refused = await kubectl.run("apply", "--server-side", "-f", "-", stdin=MANIFEST)
    assert refused.code == 1
    assert (
        'conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas'
        in refused.err
    )
    await kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=MANIFEST)
    web = bare_cluster.api.get("deployments.apps", "default", "web")
    assert web["spec"]["replicas"] == 2


async def test_client_side_apply_can_be_taken_over_by_the_server_side(bare_cluster, kubectl):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    await kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST)
    without_label = MANIFEST.replace(", tier: front", "")
    await kubectl("apply", "--server-side", "-f", "-", stdin=without_label)
    web = bare_cluster.api.get("deployments.apps", "default", "web")
    assert web["metadata"]["labels"] == {"app": "web"}, (
        "kubectl moved its claims over, so the label has no manager now"
    )


async def test_a_misspelt_field_is_refused_by_its_path(bare_cluster, kubectl):
    refused = await kubectl.run("apply", "-f", "-", stdin=MANIFEST.replace("replicas", "replicsa"))
    assert refused.code == 1
    assert 'strict decoding error: unknown field "spec.replicsa"' in refused.err
    await kubectl(
        "apply", "--validate=ignore", "-f", "-", stdin=MANIFEST.replace("replicas", "replicsa")
    )


async def test_an_invalid_object_is_refused_with_every_reason(bare_cluster, kubectl):
    bad = MANIFEST.replace("matchLabels: {app: web}", "matchLabels: {app: other}").replace(
        "replicas: 2", "replicas: -2"
    )
    refused = await kubectl.run("create", "-f", "-", stdin=bad)
    assert 'The Deployment "web" is invalid:' in refused.err
    assert "* spec.replicas: Invalid value: -2: must be greater than or equal to 0" in refused.err
    assert "`selector` does not match template `labels`" in refused.err


async def test_create_knows_its_generators(bare_cluster, kubectl):
    await kubectl("create", "deployment", "d", "--image=nginx", "--replicas=3", "--port=80")
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", "team")
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    await kubectl("create", "service", "clusterip", "svc", "--tcp=80:8080")
    await kubectl("create", "job", "j", "--image=busybox", "--", "sleep", "1")
    await kubectl("create", "cronjob", "cj", "--image=busybox", "--schedule=* * * * *")
    await kubectl("create", "pdb", "b", "--selector=app=d", "--min-available=1")
    await kubectl("create", "priorityclass", "high", "--value=1000", "--description=x")
    await kubectl("create", "serviceaccount", "robot")
    await kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    await kubectl("create", "rolebinding", "rb", "--role=reader", "--serviceaccount=default:robot")
    await kubectl("run", "p", "--image=nginx", "--labels=a=b")
    await kubectl("expose", "pod", "p", "--port=80")
    api = bare_cluster.api
    assert api.get("deployments.apps", "default", "d")["spec"]["replicas"] == 3
    assert api.get("secrets", "default", "s")["data"] == {"a": "Yg=="}
    assert api.get("poddisruptionbudgets.policy", "default", "b")["spec"]["minAvailable"] == 1
    assert api.get("priorityclasses.scheduling.k8s.io", None, "high")["value"] == 1000
    assert api.get("services", "default", "svc")["spec"]["ports"][0]["targetPort"] == 8080
    again = await kubectl.run("create", "namespace", "team")
    assert 'namespaces "team" already exists' in again.err


async def test_patch_in_its_three_kinds(bare_cluster, kubectl):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    strategic = {
        "spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox:2"}]}}}
    }
    await kubectl("patch", "deploy", "web", "-p", json.dumps(strategic))
    await kubectl(
        "patch", "deploy", "web", "--type=merge", "-p", '{"metadata":{"labels":{"tier":null}}}'
    )
    await kubectl(
        "patch",
        "deploy",
        "web",
        "--type=json",
        "-p",
        '[{"op":"replace","path":"/spec/replicas","value":9}]',
    )
    web = bare_cluster.api.get("deployments.apps", "default", "web")
    assert [container["image"] for container in web["spec"]["template"]["spec"]["containers"]] == [
        "nginx:1",
        "busybox:2",
    ]
    assert (web["metadata"]["labels"], web["spec"]["replicas"]) == ({"app": "web"}, 9)
    await kubectl(
        "patch",
        "deploy",
        "web",
        "--subresource=scale",
        "--type=merge",
        "-p",
        '{"spec":{"replicas":1}}',
    )
    assert bare_cluster.api.get("deployments.apps", "default", "web")["spec"]["replicas"] == 1


async def test_edit_runs_an_editor_and_writes_back(bare_cluster, kubectl, tmp_path):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/replicas: 2/replicas: 6/' \"$1\"\n")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    await kubectl("edit", "deployment", "web", env={"KUBE_EDITOR": str(editor)})
    assert bare_cluster.api.get("deployments.apps", "default", "web")["spec"]["replicas"] == 6


async def test_replace_needs_the_current_version(bare_cluster, kubectl):
    await kubectl("create", "configmap", "c", "--from-literal=a=1")
    current = (await kubectl("get", "cm", "c", "-o", "json")).json
    current["data"]["a"] = "2"
    await kubectl("replace", "-f", "-", stdin=json.dumps(current))
    stale = await kubectl.run(
        "replace", "-f", "-", stdin=json.dumps(current | {"data": {"a": "3"}})
    )
    assert "the object has been modified" in stale.err
    assert bare_cluster.api.get("configmaps", "default", "c")["data"] == {"a": "2"}


async def test_nodes_are_labelled_annotated_tainted_and_cordoned(bare_cluster, kubectl):
    bare_cluster.api.create("nodes", {"metadata": {"name": "n"}})
    await kubectl("label", "node", "n", "disk=ssd")
    await kubectl("annotate", "node", "n", "note=hello")
    await kubectl("taint", "node", "n", "dedicated=gpu:NoSchedule")
    await kubectl("cordon", "n")
    node = bare_cluster.api.get("nodes", None, "n")
    assert node["metadata"]["labels"]["disk"] == "ssd"
    assert node["metadata"]["annotations"]["note"] == "hello"
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    assert taint in node["spec"]["taints"]
    assert node["spec"]["unschedulable"] is True
    await kubectl("uncordon", "n")
    await kubectl("taint", "node", "n", "dedicated:NoSchedule-")
    await kubectl("label", "node", "n", "disk-")
    node = bare_cluster.api.get("nodes", None, "n")
    assert not node["spec"].get("taints")
    assert "disk" not in (node["metadata"].get("labels") or {})


async def test_delete_with_and_without_patience(bare_cluster, kubectl):
    bare_cluster.api.create("nodes", {"metadata": {"name": "n"}})
    for name in ("a", "b", "c"):
        await kubectl("run", name, "--image=nginx")
        bare_cluster.api.bind("default", name, "n")
    await kubectl("delete", "pod", "a", "--grace-period=5", "--wait=false")
    assert (
        bare_cluster.api.get("pods", "default", "a")["metadata"]["deletionGracePeriodSeconds"] == 5
    )
    await kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    await kubectl("delete", "pod", "b", "--now", "--wait=false")
    assert (
        bare_cluster.api.get("pods", "default", "b")["metadata"]["deletionGracePeriodSeconds"] == 1
    )
    await kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    assert bare_cluster.api.list("pods")[0] == []
    await kubectl("delete", "pod", "a", "--ignore-not-found")


async def test_dry_runs_on_the_server_change_nothing(bare_cluster, kubectl):
    await kubectl("apply", "-f", "-", "--dry-run=server", stdin=MANIFEST)
    assert bare_cluster.api.list("deployments.apps")[0] == []


@pytest.mark.parametrize("is_open", [False, True], ids=["open spec", "open at the root"])
async def test_custom_kinds_come_and_go(bare_cluster, kubectl, is_open):
    preserved = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = preserved if is_open else {"type": "object", "properties": {"spec": preserved}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": [
                        {"name": "Color", "type": "string", "jsonPath": ".spec.color"}
                    ],
                }
            ],
        },
    }
    await kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    await kubectl("wait", "crd/things.example.com", "--for=condition=Established", "--timeout=240s")
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "t"},
        "spec": {"color": "red"},
    }
    await kubectl("apply", "-f", "-", stdin=json.dumps(thing))
    assert (await kubectl("get", "th")).out.splitlines()[1].split() == ["t", "red"]
    await kubectl("delete", "crd", "things.example.com", "--timeout=240s")
    assert (await kubectl.run("get", "th")).code == 1


async def test_autoscale_works_in_both_versions_and_says_that_nothing_acts_on_it(
    bare_cluster, kubectl
):
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    done = await kubectl("autoscale", "deployment", "web", "--max=5", "--cpu-percent=50")
    assert done.out == "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    assert "HorizontalPodAutoscaler: stored, nothing acts on it here" in done.err
    old = "horizontalpodautoscalers.v1.autoscaling"
    shown = json.loads((await kubectl("get", old, "web", "-o", "json")).out)
    assert shown["apiVersion"] == "autoscaling/v1"
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 50
    shown["spec"]["targetCPUUtilizationPercentage"] = 70
    await kubectl("replace", "-f", "-", stdin=json.dumps(shown))
    (metric,) = bare_cluster.api.get("horizontalpodautoscalers.autoscaling", "default", "web")[
        "spec"
    ]["metrics"]
    assert metric["resource"]["target"]["averageUtilization"] == 70
    patch = '{"spec":{"targetCPUUtilizationPercentage":80,"nonsense":1}}'
    done = await kubectl("patch", old, "web", "--type=merge", "-p", patch)
    assert 'unknown field "spec.nonsense"' in done.err
    shown = json.loads((await kubectl("get", old, "web", "-o", "json")).out)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 80
