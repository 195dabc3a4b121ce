"""The claim controller of a benchmark, whose control planes have none."""

from __future__ import annotations

import contextlib
from typing import Any

from kubesched.api import codec
from kubesched.api.kinds import PODS, kind_of
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import KubeschedError, NotFound
from kubesched.client.patch import merge_patch, strategic_merge_patch
from kubesched.client.rest import RestClient
from kubesched.insight.state.claim_controller import (
    claim_statuses,
    generated_claim,
    template_entries,
)
from kubesched.lab.benchmarking.templates import Manifest

_CLAIMS = kind_of(ResourceClaim)


class ClaimMaker:
    """Creates the claims of pods from templates, and deletes them with the pods."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._templates: dict[tuple[str, str], Manifest] = {}
        self._made: dict[tuple[str, str], list[str]] = {}
        """Namespace and name of a pod -> the claims created for it."""

    async def created(self, manifest: Manifest, answer: bytes) -> None:
        """Remember a template, or create a pod's claims. `answer` is the server's response."""
        metadata = manifest["metadata"]
        if manifest["kind"] == "ResourceClaimTemplate":
            self._templates[metadata["namespace"], metadata["name"]] = manifest
            return
        entries = template_entries(manifest) if manifest["kind"] == "Pod" else []
        if not entries:
            return
        pod = codec.decode(answer, dict[str, Any])
        namespace, name = metadata["namespace"], pod["metadata"]["name"]
        for entry, template_name in entries:
            template = self._templates.get((namespace, template_name))
            if template is None:
                missing = f"ResourceClaimTemplate {namespace}/{template_name}"
                raise KubeschedError(f"pod {namespace}/{name}: {missing} does not exist")
            claim = generated_claim(pod, entry, template)
            path = _CLAIMS.collection_path(namespace)
            await self._client.post_raw(path, codec.encode(claim))
            self._made.setdefault((namespace, name), []).append(claim["metadata"]["name"])
        change = strategic_merge_patch({"status": claim_statuses(pod)})
        await self._client.patch(PODS, name, namespace, change, subresource="status")

    async def release(self, namespace: str, pod_name: str) -> None:
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
