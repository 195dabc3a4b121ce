"""The API server on a TLS socket: authentication, and conversion between HTTP and API requests.

`kubesched.base.http_server` handles connections; `api_server` handles requests.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from kubesched.base.clock import Clock
from kubesched.base.errors import (
    ApiError,
    BadRequest,
    KubeschedError,
    RequestEntityTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from kubesched.base.http_server.limits import Limits
from kubesched.base.http_server.listener import Listener
from kubesched.base.http_server.messages import Refusal, Request, Response
from kubesched.base.http_server.sockets import open_socket
from kubesched.playground.apimachinery.serialization import MAX_BODY_BYTES
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse
from kubesched.playground.registry.users import User
from kubesched.playground.server.api_server import ApiServer, failure

STREAM_HEADERS: Final = {"Cache-Control": "no-cache, private"}

LIMITS: Final = Limits(
    max_connections=4096,
    max_waiting=4096,
    descriptor_share=0.75,
    accepts_per_s=5000.0,
    handshakes_per_s=1000.0,
    handshake_burst=1000,
    headers_s=60.0,
    body_s=60.0,
    # Clients keep pools of idle connections; closing one can fail the next request.
    idle_s=3600.0,
    send_s=60.0,
    max_target_bytes=32 * 1024,
    max_field_bytes=32 * 1024,
    max_fields=256,
    max_head_bytes=64 * 1024,
    max_body_bytes=MAX_BODY_BYTES,
    max_buffered_bytes=32 * MAX_BODY_BYTES,
    max_pipelined=32,
    # Allows reading past a body rejected for its size, so that the client sees the error.
    max_drained_bytes=2 * MAX_BODY_BYTES,
)


class ApiApplication:
    """Answers HTTP requests with an `ApiServer`, which also verifies bearer tokens."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def begin(self, request: Request) -> Response | None:
        """Reject an unauthenticated client before its body is received."""
        return failure(Unauthorized("Unauthorized")) if self._user(request) is None else None

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        user = self._user(request)
        assert user is not None, "the request was accepted"
        asked = ApiRequest(
            request.method, request.path, request.query, request.headers, request.body, user
        )
        response = self._server.respond(asked)
        if isinstance(response, ApiResponse) and response.stream is not None:
            response.headers = STREAM_HEADERS
        return response

    def refuse(self, refusal: Refusal) -> Response:
        return failure(_api_error(refusal))

    def finished(self, request: Request, status: int) -> None:
        """Requests are not logged."""

    def _user(self, request: Request) -> User | None:
        header = request.headers.get("authorization")
        if header is None:
            # TLS has verified the chain against our CA; only the names have to be read.
            return _certified_user(request.peer.certificate)
        scheme, _, token = header.partition(" ")
        return self._server.access.authenticate(token) if scheme == "Bearer" else None


def listen(
    server: ApiServer, host: str, port: int, *, tls: ssl.SSLContext | None, clock: Clock
) -> Listener:
    """A listener on this address; port 0 chooses a free one.

    Raises:
        KubeschedError: the address cannot be used.
    """
    try:
        sock = open_socket(host, port)
    except OSError as error:
        raise KubeschedError(
            f"cannot listen on {host}:{port}: {error.strerror or error}"
        ) from error
    context = None if tls is None else lambda: tls
    return Listener(sock, context, ApiApplication(server), clock=clock, limits=LIMITS)


def _api_error(refusal: Refusal) -> ApiError:
    """Convert a rejection by the HTTP server to a Kubernetes error."""
    status, message = refusal.status, refusal.message
    if status == 429:
        return TooManyRequests(message, retry_after_s=refusal.retry_after_s)
    if status in (413, 414, 431):
        return RequestEntityTooLarge(message, code=status)
    if status >= 500:
        return ServerError(message, code=status)
    return BadRequest(message, code=status)


def _certified_user(certificate: Mapping[str, Any] | None) -> User | None:
    name = ""
    organizations: list[str] = []
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                name = name or str(value)
            elif key == "organizationName":
                organizations.append(str(value))
    return User.of_certificate(name, tuple(organizations)) if name else None
