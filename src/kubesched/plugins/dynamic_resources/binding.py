"""PreBind: writes allocations and reservations, then waits for binding conditions.

For each claim that is not reserved for the pod, PreBind creates the special claim, adds the
finalizer and writes the status. A write that has begun is finished even if PreBind is cancelled:
only its outcome tells whether the devices are taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from msgspec import structs, to_builtins

from kubesched.api.core_v1 import Pod, PodExtendedResourceClaimStatus
from kubesched.api.meta import ObjectMeta
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import (
    FINALIZER,
    ResourceClaim,
    ResourceClaimStatus,
)
from kubesched.api.times import format_time
from kubesched.base.errors import Conflict, KubeschedError, NotFound
from kubesched.base.logs import get_logger
from kubesched.framework.handle import Handle, SchedulerClient
from kubesched.plugins.dynamic_resources.binding_conditions import (
    BindingFailed,
    has_conditions,
    is_ready,
    is_timed_out,
    results_with_conditions,
)
from kubesched.plugins.dynamic_resources.claim_lookup import is_reserved_for
from kubesched.plugins.dynamic_resources.claim_tracker import ClaimTracker
from kubesched.plugins.dynamic_resources.state import ClaimInfo, DRAState
from kubesched.plugins.helper.grouping import leave_group

log = get_logger(__name__)

T = TypeVar("T")

CONFLICT_TRIES: Final = 5
CONFLICT_PAUSE_S: Final = 0.01
LOOK_AGAIN_S: Final = 5.0
"""Polling interval for binding conditions, in addition to checks on every claim change."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Pauses between attempts to read or delete a claim after a write without a response."""
SPECIAL_CLAIM_WAIT_S: Final = 120.0
"""Maximum wait until the watch shows the special claim."""


class ClaimBindingError(Exception):
    """PreBind failed; the message is upstream's."""


class ClaimBinder:
    """Writes the allocations that Reserve chose."""

    def __init__(
        self,
        handle: Handle,
        client: SchedulerClient,
        claims: ClaimTracker,
        *,
        of_groups: bool = False,
        binding_timeout_s: float,
        has_binding_conditions: bool,
        keeps_pending: bool = True,
        ignores_missing: bool = True,
    ) -> None:
        """`keeps_pending`: devices stay in flight until PreBind has succeeded for all claims.

        `ignores_missing`: a special claim that is to be deleted may be gone already.
        """
        self._handle = handle
        self._client = client
        self._claims = claims
        self._of_groups = of_groups
        self._binding_timeout_s = binding_timeout_s
        self._has_binding_conditions = has_binding_conditions
        self._keeps_pending = keeps_pending
        self._ignores_missing = ignores_missing
        self._unanswered: set[tuple[str, str]] = set()
        """UIDs of claim and pod: the write of its allocation got no response and may be stored."""
        self._unreserving: dict[str, dict[asyncio.Event, None]] = {}
        """UID of a pod or group -> pending writes that release its earlier reservations."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Claim UID -> lock held by the claim's writer."""

    def is_idle(self) -> bool:
        """True if the outcome of every write is known."""
        return not (self._unanswered or self._unreserving)

    # -- PreBind -----------------------------------------------------------------------------------

    async def bind(self, state: DRAState, pod: Pod, node_name: str) -> None:
        """Write all claims, then wait until their devices are ready. Raises ClaimBindingError."""
        await self._wait_for_unreserve(pod, state)
        for info in state.claims:
            # In-flight claims are always resolved: an allocation that the claim got in the meantime
            # may be for other nodes.
            if info.allocation is not None or not self._is_reserved(info.claim, pod):
                await self._bind_claim(state, info, pod, node_name)
        if self._has_binding_conditions and any(
            has_conditions(info.claim) for info in state.claims
        ):
            await self._wait_until_ready(state, pod, node_name)
        for info in state.claims:
            if info.allocation is not None and self._keeps_pending:
                self._claims.remove_in_flight(_in_flight_uid(state, info), pod.metadata.uid)

    async def _bind_claim(self, state: DRAState, info: ClaimInfo, pod: Pod, node_name: str) -> None:
        if info.is_special and info.allocation is None and not info.claim.spec.devices.requests:
            return  # device plugins serve all of it
        chosen = info.claim
        try:
            if info.is_in_memory:
                await _to_the_end(self._create(state, info, node_name))
            # Upstream: pods that share a claim write it at the same time, and all but one meet a
            # conflict, again and again.
            async with self._turn(info.claim):
                info.claim = self._newest(info.claim)
                in_flight_uid = _in_flight_uid(state, info)
                await _to_the_end(self._write_with_retries(info, pod, in_flight_uid))
            if info.is_special:
                await self._wait_for_special_claim(info.claim)
        finally:
            in_flight_uid = _in_flight_uid(state, info)
            if (in_flight_uid, pod.metadata.uid) not in self._unanswered:
                if info.allocation is not None and not self._keeps_pending:
                    self._claims.remove_in_flight(in_flight_uid, pod.metadata.uid)
            elif not info.is_special:  # the special claim is deleted by `unreserve`
                look = partial(self._look_up_unanswered, chosen, pod)
                self._spawn(pod.metadata, look, "look up claim")
        if info.is_special:
            await self._write_pod_status(state, info, pod, node_name)

    def _is_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        return is_reserved_for(claim, pod, of_groups=self._of_groups)

    def _turn(self, claim: ResourceClaim) -> asyncio.Lock:
        turn = self._turns.get(claim.metadata.uid)
        if turn is None:
            turn = self._turns[claim.metadata.uid] = asyncio.Lock()
        return turn

    def _newest(self, claim: ResourceClaim) -> ResourceClaim:
        """The newest known version of the claim, unless another claim has taken its name."""
        meta = claim.metadata
        newest = self._claims.get(meta.namespace, meta.name)
        return claim if newest is None or newest.metadata.uid != meta.uid else newest

    async def _create(self, state: DRAState, info: ClaimInfo, node_name: str) -> None:
        chosen = state.allocation_on(node_name)
        if chosen is None or chosen.special_claim is None:
            raise ClaimBindingError(f"extended resource claim not found for node {node_name}")
        claim = chosen.special_claim
        new = structs.replace(
            claim,
            metadata=structs.replace(claim.metadata, name="", uid=""),
            status=ResourceClaimStatus(),
        )
        try:
            info.claim = await self._client.create(new)
        except KubeschedError as error:
            self._count_create("failure")
            key = key_of(new.metadata)
            raise ClaimBindingError(
                f"create claim for extended resources {key}: {error}"
            ) from error
        self._count_create("success")
        self._claims.rename_in_flight(state.special_uid, info.claim)
        state.special_uid = info.claim.metadata.uid

    def _count_create(self, outcome: str) -> None:
        if self._handle.metrics is not None:
            self._handle.metrics.count_created_claim(outcome)

    async def _write_with_retries(self, info: ClaimInfo, pod: Pod, in_flight_uid: str) -> None:
        """Write finalizer, allocation and reservation; harmless conflicts are retried."""
        claim = info.claim

        async def write() -> ResourceClaim:
            return await self._write(claim, info, pod, in_flight_uid)

        async def refresh() -> None:
            nonlocal claim
            meta = claim.metadata
            try:
                claim = await self._client.get(ResourceClaim, meta.namespace, meta.name)
            except KubeschedError as error:
                raise ClaimBindingError(
                    f"get updated claim {key_of(meta)} after conflict: {error}"
                ) from error
            self._claims.assume(claim)
            self._unanswered.discard((in_flight_uid, pod.metadata.uid))
            if claim.metadata.uid != meta.uid:
                # Another claim of this name: the devices were chosen for the old claim's requests.
                raise ClaimBindingError(f"claim {key_of(meta)} got deleted in the meantime")

        info.claim = await _retry_on_conflict(write, refresh)
        if not self._claims.assume(info.claim) and not info.is_special:
            log.info("Claim not stored in assume cache", v=5, claim=key_of(info.claim.metadata))

    async def _write(
        self, claim: ResourceClaim, info: ClaimInfo, pod: Pod, in_flight_uid: str
    ) -> ResourceClaim:
        key = key_of(claim.metadata)
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimBindingError(f"claim {key} got deleted in the meantime")
        allocation = info.allocation
        if allocation is not None and self._claims.is_written(claim, allocation):
            # Upstream: members that share an allocation fail here, all but the first, and are
            # scheduled once more.
            allocation = None
        elif allocation is not None:
            if claim.status.allocation is not None:
                raise ClaimBindingError(f"claim {key} got allocated elsewhere in the meantime")
            claim = await self._with_finalizer(claim)
        elif claim.status.allocation is not None and info.is_elsewhere(claim.status.allocation):
            # No pod had reserved the claim, so another attempt could deallocate and reallocate it.
            # (Upstream adds the reservation and binds the pod to a node without the devices.)
            raise ClaimBindingError(f"claim {key} got allocated elsewhere in the meantime")
        current = claim.status.allocation if allocation is None else allocation
        if self._has_binding_conditions:
            if current is None:
                raise ClaimBindingError(f"claim {key} got deallocated elsewhere in the meantime")
            if current.allocation_timestamp is None:
                now = format_time(self._handle.clock.now())
                current = structs.replace(current, allocation_timestamp=now)
        if allocation is None and self._is_reserved(claim, pod):
            return claim  # for the group, by another member
        status = structs.replace(
            claim.status,
            allocation=current,
            reserved_for=[*(claim.status.reserved_for or ()), info.consumer],
        )
        what = "reservation" if allocation is None else "allocation and reservation"
        if allocation is not None:
            self._unanswered.add((in_flight_uid, pod.metadata.uid))
        with _explained(f"add {what} to claim {key}"):
            written = await self._client.update_status(structs.replace(claim, status=status))
        self._unanswered.discard((in_flight_uid, pod.metadata.uid))
        return written

    async def _look_up_unanswered(self, claim: ResourceClaim, pod: Pod) -> None:
        """Find out whether an allocation was stored; until then its devices stay taken.

        If released at once, they could be allocated to another claim before the watch shows their
        holder.
        """
        meta = claim.metadata
        try:
            await self._assume_stored(claim)
        finally:
            self._unanswered.discard((meta.uid, pod.metadata.uid))
            self._claims.remove_in_flight(meta.uid, pod.metadata.uid)
        if self._handle.activate is not None:
            # The pod was rejected while the claim was in flight, and no event may have occurred
            # since.
            self._handle.activate({key_of(pod.metadata): pod})

    async def _assume_stored(self, claim: ResourceClaim) -> None:
        """Read a claim and assume the API server's version."""
        meta = claim.metadata

        async def read() -> None:
            self._claims.assume(await self._client.get(ResourceClaim, meta.namespace, meta.name))

        await _until_answered(read, claim, "Claim not read")

    async def _with_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        finalizers = claim.metadata.finalizers or []
        if FINALIZER in finalizers:
            return claim
        metadata = structs.replace(claim.metadata, finalizers=[*finalizers, FINALIZER])
        with _explained(f"add finalizer to claim {key_of(metadata)}"):
            updated: ResourceClaim = await self._client.update(
                structs.replace(claim, metadata=metadata)
            )
        return updated

    async def _wait_for_special_claim(self, claim: ResourceClaim) -> None:
        """Wait until the watch shows the claim; until then its devices are in flight."""
        key = key_of(claim.metadata)
        with self._claims.signals.watching([key]) as changed, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SPECIAL_CLAIM_WAIT_S):
                while not self._claims.assume(claim):
                    changed.clear()
                    await changed.wait()
                return
        log.info("Claim not stored in assume cache after retries", v=5, claim=key)

    async def _write_pod_status(
        self, state: DRAState, info: ClaimInfo, pod: Pod, node_name: str
    ) -> None:
        chosen = state.allocation_on(node_name)
        mappings = [] if chosen is None else chosen.mappings
        subject = f"pod {pod.metadata.namespace}/{pod.metadata.name} ExtendedResourceClaimStatus"
        if not mappings:
            raise ClaimBindingError(f"nil or empty request mappings, no update of {subject}")
        status = PodExtendedResourceClaimStatus(
            request_mappings=mappings, resource_claim_name=info.claim.metadata.name
        )
        patch = {"status": {"extendedResourceClaimStatus": to_builtins(status)}}
        try:
            await self._client.patch_pod_status(pod, patch)
        except KubeschedError as error:
            raise ClaimBindingError(f"update {subject}: {error}") from error

    # -- binding conditions ------------------------------------------------------------------------

    async def _wait_until_ready(self, state: DRAState, pod: Pod, node_name: str) -> None:
        if self._handle.recorder is not None:
            note = f"waiting for binding conditions for device on node {node_name}"
            self._handle.recorder.event(
                pod, None, "Normal", "BindingConditionsPending", "Scheduling", note
            )
        started = self._handle.clock.monotonic()
        outcome = "error"
        try:
            await self._poll(state, started + self._binding_timeout_s)
            outcome = "success"
        except BindingFailed as error:
            outcome = "failure"
            raise ClaimBindingError(str(error)) from error
        except _BindingTimeout as error:
            outcome = "timeout"
            raise ClaimBindingError(str(error)) from error
        finally:
            self._observe(state.claims, outcome, self._handle.clock.monotonic() - started)

    async def _poll(self, state: DRAState, deadline: float) -> None:
        keys = [key_of(info.claim.metadata) for info in state.claims]
        with self._claims.signals.watching(keys) as changed:
            while True:
                changed.clear()
                if self._are_ready(state.claims):
                    return
                left_s = deadline - self._handle.clock.monotonic()
                if left_s <= 0:
                    raise _BindingTimeout("device binding timeout: context deadline exceeded")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, LOOK_AGAIN_S)):
                        await changed.wait()

    def _are_ready(self, claims: Sequence[ClaimInfo]) -> bool:
        """Check the newest claims. Raises BindingFailed, _BindingTimeout or ClaimBindingError."""
        now = self._handle.clock.now()
        for info in claims:
            meta = info.claim.metadata
            claim = self._claims.get(meta.namespace, meta.name)
            if claim is None:
                key = key_of(meta)
                raise ClaimBindingError(f'could not find ResourceClaim "{key}"')
            info.claim = claim
            if not is_ready(claim):
                if is_timed_out(claim, self._binding_timeout_s, now):
                    raise _BindingTimeout(f"device binding timeout: claim={meta.name}")
                return False
        return True

    def _observe(self, claims: Sequence[ClaimInfo], outcome: str, seconds: float) -> None:
        metrics, profile = self._handle.metrics, self._handle.profile_name
        if metrics is None:
            return
        for info in claims:
            allocation = info.claim.status.allocation
            for result in (None if allocation is None else allocation.devices.results) or ():
                metrics.dra_bindingconditions_wait_duration_seconds.labels(
                    profile, result.driver, outcome
                ).observe(seconds)
            for result in results_with_conditions(info.claim):
                metrics.dra_bindingconditions_allocations_total.labels(
                    profile, result.driver, outcome
                ).inc()

    # -- release -----------------------------------------------------------------------------------

    def unreserve(self, state: DRAState, pod: Pod) -> None:
        """Release what Reserve and PreBind took. API writes run in the background."""
        for info in state.claims:
            meta = info.claim.metadata
            in_flight_uid = _in_flight_uid(state, info)
            # If not allocated by this attempt, the claim may be in flight for another pod: the
            # watch can show a write before its response arrives.
            is_mine = info.allocation is not None
            if is_mine and (in_flight_uid, pod.metadata.uid) in self._unanswered:
                if info.is_special:
                    delete = partial(self._delete_unanswered, info.claim, in_flight_uid, pod)
                    self._spawn(pod.metadata, delete, "delete special claim")
                continue  # the outcome of any other claim is being looked up
            if is_mine and self._claims.remove_in_flight(in_flight_uid, pod.metadata.uid):
                self._claims.restore(key_of(meta))
            if info.is_special:
                if not info.is_in_memory:
                    delete = partial(self._delete_logged, info.claim)
                    self._spawn(pod.metadata, delete, "delete special claim")
            elif info.is_allocated and is_reserved_for(info.claim, pod):
                self.remove_reservation(info.claim, pod.metadata)
            info.allocation = None

    def remove_reservation(self, claim: ResourceClaim, consumer: ObjectMeta) -> None:
        """Remove the reservation of a pod or group, in the background."""
        remove = partial(self._remove_reservation, claim, consumer.uid)
        self._spawn(consumer, remove, "unreserve claim")

    def _spawn(
        self, consumer: ObjectMeta, work: Callable[[], Coroutine[Any, Any, None]], what: str
    ) -> None:
        assert self._handle.spawn is not None, "claims need background work"
        done, uid = asyncio.Event(), consumer.uid
        self._unreserving.setdefault(uid, {})[done] = None

        async def tracked() -> None:
            try:
                await work()
            finally:
                done.set()
                leave_group(self._unreserving, uid, done)

        self._handle.spawn(tracked(), f"{what} of {key_of(consumer)}")

    async def _wait_for_unreserve(self, pod: Pod, state: DRAState) -> None:
        """Wait for pending releases of an earlier attempt, then reload the claims."""
        for uid in {pod.metadata.uid, *(info.consumer.uid for info in state.claims)}:
            for done in list(self._unreserving.get(uid, ())):
                await done.wait()
        # Reload even if no release is pending now: one may have been when the attempt began, and an
        # extender can prolong the attempt.
        for info in state.claims:
            info.claim = self._newest(info.claim)

    async def _remove_reservation(self, claim: ResourceClaim, consumer_uid: str) -> None:
        meta = claim.metadata
        patch = {
            "metadata": {"uid": meta.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": consumer_uid}]},
        }
        try:
            updated = await self._client.patch_status(
                ResourceClaim, meta.namespace, meta.name, patch
            )
        except KubeschedError as error:
            log.error("unreserve", error, resourceclaim=key_of(meta))
            # The write may have taken effect. The pod's next attempt waits for this (see
            # `_wait_for_unreserve`): if it trusted the reservation it last saw, it would bind the
            # pod without one, as upstream does.
            await self._assume_stored(claim)
            return
        self._claims.assume(updated)

    async def _delete_logged(self, claim: ResourceClaim) -> None:
        try:
            await self.delete(claim)
        except (KubeschedError, ClaimBindingError) as error:
            log.error("delete", error, resourceclaim=key_of(claim.metadata))

    async def _delete_unanswered(self, claim: ResourceClaim, in_flight_uid: str, pod: Pod) -> None:
        """Delete a special claim that may be allocated; its devices stay taken until it is gone."""
        try:
            await _until_answered(partial(self.delete, claim), claim, "Claim not deleted")
        finally:
            self._unanswered.discard((in_flight_uid, pod.metadata.uid))
            self._claims.remove_in_flight(in_flight_uid, pod.metadata.uid)

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Remove allocation and reservations from a claim, so that other devices can be tried."""
        nothing = ResourceClaimStatus()
        if claim.status != nothing:  # else only its group's trial has allocated it
            await self._client.update_status(structs.replace(claim, status=nothing))

    async def delete(self, claim: ResourceClaim) -> None:
        """Remove the finalizer, then the claim."""
        meta = claim.metadata

        async def remove_finalizer() -> None:
            metadata = claim.metadata
            kept = [finalizer for finalizer in metadata.finalizers or () if finalizer != FINALIZER]
            changed = structs.replace(metadata, finalizers=kept or None)
            await self._client.update(structs.replace(claim, metadata=changed))

        async def refresh() -> None:
            nonlocal claim
            claim = await self._client.get(ResourceClaim, meta.namespace, meta.name)

        await _retry_on_conflict(remove_finalizer, refresh)
        with contextlib.suppress(*([NotFound] if self._ignores_missing else [])):
            await self._client.delete(claim)


def _in_flight_uid(state: DRAState, info: ClaimInfo) -> str:
    return state.special_uid if info.is_special else info.claim.metadata.uid


class _BindingTimeout(Exception):
    """The devices did not become ready in time."""


class _explained(contextlib.AbstractContextManager[None]):  # noqa: N801  # used like a function
    """Prefixes an API error with the attempted operation; conflicts pass unchanged, for retries."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Conflict):
            error.add_note(self._what)
        elif isinstance(error, KubeschedError):
            raise ClaimBindingError(f"{self._what}: {error}") from error


async def _until_answered(
    work: Callable[[], Awaitable[None]], claim: ResourceClaim, problem: str
) -> None:
    """Repeat a request, with growing pauses, until it succeeds or the claim is gone."""
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await work()
        except NotFound:
            return None
        except (KubeschedError, ClaimBindingError) as error:
            log.info(problem, v=2, claim=key_of(claim.metadata), err=error)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _retry_on_conflict(
    attempt: Callable[[], Awaitable[T]], refresh: Callable[[], Awaitable[None]]
) -> T:
    for left in reversed(range(CONFLICT_TRIES)):
        try:
            return await attempt()
        except Conflict as error:
            if not left:
                notes = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
                raise ClaimBindingError(f"{notes}{error}") from error
        await asyncio.sleep(CONFLICT_PAUSE_S)
        await refresh()
    raise AssertionError("the last conflict is raised")


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if the caller is cancelled, then raise the cancellation."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("Claim not written before PreBind was called off", v=2, err=error)
        raise
