"""The cluster as a whole: it starts, it stops, it comes back, and it does not hide what went
wrong.
"""

from __future__ import annotations

import asyncio
import json
import stat

import pytest

from kubesched.base.errors import KubeschedError, NotFound
from kubesched.client.transport import Request
from kubesched.playground import pki
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerSet


async def test_a_new_cluster_has_what_every_cluster_has(bare_cluster):
    api = bare_cluster.api
    names = [namespace["metadata"]["name"] for namespace in api.list("namespaces")[0]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert api.get("services", "default", "kubernetes")["spec"]["clusterIP"] == "10.96.0.1"
    assert (
        "client-ca-file"
        in api.get("configmaps", "kube-system", "extension-apiserver-authentication")["data"]
    )
    assert (
        api.get("priorityclasses.scheduling.k8s.io", None, "system-node-critical")["value"]
        == 2_000_001_000
    )


async def test_nodes_are_registered_as_asked(eventually):
    async with EmbeddedCluster(ClusterSettings(nodes=4)) as cluster:
        await eventually(cluster, lambda: len(cluster.api.list("nodes")[0]) == 4, "four nodes")


async def test_the_kubeconfig_is_for_its_owner_only(tmp_path):
    kubeconfig = tmp_path / "deep" / "kubeconfig"
    async with EmbeddedCluster(ClusterSettings(kubeconfig=kubeconfig)) as cluster:
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        text = kubeconfig.read_text()
        assert cluster.url in text
        assert cluster.token in text


async def test_a_taken_port_is_said_so():
    async with EmbeddedCluster() as first:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(KubeschedError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            async with EmbeddedCluster(ClusterSettings(port=port)):
                pass


async def test_everything_comes_back_with_a_data_directory(tmp_path):
    settings = ClusterSettings(data_dir=tmp_path / "data")
    async with EmbeddedCluster(settings) as first:
        token = first.token
        first.api.create(
            "configmaps", {"metadata": {"name": "c", "namespace": "default"}, "data": {"x": "1"}}
        )
    async with EmbeddedCluster(settings) as second:
        assert second.token == token
        assert second.api.get("configmaps", "default", "c")["data"] == {"x": "1"}
    async with EmbeddedCluster() as other:
        with pytest.raises(NotFound):
            other.api.get("configmaps", "default", "c")


async def test_the_cluster_can_be_reached_without_a_socket(bare_cluster):
    transport = bare_cluster.transport()
    response = await transport.request(Request(method="GET", target="/api/v1/namespaces"))
    assert len(json.loads(await response.read())["items"]) == 4
    await transport.aclose()


async def test_a_controller_that_dies_takes_the_cluster_down_with_it(monkeypatch):
    broken = asyncio.Event()

    async def die(self) -> None:
        await broken.wait()
        raise RuntimeError("a controller broke")

    monkeypatch.setattr(ControllerSet, "run", die)

    async def live() -> None:
        async with EmbeddedCluster(ClusterSettings(nodes=1)):
            broken.set()
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert "a controller broke" in repr(caught.value)


async def test_certificates_are_kept_and_renewed_in_time(tmp_path):
    now = 1_800_000_000.0
    first = pki.load_or_make(tmp_path, now)
    assert pki.load_or_make(tmp_path, now + 86400).server_certificate == first.server_certificate
    renewed = pki.load_or_make(tmp_path, now + 365 * 86400)
    assert renewed.server_certificate != first.server_certificate
    assert stat.S_IMODE((tmp_path / "server.key").stat().st_mode) == 0o600
    assert "PRIVATE" not in repr(first)
