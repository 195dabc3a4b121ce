"""Observes bindings: one watch of assigned pods, with the time at which each appeared.

The watch shows only bound pods and decodes only name and node. Observing thus costs the API server
one small event per pod, equal for all schedulers, and the driver almost nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from random import Random

from kubesched.api.kinds import Kind
from kubesched.api.meta import ObjectMeta, Record
from kubesched.api.names import key_of
from kubesched.base.clock import Clock
from kubesched.base.errors import KubeschedError
from kubesched.client.informers.collection import Collection as ServerCollection
from kubesched.client.informers.collection import Selection
from kubesched.client.informers.informer import EventHandler, Informer
from kubesched.client.rest import RestClient

SYNC_TIMEOUT_S = 60.0
FEW = 100
"""Up to this many missing pods are checked on every binding, more only at intervals."""
_PAUSE_S = 0.02
_CHECK_S = 1.0


class _BoundSpec(Record):
    node_name: str = ""


class BoundPod(Record):
    """The fields of a pod that an observer needs."""

    kind: str = "Pod"
    api_version: str = "v1"
    metadata: ObjectMeta = ObjectMeta()
    spec: _BoundSpec = _BoundSpec()


_BOUND_PODS = Kind("", "v1", "pods", BoundPod)


class BindingObserver:
    """When each pod was seen bound."""

    def __init__(self, clock: Clock) -> None:
        self.moments: dict[str, float] = {}
        """namespace/name -> monotonic time. Deleted pods stay."""
        self._now = clock.monotonic
        self._changed = asyncio.Event()
        self._seen = 0

    def take(self, pod: BoundPod) -> None:
        meta = pod.metadata
        self.moments.setdefault(key_of(meta), self._now())
        self._seen += 1
        self._changed.set()

    async def until_bound(
        self, keys: Collection[str], *, stall_s: float, check: Callable[[], None], what: str
    ) -> None:
        """Wait until all these pods are bound.

        `check` is called periodically and raises if waiting is pointless.

        Raises:
            KubeschedError: none was bound for `stall_s`, though not all are.
        """
        missing = {key for key in keys if key not in self.moments}
        last = self._now()
        while missing:
            seen, before = self._seen, len(missing)
            if before > FEW:
                # Not for every pod: scanning a large set would distort the measurement.
                await asyncio.sleep(_PAUSE_S)
            if self._seen == seen:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_S):
                        await self._changed.wait()
            check()
            missing = {key for key in missing if key not in self.moments}
            if len(missing) < before:
                last = self._now()
            elif self._now() - last > stall_s:
                raise KubeschedError(
                    f"{what}: {len(missing)} of {len(keys)} pods are still not bound, "
                    "and none was in the last "
                    f"{stall_s:.0f} s; one of them is {min(missing)}"
                )


@contextlib.asynccontextmanager
async def observed_bindings(client: RestClient, clock: Clock) -> AsyncIterator[BindingObserver]:
    """An observer, synced when the block begins."""
    observer = BindingObserver(clock)
    source = ServerCollection(client, _BOUND_PODS, Selection(field_selector="spec.nodeName!="))
    informer = Informer(source, name="bound pods", clock=clock, random=Random())
    informer.add_event_handler(EventHandler(on_add=observer.take))
    task = asyncio.ensure_future(informer.run())
    try:
        try:
            async with asyncio.timeout(SYNC_TIMEOUT_S):
                await informer.wait_for_sync()
        except TimeoutError:
            raise KubeschedError(
                f"the list of pods did not arrive within {SYNC_TIMEOUT_S:.0f} s: "
                f"{informer.reflector.last_error}"
            ) from None
        yield observer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
