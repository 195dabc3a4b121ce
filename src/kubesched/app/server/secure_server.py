"""One request of the serving port: authentication, authorization, then the page.

The order is upstream's. Authorization comes before routing, so that a client without permission
cannot find out which paths exist; and both come before the body, so that only an authorized client
can send one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs

from kubesched.app.server.access_metrics import AccessMetrics
from kubesched.app.server.authentication import Authenticator, PeerCertificate
from kubesched.app.server.authorization import Authorizer, ReviewFailed
from kubesched.app.server.health import HealthPages
from kubesched.app.server.requests import Page, PageRequest, is_for_people
from kubesched.app.server.responses import (
    NO_SNIFF,
    NOT_FOUND,
    error_text,
    forbidden,
    text,
    unauthorized,
)
from kubesched.base.clock import SystemClock
from kubesched.base.errors import Unauthorized
from kubesched.base.http_server.messages import Refusal, Request, Response
from kubesched.base.logs import get_logger
from kubesched.base.metrics.registry import MetricsRegistry

log = get_logger(__name__)

MAX_PARAMETERS = 64
COMMON_HEADERS = {"Cache-Control": "no-cache, private", "Server": "kubesched"}


class SecureServer:
    """The `Application` behind the serving port."""

    def __init__(
        self,
        health: HealthPages,
        pages: Mapping[str, Page],
        authenticator: Authenticator,
        authorizer: Authorizer,
        *,
        prefixes: Mapping[str, Page] | None = None,
        metrics: AccessMetrics | None = None,
    ) -> None:
        """`pages` are exact paths; `prefixes` (ending in a slash) are whole trees."""
        self._health = health
        self._pages = dict(pages)
        self._prefixes = dict(prefixes or {})
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._metrics = metrics or AccessMetrics(MetricsRegistry(), SystemClock())

    async def begin(self, request: Request) -> Response | None:
        """Authenticate and authorize; returns the refusal, or None."""
        refused = await self._refusal(request)
        return None if refused is None else _with_common_headers(refused)

    async def respond(self, request: Request) -> Response:
        return _with_common_headers(await self._page(request))

    def refuse(self, refusal: Refusal) -> Response:
        headers = dict(NO_SNIFF)
        if refusal.retry_after_s is not None:
            headers["Retry-After"] = str(refusal.retry_after_s)
        response = text(f"{refusal.message}\n", status=refusal.status, headers=headers)
        if refusal.status != 500:
            log.info("Bad request", v=4, resp=refusal.status, err=refusal.message)
        return _with_common_headers(response)

    def finished(self, request: Request, status: int) -> None:
        if not log.enabled(3) or not request.target:
            return
        seconds = asyncio.get_running_loop().time() - request.received_at
        peer = request.peer
        fields: dict[str, object] = {
            "verb": request.method,
            "URI": request.target,
            "latency": f"{seconds * 1e3:.6f}ms",
            "userAgent": request.headers.get("user-agent", ""),
            "audit-ID": request.headers.get("audit-id", ""),
            "srcIP": f"{peer.address}:{peer.port}" if peer.address else "",
            "resp": status,
        }
        log.info("HTTP", v=3, **fields)

    async def _refusal(self, request: Request) -> Response | None:
        path, verb = request.path, request.method.lower()
        metrics = self._metrics
        started = metrics.now()
        try:
            user = await self._authenticator.authenticate(_certificate(request), request.headers)
        except Unauthorized:
            metrics.authenticated("failure", started)
            return unauthorized(pretty=_is_for_people(request))
        metrics.authenticated("success", started)
        started = metrics.now()
        try:
            decision = await self._authorizer.decide(user, verb, path)
        except ReviewFailed as error:
            metrics.authorized("error", started)
            log.error("Unable to authorize the request", error, user=user.name, path=path)
            return error_text(f'Internal Server Error: "{path}": {error}', 500)
        metrics.authorized("allowed" if decision.allowed else "denied", started)
        if decision.allowed:
            return None
        log.info("Forbidden", v=4, URI=request.target, reason=decision.reason, user=user.name)
        pretty = _is_for_people(request)
        return forbidden(user.name, verb, path, decision.reason, pretty=pretty)

    async def _page(self, request: Request) -> Response:
        path, headers = request.path, request.headers
        try:
            query = _parameters(request)
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
                accept=headers.get("accept"),
                accepts_gzip="gzip" in headers.get("accept-encoding", ""),
                pretty=is_for_people(headers.get("user-agent", ""), query),
                body=request.body,
                headers=headers,
                query_text=request.query,
                # Repeating this is cheap: token reviews are cached, certificates are in memory.
                sender=lambda: self._authenticator.authenticate(_certificate(request), headers),
            )
        )


def _with_common_headers(response: Response) -> Response:
    return Response(
        response.status,
        response.body,
        response.content_type,
        response.stream,
        {**COMMON_HEADERS, **(response.headers or {})},
    )


def _parameters(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)


def _is_for_people(request: Request) -> bool:
    """For a request that is refused before its query is checked."""
    try:
        query = _parameters(request)
    except ValueError:
        query = {}
    return is_for_people(request.headers.get("user-agent", ""), query)


def _certificate(request: Request) -> PeerCertificate | None:
    peer = request.peer
    return PeerCertificate(peer.certificate, peer.certificate_der) if peer.certificate else None
