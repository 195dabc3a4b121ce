"""Clusters for tests that drive them from outside, over TLS on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster
from kubesched.playground.controller_manager import ControllerOptions
from kubesched.playground.kubelet.options import KubeletOptions

DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Kubectl:
    """The real kubectl, against one kubeconfig."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._kubeconfig = kubeconfig
        self._home = home

    def command(self, *arguments: str) -> list[str]:
        binary = shutil.which("kubectl")
        assert binary is not None, "these tests need kubectl on the PATH"
        return [binary, "--kubeconfig", str(self._kubeconfig), *arguments]

    def environment(self) -> dict[str, str]:
        # An own home keeps kubectl's discovery cache, and any configuration of the user's, out of
        # the test.
        return {"PATH": os.environ["PATH"], "HOME": str(self._home)}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """A kubectl that keeps running (`get -w`); the caller ends it."""
        return await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment(),
        )

    async def run(
        self, *arguments: str, stdin: str | None = None, env: dict[str, str] | None = None
    ) -> Outcome:
        """Run to the end, whatever it is."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self.environment(), **(env or {})},
        )
        data = stdin.encode() if stdin is not None else None
        try:
            out, err = await asyncio.wait_for(process.communicate(data), DEADLINE_S)
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        assert process.returncode is not None
        return Outcome(process.returncode, out.decode(), err.decode())

    async def __call__(self, *arguments: str, **options: Any) -> Outcome:
        """Run and insist on success."""
        outcome = await self.run(*arguments, **options)
        assert outcome.code == 0, f"kubectl {' '.join(arguments)}: {outcome.err}{outcome.out}"
        return outcome


@pytest.fixture
async def bare_cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """An API server on its own: nothing happens to objects unless a client does it."""
    async with EmbeddedCluster(ClusterSettings(kubeconfig=tmp_path / "kubeconfig")) as cluster:
        yield cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """An API server with controllers and three nodes."""
    settings = ClusterSettings(
        kubeconfig=tmp_path / "kubeconfig",
        controllers=ControllerOptions(kubelet=KubeletOptions(nodes=3)),
    )
    async with EmbeddedCluster(settings) as cluster:
        yield cluster


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path / "kubeconfig", tmp_path)


@pytest.fixture(
    params=[
        pytest.param("embedded", id="embedded"),
        pytest.param("real", id="real", marks=pytest.mark.real),
    ]
)
async def world(request, tmp_path, kubectl, world_settings) -> AsyncIterator[Any]:
    """A cluster with the scheduler at work, on either control plane; modules define
    `world_settings`.
    """
    import worlds

    make = worlds.embedded_world if request.param == "embedded" else worlds.real_world
    async with make(world_settings, tmp_path, kubectl) as result:
        yield result


@pytest.fixture
def eventually() -> Callable[..., Awaitable[Any]]:
    """Wait until something holds, looking again after every change of the cluster."""

    async def wait(cluster: EmbeddedCluster, check: Callable[[], Any], what: str) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                result = check()
                if result:
                    return result
                await _next_change(cluster)
        raise AssertionError(f"never happened: {what}")

    return wait


async def _next_change(cluster: EmbeddedCluster) -> None:
    changed = asyncio.get_running_loop().create_future()

    def note(*_: object) -> None:
        if not changed.done():
            changed.set_result(None)

    stops = [
        cluster.api.subscribe(resource, note, replay=False)
        for resource in ("pods", "nodes", "deployments.apps")
    ]
    try:
        await asyncio.wait((changed,), timeout=1.0)
    finally:
        for stop in stops:
            stop()
