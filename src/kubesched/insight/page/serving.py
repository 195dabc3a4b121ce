"""Serves the page on its own socket: HTTP on loopback, with a token."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kubesched.base.clock import Clock, SystemClock
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.listener import Listener, running
from kubesched.base.http_server.messages import Refusal, Request, Response
from kubesched.base.http_server.sockets import open_socket
from kubesched.insight.page import assets
from kubesched.insight.page.access import (
    Access,
    is_allowed_host,
    is_same_origin,
    token_of,
    with_headers,
)
from kubesched.insight.page.routes import Call, Pages, failure
from kubesched.insight.page.source import Source

LIMITS: Final = Limits(
    max_connections=128,
    max_body_bytes=4 * 1024 * 1024,
    max_buffered_bytes=16 * 1024 * 1024,
    send_s=10.0,
)
_SCHEME: Final = "http"
_USED: Final = (
    "This link is no longer valid: it was opened before, or the server was restarted. "
    "Open the newest link that kubesched printed in the terminal.\n"
)


class PageServer:
    """The `Application` of the page's own port."""

    def __init__(self, pages: Pages, access: Access) -> None:
        self._pages = pages
        self._access = access

    def begin(self, request: Request) -> Response | None:
        """Refuse by headers alone, so that an unauthorized body is never buffered."""
        headers = request.headers
        if not is_allowed_host(headers.get("host", "")):
            return failure(421, "the Host header must be an IP address or localhost")
        path = request.path.removeprefix("/")
        if request.method not in ("GET", "HEAD", "POST"):
            return failure(405, "only GET and POST are allowed")
        if request.method == "POST" and not is_same_origin(headers, _SCHEME):
            return failure(403, "only the page itself may do that: the Origin header is another's")
        if path.startswith("api/") and not self._access.is_known(headers):
            return failure(401, "open the link that kubesched printed in the terminal")
        return None

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        path = request.path.removeprefix("/")
        if path == "" and "token=" in request.query:
            return with_headers(self._enter(request))
        return self._pages.answer(
            Call(
                method=request.method,
                path=path,
                query=request.query,
                headers=request.headers,
                body=request.body,
            )
        )

    def _enter(self, request: Request) -> Response:
        """Exchange the link's token for a cookie.

        The answer is a page that navigates by itself instead of a redirect: after following a link
        from another site, a browser does not send a SameSite=Strict cookie with the redirect.
        """
        try:
            token = token_of(request.query)
        except ValueError:
            token = None
        cookie = self._access.redeem(token or "") if request.method == "GET" else None
        if cookie is None and not self._access.is_known(request.headers):
            return Response(403, _USED.encode())
        page = assets.assets()["enter.html"]
        headers = {} if cookie is None else {"Set-Cookie": cookie}
        return Response(body=page.body, content_type=page.content_type, headers=headers)

    def refuse(self, refusal: Refusal) -> Response:
        return failure(refusal.status, refusal.message)

    def finished(self, request: Request, status: int) -> None:
        """Requests are not logged."""


@dataclass(frozen=True, slots=True)
class ServedPage:
    """A page that is being served."""

    url: str
    access: Access
    show: Callable[[Source], None]
    """Shows another source, in place of this one."""

    @property
    def link(self) -> str:
        """A link that opens the page once."""
        return f"{self.url}/?token={self.access.token}"


@contextlib.asynccontextmanager
async def serve_page(
    source: Source,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    key: bytes,
    clock: Clock | None = None,
    on_link_used: Callable[[ServedPage], None] = lambda _page: None,
) -> AsyncIterator[ServedPage]:
    """Serve the page during the block.

    Raises:
        OSError: the port cannot be opened.
    """
    clock = clock or SystemClock()
    sock = open_socket(address, port)
    actual = int(sock.getsockname()[1])
    access = Access(key, actual, clock)
    pages = Pages(source)
    served = ServedPage(f"{_SCHEME}://{_shown(address)}:{actual}", access, pages.show)

    def link_used() -> None:
        # Deferred: the response to the browser has not been sent yet.
        asyncio.get_running_loop().call_soon(on_link_used, served)

    access.on_used = link_used
    listener = Listener(sock, None, PageServer(pages, access), limits=LIMITS, clock=clock)
    try:
        async with running(listener):
            yield served
    finally:
        await pages.aclose()


def _shown(address: str) -> str:
    host = ipaddress.ip_address(address)
    if host.is_unspecified:
        host = ipaddress.ip_address("127.0.0.1" if host.version == 4 else "::1")
    return str(host) if host.version == 4 else f"[{host}]"
