"""The API writes a scheduler makes, each exactly as kube-scheduler sends it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.client.patch import strategic_merge_patch
from kubesched.client.rest import RestClient

R = TypeVar("R", bound=Record)


class RestSchedulerClient:
    """A `framework.handle.SchedulerClient` over REST."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def bind_pod(self, pod: Pod, node_name: str) -> Coroutine[Any, Any, None]:
        """Assign; the UID makes sure that it is this pod and not a later one of the same name."""
        metadata = pod.metadata
        return self._client.bind(metadata.namespace, metadata.name, metadata.uid, node_name)

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Strategic merge patch of the status subresource; `patch` is the whole body."""
        metadata = pod.metadata
        await self._client.patch(
            Pod,
            metadata.name,
            metadata.namespace,
            strategic_merge_patch(patch),
            subresource="status",
        )

    async def delete_pod(self, pod: Pod) -> None:
        # Upstream: no UID precondition and no grace period of our own.
        await self._client.delete(Pod, pod.metadata.name, pod.metadata.namespace)

    async def update(self, obj: R) -> R:
        """Write an object back at its revision; nothing the server sent is lost."""
        return await self._client.update_merged(obj)
