"""A real Chromium for the page's tests: one per module, driven by Playwright.

The browser is `$KUBESCHED_BROWSER`, or the first of the usual names on PATH (`scripts/browser`
installs Debian's where it may). Without one the tests are skipped, but with CI=true a missing
browser is a failure.

Screenshots go to `$KUBESCHED_SCREENSHOTS`, by default a folder of the test run.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from page_servers import FLAGS, Visitor, find_browser

PATIENCE_MS = 30_000


@pytest.fixture(scope="module")
def browser():
    """One Chromium for a module.

    Playwright keeps an event loop running in this thread until it is stopped, in which no test of
    another module could run its own.
    """
    path = find_browser()
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path, headless=True, args=list(FLAGS), timeout=120_000
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory):
    folder = os.environ.get("KUBESCHED_SCREENSHOTS")
    path = Path(folder) if folder else tmp_path_factory.mktemp("screenshots")
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def visit(browser):
    """Opens a served page in a fresh browser profile; fails the test if the page reports an
    error.
    """
    with contextlib.ExitStack() as stack:

        def open_page(served, fragment="", **options):
            settings = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
            context = browser.new_context(**{**settings, **options})
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            visitor = Visitor(context)
            stack.callback(visitor.check)
            visitor.open(served, fragment)
            return visitor

        yield open_page
