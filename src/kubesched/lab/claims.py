"""A claim controller for control planes without one: of conformance runs and of benchmarks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.api.kinds import kind_of
from kubesched.api.meta import DeleteOptions
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import KubeschedError, NotFound
from kubesched.client.patch import merge_patch, strategic_merge_patch
from kubesched.client.rest import RestClient
from kubesched.insight.state.claim_controller import (
    FINISHED,
    claim_statuses,
    claims_of,
    devices_of,
    generated_claim,
    is_orphan,
    other_finalizers,
    template_entries,
    without_stale_reservations,
)

Json = dict[str, Any]
_AT_ONCE = DeleteOptions(grace_period_seconds=0, propagation_policy="Background")


class Claims:
    """Creates claims for pods, and releases or deletes those of deleted pods."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._has_devices = False
        self._templates: dict[tuple[str, str], Json] = {}
        self._made: dict[tuple[str, str], list[str]] = {}
        """Namespace and name of a pod -> the claims created for it."""

    def learn(self, manifests: Iterable[Json]) -> None:
        """Remember the templates among these objects, and whether there are devices."""
        for manifest in manifests:
            self._has_devices |= manifest["kind"] == "DeviceClass"
            if manifest["kind"] == "ResourceClaimTemplate":
                metadata = manifest["metadata"]
                self._templates[metadata["namespace"], metadata["name"]] = manifest

    async def make_for(self, pod: Json) -> None:
        """Create the claims of a new pod, and record them in its status."""
        entries = template_entries(pod)
        if not entries:
            return
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        path = kind_of(ResourceClaim).collection_path(namespace)
        made = self._made[namespace, name] = []
        for entry, template_name in entries:
            template = self._templates.get((namespace, template_name))
            if template is None:
                missing = f"ResourceClaimTemplate {namespace}/{template_name}"
                raise KubeschedError(f"pod {namespace}/{name}: {missing} does not exist")
            claim = generated_claim(pod, entry, template)
            await self._client.post_raw(path, msgspec.json.encode(claim))
            made.append(claim["metadata"]["name"])
        change = strategic_merge_patch({"status": claim_statuses(pod)})
        await self._client.patch(Pod, name, namespace, change, subresource="status")

    async def delete_of(self, namespace: str, pod_name: str) -> None:
        """Deallocate and delete the claims made for a deleted pod, without listing any."""
        for name in self._made.pop((namespace, pod_name), ()):
            with contextlib.suppress(NotFound):
                released = merge_patch({"status": {"reservedFor": None, "allocation": None}})
                await self._client.patch(
                    ResourceClaim, name, namespace, released, subresource="status"
                )
                unprotected = merge_patch({"metadata": {"finalizers": None}})
                await self._client.patch(ResourceClaim, name, namespace, unprotected)
                await self._client.delete(ResourceClaim, name, namespace)

    async def release(self) -> bool:
        """Release reservations of finished or deleted pods; returns whether there were any."""
        if not self._has_devices:
            return False
        alive = {
            pod.metadata.uid
            for pod in (await self._client.list(Pod)).items
            if pod.status.phase not in FINISHED
        }
        changed = False
        for claim in (await self._client.list(ResourceClaim)).items:
            changed |= await self._release(claim, alive.__contains__)
        return changed

    async def _release(self, claim: ResourceClaim, is_alive: Callable[[str], bool]) -> bool:
        name, namespace = claim.metadata.name, claim.metadata.namespace
        remaining = without_stale_reservations(claim, is_alive)
        is_free = not remaining and (remaining is not None or not claim.status.reserved_for)
        if remaining is not None:
            status: Json = {"reservedFor": remaining or None}
            if is_free:
                status |= {"allocation": None, "devices": None}
            change = merge_patch({"status": status})
            await self._client.patch(ResourceClaim, name, namespace, change, subresource="status")
            if is_free:
                await self._unprotect(claim)
        if is_free and is_orphan(claim, is_alive):
            if remaining is None:
                await self._unprotect(claim)
            with contextlib.suppress(NotFound):
                await self._client.delete(ResourceClaim, name, namespace, _AT_ONCE)
            return True
        return remaining is not None

    async def _unprotect(self, claim: ResourceClaim) -> None:
        change = merge_patch({"metadata": {"finalizers": other_finalizers(claim) or None}})
        await self._client.patch(
            ResourceClaim, claim.metadata.name, claim.metadata.namespace, change
        )

    async def held(self) -> tuple[str, ...]:
        """The devices of all claims, and who they are reserved for."""
        if not self._has_devices:
            return ()
        claims = (await self._client.list(ResourceClaim)).items
        users = (
            f"{claim.metadata.name} for {user.resource} {user.name}"
            for claim in claims
            for user in claim.status.reserved_for or ()
        )
        return tuple(sorted([*users, *(line for claim in claims for line in devices_of(claim))]))

    async def devices(self, pod: Pod) -> tuple[str, ...]:
        """The devices held by a placed pod's claims."""
        namespace = pod.metadata.namespace
        names = dict.fromkeys(claims_of(pod))
        claims = [await self._client.get(ResourceClaim, name, namespace) for name in names]
        return tuple(sorted(line for claim in claims for line in devices_of(claim)))
