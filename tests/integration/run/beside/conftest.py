"""The real kube-scheduler and `kubesched run`, told the same and watched alike.

Everything in this folder needs `$KUBEBUILDER_ASSETS` (marker `real`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
import sys
from dataclasses import dataclass, field

import aiohttp
import pytest

from kubesched.testing.control_plane import ASSETS_VARIABLE, find_assets, free_ports


@pytest.fixture
def assets():
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs kube-scheduler: set ${ASSETS_VARIABLE} to the folder that holds it")
    return find_assets()


@pytest.fixture
def programs(assets):
    """The words that start either scheduler."""
    return {
        "theirs": [str(assets.kube_scheduler)],
        "ours": [sys.executable, "-m", "kubesched", "run"],
    }


@dataclass
class Contestant:
    """One scheduler process of either kind, whose log goes to a file."""

    name: str
    command: list[str]
    log: object
    port: int
    process: asyncio.subprocess.Process | None = None
    started: list = field(default_factory=list)
    """Every process that bore the name."""

    async def start(self):
        with self.log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stdout=output, stderr=output
            )
        self.started.append(self.process)

    async def kill(self, signum=signal.SIGKILL):
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signum)
        return await self.process.wait()

    def client(self, certificate=None):
        """An HTTPS session with it; `certificate` is a pair of files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return aiohttp.ClientSession(
            f"https://127.0.0.1:{self.port}", connector=aiohttp.TCPConnector(ssl=context)
        )

    async def is_ready(self):
        async with self.client() as session:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get("/readyz") as answer:
                    return answer.status == 200
        return False

    def lines(self):
        """Its log in JSON, line by line; the flags left out."""
        results = []
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                record = json.loads(line)
                if not record["msg"].startswith("FLAG:"):
                    results.append(record)
        return results

    async def says(self, text):
        async with asyncio.timeout(300):
            while not re.search(text, self.log.read_text()):  # noqa: ASYNC110  # it is another process that writes
                await asyncio.sleep(0.05)


@pytest.fixture
async def contestant(programs, cluster, tmp_path):
    """Start schedulers: `await contestant("name", kind="theirs")`; they end with the test."""
    made = []

    async def start(name, *flags, kind, serves=True, config=None, kubeconfig=None):
        kubeconfig = kubeconfig or cluster.kubeconfig
        (port,) = free_ports(1)
        path = tmp_path / f"{name}.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 500},
            **(config or {}),
        }
        path.write_text(json.dumps(document))
        serving = (
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
        )
        command = [
            *programs[kind],
            f"--config={path}",
            *(serving if serves else ("--secure-port=0",)),
            *flags,
        ]
        one = Contestant(name, command, tmp_path / f"{name}.log", port)
        await one.start()
        made.append(one)
        return one

    yield start
    for item in made:
        await item.kill()


@pytest.fixture
def admin_certificate(cluster):
    folder = cluster.plane.folder
    return folder / "admin.crt", folder / "admin.key"
