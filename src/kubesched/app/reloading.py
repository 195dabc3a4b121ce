"""Plugins under development: saved files are imported anew, and a new scheduler uses them.

    folder ──poll──► a loaded file was saved ──► import in a thread ──► replace the scheduler
                                                    │ raises
                                                    ▼
                             the modules from before are put back; one line says where it failed

The new scheduler starts from the API server's state, like a restarted process. Answers kept by the
old one, plugin state and pods that wait in Permit therefore need no handling of their own, and pods
that were pending are tried again at once.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, TypeVar

from kubesched.app.playground import SchedulerSeat
from kubesched.base.errors import KubeschedError, describe
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.playground.client.local import LocalApi
from kubesched.plugins.registry import load_plugins
from kubesched.scheduler.factory import Assembly

T = TypeVar("T")

MAX_FILES: Final = 2000
PERIOD_S: Final = 0.1
QUIET_S: Final = 0.03
"""Files are read once they have been the same for this long: editors write in several steps."""
IMPORT_S: Final = 10.0
"""An import that takes longer is given up."""
DECIDE_S: Final = 5.0
"""How long to wait for decisions about the pods that were pending."""
SHOWN: Final = 20
"""Pending pods whose difference is printed; others are counted."""

Stamps = Mapping[str, tuple[int, int, int]]
"""Modification time, size and inode by path."""


class Outcome(NamedTuple):
    """A pod, and its node or why it has none."""

    name: str
    node: str
    reason: str


Outcomes = Mapping[str, Outcome]
"""By UID."""


class Reloader:
    """Watches a folder and, if given, the configuration file."""

    def __init__(
        self,
        folder: Path,
        config_file: str | None,
        load: Callable[[], KubeSchedulerConfiguration],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """`load` reads the configuration.

        Raises:
            KubeschedError: the folder cannot be watched.
        """
        if not folder.is_dir():
            raise KubeschedError(f"--reload {folder}: not a folder")
        self.folder = str(folder.resolve())
        self._config_file = config_file and os.path.abspath(config_file)
        self._load, self._tell = load, tell or partial(print, flush=True)
        self._seen = self._stamps()
        if len(self._seen) > MAX_FILES:
            text = f"--reload {folder}: more than {MAX_FILES} Python files; name the plugin's own"
            raise KubeschedError(f"{text} folder")
        self._is_broken = False
        sys.dont_write_bytecode = True  # it would be used for a file saved in the same second
        sys.path.insert(0, self.folder)

    async def run(self, seat: SchedulerSeat, api: LocalApi, done: Callable[[], None]) -> None:
        """Watch until cancelled; `done` is called after each reload."""
        while True:
            await asyncio.sleep(PERIOD_S)
            before, stamps = self._seen, await asyncio.to_thread(self._stamps)
            while stamps != self._seen:
                self._seen = stamps
                await asyncio.sleep(QUIET_S)
                stamps = await asyncio.to_thread(self._stamps)
            changed = sorted(p for p in {*before, *stamps} if before.get(p) != stamps.get(p))
            # After a failure any file may be the missing one.
            if changed and (self._is_broken or not self._used().isdisjoint(changed)):
                await self._reload(changed[0], seat, api, done)

    async def _reload(
        self, path: str, seat: SchedulerSeat, api: LocalApi, done: Callable[[], None]
    ) -> None:
        began = time.monotonic()
        pending = {uid: pod for uid, pod in outcomes(api).items() if not pod.node}
        try:
            with imported_anew(self.folder):
                config, registry = await _in_thread(self._import)
                await seat.replace(config, registry)
        except (Exception, SystemExit) as error:  # any code of a plugin may have run
            self._is_broken = True
            self._tell(f"{explain(error, self.folder, path)}; the code from before stays in use")
            return
        self._is_broken = False
        took_ms = (time.monotonic() - began) * 1000
        done()
        await decided(seat.app.assembly)
        changes = differences(pending, outcomes(api))
        self._tell(
            f"{shown(path)} reloaded in {took_ms:.0f} ms: {len(pending)} pods were pending, "
            f"{len(changes)} of them decided differently"
        )
        for line in changes[:SHOWN]:
            self._tell(f"  {line}")
        if len(changes) > SHOWN:
            self._tell(f"  and {len(changes) - SHOWN} more")

    def _import(self) -> tuple[KubeSchedulerConfiguration, Registry]:
        config = self._load()
        return config, load_plugins(config)

    def _used(self) -> set[str]:
        files = {module.__file__ for module in modules_in(self.folder).values()}
        return {*filter(None, files), *filter(None, [self._config_file])}

    def _stamps(self) -> Stamps:
        paths = [*islice(_sources(self.folder), MAX_FILES + 1), *filter(None, [self._config_file])]
        stamps = {}
        for path in paths:
            try:
                stat = os.stat(path)
            except OSError:  # deleted since: that is a change
                continue
            stamps[path] = stat.st_mtime_ns, stat.st_size, stat.st_ino
        return stamps


def _sources(folder: str) -> Iterator[str]:
    """Python files below a folder, without those of environments and caches."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_foreign(name)]
        yield from (os.path.join(parent, name) for name in names if name.endswith(".py"))


def _is_foreign(name: str) -> bool:
    return name.startswith(".") or name in ("__pycache__", "site-packages")


def modules_in(folder: str) -> dict[str, ModuleType]:
    """The imported modules whose source is below a folder."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(f"{folder}{os.sep}") and file.endswith(".py"):
            parts = file.removeprefix(folder).split(os.sep)
            if name.partition(".")[0] not in ("__main__", "kubesched") and not any(
                map(_is_foreign, parts)
            ):
                found[name] = module
    return found


@contextmanager
def imported_anew(folder: str) -> Iterator[None]:
    """Forget the modules of a folder, so that they are imported anew; put back on failure."""
    before = modules_in(folder)
    for name in before:
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        yield
    except BaseException:
        for name in modules_in(folder):
            del sys.modules[name]
        sys.modules.update(before)
        raise


async def _in_thread(function: Callable[[], T]) -> T:
    """The function's result, from a thread that does not keep the process from ending.

    Raises:
        KubeschedError: it does not return in time.
    """
    answer: Future[T] = Future()

    def work() -> None:
        with suppress(InvalidStateError):  # given up
            try:
                answer.set_result(function())
            except BaseException as error:  # raised again where it is awaited
                answer.set_exception(error)

    threading.Thread(target=work, name="reload", daemon=True).start()
    try:
        async with asyncio.timeout(IMPORT_S):
            return await asyncio.wrap_future(answer)
    except TimeoutError:
        raise KubeschedError(f"the import has not ended after {IMPORT_S:.0f} s") from None


def explain(error: BaseException, folder: str, path: str) -> str:
    """`FILE:LINE: what failed`; just the saved file for what has no line, like a missing class."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(f"{folder}{os.sep}")]
    place = f"{shown(own[-1].filename)}:{own[-1].lineno}" if own else shown(path)
    return f"{place}: {' '.join(describe(error).split())}"


def shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def outcomes(api: LocalApi) -> Outcomes:
    found = {}
    for pod in api.list("pods")[0]:
        meta, status = pod["metadata"], pod.get("status", {})
        reasons = (
            condition.get("message", "")
            for condition in status.get("conditions") or ()
            if condition["type"] == "PodScheduled"
        )
        node = pod["spec"].get("nodeName", "")
        found[meta["uid"]] = Outcome(
            f"{meta['namespace']}/{meta['name']}", node, next(reasons, "") or "not tried yet"
        )
    return found


async def decided(assembly: Assembly) -> None:
    """Return when every pod has been tried and its condition is written, or after a while."""
    scheduler, held = assembly.scheduler, assembly.waiting_pods
    end = time.monotonic() + DECIDE_S
    while time.monotonic() < end:
        busy = scheduler.queue.sizes[0] + sum(scheduler.status_writer.statistics().values())
        busy += max(scheduler.queue.in_flight_count, scheduler.cache.assumed_count) - len(held)
        if busy <= 0:
            return
        await asyncio.sleep(0.01)


def differences(pending: Outcomes, after: Outcomes) -> list[str]:
    """`POD: reason → node or other reason` for the pods that are still there."""
    return [
        f"{old.name}: {old.reason} → {new.node or new.reason}"
        for uid, old in pending.items()
        if (new := after.get(uid)) is not None and new[1:] != old[1:]
    ]
