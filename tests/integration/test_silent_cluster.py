"""Commands that follow a cluster when it does not answer: they say so, and signals end them."""

from __future__ import annotations

import asyncio
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from kubesched.testing.control_plane import free_ports

PATIENCE_S = 300.0
COMMANDS = [["page"], ["shadow"]]


async def started(words: list[str], folder: Path, port: int) -> asyncio.subprocess.Process:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nusers: [{name: u, user: {token: t}}]\n"
        f'clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{port}"}}}}]\n'
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kubesched", *words, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A shell has what it runs in the background ignore SIGINT, and the test with it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_a_command_that_waits_for_the_cluster(words, signum, code, tmp_path):
    connected = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_S):
        process = await started(words, tmp_path, server.sockets[0].getsockname()[1])
        await connected.wait()
        process.send_signal(signum)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (code, b"", b"interrupted\n")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
async def test_a_cluster_that_cannot_be_reached_is_an_error(words, tmp_path):
    async with asyncio.timeout(PATIENCE_S):
        process = await started(words, tmp_path, free_ports(1)[0])
        out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert err.startswith(b"error: cannot connect to 127.0.0.1:")
