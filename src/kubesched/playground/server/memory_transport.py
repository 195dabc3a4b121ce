"""In-process transport to the API server, for the playground's scheduler, simulation and tests.

Implements `kubesched.client.transport.Transport`, streams included, so the same client code runs
over it. Under a virtual clock every wait is virtual too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from urllib.parse import unquote

from kubesched.base.errors import DeadlineExceeded, StreamEnded
from kubesched.client.transport import DEFAULT_MAX_BODY_BYTES, Request
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse
from kubesched.playground.registry.users import ADMINISTRATOR, User
from kubesched.playground.server.api_server import ApiServer


class MemoryTransport:
    """Passes requests directly to the server object."""

    def __init__(
        self,
        server: ApiServer,
        *,
        user_agent: str = "kubesched",
        user: User = ADMINISTRATOR,
        omits_managed_fields: bool = False,
    ) -> None:
        self._server = server
        self._user_agent = user_agent
        self._user = user
        self._omits_managed_fields = omits_managed_fields
        self._open: set[MemoryResponse] = set()
        self._is_closed = False

    async def request(self, request: Request) -> MemoryResponse:
        if self._is_closed:
            raise StreamEnded("the transport is closed", sent=False)
        path, _, query = request.target.partition("?")
        headers = {"user-agent": self._user_agent}
        headers.update((name.lower(), value) for name, value in request.headers.items())
        incoming = ApiRequest(
            request.method,
            unquote(path) if "%" in path else path,
            query,
            headers,
            request.body,
            self._user,
            self._omits_managed_fields,
        )
        deadline_at = asyncio.get_running_loop().time() + request.deadline_s
        answer = self._server.respond(incoming)
        if not isinstance(answer, ApiResponse):
            try:
                async with asyncio.timeout_at(deadline_at):
                    answer = await answer
            except TimeoutError as error:
                raise DeadlineExceeded(
                    f"{request.method} {path}: no answer in {request.deadline_s} s"
                ) from error
        response = MemoryResponse(self, answer, deadline_at)
        if answer.stream is not None:
            self._open.add(response)
            if not request.stream:
                await response.read(request.max_body_bytes)
        return response

    async def aclose(self) -> None:
        self._is_closed = True
        for response in list(self._open):
            response.close()

    def forget(self, response: MemoryResponse) -> None:
        self._open.discard(response)


class MemoryResponse:
    """A response received in process."""

    def __init__(self, transport: MemoryTransport, answer: ApiResponse, deadline_at: float) -> None:
        self._transport = transport
        self._answer = answer
        self._deadline_at = deadline_at
        self._body: bytes | None = answer.body if answer.stream is None else None
        self._is_closed = False

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {"content-type": self._answer.content_type}
        for name, value in (self._answer.headers or {}).items():
            headers[name.lower()] = value
        return headers

    async def read(self, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
        if self._body is None:
            parts = []
            size = 0
            async for chunk in self.iter_chunks():
                size += len(chunk)
                if size > max_bytes:
                    self.close()
                    raise StreamEnded(f"the answer is longer than {max_bytes} bytes")
                parts.append(chunk)
            self._body = b"".join(parts)
        if len(self._body) > max_bytes:
            raise StreamEnded(f"the answer is longer than {max_bytes} bytes")
        return self._body

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        if self._answer.stream is None:
            if self._answer.body:
                yield self._answer.body
            return
        chunks = aiter(self._answer.stream)
        try:
            # Set the timeout per chunk: it belongs to the task that enters it, and another task may
            # read the next chunk.
            while (chunk := await self._next(chunks)) is not None:
                if chunk:
                    yield chunk
                if self._is_closed:
                    raise StreamEnded("the response was closed")
        finally:
            self.close()

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout_at(self._deadline_at):
                return await anext(chunks, None)
        except TimeoutError as error:
            raise DeadlineExceeded("the stream's deadline has passed") from error

    def close(self) -> None:
        self._is_closed = True
        if self._answer.stream is not None:
            self._answer.stream.close()
        self._transport.forget(self)
