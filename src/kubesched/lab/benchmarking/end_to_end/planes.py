"""The control plane of a contestant: a fresh API server and the processes that are measured.

Either etcd and kube-apiserver (`real`) or this project's API server in its own process
(`embedded`), so that its cost is separate from the driver's and the scheduler's.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kubesched.api import codec
from kubesched.base.errors import ApiError, TransportError
from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport, PoolSettings
from kubesched.client.rest import RestClient, user_agent
from kubesched.testing.control_plane import (
    GROUP_GATES,
    SERVES_GROUPS,
    Assets,
    ControlPlaneError,
    Process,
    control_plane,
)

CONNECTIONS = 128
"""Connections of the driver; more than its concurrent requests."""
DEADLINE_S = 120.0
"""Per request. Benchmarks may overload the API server on purpose."""
_START_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Plane:
    """A running API server."""

    client: RestClient
    """Administrator client without a rate limit."""
    scheduler_kubeconfig: Path
    folder: Path
    processes: Mapping[str, Process]
    """The processes of the control plane, by role."""

    def check(self) -> None:
        """Raises `ControlPlaneError` if one of the processes has ended."""
        for process in self.processes.values():
            process.check()


@contextlib.asynccontextmanager
async def real_plane(assets: Assets, folder: Path, with_groups: bool) -> AsyncIterator[Plane]:
    flags = SERVES_GROUPS if with_groups else ()
    async with (
        control_plane(assets, folder, api_server_flags=flags) as plane,
        _driver_client(plane.admin_kubeconfig) as client,
    ):
        processes = {"kube-apiserver": plane.server, "etcd": plane.etcd}
        yield Plane(client, plane.scheduler_kubeconfig, folder, processes)


@contextlib.asynccontextmanager
async def embedded_plane(folder: Path, with_groups: bool) -> AsyncIterator[Plane]:
    kubeconfig = folder / "embedded.kubeconfig"
    gates = GROUP_GATES if with_groups else ()
    command = [sys.executable, "-m", __name__, str(kubeconfig), *gates]
    server = await Process.start("embedded API server", command, folder / "embedded.log")
    try:
        await _until_written(kubeconfig, server)
        async with _driver_client(kubeconfig) as client:
            yield Plane(client, kubeconfig, folder, {"embedded": server})
    finally:
        await server.stop()


async def _until_written(kubeconfig: Path, server: Process) -> None:
    """The embedded server writes its kubeconfig when it is ready."""
    try:
        async with asyncio.timeout(_START_S):
            while not _is_written(kubeconfig):
                server.check()
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise ControlPlaneError(
            f"no embedded API server after {_START_S:.0f} s: {server.last_words()}"
        ) from None


def _is_written(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


@contextlib.asynccontextmanager
async def _driver_client(kubeconfig: Path) -> AsyncIterator[RestClient]:
    transport = HttpTransport(
        load_config(str(kubeconfig)).connection, settings=PoolSettings(max_connections=CONNECTIONS)
    )
    try:
        yield RestClient(
            transport, user_agent=user_agent("bench"), random=Random(), deadline_s=DEADLINE_S
        )
    finally:
        await transport.aclose()


async def count_objects(client: RestClient, path: str) -> int:
    """Count the objects of a collection from a one-item list and its remaining item count.

    Raises:
        ControlPlaneError: the server does not answer.
    """
    try:
        page = codec.decode(await client.get_raw(path, {"limit": "1"}), codec.ListOf[object])
    except (ApiError, TransportError) as error:
        raise ControlPlaneError(f"cannot count the objects at {path}: {error}") from error
    return len(page.items) + (page.metadata.remaining_item_count or 0)


async def _serve(kubeconfig: Path, gates: Sequence[str]) -> None:
    from kubesched.config.features import from_map
    from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ClusterSettings(kubeconfig=kubeconfig, gates=from_map(dict.fromkeys(gates, True)))
    async with EmbeddedCluster(settings):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2:]))
