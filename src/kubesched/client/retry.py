"""Sends a request until it succeeds, is rejected for good, or time runs out.

Applies the client-side rate limit, decides which failures may be repeated, and pauses in between.
`rest` knows the meaning of a request; `informers.reflector` reconnects watches.

The strict rule: a request is repeated only if the server cannot have acted on it (it was not sent,
or got a 429), or if repeating it is harmless (reads).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from kubesched.api import protobuf
from kubesched.api.status import MAX_RETRY_AFTER_S, error_from_status, error_of
from kubesched.base.clock import Clock
from kubesched.base.errors import (
    ApiError,
    ConnectFailed,
    DeadlineExceeded,
    ServerError,
    StreamEnded,
    TooManyRequests,
    TransportError,
    WriteRefused,
)
from kubesched.base.rate_limit import Sleep, TokenBucket
from kubesched.client.backoff import Backoff
from kubesched.client.transport import (
    NOT_LEADING,
    DirectTransport,
    Request,
    Response,
    StartedRequest,
    Transport,
)

Rest = Callable[[], Awaitable[Any]]
"""The rest of a started request: returns on success, or raises the failure."""
Done = Callable[[Rest | None], None]
"""Called when a started request has succeeded (None), or has a rest to await."""
Finish = Callable[[Rest], Awaitable[Any]]
"""Awaits the rest of a request, and handles its failure."""

MAX_RETRY_AFTER_DIGITS = 9
MAX_DATE_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Attempts and pauses. The request's deadline bounds all attempts together."""

    max_attempts: int = 5
    initial_s: float = 0.1
    max_s: float = 5.0
    retry_after_jitter: float = 0.1
    """Relative jitter of pauses requested by the server, so that clients do not return together."""


class Caller:
    """Sends requests over a transport, with retries."""

    def __init__(
        self,
        transport: Transport,
        *,
        limiter: TokenBucket | None,
        policy: RetryPolicy,
        clock: Clock,
        random: random.Random,
        sleep: Sleep = asyncio.sleep,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        """`may_write` is called right before anything but a read is sent.

        A suspended process (SIGSTOP, a frozen machine) may resume with bindings ready to send while
        another scheduler already leads.
        """
        self.transport = transport
        self._direct = transport if isinstance(transport, DirectTransport) else None
        self.may_write = may_write
        self._limiter = limiter if limiter is not None and not limiter.is_unlimited else None
        self._policy = policy
        self._clock = clock
        self._random = random
        self._sleep = sleep
        self.under_way = 0
        """Requests that the transport has. Watches count until they are open."""

    async def send_once(self, request: Request) -> Response:
        """One attempt. Returns a successful response; raises `ApiError` or `TransportError`."""
        if self._limiter is not None and not self._limiter.take():
            request.deadline_s -= await self._limiter.acquire(request.deadline_s)
        if self.may_write is not None and request.method != "GET":
            if not self.may_write():
                raise WriteRefused(NOT_LEADING)
            request.may_send = self.may_write
        return await self._exchange(request)

    async def _exchange(self, request: Request) -> Response:
        self.under_way += 1
        try:
            response = await self.transport.request(request)
        finally:
            self.under_way -= 1
        if response.status < 300:
            return response
        raise await _error_of(response, self._clock.now())

    def start(self, request: Request, done: Done, finish: Finish | None = None) -> StartedRequest:
        """One attempt without a task: later calls `done(None)` on success, otherwise `done(rest)`.

        Awaiting `rest()` finishes the request: it sends it if that was not possible at once, or
        raises the failure. If `finish` is given, await that instead, with the rest as its argument.
        """
        transport = self._direct
        if (
            transport is None
            or (self.may_write is not None and not self.may_write())
            or (self._limiter is not None and not self._limiter.take())
        ):
            return _soon(done, _finished(finish, partial(self.send_once, request)))
        request.may_send = self.may_write

        def answered(outcome: Response | TransportError | None) -> None:
            self.under_way -= 1
            if outcome is None:
                rest: Rest = partial(self._exchange, request)
            elif isinstance(outcome, TransportError):
                rest = partial(_raise, outcome)
            elif outcome.status >= 300:
                rest = partial(self._refuse, outcome)
            else:
                done(None)
                return
            done(_finished(finish, rest))

        give_up = transport.start(request, answered)
        if give_up is None:
            return _soon(done, _finished(finish, partial(self._exchange, request)))
        self.under_way += 1

        def given_up() -> None:
            self.under_way -= 1
            give_up()

        return given_up

    async def _refuse(self, response: Response) -> Response:
        raise await _error_of(response, self._clock.now())

    async def send(self, request: Request, *, first: Rest | None = None) -> Response:
        """As many attempts as are safe and allowed; `first` is the rest of a started one."""
        give_up_at = self._clock.monotonic() + request.deadline_s
        backoff: Backoff | None = None
        attempt = 1
        while True:
            try:
                if first is not None and attempt == 1:
                    response: Response = await first()
                    return response
                return await self.send_once(request)
            except (ApiError, TransportError) as error:
                if attempt >= self._policy.max_attempts or not _may_repeat(request, error):
                    raise
                if backoff is None:
                    backoff = Backoff(self._policy.initial_s, self._policy.max_s, self._random)
                pause_s = self._pause_s(error, backoff)
                remaining_s = give_up_at - self._clock.monotonic() - pause_s
                if remaining_s <= 0:
                    raise
            await self._sleep(pause_s)
            request.deadline_s = remaining_s
            attempt += 1

    def _pause_s(self, error: ApiError | TransportError, backoff: Backoff) -> float:
        pause_s = backoff.next_s()
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        if asked_s is None:
            return pause_s
        return asked_s * (1.0 + self._random.random() * self._policy.retry_after_jitter)


async def _raise(error: TransportError) -> Response:
    raise error


def _finished(finish: Finish | None, rest: Rest) -> Rest:
    return rest if finish is None else partial(finish, rest)


def _soon(done: Done, rest: Rest) -> StartedRequest:
    return asyncio.get_running_loop().call_soon(done, rest).cancel


def parse_retry_after(value: str, now: float) -> float | None:
    """Seconds of a Retry-After header; None if it is neither ASCII digits nor an HTTP date.

    Dates are relative to `now` (wall clock). The result is between 0 and `MAX_RETRY_AFTER_S`.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        # Check the length first: converting thousands of digits is slow, and float() makes them
        # infinite.
        seconds = MAX_RETRY_AFTER_S if len(value) > MAX_RETRY_AFTER_DIGITS else float(value)
    else:
        try:
            date = parsedate_to_datetime(value[:MAX_DATE_CHARACTERS])
            seconds = date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


def _may_repeat(request: Request, error: ApiError | TransportError) -> bool:
    if isinstance(error, TooManyRequests):
        return True
    if isinstance(error, ConnectFailed):
        return not isinstance(error, WriteRefused)
    if isinstance(error, StreamEnded | DeadlineExceeded) and not error.sent:
        return True
    return request.idempotent and isinstance(error, ServerError | TransportError)


async def _error_of(response: Response, now: float) -> ApiError:
    retry_after_s = parse_retry_after(response.headers.get("retry-after", ""), now)
    body: bytes | str = await response.read()
    if isinstance(body, bytes) and response.headers.get("content-type") == protobuf.CONTENT_TYPE:
        try:
            status = protobuf.decode_status(body)
        except protobuf.ProtobufError as error:
            body = f"an answer that cannot be understood: {error}"
        else:
            return error_of(status, code=response.status, retry_after_s=retry_after_s)
    return error_from_status(response.status, body, retry_after_s=retry_after_s)
