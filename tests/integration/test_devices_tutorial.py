"""The tutorial about devices, followed: its files are written, its commands run, and what they print is what it shows."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "devices.md"
DEADLINE_S = 120.0

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

_FILE = re.compile(r"Put this into `([\w.]+)`:\n\n```yaml\n(.*?)```", re.S)
_CONSOLE = re.compile(r"```console\n(.*?)```", re.S)


def steps():
    """Every command of the page, with the lines it is said to print."""
    found = []
    for block in _CONSOLE.findall(PAGE.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line:
                found[-1][1].append(line)
    return found


def plain(line):
    """A line without what differs from run to run: ages, random suffixes, the width of columns."""
    line = re.sub(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-xxxxx", line)
    line = re.sub(r"\b\d+s$", "1s", line.rstrip())
    line = re.sub(r"127\.0\.0\.1:\d+ in [\d.]+ s", "127.0.0.1:1 in 1 s", line)
    line = re.sub(r"KUBECONFIG=\S+", "KUBECONFIG=", line)
    line = re.sub(r"page at \S+", "page at", line)
    return re.sub(r" +", " ", line)


def check(command, shown, printed):
    """Lines in order; `...` stands for any number of others."""
    actual = [plain(line) for line in printed.splitlines() if line.strip()]
    position = 0
    is_exact = True
    for line in map(plain, shown):
        if line == "...":
            is_exact = False
            continue
        while not is_exact and position < len(actual) and not actual[position].startswith(line):
            position += 1
        assert position < len(actual), f"{command}: {line!r} not in {printed!r}"
        assert actual[position].startswith(line), f"{command}: {line!r} is not {actual[position]!r}"
        position += 1
        is_exact = True
    assert not is_exact or position == len(actual), f"{command} prints more: {actual[position:]}"


async def finish(process):
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), DEADLINE_S)


async def test_every_command_prints_what_the_page_shows(tmp_path):
    for name, text in _FILE.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text)
    (start, announced), *commands = steps()
    kubeconfig = tmp_path / "kubeconfig"
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}
    program, *arguments = start.split()
    assert program == "kubesched"
    cluster = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubesched", *arguments, "--kubeconfig", str(kubeconfig)),
        cwd=tmp_path,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert cluster.stdout is not None
        head = await asyncio.wait_for(cluster.stdout.readuntil(b"ends it.\n"), DEADLINE_S)
        check(start, announced, head.decode())
        for command, shown in commands:
            process = await asyncio.create_subprocess_shell(
                command,
                cwd=tmp_path,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                out, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
            finally:
                await finish(process)
            assert process.returncode == 0, f"{command}: {out.decode()}"
            check(command, shown, out.decode())
    finally:
        await finish(cluster)
