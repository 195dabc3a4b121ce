"""/debug: CPU profile, stacks of tasks and threads, log verbosity.

Go's paths with Python's contents: `profile` is a sampling profile in pprof format (for `go tool
pprof` and most viewers), `goroutine` lists the stacks of all tasks and threads, `cmdline` is the
command line. The other Go profiles have no counterpart and return an error that says so.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from kubesched.api import pprof
from kubesched.api.pprof import Stack
from kubesched.app.server.requests import PageRequest
from kubesched.app.server.responses import NO_SNIFF, NOT_FOUND, error_text, text
from kubesched.base import logs
from kubesched.base.clock import Clock
from kubesched.base.http_server.messages import Response

ROOT: Final = "/debug/pprof"
FLAGS: Final = "/debug/flags"
VERBOSITY: Final = f"{FLAGS}/v"
SAMPLES_PER_S: Final = 100
DEFAULT_PROFILE_S: Final = 30.0
MAX_PROFILE_S: Final = 300.0
MAX_DEPTH: Final = 128
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

    clock: Clock
    loops: Sequence[asyncio.AbstractEventLoop] = ()
    """Loops whose tasks are listed, besides the serving loop."""
    _is_profiling: bool = field(default=False, init=False)

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
            return await self._profile(request)
        if name in _ABSENT:
            return error_text(f"there is no {name} profile of a Python program", 501)
        return error_text("Unknown profile", 404)

    async def _profile(self, request: PageRequest) -> Response:
        try:
            seconds = float(request.query.get("seconds", [str(DEFAULT_PROFILE_S)])[0])
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= MAX_PROFILE_S:
            return error_text(f"seconds must be a number up to {MAX_PROFILE_S:g}", 400)
        if self._is_profiling:
            return error_text("a profile is being taken already", 409)
        self._is_profiling = True
        try:
            began = self.clock.now()
            samples = await asyncio.to_thread(_sample, _main_thread_id(), seconds)
            body = await asyncio.to_thread(pprof.encode, samples, began, seconds, SAMPLES_PER_S)
        finally:
            self._is_profiling = False
        headers = {**NO_SNIFF, "Content-Disposition": 'attachment; filename="profile"'}
        return Response(body=body, content_type="application/octet-stream", headers=headers)


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
    return (
        f"{ROOT}/\n\n"
        "profile?seconds=N  where time goes, as a pprof profile\n"
        "goroutine          stacks of all tasks and threads\n"
        "cmdline            the command line\n"
    )


def _main_thread_id() -> int:
    """The scheduling thread."""
    ident = threading.main_thread().ident
    assert ident is not None
    return ident


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


def _sample(thread_id: int, seconds: float) -> Counter[Stack]:
    """Sample a thread's stack, from another thread."""
    samples: Counter[Stack] = Counter()
    pause = threading.Event()
    for _ in range(max(1, int(seconds * SAMPLES_PER_S))):
        pause.wait(1 / SAMPLES_PER_S)
        frame = sys._current_frames().get(thread_id)
        if frame is not None:
            samples[_stack_of(frame)] += 1
    return samples


def _stack_of(frame: FrameType | None) -> Stack:
    entries: list[tuple[str, str, int]] = []
    while frame is not None and len(entries) < MAX_DEPTH:
        code = frame.f_code
        entries.append((code.co_qualname, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(entries)
