"""Commands with an account that may not list every kind: the playground decides by its roles."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import pytest
import yaml

from kubesched.api import codec
from kubesched.insight.state.cluster_state import KINDS
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.testing import make_node, make_pod

RBAC = "rbac.authorization.k8s.io"
FORBIDDEN = ("persistentvolumeclaims", "poddisruptionbudgets.policy")
PATIENCE_S = 300.0


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(ClusterSettings(authorization="rbac")) as cluster:
        yield cluster


async def kubeconfig_of_viewer(cluster: EmbeddedCluster) -> bytes:
    """Of a service account that may list what scheduling reads, but for `FORBIDDEN`."""
    rules = []
    for kind in KINDS:
        if kind.resource not in FORBIDDEN:
            name, _, group = kind.resource.partition(".")
            rules.append({"apiGroups": [group], "resources": [name], "verbs": ["list", "watch"]})
    api, metadata = cluster.api, {"name": "viewer"}
    api.create("serviceaccounts", {"metadata": metadata}, "default")
    api.create(f"clusterroles.{RBAC}", {"metadata": metadata, "rules": rules})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "viewer"}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}
    binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
    api.create(f"clusterrolebindings.{RBAC}", binding)
    config = yaml.safe_load(cluster.kubeconfig())
    path = "/api/v1/namespaces/default/serviceaccounts/viewer/token"
    headers = {"Authorization": f"Bearer {cluster.token}"}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(f"{cluster.url}{path}", json=body, ssl=False) as response,
    ):
        assert response.status == 201
        config["users"][0]["user"] = {"token": (await response.json())["status"]["token"]}
    return yaml.safe_dump(config).encode()


async def explained(folder, cluster, pod):
    """Exit code, answer and notes of the command."""
    kubeconfig = folder / "viewer.yaml"
    kubeconfig.write_bytes(await kubeconfig_of_viewer(cluster))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kubesched", "explain", "pod", pod, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        said, notes = await process.communicate()
    return process.returncode, said.decode(), notes.decode()


async def test_kinds_that_the_account_may_not_list_come_before_the_verdict(cluster, tmp_path):
    api = cluster.api
    api.create("nodes", codec.to_json(make_node("n").capacity(cpu="4", memory="8Gi").build()))
    api.create("pods", codec.to_json(make_pod("a").cpu("1").claim("data").build()), "default")
    code, said, notes = await explained(tmp_path, cluster, "a")
    assert code == 0, notes
    first, get = said.splitlines()[:2]
    assert first.startswith(
        "default/a: your account may not list persistentvolumeclaims, "
        "and this may be wrong without them. Without them: "
    )
    resources = ",".join(kind.resource for kind in KINDS if not kind.is_preview)
    assert get.startswith("Get them: kubectl get pods,nodes,namespaces,")
    asked = get.removeprefix("Get them: kubectl get ").partition(" ")[0].split(",")
    assert {*asked} <= {*resources.split(","), *FORBIDDEN}
    assert {*FORBIDDEN} <= {*asked}
    for resource in FORBIDDEN:
        name = resource.partition(".")[0]
        assert f"note: {resource} are missing: {name}" in notes, notes
        assert 'User "system:serviceaccount:default:viewer" cannot list resource' in notes


async def test_a_verdict_that_needs_no_such_kind_says_nothing_of_it(cluster, tmp_path):
    api = cluster.api
    api.create("nodes", codec.to_json(make_node("n").capacity(cpu="4", memory="8Gi").build()))
    api.create("pods", codec.to_json(make_pod("a").cpu("9").build()), "default")
    code, said, _ = await explained(tmp_path, cluster, "a")
    assert code == 0
    assert said.startswith("default/a: never. ")


@pytest.mark.parametrize("command", ["page", "shadow"])
async def test_a_command_that_follows_a_cluster_says_what_it_may_not_list(
    command, cluster, tmp_path
):
    kubeconfig = tmp_path / "viewer.yaml"
    kubeconfig.write_bytes(await kubeconfig_of_viewer(cluster))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kubesched", command, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        note = (await process.stderr.readline()).decode()
        process.terminate()
        out, _ = await process.communicate()
    assert note.startswith("still waiting for the cluster: no complete list within 10 s of: ")
    for resource in FORBIDDEN:
        name = resource.partition(".")[0]
        assert f'cannot list resource "{name}"' in note
    assert (process.returncode, out) == (143, b"")
