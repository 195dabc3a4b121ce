"""Leader election by Lease: one of several schedulers acts, and another takes over if it fails.

Takes, renews and releases one Lease, wire-compatible with client-go's leader election, so that
kube-scheduler and kubesched can stand by for each other. The leader's work is a callback;
`LeaseClient` reads and writes Leases.

Life cycle of an elector, run once:

    waiting --lease absent, empty or unchanged for its whole duration--> leading --+--> stopped
                                                                                   |
                   renewal failed too long, another holds it, or cancelled --------+

Why two never lead at once. Writes to the Lease carry its resourceVersion, so of two candidates one
wins. A candidate counts the lease's duration from when *it* saw the last change, on its own clock;
timestamps in the Lease are informational, clocks of different machines are never compared. That
moment is after the holder *sent* its last successful renewal, so a holder that counts the same
duration from that sending stops first. `is_leader` checks this on every call, with half of the
slack as a margin for requests in transit, and the work is cancelled and has ended before the lease
is released. The proof needs clocks that run at about the same speed; the slack between renewal
deadline and lease duration (5 of 15 seconds by default) covers any realistic drift.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from kubesched.api.codec import Preserved
from kubesched.api.coordination_v1 import Lease, LeaseSpec
from kubesched.api.core_v1 import ObjectReference
from kubesched.api.meta import ObjectMeta
from kubesched.api.times import format_micro_time
from kubesched.base.clock import Clock
from kubesched.base.errors import ConfigError, Conflict, FieldProblem, KubeschedError, NotFound
from kubesched.base.logs import get_logger
from kubesched.client.metrics import LeaderMetrics
from kubesched.client.rest import RestClient

log = get_logger(__name__)

JITTER_FACTOR = 1.2
CLOCK_STEP_S = 0.001
"""A candidate waits between one and 2.2 retry periods, so that candidates do not synchronize."""

LEAST_PATIENCE_S = 0.1
"""Grace period for cancelled work even if it is already late, so that the log is accurate."""

RELEASE_TRIES = 5
"""Attempts of a conflicting release. Only our own renewal in flight can conflict with it."""

RELEASED_DURATION_S = 1
"""Duration written on release; the holder is empty anyway, but zero is not allowed."""


class LeaseClient:
    """One Lease; needs a separate client, or it queues behind requests."""

    def __init__(self, client: RestClient, *, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def get(self) -> Preserved[Lease]:
        return await self._client.get_preserved(Lease, self._name, self._namespace)

    async def create(self, lease: Lease) -> Preserved[Lease]:
        return await self._client.create_preserved(lease)

    async def update(self, lease: Preserved[Lease]) -> Preserved[Lease]:
        """Raises `Conflict` if the Lease changed since."""
        return await self._client.update_preserved(lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionSettings:
    """The lease, the identity and the timings. Defaults are kube-scheduler's."""

    identity: str
    """Unique among all candidates; usually `<host name>_<uuid>`."""
    namespace: str = "kube-system"
    name: str = "kube-scheduler"

    lease_duration_s: float = 15.0
    """How long others wait after the last renewal they saw. Whole seconds, as in the Lease."""
    renew_deadline_s: float = 10.0
    """How long a leader retries a renewal before it gives up."""
    retry_period_s: float = 2.0
    """Pause between attempts."""

    @property
    def call_deadline_s(self) -> float:
        """Limit of one request: two of them fit into the renewal deadline."""
        return max(1.0, self.renew_deadline_s / 2)

    def check(self) -> None:
        """Raise `ConfigError` in client-go's words if these settings cannot work."""
        rules = (
            (
                self.lease_duration_s > self.renew_deadline_s,
                "leaseDuration must be greater than renewDeadline",
            ),
            (
                self.renew_deadline_s > JITTER_FACTOR * self.retry_period_s,
                "renewDeadline must be greater than retryPeriod*JitterFactor",
            ),
            (self.lease_duration_s > 0, "leaseDuration must be greater than zero"),
            (self.renew_deadline_s > 0, "renewDeadline must be greater than zero"),
            (self.retry_period_s > 0, "retryPeriod must be greater than zero"),
            (self.identity != "", "Lock identity is empty"),
            # Not in client-go: it would write a duration of zero, which the server rejects.
            (int(self.lease_duration_s) > 0, "leaseDuration must be at least one second"),
        )
        for holds, complaint in rules:
            if not holds:
                raise ConfigError([FieldProblem("", complaint)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderCallbacks:
    """Callbacks during an election."""

    on_started_leading: Callable[[], Awaitable[None]]
    """The leader's work, cancelled with leadership; raising ends leadership, returning does not."""
    on_stopped_leading: Callable[[], None]
    """Called once at the end, before the lease is released, even if we never led."""
    on_new_leader: Callable[[str], None] = lambda identity: None
    """Called when the holder in the lease changed, even to ourselves; empty after a release."""
    record_event: Callable[[ObjectReference, str], None] = lambda lease, message: None
    """Records `<identity> became leader` and `<identity> stopped leading` about the lease."""


class LeaderElector:
    """One candidate. `run` once; make a new one to try again."""

    def __init__(
        self,
        settings: LeaderElectionSettings,
        client: LeaseClient,
        callbacks: LeaderCallbacks,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: LeaderMetrics | None = None,
    ) -> None:
        settings.check()
        self._settings = settings
        self._client = client
        self._callbacks = callbacks
        self._clock = clock
        self._random = rng
        self._metrics = metrics
        self._lease: Preserved[Lease] | None = None
        self._observed = LeaseSpec()
        self._observed_at = 0.0
        self._reported_leader = ""
        self._is_leading = False
        self._lead_until = 0.0
        self._may_hold = False
        """Whether a write of ours may have reached the server, even without a response."""
        if metrics is not None:
            metrics.leader_off(settings.name)

    async def run(self) -> None:
        """Wait for leadership, lead, and return when it is lost; cancel to stop cleanly."""
        try:
            await self._acquire()
            await self._lead()
        finally:
            try:
                self._callbacks.on_stopped_leading()
            finally:
                if self._may_hold:  # so that the next leader need not wait
                    await self._release()

    def is_leader(self) -> bool:
        """Whether we lead and may write, right now. Thread-safe.

        False half of the slack before another candidate could take over, which leaves that time for
        requests in transit. Leadership is given up at the same moment.
        """
        return self._is_leading and self._clock.monotonic() < self._lead_until - self._reserve_s

    def leader(self) -> str:
        """The holder as last seen; informational."""
        return self._observed.holder_identity or ""

    @property
    def _reserve_s(self) -> float:
        return (self._settings.lease_duration_s - self._settings.renew_deadline_s) / 2

    # Waiting.

    async def _acquire(self) -> None:
        log.info("Attempting to acquire leader lease...", lock=self._described())
        while not await self._try_acquire_or_renew():
            self._report_transition()
            await asyncio.sleep(self._pause_s())
        self._is_leading = True
        self._report_transition()
        self._record_event("became leader")
        if self._metrics is not None:
            self._metrics.leader_on(self._settings.name)
        log.info("Successfully acquired lease", lock=self._described())

    def _pause_s(self) -> float:
        """How long to wait before reading the lease again.

        Upstream reads less often, and only by chance soon after the lease expired. Here a candidate
        sees a renewal within a retry period and reads the lease when it expires, so that the
        cluster is without a leader for at most the lease duration and one retry period.
        """
        retry_s, drawn = self._settings.retry_period_s, self._random.random()
        if not self.leader() or not self._is_valid():
            return retry_s * (1 + JITTER_FACTOR * drawn)
        runs_out_s = self._observed_at + self._duration_s() - self._clock.monotonic()
        return min(retry_s * (1 + drawn) / 2, runs_out_s + CLOCK_STEP_S)

    # Leading.

    async def _lead(self) -> None:
        work = asyncio.ensure_future(self._callbacks.on_started_leading())
        renewing = asyncio.ensure_future(self._renew_until_lost())
        try:
            await asyncio.wait([work, renewing], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # raises the work's error, which ends leadership
            await renewing
        finally:
            self._is_leading = False
            await self._end(work, renewing)
            self._record_event("stopped leading")
            if self._metrics is not None:
                self._metrics.leader_off(self._settings.name)

    async def _end(self, work: asyncio.Future[None], renewing: asyncio.Future[None]) -> None:
        """Cancel both and wait for their end, but not past the moment another leader may start."""
        unfinished = [task for task in (work, renewing) if not task.done()]
        for task in unfinished:
            task.cancel()
        if unfinished:
            patience = self._lead_until - self._clock.monotonic()
            await asyncio.wait(unfinished, timeout=max(patience, LEAST_PATIENCE_S))
        if not work.done():
            log.error(
                "The leader's work goes on although the lease is lost", lock=self._described()
            )
            self._may_hold = False  # do not release the lease while it runs
        elif work in unfinished and not work.cancelled() and (error := work.exception()):
            log.error("The leader's work failed while being stopped", error, lock=self._described())

    async def _renew_until_lost(self) -> None:
        while await self._renew():
            log.info("Successfully renewed lease", v=5, lock=self._described())
            await asyncio.sleep(self._settings.retry_period_s)
        log.info("Failed to renew lease", lock=self._described())

    async def _renew(self) -> bool:
        """Retry until it succeeds or the deadline passes."""
        settings, now = self._settings, self._clock.monotonic()
        # Upstream counts from here only; with slow answers that is too late. What is left is for
        # ending the work.
        give_up_at = min(now + settings.renew_deadline_s, self._lead_until - self._reserve_s)
        try:
            async with asyncio.timeout(give_up_at - now):
                while not await self._try_acquire_or_renew():
                    self._report_transition()
                    if self.leader() and not self._holds_lease():
                        return False  # another candidate holds it: retrying is useless
                    await asyncio.sleep(self._settings.retry_period_s)
        except TimeoutError:
            return False
        self._report_transition()
        return True

    # One try.

    async def _try_acquire_or_renew(self) -> bool:
        """Take or renew the lease if allowed; False if another holds it or the call failed."""
        try:
            if self._lease is not None and self._holds_lease() and self._is_valid():
                # The leader's fast path: most likely the lease is unchanged since our last renewal.
                try:
                    await self._write(self._lease, is_renewal=True)
                    return True
                except (KubeschedError, TimeoutError) as error:
                    log.info(
                        "Failed to update lease optimistically, falling back to slow path",
                        v=2,
                        lock=self._described(),
                        err=_reason(error),
                    )
            return await self._look_and_write()
        except (KubeschedError, TimeoutError) as error:
            log.error("Failed to acquire or renew lease", _reason(error), lock=self._described())
            return False

    async def _look_and_write(self) -> bool:
        try:
            lease = await self._bounded(self._client.get())
        except NotFound:
            return await self._create()
        self._observe(lease)
        if self.leader() and not self._holds_lease() and self._is_valid():
            return False
        is_renewal = self._holds_lease()
        if is_renewal and self._metrics is not None:
            self._metrics.slowpath_exercised(self._settings.name)
        await self._write(lease, is_renewal=is_renewal)
        return True

    async def _create(self) -> bool:
        settings = self._settings
        sent_at = self._clock.monotonic()
        wanted = Lease(
            metadata=ObjectMeta(namespace=settings.namespace, name=settings.name),
            spec=self._spec(transitions=0),
        )
        self._may_hold = True
        self._written(await self._bounded(self._client.create(wanted)), sent_at)
        return True

    async def _write(self, lease: Preserved[Lease], *, is_renewal: bool) -> None:
        before = lease.record.spec
        transitions = before.lease_transitions or 0
        acquired = before.acquire_time if is_renewal else None
        spec = self._spec(
            transitions=transitions + (not is_renewal), acquired=acquired, base=before
        )
        changed = lease.with_record(msgspec.structs.replace(lease.record, spec=spec))
        self._may_hold = True
        sent_at = self._clock.monotonic()
        self._written(await self._bounded(self._client.update(changed)), sent_at)

    def _spec(
        self, *, transitions: int, acquired: str | None = None, base: LeaseSpec | None = None
    ) -> LeaseSpec:
        now = format_micro_time(self._clock.now())
        return msgspec.structs.replace(
            base or LeaseSpec(),
            holder_identity=self._settings.identity,
            lease_duration_seconds=int(self._settings.lease_duration_s),
            acquire_time=acquired or now,
            renew_time=now,
            lease_transitions=transitions,
        )

    def _written(self, lease: Preserved[Lease], sent_at: float) -> None:
        self._lease = lease
        self._observed = lease.record.spec
        self._observed_at = self._clock.monotonic()
        # From sending, not from the response: others may have seen the renewal long before it
        # arrives. And the duration in the lease is the one that counts.
        self._lead_until = sent_at + int(self._settings.lease_duration_s)

    def _observe(self, lease: Preserved[Lease]) -> None:
        self._lease = lease
        if lease.record.spec != self._observed:
            self._observed = lease.record.spec
            self._observed_at = self._clock.monotonic()

    # Stopping.

    async def _release(self) -> None:
        """Empty the lease. If this fails, the others wait for it to expire."""
        try:
            async with asyncio.timeout(self._settings.renew_deadline_s):
                for _ in range(RELEASE_TRIES):
                    if await self._try_release():
                        return
            log.error("Failed to release lease: it keeps changing", lock=self._described())
        except (KubeschedError, TimeoutError) as error:
            log.error("Failed to release lease", _reason(error), lock=self._described())

    async def _try_release(self) -> bool:
        lease = await self._bounded(self._client.get())
        self._observe(lease)
        if not self._holds_lease():
            return True
        now = format_micro_time(self._clock.now())
        spec = msgspec.structs.replace(
            lease.record.spec,
            holder_identity="",
            lease_duration_seconds=RELEASED_DURATION_S,
            acquire_time=now,
            renew_time=now,
        )
        changed = lease.with_record(msgspec.structs.replace(lease.record, spec=spec))
        try:
            self._observe(await self._bounded(self._client.update(changed)))
        except Conflict:
            return False  # a renewal that was in flight when we stopped succeeded; read again
        log.info("Released lease", lock=self._described())
        return True

    # Helpers.

    async def _bounded(self, call: Awaitable[Preserved[Lease]]) -> Preserved[Lease]:
        async with asyncio.timeout(self._settings.call_deadline_s):
            return await call

    def _holds_lease(self) -> bool:
        return self._observed.holder_identity == self._settings.identity

    def _is_valid(self) -> bool:
        """Whether the lease as last seen has not expired yet, by our own clock."""
        return self._observed_at + self._duration_s() > self._clock.monotonic()

    def _duration_s(self) -> int:
        return self._observed.lease_duration_seconds or 0

    def _report_transition(self) -> None:
        if self.leader() != self._reported_leader:
            self._reported_leader = self.leader()
            self._callbacks.on_new_leader(self._reported_leader)

    def _record_event(self, what: str) -> None:
        metadata = self._lease.record.metadata if self._lease is not None else ObjectMeta()
        reference = ObjectReference(
            kind="Lease",
            api_version="coordination.k8s.io/v1",
            namespace=self._settings.namespace,
            name=self._settings.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
        self._callbacks.record_event(reference, f"{self._settings.identity} {what}")

    def _described(self) -> str:
        return f"{self._settings.namespace}/{self._settings.name}"


def _reason(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)
