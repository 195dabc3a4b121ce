"""Caches API server reviews, with one request at a time per subject and bounded size."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError, TooManyRequests

A = TypeVar("A")


class ReviewCache(Generic[A]):
    """Asks once per subject and time-to-live; concurrent callers share the request.

    Failures are not cached. Unauthenticated clients choose the subjects, so both the cache and the
    number of open requests are bounded.
    """

    def __init__(
        self,
        ttl_s: Callable[[A], float],
        *,
        clock: Clock,
        max_entries: int = 4096,
        max_questions: int = 32,
    ) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._max_entries = max_entries
        self._max_questions = max_questions
        self._answers: OrderedDict[Hashable, tuple[float, A]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Future[A]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    async def get(self, subject: Hashable, ask: Callable[[], Awaitable[A]]) -> A:
        """The cached review, or a new one.

        Raises:
            KubeschedError: the request failed, or too many are open.
        """
        known = self._answers.get(subject)
        if known is not None and known[0] > self._clock.monotonic():
            self._answers.move_to_end(subject)
            return known[1]
        asking = self._asking.get(subject)
        if asking is not None:
            return await asyncio.shield(asking)
        if len(self._asking) >= self._max_questions:
            raise TooManyRequests("too many questions to the API server are open")
        return await self._ask(subject, ask)

    async def _ask(self, subject: Hashable, ask: Callable[[], Awaitable[A]]) -> A:
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._asking[subject] = future
        try:
            answer = await ask()
        except (KubeschedError, asyncio.CancelledError) as error:
            # Callers that share this request must not hang, nor be cancelled together with this
            # one.
            shared = (
                error
                if isinstance(error, KubeschedError)
                else TooManyRequests("the request to the API server was cancelled")
            )
            future.set_exception(shared)
            future.exception()  # marks it as retrieved, in case no other caller shares it
            raise
        else:
            future.set_result(answer)
            self._keep(subject, answer)
            return answer
        finally:
            del self._asking[subject]

    def _keep(self, subject: Hashable, answer: A) -> None:
        ttl_s = self._ttl_s(answer)
        if ttl_s <= 0:
            return
        self._answers[subject] = (self._clock.monotonic() + ttl_s, answer)
        self._answers.move_to_end(subject)
        while len(self._answers) > self._max_entries:
            self._answers.popitem(last=False)
