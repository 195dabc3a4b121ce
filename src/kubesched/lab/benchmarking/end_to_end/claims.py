"""The claim controller of a benchmark: it deletes claims with their pods, without listing any."""

from __future__ import annotations

import contextlib
from typing import Any

from kubesched.api import codec
from kubesched.api.kinds import kind_of
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import NotFound
from kubesched.client.patch import merge_patch
from kubesched.client.rest import RestClient
from kubesched.insight.state.claim_controller import template_entries
from kubesched.lab.benchmarking.templates import Manifest
from kubesched.lab.claims import Claims

_CLAIMS = kind_of(ResourceClaim)


class ClaimMaker(Claims):
    """Creates the claims of pods from templates, and deletes them with the pods."""

    def __init__(self, client: RestClient) -> None:
        super().__init__(client)
        self._made: dict[tuple[str, str], list[str]] = {}
        """Namespace and name of a pod -> the claims created for it."""

    async def created(self, manifest: Manifest, answer: bytes) -> None:
        """Remember a template, or create a pod's claims. `answer` is the server's response."""
        self.learn([manifest])
        if manifest["kind"] == "Pod" and template_entries(manifest):
            pod = codec.decode(answer, dict[str, Any])
            metadata = pod["metadata"]
            self._made[metadata["namespace"], metadata["name"]] = await self.make_for(pod)

    async def delete_of(self, namespace: str, pod_name: str) -> None:
        """Deallocate and delete the claims of a deleted pod."""
        for name in self._made.pop((namespace, pod_name), ()):
            with contextlib.suppress(NotFound):
                released = merge_patch({"status": {"reservedFor": None, "allocation": None}})
                await self._client.patch(_CLAIMS, name, namespace, released, subresource="status")
                unprotected = merge_patch({"metadata": {"finalizers": None}})
                await self._client.patch(_CLAIMS, name, namespace, unprotected)
                await self._client.delete(_CLAIMS, name, namespace)

    async def write_status(self, claim: ResourceClaim) -> None:
        """Write the allocation of a claim."""
        metadata = claim.metadata
        path = _CLAIMS.object_path(metadata.name, metadata.namespace)
        await self._client.put_raw(f"{path}/status", codec.encode(claim))
