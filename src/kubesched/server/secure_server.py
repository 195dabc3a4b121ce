"""One request from beginning to end: who is it, may they, what do they get.

The order is upstream's and matters: authorization comes before routing, so that a stranger cannot find out which
paths exist. Whatever goes wrong inside is a 500 and a log line, never a dead server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from urllib.parse import parse_qs

from aiohttp import HttpVersion11, web

from kubesched.clock import Clock, SystemClock
from kubesched.errors import Unauthorized
from kubesched.logs import get_logger
from kubesched.server.answers import NOT_FOUND, Answer, error_text, forbidden, unauthorized
from kubesched.server.authentication import Authenticator, PeerCertificate
from kubesched.server.authorization import Authorizer, ReviewFailed
from kubesched.server.health import HealthPages
from kubesched.server.listener import Limits
from kubesched.server.requests import Page, PageRequest, is_for_people

log = get_logger(__name__)

MAX_PARAMETERS = 64
COMMON_HEADERS = {"Cache-Control": "no-cache, private", "Server": "kubesched"}


class SecureServer:
    """Answers requests; `handle` is what a `Listener` calls."""

    def __init__(
        self,
        health: HealthPages,
        pages: Mapping[str, Page],
        authenticator: Authenticator,
        authorizer: Authorizer,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        prefixes: Mapping[str, Page] | None = None,
    ) -> None:
        """`pages` are exact paths; `prefixes` (ending in a slash) are whole trees."""
        self._health = health
        self._pages = dict(pages)
        self._prefixes = dict(prefixes or {})
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        started = self._clock.monotonic()
        response = await self._send(request, await self._answer_anyhow(request))
        if log.enabled(3):
            self._log_request(request, response.status, self._clock.monotonic() - started)
        return response

    @staticmethod
    def _log_request(request: web.BaseRequest, status: int, seconds: float) -> None:
        peer = request.transport and request.transport.get_extra_info("peername")
        told: dict[str, object] = {
            "verb": request.method,
            "URI": request.path_qs,
            "latency": f"{seconds * 1e3:.6f}ms",
            "userAgent": request.headers.get("User-Agent", ""),
            "audit-ID": request.headers.get("Audit-ID", ""),
            "srcIP": f"{peer[0]}:{peer[1]}" if peer else "",
            "resp": status,
        }
        log.info("HTTP", v=3, **told)

    async def _answer_anyhow(self, request: web.BaseRequest) -> Answer:
        try:
            answer = await self._answer(request)
        except web.HTTPRequestEntityTooLarge:
            answer = error_text("the body is too large", 413)
        except TimeoutError:
            answer = error_text("the body did not arrive in time", 408)
        except Exception:  # the outermost edge of a request: it must not take the server down
            log.exception("A request failed", method=request.method, path=request.rel_url.path)
            answer = error_text("This request caused an internal error; see the log.", 500)
        return answer

    async def _answer(self, request: web.BaseRequest) -> Answer:
        path, verb = request.rel_url.path, request.method.lower()
        try:
            user = await self._authenticator.authenticate(_peer(request), request.headers)
        except Unauthorized:
            return unauthorized(pretty=_is_for_people(request))
        try:
            decision = await self._authorizer.decide(user, verb, path)
        except ReviewFailed as error:
            log.error("Unable to authorize the request", error, user=user.name, path=path)
            return error_text(f'Internal Server Error: "{path}": {error}', 500)
        if not decision.allowed:
            log.info("Forbidden", v=4, URI=request.path_qs, reason=decision.reason, user=user.name)
            pretty = _is_for_people(request)
            return forbidden(user.name, verb, path, decision.reason, pretty=pretty)
        return await self._page(request, path)

    async def _page(self, request: web.BaseRequest, path: str) -> Answer:
        try:
            query = parse_qs(
                request.rel_url.raw_query_string,
                keep_blank_values=True,
                max_num_fields=MAX_PARAMETERS,
            )
        except ValueError:
            return error_text("the query cannot be understood", 400)
        if self._health.knows(path):
            return self._health.answer(
                path, verbose="verbose" in query, excluded=frozenset(query.get("exclude", ()))
            )
        page = self._pages.get(path) or next(
            (page for prefix, page in self._prefixes.items() if path.startswith(prefix)), None
        )
        if page is None:
            return NOT_FOUND
        return await page(
            PageRequest(
                method=request.method,
                path=path,
                query=query,
                accept=request.headers.get("Accept"),
                accepts_gzip="gzip" in request.headers.get("Accept-Encoding", ""),
                pretty=is_for_people(request.headers.get("User-Agent", ""), query),
                read_body=self._body_reader(request),
            )
        )

    def _body_reader(self, request: web.BaseRequest) -> Callable[[], Awaitable[bytes]]:
        async def read() -> bytes:
            async with asyncio.timeout(self._limits.headers_s):
                return await request.read()

        return read

    async def _send(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        headers = {**COMMON_HEADERS, "Content-Type": answer.content_type, **answer.headers}
        if answer.stream is None:
            response: web.StreamResponse = web.Response(
                status=answer.status, body=answer.body, headers=headers
            )
        else:
            response = web.StreamResponse(status=answer.status, headers=headers)
            if (
                request.version >= HttpVersion11
            ):  # before that, the end of the connection ends the body
                response.enable_chunked_encoding()
        try:
            await self._within(response.prepare(request))
            if answer.stream is not None:
                async with contextlib.aclosing(answer.stream) as pieces:
                    if request.method != "HEAD":
                        await self._send_pieces(response, pieces)
            await self._within(response.write_eof())
        except (ConnectionError, TimeoutError) as error:
            log.info("A client went away or does not read", v=4, err=error)
            _abort(request)
        except Exception:  # half of the page is out: a cut connection is all that can be said
            log.exception("A page broke off", method=request.method, path=request.rel_url.path)
            _abort(request)
        return response

    async def _send_pieces(
        self, response: web.StreamResponse, pieces: AsyncIterator[bytes]
    ) -> None:
        async for piece in pieces:
            await self._within(response.write(piece))

    async def _within(self, sending: Awaitable[object]) -> None:
        """A client has so long to read each piece."""
        async with asyncio.timeout(self._limits.send_s):
            await sending


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _is_for_people(request: web.BaseRequest) -> bool:
    """For requests that were not looked at any closer."""
    query = {"pretty": [request.query["pretty"]]} if "pretty" in request.query else {}
    return is_for_people(request.headers.get("User-Agent", ""), query)


def _peer(request: web.BaseRequest) -> PeerCertificate | None:
    connection = request.transport and request.transport.get_extra_info("ssl_object")
    if not connection:
        return None
    fields = connection.getpeercert()
    der = connection.getpeercert(binary_form=True)
    return PeerCertificate(fields, der) if fields and der else None
