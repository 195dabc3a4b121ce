"""A transport between a scheduler and the API server, with faults drawn from the seed.

A sent request reaches the server even if the sender stops waiting or dies. A watch never loses an
event silently, as with TCP and the API; dropped events end the stream.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import parse_qs

from kubesched.base.errors import ConnectFailed, DeadlineExceeded, StreamEnded, TransportError
from kubesched.client.exchange import BufferedResponse
from kubesched.client.transport import (
    DEFAULT_MAX_BODY_BYTES,
    Request,
    Response,
    StartedRequest,
    Transport,
)
from kubesched.insight.state.virtual_loop import OWNER, SENDER
from kubesched.lab.simulation.census import CODES, LOST, UNUSUAL_CODES
from kubesched.lab.simulation.options import NO_FAULTS, Rates
from kubesched.lab.simulation.trace import Trace
from kubesched.playground.apimachinery.objects import encode

MAX_EXTRA_S = 0.8
"""Longest latency of a request or an ordinary watch event.

It is below the margin of leader election: no scheduler is safe with slower requests.
"""
NO_CONNECTION = 0.1
"""How often a request that is sent without a task finds no idle connection."""
MAX_STALL_S = 25.0
FOCUSED = 4.0
MAX_HELD_S = 40.0
"""How long after its deadline a request may still arrive."""
RETRY_AFTER = (
    *("0", "1", "7", "86400", "9" * 400, "-1", "1.5", "inf", "nan", "\u00b2", ""),
    *("Wed, 21 Oct 2099 07:28:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "never"),
)

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class CallFault:
    """The fate of one call: `commits` if the server acts on it; `how` the client sees it."""

    how: str
    commits: bool
    code: int = 0
    retry_after: str = "1"
    """Header of a 429 or 503."""


FINE = CallFault("fine", commits=True)


def failure_answer(code: int, retry_after: str = "1") -> BufferedResponse:
    """A rejection in the API server's format."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"simulated failure {code}",
        "reason": _REASONS[code],
        "code": code,
    }
    headers = [(b"content-type", b"application/json")]
    if code == 429 or (code == 503 and retry_after != "1"):
        headers.append((b"retry-after", retry_after.encode("latin-1")))
    return BufferedResponse(code, headers, encode(status))


class Network:
    """The network of one process: draws faults, counts calls, owns requests in flight."""

    def __init__(self, rates: Rates, random: Random, trace: Trace, *, focus: str = "") -> None:
        """With a `focus`, only calls with this path suffix fail, `FOCUSED` times as often."""
        self.rates = rates
        self._focus = focus
        self._random = random
        self.trace = trace
        self._under_way: set[asyncio.Task[Response]] = set()
        self.epoch = 0
        """Streams from before the last restore are dead, because the server was restarted."""
        self._delayed: dict[str, float] = {}
        self.server_revision: Callable[[], int] | None = None
        """If set, a watch from a later revision is silent instead of rejected, as with etcd."""
        self.holds_leases_only = False
        """Whether `Rates.hold` applies only to lease calls."""
        self.on_call: Callable[[str, Request], CallFault | None] = lambda _process, _request: None
        """Overrides the random draw if it returns a fault. Used for crashes and sweeps."""

    def delay_watches(self, resource: str, seconds: float) -> None:
        """Delay all events of this resource's watches."""
        self._delayed[resource] = asyncio.get_running_loop().time() + seconds

    def delayed_s(self, path: str) -> float:
        if not self._delayed:
            return 0.0
        until = self._delayed.get(path.rpartition("/")[2], 0.0)
        return max(0.0, until - asyncio.get_running_loop().time())

    def heal(self) -> None:
        """Stop injecting faults, also on open streams."""
        self.rates = NO_FAULTS

    def chance(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability

    def tally(self, where: str, what: str) -> None:
        self.trace.census.tally(where, what)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Split the chunk into two or three parts."""
        first, second = sorted(self._random.randint(0, len(chunk)) for _ in range(2))
        yield from filter(None, (chunk[:first], chunk[first:second], chunk[second:]))

    def latency_s(self) -> float:
        if self.chance(self.rates.delay):
            self.tally("calls", "late")
            return self._random.uniform(0.02, MAX_EXTRA_S)
        return self._random.uniform(0.0005, 0.01)

    def draw_call(self, process: str, request: Request) -> CallFault:
        chosen = self.on_call(process, request)
        if chosen is not None:
            return chosen
        rates, draw = self.rates, self._random
        weight = 1.0
        if self._focus:
            weight = FOCUSED if request.target.partition("?")[0].endswith(self._focus) else 0.0
        if self.chance(rates.refuse * weight):
            code = draw.choice(CODES[1:] if request.method == "GET" else CODES)
            self.tally("calls", f"refused with {code}")
            return CallFault("refused", commits=False, code=code)
        if self.chance(rates.refuse_oddly * weight):
            return self._refuse_oddly(request)
        if self.chance(rates.hold * weight) and self._may_hold(request):
            how = draw.choice(("held", "answer held", "answer late"))
            self.tally("calls", HELD[how])
            return CallFault(how, commits=True)
        if self.chance(rates.lose_request * weight):
            how = draw.choice(("unreachable", "broken", "silent"))
            self.tally("calls", f"{LOST[how]} without effect")
            return CallFault(how, commits=False)
        if self.chance(rates.lose_answer * weight):
            how = draw.choice(("broken", "silent", "refused"))
            self.tally("calls", f"{LOST[how]} after it took effect")
            return CallFault(how, commits=True, code=draw.choice((500, 503)))
        return FINE

    def _may_hold(self, request: Request) -> bool:
        is_lease = "/leases/" in request.target
        return not request.stream and (is_lease or not self.holds_leases_only)

    def _refuse_oddly(self, request: Request) -> CallFault:
        draw = self._random
        code = draw.choice((*UNUSUAL_CODES, 429, 503))
        if code == 404 and not _is_about_many(request):
            code = 403
        self.tally("calls", f"refused with {code}")
        if code in UNUSUAL_CODES:
            return CallFault("refused", commits=False, code=code)
        self.tally("calls", "asked to wait for an absurd time")
        return CallFault("refused", commits=False, code=code, retry_after=draw.choice(RETRY_AFTER))

    def deliver(self, process: str, work: Coroutine[Any, Any, Response]) -> asyncio.Task[Response]:
        """Deliver a request, even if its sender is frozen or dead."""
        context = copy_context()
        context.run(OWNER.set, "")
        context.run(SENDER.set, process)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._under_way.add(task)
        task.add_done_callback(self._delivered)
        return task

    def _delivered(self, task: asyncio.Task[Response]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # already raised to the sender, if it exists


class FaultyTransport:
    """One process's transport to the server."""

    def __init__(self, inner: Transport, network: Network, process: str) -> None:
        self._inner = inner
        self._network = network
        self.process = process
        self.is_dead = False
        """The process is dead: its requests are dropped."""
        self.is_cut = False
        """Partitioned from the server."""
        self.delivered = 0
        """Number of watch chunks so far."""

    async def request(self, request: Request) -> Response:
        network = self._network
        if self.is_dead:
            raise ConnectFailed("the process is gone")
        fault = network.draw_call(self.process, request)
        path = request.target.partition("?")[0]
        told = "" if fault is FINE else f" {fault.how}{fault.code or ''}"
        checksum = zlib.crc32(request.body)
        network.trace.add("call", f"{self.process} {request.method} {path} {checksum:08x}{told}")
        if self.is_dead or self.is_cut or fault.how == "unreachable":
            await asyncio.sleep(network.latency_s())
            raise ConnectFailed("connection refused")
        if fault.commits:
            held_s = 0.0
            if fault.how == "held":
                held_s = request.deadline_s + network.uniform(0.0, MAX_HELD_S)
            answer = network.deliver(self.process, self._deliver(request, held_s))
            if fault.how in HELD:
                return await self._wait_for_held(request, fault, answer)
            return await self._outcome(request, fault, asyncio.shield(answer))
        return await self._outcome(request, fault, None)

    def start(
        self, request: Request, done: Callable[[Response | TransportError | None], None]
    ) -> StartedRequest | None:
        """Send without a task, like the connection pool."""
        if self.is_dead or self._network.chance(NO_CONNECTION):
            return None
        waiting = asyncio.get_running_loop().create_task(self._answer(request, done))

        def give_up() -> None:
            waiting.cancel()

        return give_up

    async def _answer(
        self, request: Request, done: Callable[[Response | TransportError | None], None]
    ) -> None:
        outcome: Response | TransportError | None
        try:
            outcome = await self.request(request)
        except ConnectFailed as error:  # the pool returns None for a closed connection
            outcome = None if self._network.chance(0.5) else error
        except TransportError as error:
            outcome = error
        done(outcome)

    def _is_ahead(self, request: Request) -> bool:
        """Whether this is a watch from a revision that the restored cluster has not reached."""
        if self._network.server_revision is None or not request.stream:
            return False
        query = parse_qs(request.target.partition("?")[2])
        return int(query.get("resourceVersion", ["0"])[0] or 0) > self._network.server_revision()

    async def _deliver(self, request: Request, held_s: float) -> Response:
        left_s = self._network.latency_s() + held_s
        while left_s > MAX_EXTRA_S and self._network.rates.hold:  # released once faults stop
            await asyncio.sleep(MAX_EXTRA_S)
            left_s -= MAX_EXTRA_S
        await asyncio.sleep(min(left_s, MAX_EXTRA_S))
        response: Response
        if self._is_ahead(request):
            response = SilentStream(request.deadline_s)
        else:
            response = await self._inner.request(request)
        if request.stream and response.status < 300:
            # Before the answer: a restore in the meantime ends the stream.
            return FaultyStream(response, self, self._network, request.target.partition("?")[0])
        return response

    async def _wait_for_held(
        self, request: Request, fault: CallFault, answer: asyncio.Task[Response]
    ) -> Response:
        """The answer arrives just before or after the caller gives up."""
        if fault.how == "answer late":
            await asyncio.sleep(request.deadline_s * self._network.uniform(0.5, 0.99))
            return await self._outcome(request, fault, asyncio.shield(answer))
        await asyncio.sleep(request.deadline_s)
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            _give_up(answer.result())
        raise DeadlineExceeded(f"{request.method} {request.target}: no answer")

    async def _outcome(
        self, request: Request, fault: CallFault, answer: Awaitable[Response] | None
    ) -> Response:
        response = await answer if answer is not None else None
        if fault.how == "silent":
            _give_up(response)
            await asyncio.sleep(min(request.deadline_s, request.first_byte_s or request.deadline_s))
            raise DeadlineExceeded(f"{request.method} {request.target}: no answer")
        await asyncio.sleep(self._network.latency_s())
        if fault.how == "refused":
            _give_up(response)
            return failure_answer(fault.code, fault.retry_after)
        if fault.how == "broken" or self.is_cut or self.is_dead or response is None:
            _give_up(response)
            raise StreamEnded("connection reset by peer")
        return response

    async def aclose(self) -> None:
        self.is_dead = True
        await self._inner.aclose()


HELD = {
    "held": "arrived after its deadline",
    "answer held": "answered after its deadline",
    "answer late": "answered at the last moment",
}
"""Ways in which a call takes effect but its caller is not told in time."""


def _is_about_many(request: Request) -> bool:
    """A list, a watch or an event creation: a 404 says nothing about an object."""
    path = request.target.partition("?")[0]
    return (request.method == "GET" and "?" in request.target) or path.endswith("/events")


def _give_up(response: Response | None) -> None:
    if response is not None:
        response.close()


class SilentStream:
    """A watch without any events."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.status = 200
        self.headers: Mapping[str, str] = {"content-type": "application/json"}

    async def read(self, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
        del max_bytes
        return b""

    def close(self) -> None:
        """No-op."""

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(self._seconds)
        return
        yield b""  # makes this an empty generator


class FaultyStream:
    """A watch whose chunks are delayed, repeated or cut off."""

    def __init__(
        self, inner: Response, transport: FaultyTransport, network: Network, path: str
    ) -> None:
        self._inner = inner
        self._path = path
        self._transport = transport
        self._network = network
        self._epoch = network.epoch

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    async def read(self, max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
        return await self._inner.read(max_bytes)

    def close(self) -> None:
        self._inner.close()

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        network, rates = self._network, self._network.rates
        process = self._transport.process
        async for chunk in self._inner.iter_chunks():
            rates = network.rates
            is_cut = self._transport.is_cut or self._epoch != network.epoch
            if is_cut or network.chance(rates.cut_watch):
                network.trace.add("watch", f"{process} cut")
                network.tally("watches", "cut")
                if network.chance(0.5):
                    raise StreamEnded("connection reset by peer")
                return
            if network.chance(rates.expire_watch):
                network.trace.add("watch", f"{process} expired")
                network.tally("watches", "expired")
                yield b'{"type":"ERROR","object":' + failure_answer(410).body + b"}\n"
                return
            if network.chance(rates.stall_watch):
                stall_s = network.uniform(1.0, MAX_STALL_S)
                network.trace.add("watch", f"{process} stalls for {stall_s:.3f} s")
                network.tally("watches", "silent")
                await asyncio.sleep(stall_s)
                raise StreamEnded("connection timed out")
            if network.chance(rates.delay_watch):
                await self._delay()
            if delayed_s := network.delayed_s(self._path):
                await asyncio.sleep(delayed_s)
            if network.chance(rates.repeat_watch):
                network.tally("watches", "repeated")
                chunk += chunk
            self._transport.delivered += 1
            if network.chance(rates.split_watch):
                network.tally("watches", "in pieces")
                for piece in network.pieces(chunk):
                    yield piece
                    await asyncio.sleep(network.latency_s())
            else:
                yield chunk

    async def _delay(self) -> None:
        """Delay this chunk, so that other watches of the process overtake it."""
        network, before = self._network, self._transport.delivered
        network.tally("watches", "late")
        await asyncio.sleep(network.uniform(0.01, MAX_EXTRA_S))
        if self._transport.delivered != before:
            network.tally("watches", "overtaken")
