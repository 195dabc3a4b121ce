"""A scheduler process under comparison, and its metrics."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import yaml

from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient, user_agent
from kubesched.testing.control_plane import ControlPlane, Process, free_ports

MAX_REST_S = 15
"""How long a pod may stay unschedulable before it is retried; the default is five minutes."""

_HANDLED = b"scheduler_event_handling_duration_seconds_count{"


class SchedulerUnderTest:
    """A running scheduler."""

    def __init__(self, process: Process, metrics: RestClient) -> None:
        self._process = process
        self._metrics = metrics

    def check(self) -> None:
        """Raises `ControlPlaneError` if the process has ended."""
        self._process.check()

    def last_words(self) -> str:
        return self._process.last_words()

    async def events_handled(self, name: bytes) -> int:
        """Number of handled events whose label contains `name`, since the scheduler started."""
        page = await self._metrics.get_raw("/metrics")
        return sum(
            int(float(line.rsplit(b" ", 1)[1]))
            for line in page.splitlines()
            if line.startswith(_HANDLED) and name in line
        )


@contextlib.asynccontextmanager
async def scheduler_under_test(
    plane: ControlPlane, command: Sequence[str | Path]
) -> AsyncIterator[SchedulerUnderTest]:
    """Run the scheduler for the duration of the block."""
    (port,) = free_ports(1)
    folder = plane.folder
    serving = [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        "--authorization-always-allow-paths=/metrics",
        f"--pod-max-in-unschedulable-pods-duration={MAX_REST_S}s",
    ]
    process = await Process.start("scheduler", [*command, *serving], folder / "scheduler.log")
    transport = HttpTransport(load_config(str(_kubeconfig(folder, port))).connection)
    metrics = RestClient(
        transport, user_agent=user_agent("conformance"), random=Random(), deadline_s=30.0
    )
    try:
        yield SchedulerUnderTest(process, metrics)
    finally:
        await transport.aclose()
        await process.stop()


def _kubeconfig(folder: Path, port: int) -> Path:
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(folder / "ca.crt"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "scheduler", "cluster": cluster}],
        "users": [{"name": "anonymous", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "scheduler", "user": "anonymous"}}],
        "current-context": "it",
    }
    path = folder / "metrics.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
