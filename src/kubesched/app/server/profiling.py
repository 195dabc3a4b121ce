"""/debug: stacks of tasks and threads, the command line, log verbosity.

Go's paths with Python's contents: `goroutine` lists the stacks of all tasks and threads, `cmdline`
is the command line. Go's profiles return an error that says what to use instead.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.app.server.requests import PageRequest
from kubesched.app.server.responses import NO_SNIFF, NOT_FOUND, error_text, text
from kubesched.base import logs
from kubesched.base.http_server.messages import Response

ROOT: Final = "/debug/pprof"
FLAGS: Final = "/debug/flags"
VERBOSITY: Final = f"{FLAGS}/v"
_ABSENT: Final = (
    "allocs",
    "block",
    "goroutineleak",
    "heap",
    "mutex",
    "symbol",
    "threadcreate",
    "trace",
)


@dataclass(slots=True)
class DebugPages:
    """All pages below /debug."""

    loops: Sequence[asyncio.AbstractEventLoop] = ()
    """Loops whose tasks are listed, besides the serving loop."""

    async def __call__(self, request: PageRequest) -> Response:
        if request.path == VERBOSITY:
            return _set_verbosity(request)
        if request.path == FLAGS or request.path.startswith(f"{FLAGS}/"):
            return text(f"{FLAGS}/\n\nflags:\nv\nfull flags configurable\n")
        if request.path == ROOT:
            return Response(status=302, headers={"Location": f"{ROOT}/"})
        if not request.path.startswith(f"{ROOT}/"):
            return NOT_FOUND
        name = request.path.removeprefix(f"{ROOT}/")
        if name == "":
            return text(_index())
        if name == "cmdline":
            return text("\0".join(sys.argv))
        if name == "goroutine":
            return text(stacks(self.loops))
        if name == "profile":
            return error_text("py-spy record --pid PID takes a CPU profile of this process", 501)
        if name in _ABSENT:
            return error_text(f"there is no {name} profile of a Python program", 501)
        return error_text("Unknown profile", 404)


def _set_verbosity(request: PageRequest) -> Response:
    if request.method != "PUT":
        return _plain("unsupported http method\n", status=406)
    given = request.body.decode("utf-8", "replace").strip()
    if not (given.isascii() and given.isdigit()) or int(given) > logs.MAX_VERBOSITY:
        problem = "value out of range" if given.isdigit() else "invalid syntax"
        return _plain(f"strconv.ParseUint: parsing {logs.quoted(given[:40])}: {problem}\n", 400)
    logs.set_verbosity(int(given))
    return _plain(f"successfully set klog.logging.verbosity to {given}\n")


def _plain(body: str, status: int = 200) -> Response:
    """Responds like upstream's flag setter, without a charset."""
    return Response(status=status, body=body.encode(), content_type="text/plain", headers=NO_SNIFF)


def _index() -> str:
    return f"{ROOT}/\n\ngoroutine  stacks of all tasks and threads\ncmdline    the command line\n"


def stacks(loops: Iterable[asyncio.AbstractEventLoop] = ()) -> str:
    """Stacks of all tasks and threads."""
    lines = []
    tasks = asyncio.all_tasks().union(*(asyncio.all_tasks(loop) for loop in loops))
    for task in sorted(tasks, key=lambda task: task.get_name()):
        lines.append(f"task {task.get_name()}:\n")
        frames = task.get_stack()
        lines += (
            f"\t{frame.f_code.co_qualname}\n\t\t{frame.f_code.co_filename}:{frame.f_lineno}\n"
            for frame in reversed(frames)
        )
        lines.append("\n")
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        lines.append(f"thread {names.get(ident, ident)}:\n")
        lines += traceback.format_stack(frame)
        lines.append("\n")
    return "".join(lines)
