"""The API writes a scheduler makes, each exactly as kube-scheduler sends it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta, Record
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.client.patch import strategic_merge_patch
from kubesched.client.rest import RestClient
from kubesched.client.retry import Done
from kubesched.client.transport import StartedRequest

R = TypeVar("R", bound=Record)

_COMPLETE = (ResourceClaim,)
"""Records that hold every field of their kind: these can be written without reading the object first."""


class RestSchedulerClient:
    """A `framework.handle.SchedulerClient` over REST."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def bind_pod(self, pod: Pod, node_name: str) -> Coroutine[Any, Any, None]:
        """Assign; the UID makes sure that it is this pod and not a later one of the same name."""
        metadata = pod.metadata
        return self._client.bind(metadata.namespace, metadata.name, metadata.uid, node_name)

    def start_binding(self, pod: Pod, node_name: str, done: Done) -> StartedRequest:
        metadata = pod.metadata
        return self._client.start_binding(
            metadata.namespace, metadata.name, metadata.uid, node_name, done
        )

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

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        return await self._client.get(kind, name, namespace)

    async def create(self, obj: R) -> R:
        return await self._client.create(obj)

    async def update(self, obj: R) -> R:
        """Write an object back at its revision; nothing the server sent is lost."""
        if isinstance(obj, _COMPLETE):
            return await self._client.update(obj)
        return await self._client.update_merged(obj)

    async def update_status(self, obj: R) -> R:
        """Write an object's status back at its revision; the server keeps the rest as it is."""
        return await self._client.update_status(obj)

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        return await self._client.patch(
            kind, name, namespace, strategic_merge_patch(patch), subresource="status"
        )

    async def delete(self, obj: Record) -> None:
        metadata: ObjectMeta = obj.metadata  # type: ignore[attr-defined]  # every kind's record has it
        await self._client.delete(type(obj), metadata.name, metadata.namespace)
