"""The page on a scheduler's secure port, below /debug/page/.

Served on the control thread; the scheduler's state is read on the scheduling loop, a few
milliseconds at a time and only while clients are connected. Access to data requires what the other
debug pages require, plus permission to list pods in all namespaces, since the page shows all of
them. The page itself and its scripts are open, so that a browser can ask for a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from kubesched.app.control_thread import run_on
from kubesched.app.server.authorization import Authorizer, ReviewFailed
from kubesched.app.server.requests import PageRequest
from kubesched.base.http_server.messages import Response
from kubesched.insight.page.access import is_same_origin
from kubesched.insight.page.routes import Call, Pages, failure
from kubesched.insight.page.source import Read, Source

T = TypeVar("T")

PATH: Final = "/debug/page"
OPEN_PATHS: Final = (PATH, f"{PATH}/", f"{PATH}/static/*")
"""Without data."""
_SCHEME: Final = "https"


def read_on(loop: asyncio.AbstractEventLoop) -> Read:
    """Reads on another thread's loop."""

    async def read(function: Callable[[], T]) -> T:
        async def work() -> T:
            return function()

        return await run_on(loop, work)

    return read


class PageOnPort:
    """Handles requests below `PATH`."""

    def __init__(self, source: Callable[[], Source | None], authorizer: Authorizer) -> None:
        """`source` returns None until the scheduler exists."""
        self._source = source
        self._authorizer = authorizer
        self._pages: Pages | None = None

    async def __call__(self, request: PageRequest) -> Response:
        if request.path == PATH:
            return Response(301, headers={"Location": f"{PATH}/"})
        if request.method not in ("GET", "HEAD", "POST"):
            return failure(405, "only GET and POST are allowed")
        if request.method == "POST" and not is_same_origin(request.headers, _SCHEME):
            return failure(403, "only the page itself may do that: the Origin header is another's")
        if request.path.startswith(f"{PATH}/api/"):
            try:
                allowed = await self._authorizer.may_list_pods(await request.sender(), "")
            except ReviewFailed as error:
                return failure(500, f"permissions cannot be checked: {error}")
            if not allowed.allowed:
                return failure(403, "the page is for clients that may list pods in all namespaces")
        if self._pages is None:
            source = self._source()
            if source is None:
                return failure(503, "this replica is starting, or stands by for another one")
            self._pages = Pages(source)
        return await self._pages.answer(
            Call(
                method=request.method,
                path=request.path.removeprefix(f"{PATH}/"),
                query=request.query_text,
                headers=request.headers,
                body=request.body,
            )
        )

    async def aclose(self) -> None:
        if self._pages is not None:
            await self._pages.aclose()
