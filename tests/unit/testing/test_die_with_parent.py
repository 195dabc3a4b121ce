"""Programs of a control plane end with whoever started them, also when that one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from processes import is_running, until

from kubesched.testing import die_with_parent
from kubesched.testing.control_plane import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux' kernel")

WAITING = "import signal; print('there', flush=True); signal.pause()"
PARENT = """
import asyncio, sys
from pathlib import Path
from kubesched.testing.control_plane import Process

async def main(log):
    child = await Process.start("child", [sys.executable, "-c", sys.argv[2]], log)
    print(child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_a_child_ends_with_a_parent_that_is_killed(tmp_path):
    log = tmp_path / "child.log"
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(log), WAITING), stdout=asyncio.subprocess.PIPE
    )
    pid = int(await parent.stdout.readline())
    await until(lambda: "there" in log.read_text())
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until(lambda: not is_running(pid))


async def test_the_program_has_the_number_that_its_starter_knows(tmp_path):
    log = tmp_path / "child.log"
    command = [sys.executable, "-c", "import os; print(os.getpid(), os.getppid())"]
    child = await Process.start("child", command, log)
    await until(lambda: log.read_text().endswith("\n"))
    assert log.read_text().split() == [str(child.pid), str(os.getpid())]
    await child.stop()


async def test_a_command_does_not_start_after_its_parent_is_gone():
    late = await asyncio.create_subprocess_exec(
        *(sys.executable, die_with_parent.__file__, str(os.getppid()), "echo", "started"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await late.communicate()
    assert (late.returncode, out) == (1, b"")


async def test_a_program_that_is_not_there_is_named(tmp_path):
    child = await Process.start("child", ["/no/such/program"], tmp_path / "child.log")
    await until(lambda: "cannot run /no/such/program" in child.last_words())
    await child.stop()
