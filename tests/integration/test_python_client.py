"""The official Python client: list, watch, create, bind, patch, delete."""

from __future__ import annotations

import asyncio

import kubernetes
import pytest


@pytest.fixture
def core(bare_cluster, tmp_path):
    client = kubernetes.config.new_client_from_config(str(tmp_path / "kubeconfig"))
    yield kubernetes.client.CoreV1Api(client)
    client.close()


def pod(name: str) -> kubernetes.client.V1Pod:
    container = kubernetes.client.V1Container(name="main", image="nginx:1")
    return kubernetes.client.V1Pod(
        metadata=kubernetes.client.V1ObjectMeta(name=name, labels={"app": "web"}),
        spec=kubernetes.client.V1PodSpec(containers=[container]),
    )


async def test_pods_are_created_listed_bound_patched_and_deleted(bare_cluster, core):
    bare_cluster.api.create("nodes", {"metadata": {"name": "n"}})

    def use() -> None:
        created = core.create_namespaced_pod("default", pod("p"))
        assert created.metadata.uid
        assert created.spec.scheduler_name == "default-scheduler"
        listed = core.list_namespaced_pod("default", label_selector="app=web", limit=10)
        assert [item.metadata.name for item in listed.items] == ["p"]
        target = kubernetes.client.V1ObjectReference(kind="Node", name="n")
        binding = kubernetes.client.V1Binding(
            metadata=kubernetes.client.V1ObjectMeta(name="p"), target=target
        )
        # The client insists on reading the answer as a Binding although it is a Status; raw is what
        # people use.
        core.create_namespaced_binding("default", binding, _preload_content=False)
        assert core.read_namespaced_pod("p", "default").spec.node_name == "n"
        patched = core.patch_namespaced_pod("p", "default", {"metadata": {"labels": {"x": "y"}}})
        assert patched.metadata.labels == {"app": "web", "x": "y"}
        core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
        with pytest.raises(kubernetes.client.ApiException) as caught:
            core.read_namespaced_pod("p", "default")
        assert caught.value.status == 404

    await asyncio.to_thread(use)


async def test_a_watch_sees_pods_come_and_go(core):
    def use() -> list[tuple[str, str]]:
        core.create_namespaced_pod("default", pod("first"))
        version = core.list_namespaced_pod("default").metadata.resource_version
        core.create_namespaced_pod("default", pod("second"))
        core.delete_namespaced_pod("first", "default")
        watch = kubernetes.watch.Watch()
        seen = []
        for event in watch.stream(
            core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=20
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 2:
                watch.stop()
        return seen

    assert await asyncio.to_thread(use) == [("ADDED", "second"), ("DELETED", "first")]


async def test_refusals_carry_their_reason(core):
    def use() -> None:
        bad = pod("p")
        bad.spec.containers[0].image = ""
        with pytest.raises(kubernetes.client.ApiException) as caught:
            core.create_namespaced_pod("default", bad)
        assert caught.value.status == 422
        assert "spec.containers[0].image: Required value" in caught.value.body

    await asyncio.to_thread(use)
