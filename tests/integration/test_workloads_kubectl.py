"""Workloads through kubectl: the embedded cluster plays the whole story over HTTPS.

A real kubectl talks to a real socket; controllers and kubelets run in their own tasks. Placement is
not what is tested here, so a few lines stand in for the scheduler: they bind every pod to the node
it names, or else to the least loaded one, and name that node to claims that wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from typing import Any

import pytest

from kubesched.base.errors import ApiError, NotFound
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.controllers.volumes import StorageDriver
from kubesched.playground.kubelet.options import KubeletOptions

COMMAND_LIMIT_S = 60
SELECTED_NODE = "volume.kubernetes.io/selected-node"

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


class Failed(AssertionError):
    """kubectl ended with an error."""


class Cluster:
    """An embedded cluster and the kubectl that talks to it."""

    def __init__(self, embedded: EmbeddedCluster, kubeconfig: str) -> None:
        self.embedded = embedded
        self.api = embedded.api
        self._kubeconfig = kubeconfig

    async def kubectl(self, command: str, *, stdin: str = "") -> str:
        code, out, err = await self.try_kubectl(command, stdin=stdin)
        if code:
            raise Failed(f"kubectl {command}: {err.strip()}")
        return out

    async def try_kubectl(self, command: str, *, stdin: str = "") -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            "--kubeconfig",
            self._kubeconfig,
            *command.split(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(COMMAND_LIMIT_S):
                out, err = await process.communicate(stdin.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def create(self, *objects: dict[str, Any]) -> None:
        manifest = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        await self.kubectl("create --validate=false -f -", stdin=json.dumps(manifest))

    async def gone(self, resource: str, name: str) -> None:
        """Wait until an object does not exist any more."""
        await self.kubectl(f"wait --for=delete {resource}/{name} --timeout=240s")

    async def until(self, resource: str, claim: Any) -> None:
        """Wait until a claim about the cluster holds, looking at every change of a resource."""
        changed = asyncio.Event()
        unsubscribe = self.api.subscribe(resource, lambda *_: changed.set(), replay=False)
        try:
            async with asyncio.timeout(COMMAND_LIMIT_S):
                while not claim():
                    await changed.wait()
                    changed.clear()
        finally:
            unsubscribe()

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        return self.api.list("pods", "default", selector)[0]


async def place_pods(cluster: EmbeddedCluster) -> None:
    """Bind whatever is unbound, whenever pods, nodes or claims change."""
    changed = asyncio.Event()
    for resource in ("pods", "nodes", "persistentvolumeclaims"):
        cluster.api.subscribe(resource, lambda *_: changed.set())
    while True:
        await changed.wait()
        changed.clear()
        for pod in cluster.api.list("pods")[0]:
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                with contextlib.suppress(ApiError):
                    _place(cluster, pod)


def _place(cluster: EmbeddedCluster, pod: dict[str, Any]) -> None:
    api = cluster.api
    nodes = {
        node["metadata"]["name"]: 0
        for node in api.list("nodes")[0]
        if not node["spec"].get("unschedulable") and not node["spec"].get("taints")
    }
    for other in api.list("pods")[0]:
        if other["spec"].get("nodeName") in nodes:
            nodes[other["spec"]["nodeName"]] += 1
    if wanted := _named_nodes(pod):
        nodes = {name: count for name, count in nodes.items() if name in wanted}
    if not nodes:
        return
    chosen = min(nodes, key=nodes.__getitem__)
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" not in volume:
            continue
        claim_name = volume["persistentVolumeClaim"]["claimName"]
        claim = api.get("persistentvolumeclaims", namespace, claim_name)
        annotations = claim["metadata"].get("annotations") or {}
        if "pv.kubernetes.io/bind-completed" not in annotations:
            if SELECTED_NODE not in annotations:
                patch = {"metadata": {"annotations": {SELECTED_NODE: chosen}}}
                api.patch("persistentvolumeclaims", namespace, claim_name, patch)
            return
    api.bind(namespace, name, chosen)


def _named_nodes(pod: dict[str, Any]) -> list[str]:
    """The node that a DaemonSet made the pod for."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return [
        name
        for term in required.get("nodeSelectorTerms") or ()
        for field in term.get("matchFields") or ()
        for name in field["values"]
    ]


@pytest.fixture
async def cluster(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    settings = ClusterSettings(
        kubeconfig=kubeconfig,
        controllers=ControllerOptions(
            kubelet=KubeletOptions(nodes=3),
            storage=(StorageDriver(),),
        ),
    )
    async with EmbeddedCluster(settings) as embedded, asyncio.TaskGroup() as group:
        placing = group.create_task(place_pods(embedded))
        cluster = Cluster(embedded, str(kubeconfig))
        await cluster.until("nodes", lambda: len(embedded.api.list("nodes")[0]) == 3)
        yield cluster
        placing.cancel()


async def test_a_deployment_is_created_scaled_rolled_and_rolled_back(cluster):
    await cluster.kubectl("create deployment web --image=web:1 --replicas=2")
    out = await cluster.kubectl("rollout status deployment/web --timeout=240s")
    assert "successfully rolled out" in out
    await cluster.kubectl("scale deployment/web --replicas=4")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    assert len(cluster.pods("app=web")) == 4
    await cluster.kubectl("set image deployment/web web=web:2")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    history = await cluster.kubectl("rollout history deployment/web")
    assert history.split()[-4:] == ["1", "<none>", "2", "<none>"]
    await cluster.kubectl("rollout undo deployment/web")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    running = [
        pod["spec"]["containers"][0]["image"]
        for pod in cluster.pods("app=web")
        if not pod["metadata"].get("deletionTimestamp")
    ]
    assert running == ["web:1"] * 4
    await cluster.kubectl("wait --for=condition=Available deployment/web --timeout=240s")


async def test_describe_tells_the_story(cluster):
    await cluster.kubectl("create deployment web --image=web:1")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    deployment = await cluster.kubectl("describe deployment web")
    assert "ScalingReplicaSet" in deployment
    assert "Scaled up replica set" in deployment
    pod = await cluster.kubectl("describe pod -l app=web")
    for word in ("Pulled", "Created", "Started", "Container started", "ContainersReady"):
        assert word in pod
    node = await cluster.kubectl("describe node node-0")
    assert "kubelet is posting ready status" in node


async def test_pause_and_resume(cluster):
    await cluster.kubectl("create deployment web --image=web:1")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    await cluster.kubectl("rollout pause deployment/web")
    await cluster.kubectl("set image deployment/web web=web:2")
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"web:1"}
    await cluster.kubectl("rollout resume deployment/web")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    await cluster.until(
        "pods", lambda: {p["spec"]["containers"][0]["image"] for p in cluster.pods()} == {"web:2"}
    )


async def test_drain_waits_for_the_budget_and_then_succeeds(cluster):
    await cluster.kubectl("create deployment web --image=web:1 --replicas=3")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    await cluster.kubectl("create poddisruptionbudget guard --selector=app=web --min-available=3")
    await cluster.until(
        "poddisruptionbudgets.policy",
        lambda: (
            cluster.api.get("poddisruptionbudgets.policy", "default", "guard")
            .get("status", {})
            .get("currentHealthy")
            == 3
        ),
    )
    node = cluster.pods("app=web")[0]["spec"]["nodeName"]
    code, _, err = await cluster.try_kubectl(f"drain {node} --timeout=2s")
    assert code != 0
    assert "would violate the pod's disruption budget" in err
    assert all(not pod["metadata"].get("deletionTimestamp") for pod in cluster.pods("app=web"))
    await cluster.kubectl("scale deployment/web --replicas=5")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    await cluster.kubectl(f"drain {node} --timeout=240s")
    assert all(pod["spec"].get("nodeName") != node for pod in cluster.pods("app=web"))
    await cluster.kubectl(f"uncordon {node}")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_deleting_a_deployment_takes_its_pods_along(cluster, cascade):
    await cluster.kubectl("create deployment web --image=web:1 --replicas=2")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    await cluster.kubectl(f"delete deployment web --cascade={cascade} --timeout=240s")
    await cluster.until("pods", lambda: not cluster.pods("app=web"))
    assert cluster.api.list("replicasets.apps")[0] == []


async def test_deleting_with_orphans_leaves_the_pods_running(cluster):
    await cluster.kubectl("create deployment web --image=web:1 --replicas=2")
    await cluster.kubectl("rollout status deployment/web --timeout=240s")
    await cluster.kubectl("delete deployment web --cascade=orphan --timeout=240s")
    [replica_set] = cluster.api.list("replicasets.apps")[0]
    assert "ownerReferences" not in replica_set["metadata"]
    assert len(cluster.pods("app=web")) == 2


async def test_a_job_completes(cluster):
    await cluster.kubectl("create job work --image=work:1 -- do-it")
    await cluster.kubectl("wait --for=condition=Complete job/work --timeout=240s")
    job = json.loads(await cluster.kubectl("get job work -o json"))
    assert job["status"]["succeeded"] == 1
    assert (await cluster.kubectl("get job work")).split()[-4:][1] in ("Complete", "1/1")
    await cluster.kubectl("delete job work --timeout=240s")
    await cluster.until("pods", lambda: not cluster.pods())


async def test_a_stateful_set_brings_its_own_volumes(cluster):
    labels = {"app": "db"}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db"},
            "spec": {
                "replicas": 2,
                "serviceName": "db",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "db", "image": "db:1"}]},
                },
                "volumeClaimTemplates": [claim],
            },
        }
    )
    await cluster.kubectl("rollout status statefulset/db --timeout=240s")
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["db-0", "db-1"]
    claims = json.loads(await cluster.kubectl("get pvc -o json"))["items"]
    assert [claim["status"]["phase"] for claim in claims] == ["Bound", "Bound"]
    await cluster.kubectl("delete statefulset db --timeout=240s")
    await cluster.kubectl("delete pvc --all --timeout=240s")
    await cluster.until("persistentvolumes", lambda: not cluster.api.list("persistentvolumes")[0])


async def test_a_daemon_set_rolls_out(cluster):
    labels = {"app": "log"}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "log", "image": "log:1"}]},
            },
        },
    }
    await cluster.create(daemon_set)
    await cluster.kubectl("rollout status daemonset/log --timeout=240s")
    await cluster.kubectl("set image daemonset/log log=log:2")
    await cluster.kubectl("rollout status daemonset/log --timeout=240s")
    assert "log:2" in await cluster.kubectl("rollout history daemonset/log --revision=2")
    await cluster.kubectl("rollout undo daemonset/log")
    await cluster.kubectl("rollout status daemonset/log --timeout=240s")


async def test_a_namespace_is_emptied_and_deleted(cluster):
    await cluster.kubectl("create namespace team")
    await cluster.kubectl("create deployment web --image=web:1 -n team")
    await cluster.kubectl("rollout status deployment/web -n team --timeout=240s")
    await cluster.kubectl("delete namespace team --timeout=240s")
    with pytest.raises(NotFound):
        cluster.api.get("namespaces", None, "team")


async def test_force_deletion_is_immediate(cluster):
    await cluster.kubectl("run solo --image=solo:1")
    await cluster.kubectl("wait --for=condition=Ready pod/solo --timeout=240s")
    await cluster.kubectl("delete pod solo --grace-period=0 --force --timeout=240s")
    assert cluster.pods() == []
