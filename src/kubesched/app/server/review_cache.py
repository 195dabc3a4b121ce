"""Caches API server reviews, with one request at a time per subject and bounded size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from kubesched.base.clock import Clock
from kubesched.base.errors import TooManyRequests
from kubesched.base.single_flight import SingleFlight

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
        self._asking: dict[Hashable, SingleFlight[A]] = {}

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
        flight = self._asking.get(subject)
        if flight is None:
            if len(self._asking) >= self._max_questions:
                raise TooManyRequests("too many questions to the API server are open")
            flight = self._asking[subject] = SingleFlight()
        try:
            return await flight.run(partial(self._ask, subject, ask))
        finally:
            # A later question about the subject has a flight of its own.
            if not flight.is_under_way and self._asking.get(subject) is flight:
                del self._asking[subject]

    async def _ask(self, subject: Hashable, ask: Callable[[], Awaitable[A]]) -> A:
        answer = await ask()
        self._keep(subject, answer)
        return answer

    def _keep(self, subject: Hashable, answer: A) -> None:
        ttl_s = self._ttl_s(answer)
        if ttl_s <= 0:
            return
        self._answers[subject] = (self._clock.monotonic() + ttl_s, answer)
        self._answers.move_to_end(subject)
        while len(self._answers) > self._max_entries:
            self._answers.popitem(last=False)
