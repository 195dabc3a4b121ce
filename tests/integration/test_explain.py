"""`kubesched explain` over live clusters.

On a real control plane kube-scheduler is at work, and the messages it writes are the ones that
explain gives. On the embedded one the commands of fixes are run with the real kubectl, after which
the pod fits; and pod names are completed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from random import Random

import msgspec
import pytest

from kubesched.api.core_v1 import Node, PersistentVolumeClaim, Pod
from kubesched.app.cli.completion import pod_names
from kubesched.insight.explain.selection import no_node
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.live import list_state
from kubesched.lab.contestants import Contestant, running
from kubesched.testing import make_node, make_pod
from kubesched.testing.control_plane import ASSETS_VARIABLE, control_plane, find_assets

PODS = 100
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


# -- kube-scheduler's messages ---------------------------------------------------------------------


def nodes(random: Random) -> list[Node]:
    made = []
    for i in range(12):
        node = make_node(f"node-{i}").capacity(
            cpu="4", memory="8Gi", pods=random.choice(["2", "9"])
        )
        node.label("disk", random.choice(["ssd", "hdd"]))
        if random.random() < 0.7:
            node.zone(random.choice("abc"))
        if random.random() < 0.3:
            node.taint("gpu", random.choice(["", "a100"]))
        if random.random() < 0.2:
            node.unschedulable()
        made.append(node.build())
    return made


def bound(random: Random) -> list[Pod]:
    """Pods that came with their node."""
    made = []
    for i in range(20):
        pod = make_pod(f"bound-{i}").cpu(random.choice(["500m", "1"])).label("app", "x")
        if random.random() < 0.3:
            pod.host_port(80)
        made.append(pod.on(f"node-{i % 12}").build())
    return made


def hopeless(random: Random, name: str) -> Pod:
    """A pod that no node can take, for one certain reason and maybe some others."""
    pod = make_pod(name).cpu(random.choice(["100m", "2", "4", "6"])).label("app", "x")
    if random.random() < 0.3:
        pod.host_port(80)
    if random.random() < 0.3:
        pod.tolerates("gpu")
    if random.random() < 0.3:
        pod.spread(1, random.choice([HOST, ZONE]), selector={"matchLabels": {"app": "x"}})
    if random.random() < 0.3:
        pod.pod_anti_affinity(random.choice([HOST, ZONE]), app="x")
    certain = random.randrange(7)
    if certain == 0:
        pod.memory("9Gi")
    elif certain == 1:
        pod.node_selector(disk=random.choice(["tape", "ssd"]))
        pod.cpu("7")
    elif certain == 2:
        pod.pod_affinity(ZONE, app="nobody")
    elif certain == 3:
        pod.claim("missing")
    elif certain == 4:
        pod.claim("unbound")
    elif certain == 5:
        pod.request("example.com/gpu", "1")
        pod.json["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    else:
        pod.request("ephemeral-storage", "1Gi")
    return pod.build()


def bare(obj: Pod | Node) -> Pod | Node:
    """Without what an API server sets itself."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, uid=""))


async def reported(client, names: set[str]) -> dict[str, str]:
    """The messages of all these pods, once there is one for each."""
    async with asyncio.timeout(300):
        while True:
            listed = await client.list_page(Pod, "default")
            messages = {
                pod.metadata.name: condition.message
                for pod in listed.items
                for condition in pod.status.conditions or ()
                if condition.type == "PodScheduled" and condition.status == "False"
            }
            if names <= messages.keys():
                return messages
            await asyncio.sleep(0.2)


@pytest.mark.real
@pytest.mark.timeout(300)
async def test_messages_of_kube_scheduler_are_explained_to_the_letter(tmp_path):
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs etcd, kube-apiserver and kube-scheduler in ${ASSETS_VARIABLE}")
    assets, random = find_assets(), Random("explain")
    async with control_plane(assets, tmp_path / "plane") as plane:
        client = plane.client
        for node in nodes(random):
            created = await client.create(bare(node))
            status = msgspec.structs.replace(created, status=node.status)
            await client.update_status(status)
        claim = {
            "metadata": {"name": "unbound", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await client.create(msgspec.convert(claim, PersistentVolumeClaim))
        for pod in bound(random):
            await client.create(bare(pod))
        async with running(Contestant.kube_scheduler(assets), plane, {}):
            pods = [hopeless(random, f"pod-{i}") for i in range(PODS)]
            for pod in pods:
                await client.create(bare(pod))
            messages = await reported(client, {pod.metadata.name for pod in pods})
        state = await list_state(client, "the real cluster")
    explainer = explainer_of(state)
    explained = {
        name: explainer.explain(state.get(Pod, "default", name), no_node).message
        for name in messages
    }
    assert explained == messages
    assert len(messages) == PODS
    assert len(set(messages.values())) > 20, "the messages are of many kinds"


# -- kubectl commands ------------------------------------------------------------------------------


async def kubesched(kubectl, *words: str) -> dict:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kubesched",
        *words,
        stdout=asyncio.subprocess.PIPE,
        env={**kubectl.environment(), "KUBECONFIG": kubectl.command("x")[2]},
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return json.loads(out)


async def shell(kubectl, command: str) -> None:
    if command.startswith("kubectl delete"):
        command += " --force --grace-period=0"  # there is no kubelet to end the pod
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-o",
        "pipefail",
        "-c",
        command,
        env={**kubectl.environment(), "KUBECONFIG": kubectl.command("x")[2]},
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, f"{command}: {err.decode()}"


def create(cluster, builder) -> None:
    kind = "nodes" if type(builder).__name__ == "NodeBuilder" else "pods"
    builder.json["metadata"].pop("uid")
    cluster.api.create(kind, builder.json)


async def test_the_commands_of_every_fix_make_the_pod_fit(bare_cluster, kubectl):
    assert shutil.which("kubectl")

    def node(name):
        return make_node(name).capacity(cpu="4", memory="8Gi", pods="110")

    create(bare_cluster, node("n1").taint("gpu", "a100").unschedulable())
    create(bare_cluster, make_pod("filler").cpu("3").host_port(80).on("n1"))
    pending = make_pod("a").cpu("2").node_selector(disk="ssd").host_port(80)
    pending.pod_anti_affinity(HOST, app="x").label("app", "x")
    create(bare_cluster, pending)
    words = ("explain", "pod", "a", "--fix", "-o", "json")
    tried = set()
    while True:
        found = await kubesched(kubectl, *words)
        if found["verdict"] == "Fits":
            break
        fix = next(fix for fix in found["fixes"] if fix["commands"])
        tried.update(change["kind"] for change in fix["changes"])
        for command in fix["commands"]:
            await shell(kubectl, command)
        after = await kubesched(kubectl, *words)
        assert after["verdict"] == "Fits", f"{fix['commands']} did not help: {after['summary']}"
        assert fix["node"] in {row["node"] for row in after["matrix"] if row["feasible"]}
    assert tried


@pytest.mark.parametrize(
    ("arrange", "kind"),
    [
        (lambda node, pod, filler: (node, pod.cpu("2"), filler.cpu("3")), "LowerRequest"),
        (lambda node, pod, filler: (node, pod.cpu("2"), filler.cpu("3")), "DeletePod"),
        (lambda node, pod, filler: (node.taint("gpu", "x"), pod, filler), "AddToleration"),
        (lambda node, pod, filler: (node.taint("gpu", "x"), pod, filler), "RemoveTaint"),
        (lambda node, pod, filler: (node.unschedulable(), pod, filler), "Uncordon"),
        (lambda node, pod, filler: (node, pod.node_selector(d="s"), filler), "DropNodeSelector"),
        (lambda node, pod, filler: (node, pod.node_selector(d="s"), filler), "LabelNode"),
        (lambda node, pod, filler: (node, pod.host_port(1), filler.host_port(1)), "DropHostPort"),
        (
            lambda node, pod, filler: (
                node,
                pod.pod_anti_affinity(HOST, app="x"),
                filler.label("app", "x"),
            ),
            "DropPodAntiAffinity",
        ),
        (
            lambda node, pod, filler: (
                node,
                pod.label("app", "x").spread(1, "rack", selector={"matchLabels": {"app": "x"}}),
                filler,
            ),
            "SoftenSpread",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_commands_of_each_kind_work(arrange, kind, bare_cluster, kubectl):
    node, pod, filler = arrange(
        make_node("n1").capacity(cpu="4", memory="8Gi", pods="110"), make_pod("a"), make_pod("b")
    )
    for each in (node, filler.on("n1"), pod):
        create(bare_cluster, each)
    words = ("explain", "pod", "a", "--fix", "-o", "json")
    before = await kubesched(kubectl, *words)
    fix = next(
        fix for fix in before["fixes"] if [change["kind"] for change in fix["changes"]] == [kind]
    )
    for command in fix["commands"]:
        await shell(kubectl, command)
    after = await kubesched(kubectl, *words)
    assert after["verdict"] == "Fits"
    assert after["chosen"]["node"] == fix["node"]


async def test_a_deployment_whose_quota_is_used_up(bare_cluster, kubectl):
    def create_all(resource, *objects):
        return [bare_cluster.api.create(resource, obj, "default") for obj in objects]

    metadata = {"name": "web", "namespace": "default"}
    labels = {"app": "web"}
    containers = [{"name": "c", "image": "i"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    (deployment,) = create_all("deployments.apps", {"metadata": metadata, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
    owner["uid"] = deployment["metadata"]["uid"]
    named = {"name": "web-1", "namespace": "default", "ownerReferences": [owner]}
    create_all("replicasets.apps", {"metadata": named, "spec": spec})
    about = {"kind": "ReplicaSet", "name": "web-1", "namespace": "default"}
    create_all(
        "events",
        *(
            {
                "metadata": {"name": f"e{i}", "namespace": "default"},
                "involvedObject": about,
                "reason": "FailedCreate",
                "message": f'Error creating: pods "web-1-{i}" is forbidden: exceeded quota: q',
                "type": "Warning",
            }
            for i in range(2)
        ),
    )
    told = await kubesched(kubectl, "explain", "deployment/web", "-o", "json")
    assert told["wanted"] == 3
    assert told["obstacles"] == ['FailedCreate: pods "web-1-1" is forbidden: exceeded quota: q']
    assert told["pods"] == []


async def test_pod_names_are_completed_from_the_cluster(bare_cluster, kubectl):
    create(bare_cluster, make_pod("web-1"))
    create(bare_cluster, make_pod("web-2"))
    kubeconfig = kubectl.command("x")[2]
    names = await asyncio.to_thread(pod_names, ["explain", "pod", "--kubeconfig", kubeconfig])
    assert names == ["web-1", "web-2"]


def test_without_a_cluster_no_names_are_offered(tmp_path):
    assert pod_names(["explain", "pod", "--kubeconfig", str(tmp_path / "none")]) == []
    assert pod_names(["explain", "pod", "-n"]) == []
    assert pod_names(["explain", "pod", "--from", "dump.json"]) == []
