"""The scheduler's writes: unclear bindings are settled by looking, and nobody writes who does not lead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.client.rest import RestClient
from kubesched.client.scheduling_calls import SchedulingCalls
from kubesched.clock import Clock
from kubesched.errors import (
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    KubeschedError,
    NotFound,
    ServerError,
    StreamEnded,
)
from kubesched.framework.handle import SchedulerClient
from kubesched.logs import get_logger
from kubesched.metrics.scheduler import SchedulerMetrics

log = get_logger(__name__)

R = TypeVar("R", bound=Record)

LOOKS = 150
PAUSE_S = 0.2
MAX_PAUSE_S = 5.0
"""Looks at a pod after an unclear binding: for as long as an outage of the API server may reasonably last, which is
more than ten minutes. Giving up earlier would give the pod's room to another while the pod may well be there."""


class CarefulCalls:
    """A `SchedulerClient` that reads the pod when a binding was sent but no clear answer came back.

    `may_write` is asked before every write. A process that was stopped for a while (SIGSTOP, a frozen machine) goes
    on where it stood, with bindings ready to be sent; another scheduler may have been at work since.
    """

    def __init__(self, client: RestClient, *, may_write: Callable[[], bool] = lambda: True) -> None:
        self._client = client
        self._calls = SchedulingCalls(client)
        self._may_write = may_write

    def _require_permission(self) -> None:
        if not self._may_write():
            raise ConnectFailed("not sent: this scheduler does not hold the leader lease any more")

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        self._require_permission()
        try:
            await self._calls.bind_pod(pod, node_name)
        except (DeadlineExceeded, StreamEnded) as error:
            if not error.sent:
                raise
            await self._settle(pod, node_name, error)
        except ServerError as error:
            await self._settle(pod, node_name, error)

    async def _settle(self, pod: Pod, node_name: str, cause: KubeschedError) -> None:
        """Return if the pod is on the node after all; otherwise raise what the binding failed with."""
        meta = pod.metadata
        for look in range(LOOKS):
            if look:
                await asyncio.sleep(min(PAUSE_S * 2**look, MAX_PAUSE_S))
            try:
                current = await self._client.get(Pod, meta.name, meta.namespace)
            except NotFound:
                raise cause from None
            except KubeschedError as error:
                log.warning("Cannot read pod after an unclear binding", pod=pod, err=error)
                continue
            if current.metadata.uid != meta.uid:
                raise cause
            if current.spec.node_name == node_name:
                return
            if current.spec.node_name:
                message = f"pod {meta.namespace}/{meta.name} is already assigned to node {current.spec.node_name}"
                raise Conflict(message) from cause
            raise cause
        raise cause

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        self._require_permission()
        await self._calls.patch_pod_status(pod, patch)

    async def delete_pod(self, pod: Pod) -> None:
        self._require_permission()
        await self._calls.delete_pod(pod)

    async def update(self, obj: R) -> R:
        self._require_permission()
        return await self._calls.update(obj)


class MeasuredCalls:
    """A `SchedulerClient` that measures what upstream's API dispatcher would (gate SchedulerAsyncAPICalls).

    Here bindings and status patches never hold up scheduling, gate or no gate; with the gate on they are measured
    under the dispatcher's names.
    """

    def __init__(self, calls: SchedulerClient, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._calls = calls
        self._metrics = metrics
        self._now = clock.monotonic

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        await self._measured("pod_binding", self._calls.bind_pod(pod, node_name))

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        await self._measured("pod_status_patch", self._calls.patch_pod_status(pod, patch))

    async def delete_pod(self, pod: Pod) -> None:
        await self._calls.delete_pod(pod)

    async def update(self, obj: R) -> R:
        updated: R = await self._calls.update(obj)
        return updated

    async def _measured(self, call_type: str, call: Awaitable[None]) -> None:
        started = self._now()
        result = "error"
        try:
            await call
            result = "success"
        finally:
            self._metrics.async_api_call_execution_total.labels(call_type, result).inc()
            duration = self._metrics.async_api_call_execution_duration_seconds
            duration.labels(call_type, result).observe(self._now() - started)
