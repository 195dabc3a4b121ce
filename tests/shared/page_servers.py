"""Pages to visit with a browser: servers on threads of their own, and a visitor who notices
errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from kubesched.app import demo
from kubesched.app.page_sources import playground_source, state_source
from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.config.features import DEFAULT_GATES
from kubesched.insight.page.serving import serve_page
from kubesched.insight.state.cluster_state import ClusterState

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser():
    """The path of a browser. Without one the test is skipped, but with CI=true it fails."""
    named = os.environ.get("KUBESCHED_BROWSER")
    found = [shutil.which(each) for each in ((named,) if named else NAMES)]
    path = next(filter(None, found), None)
    if path is None:
        missing = "no browser: install chromium, or name one with $KUBESCHED_BROWSER"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return path


KEY = b"a key for tests, 32 bytes long.."


class ServerThread:
    """Runs an async context manager on an event loop in a thread; `value` is what it gave."""

    def __init__(self, make):
        self._make = make
        self._ready = threading.Event()
        self._error = None
        self.value = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # handed to the thread that waits
            self._error = error
            self._ready.set()

    async def _serve(self):
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._make() as self.value:
            self._ready.set()
            await self._stop.wait()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(120), "the server did not start"
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server did not stop"
        if self._error is not None:
            raise self._error

    def call(self, function, *arguments):
        """Run a function on the server's loop."""

        async def work():
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(60)


class ServedPlayground:
    """A playground with its page."""

    def __init__(self, page, running):
        self.page = page
        self.running = running
        self.api = running.cluster.api


@contextlib.asynccontextmanager
async def serving_playground(folder, *, nodes=9, record=None, port=0):
    """A playground with the demonstration workload, and its page."""
    settings = PlaygroundSettings(
        kubeconfig=Path(folder) / "kubeconfig", nodes=nodes, name="test", record=record
    )
    async with playground(settings) as running:
        expected = demo.create(running.cluster.api)
        await demo.wait_until_running(running.cluster.api, expected, 60.0)
        async with serve_page(playground_source(running, settings), key=KEY, port=port) as page:
            yield ServedPlayground(page, running)


def playground_server(folder, **options):
    return ServerThread(lambda: serving_playground(folder, **options))


def dump(*objects):
    """Makes the source of a page over these objects."""
    state = ClusterState("a dump")
    for each in objects:
        state.put(each)
    return lambda: state_source(state, None, DEFAULT_GATES)


def source_server(make_source, *, port=0):
    """The page over a source that does not need more than being made."""

    @contextlib.asynccontextmanager
    async def serve():
        async with serve_page(make_source(), key=KEY, port=port) as page:
            yield page

    return ServerThread(serve)


class Visitor:
    """One browser profile: its tabs, and the errors they reported."""

    def __init__(self, context):
        self.context = context
        self.errors = []
        self.expected = ()
        """Parts of messages that are not errors in this test."""
        self.page = None

    def open(self, served, fragment=""):
        """Open the link that the server printed, in a new tab."""
        page = self.context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        known = bool(self.context.cookies(served.url))
        page.goto(f"{served.url}/{fragment}" if known else f"{served.link}{fragment}")
        self.page = page
        return page

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def go(self, fragment):
        """Go to another view, as a click on a link does."""
        self.page.evaluate("fragment => { location.hash = fragment }", fragment)

    def check(self):
        left = [each for each in self.errors if not any(part in each for part in self.expected)]
        assert left == [], left
