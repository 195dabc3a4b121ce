"""Console blocks of the documentation: their commands, and a terminal that runs them as a reader
would.

A block is a fence marked `console`. Lines that begin with the prompt (`$ ` or `# `) are commands,
the others are what the command before them prints. A line `...` stands for any number of lines; a
command without any output shown may print anything. Code after "into `NAME`:" is a file of that
name in the reader's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import textwrap
import tomllib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kubesched.testing.control_plane import free_ports

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 3.0

READY = {
    "kubesched up": "Ctrl-C ends it.",
    "kubesched page": "Ctrl-C ends it.",
    "kubesched run": "Serving securely on",
    "python extender.py": "extender at",
    "python plugins/examples/load.py": "nodes at http://",
}
"""Commands that run until they are stopped, and what they print once they can be used; not with
`--once`.
"""

SUBSTITUTIONS = {
    "scripts/playground": "kubesched up --demo",  # what it does once the environment is set up
    "kubesched run ": "kubesched run --bind-address=127.0.0.1 --secure-port={port} ",
    "localhost:10259": "127.0.0.1:{port}",
    "8888": "{port}",
    "/var/lib/kubesched/": "",
}
"""Texts of commands and files that are replaced before they are used; `{port}` is a free one."""

NOT_RUN = {
    "README.md: scripts/test": "runs this test",
    "docs/how-to/deploy-as-second-scheduler.md: podman": "needs a base image from a registry",
    "docs/how-to/deploy-as-second-scheduler.md: helm": "tests/unit/deploy renders the chart",
    "docs/how-to/deploy-on-kind-and-k3s.md: ": "needs kind or k3s",
    "docs/how-to/deploy-your-plugins.md: ": "tests/unit/deploy/test_deployment_recipes.py",
    "docs/how-to/install.md: pip": "needs a package index",
    "docs/how-to/install.md: uv tool install": "needs a package index",
    "docs/reference/conformance.md: export KUBEBUILDER_ASSETS": "names no folder of this machine",
    "docs/reference/conformance.md: kubesched conformance run": "takes minutes; tests/conformance",
}
"""Commands that no test runs, by page and start, and why."""

NOT_EVERYWHERE = ("kubectl", "curl")
"""Programs that a machine may lack; their commands are not run then."""

_READING = re.compile(r"kubectl .*?\b(get|describe) |kubesched explain |curl ")
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_FILE_NAME = re.compile(r"\binto `([\w.-]+)`:\s*\Z")
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_GENERATED = re.compile(
    rf"(?<![-=\w])[a-z][-a-z0-9]*?-(?:{_LETTERS}{{8,10}}(?:-{_LETTERS}{{5}})?|{_LETTERS}{{5}})\b"
)
_VARYING = (
    # What newer versions of kubectl add.
    (re.compile(r"(?<= deleted) from \S+ namespace$"), ""),
    (re.compile(r"\bspec\.containers\{[^}]*\}: "), ""),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r'(?<="time": )[\d.]+|(?<="seconds": )[\d.e-]+'), "FIGURE"),
    (re.compile(rf"-{_LETTERS}{{8,10}}\b"), "-HASH"),
    (re.compile(rf"-{_LETTERS}{{5}}\b"), "-NAME"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b(?:\d+m)?\d+s\b"), "AGE"),
    (re.compile(r"\b[\d.]+ s\b"), "SECONDS"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b10\.0\.\d+\.\d+\b"), "IP"),
    (re.compile(r"\btoken=[-\w]+"), "TOKEN"),
    (re.compile(r"\s+"), " "),
)
_PLACES = ((re.compile(r"\bnode-\d+"), "NODE"), (re.compile(r"\bzone-[abc]\b"), "ZONE"))


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page, and the lines it is shown to print."""

    page: str
    line: int
    command: str
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


def entries(table: Iterable[str], step: Step) -> list[str]:
    """The keys of a table that match the step; a key is a page and the start of a command."""
    return [key for key in table if f"{step.page}: {step.command}".startswith(key)]


def is_program_missing(step: Step) -> bool:
    program = step.command.split()[0]
    return program in NOT_EVERYWHERE and shutil.which(program) is None


def pages() -> list[str]:
    """The pages that have console blocks, relative to the repository."""
    folders = "docs/**/*.md", "examples/**/*.md", "plugins/docs/*.md"
    paths = [ROOT / "README.md", *(path for folder in folders for path in ROOT.glob(folder))]
    names = (str(path.relative_to(ROOT)) for path in sorted(paths))
    return [name for name in names if steps(name)]


def steps(page: str) -> list[Step]:
    """The commands of a page, in order."""
    text = (ROOT / page).read_text()
    result: list[Step] = []
    for fence in _FENCE.finditer(text):
        if fence[2] == "console":
            first = text.count("\n", 0, fence.start()) + 2
            result += _steps(page, first, textwrap.dedent(fence[3]).splitlines())
    return result


def _steps(page: str, number: int, lines: list[str]) -> Iterable[Step]:
    prompt = lines[0][:2]
    assert prompt in ("$ ", "# "), f"{page}:{number}: a console block begins with a prompt"
    starts = [i for i, line in enumerate(lines) if line.startswith(prompt)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command, rest = lines[start][2:], lines[start + 1 : end]
        while command.endswith("\\"):
            command = command[:-1] + rest.pop(0).lstrip("> ")
        yield Step(page, number + start, command, tuple(line for line in rest if line.strip()))


def files(page: str) -> dict[str, str]:
    """The files that a page tells its reader to write."""
    text = (ROOT / page).read_text()
    result = {}
    for fence in _FENCE.finditer(text):
        if name := _FILE_NAME.search(text, 0, fence.start()):
            result[name[1]] = textwrap.dedent(fence[3])
    return result


def normalised(line: str, *, places_vary: bool) -> str:
    """Replaces what differs from run to run, and collapses the width of columns."""
    for pattern, replacement in (*(_PLACES if places_vary else ()), *_VARYING):
        line = pattern.sub(replacement, line.strip())
    return line


def matched(
    shown: Iterable[str], printed: str, *, places_vary: bool = False
) -> list[tuple[str, str]] | str:
    """Pairs of shown and printed lines, or a description of the first difference."""
    lines = [line for line in printed.splitlines() if line.strip()]
    pairs: list[tuple[str, str]] = []
    position, may_skip = 0, False
    for line in shown:
        if line.strip() == "...":
            may_skip = True
            continue
        wanted = normalised(line, places_vary=places_vary)
        ahead = range(position, len(lines) if may_skip else min(position + 1, len(lines)))
        for index in ahead:
            if normalised(lines[index], places_vary=places_vary) == wanted:
                pairs.append((line, lines[index]))
                position, may_skip = index + 1, False
                break
        else:
            return f"it does not print {line!r} there"
    if position < len(lines) and not may_skip:
        return f"it also prints {lines[position]!r}"
    return pairs


@dataclass
class Running:
    """A process, and what it has printed."""

    process: asyncio.subprocess.Process
    printed: str = ""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, command: str, folder: Path, environment: dict[str, str]) -> Running:
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 22,
        )
        self = cls(process)
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.printed += line.decode()
            self._news.set()
        self._news.set()

    async def says(self, text: str) -> None:
        """Wait until it has printed a line with the text."""
        assert self._reading is not None
        async with asyncio.timeout(DEADLINE_S):
            while not re.search(re.escape(text) + r".*\n", self.printed):
                assert not self._reading.done(), f"it ended: {self.printed}"
                self._news.clear()
                await self._news.wait()

    async def stop(self) -> None:
        """End a process that must still be running."""
        ended = self.process.returncode
        await self.end()
        assert ended is None, f"it ended with exit code {ended}: {self.printed}"

    async def end(self) -> None:
        """Send SIGTERM if it still runs, and wait."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self.process.wait()
        finally:
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
            if self._reading is not None:
                await asyncio.wait_for(self._reading, DEADLINE_S)


class Terminal:
    """Runs a reader's commands in a folder that doubles as the home directory."""

    def __init__(
        self, folder: Path, stack: contextlib.AsyncExitStack, *, places_vary: bool
    ) -> None:
        self.folder = folder
        self.kubeconfig = folder / ".cache" / "kubesched" / "kubeconfig"
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(self.kubeconfig),
        }
        self._places_vary = places_vary
        self._port = free_ports(1)[0]
        self._names: dict[str, str] = {}
        """Generated names that a page shows, and what they are here."""
        self._stack = stack
        for name in ("deploy", "examples", "plugins"):
            (folder / name).symlink_to(ROOT / name)

    def install_plugins(self) -> None:
        """What `pip install ./plugins` leaves: a package, and the names of its plugins.

        Pages of plugins keep the kubeconfig in the reader's folder, where a configuration can name
        it.
        """
        project = tomllib.loads((ROOT / "plugins" / "pyproject.toml").read_text())["project"]
        about = self.folder / "site" / f"kubesched_plugins-{project['version']}.dist-info"
        about.mkdir(parents=True)
        version = f"Name: {project['name']}\nVersion: {project['version']}\n"
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\n{version}")
        names = project["entry-points"]["kubesched.plugins"].items()
        points = "".join(f"{name} = {target}\n" for name, target in names)
        (about / "entry_points.txt").write_text(f"[kubesched.plugins]\n{points}")
        self.environment["PYTHONPATH"] = f"{ROOT / 'plugins' / 'src'}:{about.parent}"
        self.environment["KUBECONFIG"] = "kubeconfig"

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self._substituted(text))

    def _substituted(self, text: str) -> str:
        for old, new in SUBSTITUTIONS.items():
            text = text.replace(old, new.format(port=self._port))
        return text

    async def follow(self, step: Step, code: int = 0) -> None:
        """Run a command of a page; it must print what the page shows and end with the exit code."""
        command = step.command
        for name in sorted(self._names, key=len, reverse=True):
            command = command.replace(name, self._names[name])
        for shown, printed in await self._as_shown(step, command, code):
            names = zip(_GENERATED.findall(shown), _GENERATED.findall(printed), strict=True)
            self._names.update(names)

    async def _as_shown(self, step: Step, command: str, code: int) -> list[tuple[str, str]]:
        """Run a command, and repeat one that only reads until it prints what the page shows: pairs
        of these lines.

        A reader types more slowly than the cluster settles.
        """
        deadline = asyncio.get_running_loop().time() + DEADLINE_S
        pause_s = MIN_PAUSE_S
        while True:
            printed = await self.run(command, code)
            if not step.shown:
                return []
            pairs = matched(step.shown, printed, places_vary=self._places_vary)
            if not isinstance(pairs, str):
                return pairs
            is_final = not _READING.match(command) or asyncio.get_running_loop().time() > deadline
            assert not is_final, f"{step}\n{pairs}:\n{printed}"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def run(self, command: str, code: int = 0) -> str:
        """Run a command to its end, or until it is ready if it is one of `READY`; returns what it
        printed.
        """
        command = self._substituted(command).removesuffix("&")
        ready = [text for start, text in READY.items() if command.startswith(start)]
        if "--once" in command:
            ready = []
        shell = f"exec {command}" if ready else command
        running = await Running.start(shell, self.folder, self.environment)
        self._stack.push_async_callback(running.stop if ready else running.end)
        if ready:
            await running.says(ready[0])
        else:
            async with asyncio.timeout(DEADLINE_S):
                ended = await running.process.wait()
            await running.end()
            assert ended == code, f"{command}: exit code {ended}: {running.printed}"
        return running.printed.replace(str(self.folder), "~")


@contextlib.asynccontextmanager
async def terminal(folder: Path, *, places_vary: bool = False) -> AsyncIterator[Terminal]:
    """A terminal; processes that still run when the block is left get SIGTERM."""
    async with contextlib.AsyncExitStack() as stack:
        yield Terminal(folder, stack, places_vary=places_vary)
