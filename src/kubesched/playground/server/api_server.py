"""The API server without a socket: one request in, one response out.

`ApiServer.handle` converts all request errors to `Status` responses. Requests come from `web` (HTTP
over TLS, authenticated there) or from `memory_transport` (in process).

Dispatch order: fixed paths (health, discovery, OpenAPI), then the resource path, then the verb. A
response is sent only when all writes it may reflect are durable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kubesched.api.times import TimeError, parse_duration
from kubesched.base.clock import Clock
from kubesched.base.errors import ApiError, BadRequest, ServerError
from kubesched.base.logs import get_logger
from kubesched.playground.apimachinery.failures import status_of
from kubesched.playground.apimachinery.objects import encode
from kubesched.playground.auth.access import AccessControl, Authorization
from kubesched.playground.auth.rbac import Attributes
from kubesched.playground.handlers import reading, subresources, writing
from kubesched.playground.handlers.discovery import Discovery
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse, Query, negotiate
from kubesched.playground.handlers.openapi import OpenApi
from kubesched.playground.handlers.reviews import review
from kubesched.playground.handlers.routes import (
    Call,
    Target,
    not_allowed,
    parse_target,
    unknown_path,
)
from kubesched.playground.handlers.subresources import issue_token
from kubesched.playground.handlers.watching import WatchStream, parse_watch_request
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.registry.steps import Steps, apart, at_once

if TYPE_CHECKING:
    from kubesched.playground.storage.journal import SqliteJournal

Answer: TypeAlias = ApiResponse | Awaitable[ApiResponse]
log = get_logger(__name__)


class ApiServer:
    """Serves the whole API over one registry."""

    def __init__(
        self,
        registry: RestStorage,
        *,
        clock: Clock,
        rng: random.Random,
        journal: SqliteJournal | None = None,
        token: str = "",
        authorization: Authorization = "allow",
    ) -> None:
        self.registry = registry
        self._clock = clock
        self._rng = rng
        self._journal = journal
        self.access = AccessControl(registry, clock, token=token, authorization=authorization)
        self._discovery = Discovery(registry.catalog, registry.release)
        self._openapi = OpenApi(registry)
        self._computing = asyncio.Lock()

    async def handle(self, request: ApiRequest) -> ApiResponse:
        """Handle a request; returns the response, errors included, once it may be sent."""
        response = self.respond(request)
        return response if isinstance(response, ApiResponse) else await response

    def respond(self, request: ApiRequest) -> Answer:
        """Respond at once, if nothing has to be computed in a thread or to become durable."""
        try:
            response = self._dispatch(request)
        except Exception as error:
            response = _refused(request, error)
        if isinstance(response, ApiResponse) and (
            self._journal is None or self._journal.is_settled or response.stream is not None
        ):
            return response
        return self._settle(request, response)

    async def _settle(self, request: ApiRequest, response: Answer) -> ApiResponse:
        """Wait until the response reflects only durable writes; an error if storage failed.

        While the disk is full, reads are answered from memory, which may include writes in flight.
        """
        try:
            response = response if isinstance(response, ApiResponse) else await response
        except Exception as error:
            response = _refused(request, error)
        if self._journal is None:
            return response
        try:
            await self._journal.settled()
        except ApiError as error:
            is_read = request.method in ("GET", "HEAD") or response.status >= 400
            return response if is_read and self._journal.is_full else failure(error)
        return response

    def _dispatch(self, request: ApiRequest) -> Answer:
        request.user = self.access.effective_user(request.user, request.headers)
        path = request.path
        if "timeout=" in request.query:
            _check_timeout(Query(request.query))
        if path.startswith("/api"):
            if path.count("/") >= 3 and not self._discovery.is_discovery_path(path):
                return self._dispatch_resource(request)
            self._authorize_path(request)
            return self._discovery.answer(request)
        self._authorize_path(request)
        if request.method not in ("GET", "HEAD"):
            raise not_allowed()
        if path in ("/healthz", "/livez", "/readyz") or path.startswith(
            ("/healthz/", "/livez/", "/readyz/")
        ):
            return _health(path, request.query)
        if path.startswith("/openapi/"):
            return self._openapi.answer(request)
        if path in ("/version", "/version/", "/"):
            return self._discovery.answer(request)
        raise unknown_path()

    def _dispatch_resource(self, request: ApiRequest) -> Answer:
        target = parse_target(request.path, self.registry.catalog)
        call = Call(self.registry, request, target, Query(request.query))
        method = request.method
        if self.access.rbac is not None:
            self.access.require(request.user, attributes_of(call))
        if method in ("GET", "HEAD"):
            return self._read(call)
        call.accepted = negotiate(request.headers.get("accept", ""))
        if method == "POST":
            return self._post(call)
        if method == "DELETE" and not target.subresource:
            self._require(target, "delete" if target.name else "deletecollection")
            return writing.delete(call) if target.name else writing.delete_collection(call)
        if not target.name or target.subresource in ("binding", "eviction", "log", "token"):
            raise not_allowed()
        if method == "PUT":
            self._require(target, "update")
            return self._write(writing.update, call)
        if method == "PATCH":
            self._require(target, "patch")
            return self._write(writing.patch, call)
        raise not_allowed()

    def _write(self, verb: Callable[[Call], Steps[ApiResponse]], call: Call) -> Answer:
        if writing.is_costly(call):
            return apart(partial(verb, call), self._computing)
        return at_once(verb(call))

    def _read(self, call: Call) -> ApiResponse:
        target, request = call.target, call.request
        self._require(target, "get")
        if target.subresource in ("binding", "eviction", "finalize", "token"):
            raise not_allowed()
        call.accepted = negotiate(request.headers.get("accept", ""))
        if call.is_watch and not target.subresource:
            self._require(target, "watch")
            stream = WatchStream(
                call,
                parse_watch_request(self.registry, call.query, self._rng),
                clock=self._clock,
                settled=self._journal.durable if self._journal is not None else None,
            )
            return ApiResponse(200, stream=stream)
        return reading.get(call) if target.name else reading.list_(call)

    def _post(self, call: Call) -> Answer:
        target = call.target
        resource = target.resource
        if not resource.is_stored and resource.plural != "bindings":
            self._require(target, "create")
            return review(call.request, target, self.access)
        if target.subresource == "token":
            return issue_token(call, self.access.tokens)
        if target.subresource or resource.plural == "bindings":
            return subresources.post(call)
        if target.name:
            raise not_allowed()
        self._require(target, "create")
        return self._write(writing.create, call)

    def _authorize_path(self, request: ApiRequest) -> None:
        if self.access.rbac is not None:
            verb = request.method.lower()
            self.access.require(request.user, Attributes(verb=verb, path=request.path))

    @staticmethod
    def _require(target: Target, verb: str) -> None:
        if verb not in target.resource.verbs:
            raise not_allowed()


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def attributes_of(call: Call) -> Attributes:
    """The authorization attributes of a request for a resource."""
    method, target = call.request.method, call.target
    if method in ("GET", "HEAD"):
        verb = "watch" if call.is_watch else "get" if target.name else "list"
    elif method == "DELETE":
        verb = "delete" if target.name else "deletecollection"
    else:
        verb = _VERBS.get(method, method.lower())
    return Attributes(
        verb=verb,
        group=target.resource.group,
        resource=target.resource.plural,
        subresource=target.subresource,
        name=target.name,
        namespace=call.namespace,
    )


def _check_timeout(query: Query) -> None:
    """Refuse a timeout that is no duration; requests are answered at once, so others hold."""
    if query.flag("watch"):
        return
    try:
        parse_duration(query.get("timeout") or "0")
    except TimeError as error:
        raise BadRequest(f"invalid timeout specified in the request URL - {error}") from None


def _refused(request: ApiRequest, error: Exception) -> ApiResponse:
    if isinstance(error, ApiError):
        return failure(error)
    log.exception("Request failed", method=request.method, path=request.path)
    return failure(ServerError(f"Internal error occurred: {type(error).__name__}: {error}"))


def failure(error: ApiError) -> ApiResponse:
    """Convert an error to a response."""
    headers = None
    if error.retry_after_s is not None:
        headers = {"Retry-After": str(int(error.retry_after_s))}
    return ApiResponse(error.code, encode(status_of(error)), headers=headers)


def _health(path: str, query: str) -> ApiResponse:
    check = path.strip("/").partition("/")[0]
    if "verbose" in query:
        text = f"[+]ping ok\n[+]storage ok\n{check} check passed\n"
        return ApiResponse(200, text.encode(), "text/plain; charset=utf-8")
    return ApiResponse(200, b"ok", "text/plain; charset=utf-8")
