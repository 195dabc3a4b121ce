"""A scheduler process under comparison, and its metrics."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from kubesched.client.rest import RestClient
from kubesched.testing.control_plane import ControlPlane, Process, client_of_process, free_ports

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
    try:
        async with client_of_process(port) as metrics:
            yield SchedulerUnderTest(process, metrics)
    finally:
        await process.stop()
