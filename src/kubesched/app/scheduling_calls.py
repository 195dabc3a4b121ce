"""Bindings whose outcome is unknown are settled by looking, never by guessing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.client.rest import RestClient
from kubesched.client.scheduling_calls import SchedulingCalls
from kubesched.errors import (
    Conflict,
    DeadlineExceeded,
    KubeschedError,
    NotFound,
    ServerError,
    StreamEnded,
)

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)

LOOKS = 3
PAUSE_S = 0.2


class CarefulCalls:
    """A `SchedulerClient` that reads the pod when a binding was sent but no clear answer came back."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._calls = SchedulingCalls(client)

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
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
                await asyncio.sleep(PAUSE_S * 2**look)
            try:
                current = await self._client.get(Pod, meta.name, meta.namespace)
            except NotFound:
                raise cause from None
            except KubeschedError as error:
                logger.warning(
                    "cannot read pod %s/%s after an unclear binding: %s",
                    meta.namespace,
                    meta.name,
                    error,
                )
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
        await self._calls.patch_pod_status(pod, patch)

    async def delete_pod(self, pod: Pod) -> None:
        await self._calls.delete_pod(pod)

    async def update(self, obj: R) -> R:
        return await self._calls.update(obj)
