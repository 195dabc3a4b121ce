"""The scheduler's API writes: resolves unknown outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta, Record
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.clock import Clock
from kubesched.base.errors import (
    Conflict,
    ConnectFailed,
    DeadlineExceeded,
    KubeschedError,
    NotFound,
    ServerError,
    StreamEnded,
    TransportError,
    WriteRefused,
)
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.client.patch import strategic_merge_patch
from kubesched.client.rest import RestClient
from kubesched.client.retry import Rest
from kubesched.framework.handle import BindingDone, GiveUp, SchedulerClient
from kubesched.scheduler.unknown_binding import (
    MAX_PAUSE_S,
    PAUSE_S,
    REPEAT_PAUSES_S,
    resolve_unknown_binding,
)

R = TypeVar("R", bound=Record)

_COMPLETE = (ResourceClaim,)
"""Kinds whose records hold every field, so they can be written without reading the object first."""

STATUS_TRIES = 8
"""Attempts to write a status with an unknown outcome; about half a minute altogether."""


class CarefulCalls:
    """The scheduler's API writes, sent as kube-scheduler does; resolves unknown binding outcomes.

    The client refuses writes while this scheduler does not lead.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        retries: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`retries`: a binding is sent again if no connection could be made."""
        self._client = client
        self._pauses_s = REPEAT_PAUSES_S if retries else ()
        self._sleep = sleep

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        await self._settle(pod, node_name, lambda: self._bind(pod, node_name))

    async def _bind(self, pod: Pod, node_name: str) -> None:
        """Bind; the UID guards against a newer pod of the same name."""
        meta = pod.metadata
        await self._client.bind(meta.namespace, meta.name, meta.uid, node_name)

    def start_binding(self, pod: Pod, node_name: str, done: BindingDone) -> GiveUp:
        def answered(rest: Rest | None) -> None:
            done(None if rest is None else partial(self._settle, pod, node_name, rest))

        meta = pod.metadata
        return self._client.start_binding(meta.namespace, meta.name, meta.uid, node_name, answered)

    async def _settle(self, pod: Pod, node_name: str, binding: Rest) -> None:
        """Await a binding, and find out its outcome if the response leaves it open."""
        for pause_s in (*self._pauses_s, None):
            try:
                unclear = await _unclear_outcome(binding)
                break
            except ConnectFailed as error:
                if pause_s is None or isinstance(error, WriteRefused):
                    raise
            await self._sleep(pause_s)
            binding = partial(self._bind, pod, node_name)
        if unclear is not None:
            await resolve_unknown_binding(
                pod,
                node_name,
                unclear,
                read_node=lambda: self._node_of(pod),
                sleep=self._sleep,
                repeat=lambda: _unclear_outcome(lambda: self._bind(pod, node_name)),
                may_repeat=self._client.may_write,
            )

    async def _node_of(self, pod: Pod) -> str:
        meta = pod.metadata
        current = await self._client.get(Pod, meta.name, meta.namespace)
        if current.metadata.uid != meta.uid:
            raise NotFound(f'pods "{meta.name}" not found')
        return current.spec.node_name or ""

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        await self.patch_status(Pod, pod.metadata.namespace, pod.metadata.name, patch)

    async def delete_pod(self, pod: Pod) -> None:
        # Upstream: no UID precondition and no grace period of our own.
        await self.delete(pod)

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        return await self._client.get(kind, name, namespace)

    async def create(self, obj: R) -> R:
        return await self._client.create(obj)

    async def update(self, obj: R) -> R:
        if isinstance(obj, _COMPLETE):
            return await self._client.update(obj)
        return await self._client.update_merged(obj)

    async def update_status(self, obj: R) -> R:
        """Write a status until the outcome is known; its revision prevents a second effect."""
        unclear: KubeschedError | None = None
        for attempt in range(STATUS_TRIES):
            if attempt:
                await self._sleep(min(PAUSE_S * 2**attempt, MAX_PAUSE_S))
            try:
                return await self._client.update_status(obj)
            except Conflict:
                if unclear is None:
                    raise
                meta = _metadata(obj)
                current = await self.get(type(obj), meta.namespace, meta.name)
                if _has_status_of(current, obj):
                    return current  # the first write did arrive
                raise
            except (DeadlineExceeded, StreamEnded) as error:
                if not error.sent and unclear is None:
                    raise
                unclear = error
            except (ServerError, TransportError) as error:
                if isinstance(error, TransportError) and unclear is None:
                    raise
                unclear = error
            if not self._client.may_write():
                break
        assert unclear is not None, "only an unclear outcome is tried again"
        raise unclear

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        return await self._client.patch(
            kind, name, namespace, strategic_merge_patch(patch), subresource="status"
        )

    async def delete(self, obj: Record) -> None:
        meta = _metadata(obj)
        await self._client.delete(type(obj), meta.name, meta.namespace)


def _metadata(obj: Record) -> ObjectMeta:
    metadata: ObjectMeta = obj.metadata  # type: ignore[attr-defined]  # every kind's record has it
    return metadata


async def _unclear_outcome(binding: Rest) -> KubeschedError | None:
    """Await a binding; returns an error that leaves the outcome unknown, raises the others."""
    try:
        await binding()
    except (DeadlineExceeded, StreamEnded) as error:
        if not error.sent:
            raise
        return error
    except ServerError as error:
        return error
    return None


class MeasuredCalls:
    """A `SchedulerClient` with the metrics of upstream's API dispatcher (SchedulerAsyncAPICalls).

    Bindings and status patches never block scheduling here, with or without the gate; with the gate
    on they are measured under the dispatcher's names.
    """

    def __init__(self, calls: SchedulerClient, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._calls = calls
        self._metrics = metrics
        self._now = clock.monotonic

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        await self._measured("pod_binding", self._calls.bind_pod(pod, node_name))

    def start_binding(self, pod: Pod, node_name: str, done: BindingDone) -> GiveUp:
        # Measured one by one: with the gate on, the cost of the extra task does not matter.
        binding = partial(self.bind_pod, pod, node_name)
        return asyncio.get_running_loop().call_soon(done, binding).cancel

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        await self._measured("pod_status_patch", self._calls.patch_pod_status(pod, patch))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # the calls that are not measured
        return getattr(self._calls, name)

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


def _has_status_of(current: Any, written: Any) -> bool:  # noqa: ANN401  # records with a status
    return bool(current.metadata.uid == written.metadata.uid and current.status == written.status)
