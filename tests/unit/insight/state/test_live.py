"""Listing a live cluster: paged, at one revision, and honest where that is not possible."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kubesched.api.core_v1 import Node, Pod, Service
from kubesched.base.clock import ManualClock
from kubesched.base.errors import Forbidden, Gone, NotFound
from kubesched.client.rest import RestClient
from kubesched.client.retry import RetryPolicy
from kubesched.client.transport import Request
from kubesched.insight.state import live
from kubesched.insight.state.cluster_state import StateError
from kubesched.insight.state.live import list_state
from kubesched.playground.client.local import LocalApi
from kubesched.playground.server.api_server import ApiServer
from kubesched.playground.server.memory_transport import MemoryTransport


class Cluster:
    """An API server whose requests a test can watch and disturb."""

    def __init__(self) -> None:
        self.api = LocalApi.in_memory(clock=ManualClock(), rng=Random(1))
        self._transport = MemoryTransport(
            ApiServer(self.api.registry, clock=ManualClock(), rng=Random(2))
        )
        self.requests: list[str] = []
        self.before: Callable[[Request], None] = lambda _request: None
        for name in ("n1", "n2"):
            self.api.create("nodes", {"metadata": {"name": name}})
        for index in range(5):
            self.add_pod(f"p{index}")

    def add_pod(self, name: str) -> None:
        pod = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        self.api.create("pods", pod)

    async def request(self, request: Request) -> Any:
        self.requests.append(request.target)
        self.before(request)
        return await self._transport.request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()

    @property
    def client(self) -> RestClient:
        policy = RetryPolicy(max_attempts=1)
        return RestClient(self, user_agent="test", random=Random(1), policy=policy)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(live, "PAGE_SIZE", 2)
    return Cluster()


def names(state: Any, kind: type[Any]) -> list[str]:
    return [obj.metadata.name for obj in state.of(kind)]


async def test_lists_are_paged_and_progress_is_told(cluster: Cluster) -> None:
    told: list[str] = []
    state = await list_state(cluster.client, "test", told.append)
    assert names(state, Pod) == ["p0", "p1", "p2", "p3", "p4"]
    assert names(state, Node) == ["n1", "n2"]
    listed = [text for text in told if text.startswith("listing pods:")]
    assert [text.split()[2] for text in listed] == ["2", "4", "5"]
    assert state.notes == []
    assert len(set(state.resource_versions.values())) == 1


async def test_only_lists_are_sent(cluster: Cluster) -> None:
    methods: set[str] = set()
    cluster.before = lambda request: methods.add(request.method)
    await list_state(cluster.client, "test")
    assert methods == {"GET"}


async def test_what_changes_while_kinds_are_listed_is_not_seen(cluster: Cluster) -> None:
    def change(request: Request) -> None:
        number = len(cluster.requests)
        cluster.add_pod(f"late-{number}")
        cluster.api.create("nodes", {"metadata": {"name": f"late-{number}"}})

    revision = str(cluster.api.registry.store.revision + 2)  # after the first change of ours
    cluster.before = change
    state = await list_state(cluster.client, "test")
    assert names(state, Pod) == ["late-1", "p0", "p1", "p2", "p3", "p4"]
    assert names(state, Node) == ["late-1", "n1", "n2"]
    assert set(state.resource_versions.values()) == {revision}
    assert state.notes == []


async def test_kinds_that_cannot_be_read_at_that_revision_are_noted(cluster: Cluster) -> None:
    def compacted(request: Request) -> None:
        if "/nodes" in request.target:
            if "Exact" in request.target:
                raise Gone("the provided resource version is too old")
            cluster.api.create("nodes", {"metadata": {"name": f"late-{len(cluster.requests)}"}})

    cluster.before = compacted
    state = await list_state(cluster.client, "test")
    [note] = state.notes
    assert note.startswith("nodes were listed at revision ")
    assert state.resource_versions["nodes"] != state.resource_versions["pods"]


async def test_a_list_whose_pages_expire_is_made_in_one_piece(cluster: Cluster) -> None:
    def expired(request: Request) -> None:
        if "continue=" in request.target and "/pods" in request.target:
            raise Gone("the provided continue parameter is too old")

    cluster.before = expired
    state = await list_state(cluster.client, "test")
    assert len(names(state, Pod)) == 5


async def test_missing_permissions_are_said(cluster: Cluster) -> None:
    def forbid(word: str) -> Callable[[Request], None]:
        def before(request: Request) -> None:
            if f"/{word}?" in request.target:
                raise Forbidden(f"{word} is forbidden")

        return before

    cluster.before = forbid("services")
    state = await list_state(cluster.client, "test")
    assert state.notes == ["services are missing: services is forbidden"]
    assert state.count(Service) == 0
    cluster.before = forbid("nodes")
    with pytest.raises(StateError, match="test: nodes is forbidden"):
        await list_state(cluster.client, "test")


async def test_kinds_that_the_server_does_not_have_are_left_out(cluster: Cluster) -> None:
    def absent(request: Request) -> None:
        if "resource.k8s.io" in request.target:
            raise NotFound("the server could not find the requested resource")

    cluster.before = absent
    state = await list_state(cluster.client, "test")
    assert state.notes == []
    assert "resourceclaims.resource.k8s.io" not in state.resource_versions


async def test_finished_pods_are_not_asked_for(cluster: Cluster) -> None:
    await list_state(cluster.client, "test")
    first = next(target for target in cluster.requests if "/pods" in target)
    assert "fieldSelector=status.phase%21%3DSucceeded" in first
