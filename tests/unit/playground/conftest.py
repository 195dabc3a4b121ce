"""Shared by the embedded cluster's tests: an API in memory, requests without a socket, and a world
with controllers.
"""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from controller_world import LostWrite, World

from kubesched.base.clock import ManualClock
from kubesched.config import features
from kubesched.config.features import DEFAULT_GATES
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.server.api_server import ApiServer

POD_GROUP_GATES = features.parse(
    "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true,"
    "PodGroupPreemptionPolicy=true"
)


class Http:
    """Requests to an `ApiServer`, answered as JSON."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def raw(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> ApiResponse:
        path, _, query = target.partition("?")
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        headers = {"content-type": content_type, "accept": accept, "user-agent": "tests/1.0"}
        return await self.server.handle(ApiRequest(method, path, query, headers, data))

    async def call(
        self, method: str, target: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        response = await self.raw(method, target, body, **options)
        return response.status, json.loads(response.body)

    async def get(self, target: str, **options: Any) -> Any:
        status, body = await self.call("GET", target, **options)
        assert status == 200, body
        return body

    async def post(self, target: str, body: Any) -> Any:
        status, answer = await self.call("POST", target, body)
        assert status in (200, 201), answer
        return answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def api(clock: ManualClock) -> LocalApi:
    return LocalApi.in_memory(clock=clock, rng=random.Random(7))


@pytest.fixture
def group_api(clock: ManualClock) -> LocalApi:
    """A cluster that knows pod groups."""
    return LocalApi.in_memory(clock=clock, rng=random.Random(7), gates=POD_GROUP_GATES)


@pytest.fixture
def http(api: LocalApi, clock: ManualClock) -> Http:
    return Http(ApiServer(api.registry, clock=clock, rng=random.Random(7), token="secret"))


@pytest.fixture
def make_pod():
    def make(name: str = "p", namespace: str = "default", **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "main", "image": "app:1"}], **spec},
        }

    return make


@pytest.fixture
def make_world():
    def make(nodes: int = 3, *, seed: int = 1, gates: Any = DEFAULT_GATES, **options: Any) -> World:
        options.setdefault("kubelet", KubeletOptions(nodes=nodes))
        return World(ControllerOptions(**options), seed, gates)

    return make


@pytest.fixture
def world(make_world) -> World:
    return make_world()


@pytest.fixture
def lose_write(monkeypatch: pytest.MonkeyPatch):
    """A context in which the n-th write is lost."""

    @contextlib.contextmanager
    def lose(number: int):
        with monkeypatch.context() as patched:
            yield LostWrite(patched, number)

    return lose
