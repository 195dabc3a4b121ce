"""Seeing pods being bound: one watch of the pods that have a node, with the time at which each appeared in it.

The watch shows bound pods only and reads no more of them than name and node, so that observing
costs the API server one small event per pod, the same for whichever scheduler is observed, and the
driver next to nothing.
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
"""So many pods are looked for whenever one is bound."""
_PAUSE_S = 0.02
_CHECK_S = 1.0


class StalledError(KubeschedError):
    """Nothing more happens, but not all has happened that was waited for."""


class _BoundSpec(Record):
    node_name: str = ""


class BoundPod(Record):
    """As much of a pod as an observer has to know."""

    kind: str = "Pod"
    api_version: str = "v1"
    metadata: ObjectMeta = ObjectMeta()
    spec: _BoundSpec = _BoundSpec()


_BOUND_PODS = Kind("", "v1", "pods", BoundPod)


class BindingObserver:
    """When which pod was seen bound."""

    def __init__(self, clock: Clock) -> None:
        self.moments: dict[str, float] = {}
        """namespace/name -> time of the clock's monotonic reading. Pods that are deleted again stay
        in here.
        """
        self._now = clock.monotonic
        self._changed = asyncio.Event()
        self._seen = 0

    def take(self, pod: BoundPod) -> None:
        meta = pod.metadata
        self.moments.setdefault(key_of(meta), self._now())
        self._seen += 1
        self._changed.set()

    def forget(self, keys: Collection[str]) -> None:
        """Names that will be given again to other pods."""
        for key in keys:
            self.moments.pop(key, None)

    async def until_bound(
        self, keys: Collection[str], *, stall_s: float, check: Callable[[], None], what: str
    ) -> None:
        """Wait for all of them.

        `check` is called now and then and raises if it makes no sense to go on.

        Raises:
            StalledError: none was bound for `stall_s`, though not all are.
        """
        missing = {key for key in keys if key not in self.moments}
        last = self._now()
        while missing:
            seen, before = self._seen, len(missing)
            if before > FEW:
                # Not for every pod: a look at a large set must not be what is measured.
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
                raise StalledError(
                    f"{what}: {len(missing)} of {len(keys)} pods are still not bound, and none was in the last "
                    f"{stall_s:.0f} s; one of them is {min(missing)}"
                )


@contextlib.asynccontextmanager
async def observed_bindings(client: RestClient, clock: Clock) -> AsyncIterator[BindingObserver]:
    """An observer that is up to date when the block begins."""
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
            raise StalledError(
                f"the list of pods did not arrive within {SYNC_TIMEOUT_S:.0f} s: {informer.reflector.last_error}"
            ) from None
        yield observer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
