"""The schedulers that are measured or compared: how each is started, probed and stopped.

Both get the same configuration file and client limits, and a control plane each.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from kubesched.base.errors import ApiError, TransportError
from kubesched.base.version import __version__
from kubesched.client.rest import RestClient
from kubesched.config.references import DEFAULT_REFERENCE, Reference
from kubesched.testing.control_plane import (
    Assets,
    ControlPlaneError,
    Process,
    client_of_process,
    free_ports,
)

KUBESCHED = "kubesched"
KUBE_SCHEDULER = "kube-scheduler"

CLIENT_LIMIT = 10_000
"""Requests per second, equal for all contestants; high enough to have no effect."""
READY_TIMEOUT_S = 120.0
_POLL_S = 0.05
CPU_PROFILE = "/debug/pprof/profile"
ALLOCATIONS = "/debug/pprof/allocs"
_OPEN_PATHS = f"/healthz,/readyz,/livez,/metrics,{CPU_PROFILE},{ALLOCATIONS}"


class Plane(Protocol):
    """What a scheduler needs of its control plane."""

    @property
    def folder(self) -> Path: ...

    @property
    def scheduler_kubeconfig(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """A scheduler as a program."""

    name: str
    command: tuple[str, ...]
    version: str
    tells_decisions: bool = False
    """Whether its CPU profile resolves decisions; ours are too short for 100 samples per second."""

    @classmethod
    def kubesched(cls, reference: Reference = DEFAULT_REFERENCE) -> Contestant:
        version = f"--reference-version={reference.version}"
        command = (sys.executable, "-m", "kubesched", "run", version)
        return cls(KUBESCHED, command, __version__)

    @classmethod
    def kube_scheduler(cls, assets: Assets, reference: Reference = DEFAULT_REFERENCE) -> Contestant:
        command = (str(assets.kube_scheduler),)
        return cls(KUBE_SCHEDULER, command, reference.release, tells_decisions=True)


class RunningScheduler:
    """A contestant running on a plane."""

    def __init__(self, contestant: Contestant, process: Process, client: RestClient) -> None:
        self.contestant = contestant
        self._process = process
        self._client = client

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises `ControlPlaneError` if the process has ended."""
        self._process.check()

    def last_words(self) -> str:
        return self._process.last_words()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """One of its pages. Raises `ControlPlaneError`."""
        try:
            return await self._client.get_raw(path, query)
        except (ApiError, TransportError) as error:
            message = f"{self._process.name} does not show {path}: {error}"
            raise ControlPlaneError(message) from None

    async def until_ready(self) -> None:
        """Wait until it is ready. Raises `ControlPlaneError` after a deadline."""
        last: Exception | None = None
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while True:
                    self.check()
                    try:
                        await self._client.get_raw("/readyz")
                    except (ApiError, TransportError) as error:
                        last = error
                        await asyncio.sleep(_POLL_S)
                    else:
                        return
        except TimeoutError:
            raise ControlPlaneError(
                f"{self._process.name} is not ready after {READY_TIMEOUT_S:.0f} s: {last}\n"
                f"{self._process.last_words()}"
            ) from None


@contextlib.asynccontextmanager
async def running(
    contestant: Contestant,
    plane: Plane,
    config: Mapping[str, Any],
    feature_gates: Mapping[str, bool] | None = None,
    flags: Sequence[str] = (),
) -> AsyncIterator[RunningScheduler]:
    """Run the scheduler on a plane for the duration of the block."""
    (port,) = free_ports(1)
    path = plane.folder / f"{contestant.name}.yaml"
    path.write_text(yaml.safe_dump(_completed(config, plane)))
    command = [
        *contestant.command,
        f"--config={path}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={plane.folder / contestant.name}",
        # Scraping must not trigger an access review at the API server.
        f"--authorization-always-allow-paths={_OPEN_PATHS}",
        *flags,
    ]
    if feature_gates:
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(feature_gates.items()))
        command.append(f"--feature-gates={gates}")
    process = await Process.start(contestant.name, command, plane.folder / f"{contestant.name}.log")
    try:
        async with client_of_process(port) as client:
            yield RunningScheduler(contestant, process, client)
    finally:
        await process.stop()


def _completed(config: Mapping[str, Any], plane: Plane) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **config,
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(plane.scheduler_kubeconfig),
            "qps": CLIENT_LIMIT,
            "burst": CLIENT_LIMIT,
        },
    }
