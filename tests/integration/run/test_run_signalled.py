"""Ctrl-C and SIGTERM, command by command: the exit code, what is said, and that no process stays
behind.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

PATIENCE_S = 300.0
UNREACHABLE = """\
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: x}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
SIGNALS = pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])


class Command:
    """A `kubesched` process in a session of its own, and what it has said so far."""

    def __init__(self, process):
        self.process = process
        self.said = ""
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self):
        while piece := await self.process.stdout.read(4096):
            self.said += piece.decode()

    async def until(self, is_so):
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # it is another process that changes
                assert self.process.returncode is None, self.said
                await asyncio.sleep(0.01)

    async def says(self, text):
        await self.until(lambda: text in self.said)

    async def holds_signals(self):
        """It is being loaded, and keeps signals for later."""
        blocked = 1 << (signal.SIGTERM - 1)

        def is_so():
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            return int(re.search(r"SigBlk:\s+(\w+)", status)[1], 16) & blocked

        await self.until(is_so)

    async def ended_by(self, signum):
        self.process.send_signal(signum)
        async with asyncio.timeout(PATIENCE_S):
            code = await self.process.wait()
            await self._reading
        return code

    def left_behind(self):
        """Members of its session that are still there."""
        results = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    words = (entry / "cmdline").read_text()
                except OSError:
                    continue  # it ended meanwhile
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    results.append(words.replace("\0", " "))
        return results


def _heed_interrupts():
    """As a command in a terminal does, also where the tests run in the background with SIGINT
    ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
async def start(tmp_path):
    started = []

    async def start(*words, wrapper=()):
        """`wrapper` is a command that runs the command after it."""
        process = await asyncio.create_subprocess_exec(
            *wrapper,
            sys.executable,
            "-m",
            "kubesched",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
            start_new_session=True,
            preexec_fn=_heed_interrupts,
        )
        started.append(process)
        return Command(process)

    yield start
    for process in started:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@pytest.fixture
def unreachable(tmp_path):
    path = tmp_path / "unreachable.kubeconfig"
    path.write_text(UNREACHABLE)
    return f"--kubeconfig={path}"


@SIGNALS
@pytest.mark.parametrize("moment", ["while it is loaded", "when it is up"])
async def test_a_playground_stops_and_says_so(start, signum, moment):
    command = await start("up", "--nodes=2")
    await (command.holds_signals() if "loaded" in moment else command.says("Ctrl-C ends it."))
    assert await command.ended_by(signum) == 0
    assert command.said.endswith("stopping\n")
    assert command.left_behind() == []


@SIGNALS
@pytest.mark.parametrize("moment", ["while it is loaded", "when it waits for its API server"])
@pytest.mark.parametrize(
    ("flags", "code", "last"),
    [
        pytest.param((), 0, '"Requested to terminate, exiting"', id="elected"),
        pytest.param(
            ("--leader-elect=false",), 1, 'err="finished without leader elect"', id="alone"
        ),
    ],
)
async def test_a_scheduler_ends_with_upstreams_code(
    start, unreachable, signum, moment, flags, code, last
):
    command = await start("run", unreachable, "--secure-port=0", *flags)
    await (command.holds_signals() if "loaded" in moment else command.says("Failed to watch"))
    assert await command.ended_by(signum) == code
    assert last in command.said
    assert "Traceback" not in command.said


IN_BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Starts a command as a shell without job control starts background jobs: with SIGINT ignored."""


@pytest.mark.parametrize(
    ("words", "up", "code"),
    [
        pytest.param(("simulate", "--runs=100000"), "seed 1", 143, id="simulate"),
        pytest.param(("up", "--nodes=2"), "Ctrl-C ends it.", 0, id="up"),
        pytest.param(("run", "--secure-port=0", "UNREACHABLE"), "Failed to watch", 0, id="run"),
        pytest.param(("bench", "run", "--repeats=100000", "Basic"), "Basic", 143, id="bench"),
    ],
)
async def test_sigterm_ends_a_command_that_was_started_with_sigint_ignored(
    start, unreachable, words, up, code
):
    words = [unreachable if word == "UNREACHABLE" else word for word in words]
    command = await start(*words, wrapper=IN_BACKGROUND)
    await command.says(up)
    assert await command.ended_by(signal.SIGTERM) == code
    assert "Traceback" not in command.said
    assert command.left_behind() == []


@SIGNALS
async def test_a_long_command_ends_tidily(start, signum):
    command = await start("simulate", "--faults", "--runs=100000", "--trace")
    await command.until(lambda: command.said != "")
    assert await command.ended_by(signum) == (130 if signum is signal.SIGINT else 143)
    assert command.said.endswith("interrupted\n")
    assert "Traceback" not in command.said
    assert command.left_behind() == []
