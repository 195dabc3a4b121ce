"""Reserve and PreBind of VolumeBinding: assume, write, wait.

    Reserve     assumes that a matched volume names its claim, and that a claim to be provisioned
                names the node
    PreBind     writes both, volumes first, then waits: the PV controller completes the bindings,
                and a provisioner creates missing volumes, or removes the node's name from the
                claim if it cannot
    Unreserve   reverts the assumptions; completed writes stay, and lead the next attempt to the
                same volumes and node

Every write carries the revision the decision was based on, so it fails after a concurrent change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from kubesched.api.core_v1 import (
    Node,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
)
from kubesched.api.names import key_of
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.base.clock import Clock
from kubesched.framework.handle import Listers, SchedulerClient
from kubesched.plugins.helper.volumes.claims import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    is_bound_to,
    is_fully_bound,
    not_found,
)
from kubesched.plugins.helper.volumes.csi_migration import (
    TranslationError,
    hands_over,
    plugin_of,
    translated_affinity,
)
from kubesched.plugins.helper.volumes.first_match import NONE
from kubesched.plugins.volume_binding.assume_cache import AssumeError
from kubesched.plugins.volume_binding.search import Search
from kubesched.plugins.volume_binding.signals import BindingSignals, Subject
from kubesched.plugins.volume_binding.storage import Storage

LOOK_AGAIN_S: Final = 1.0
"""Upstream's polling interval. Changes end the wait at once; polling is a fallback."""


class BindingError(Exception):
    """The volumes cannot be bound; the attempt fails and is retried."""


@dataclass(slots=True)
class StaticBinding:
    """A claim and the volume that will serve it: first as assumed, then as written."""

    volume: PersistentVolume
    claim: PersistentVolumeClaim


@dataclass(slots=True)
class Reservation:
    """The bindings and provisionings that a pod needs on one node before it can be bound."""

    bindings: list[StaticBinding]
    provisions: list[PersistentVolumeClaim]


def chosen(search: Search, index: int) -> Reservation:
    """The search's result for one node of its view."""
    return Reservation(
        [
            StaticBinding(match.volumes[int(match.choice[index])].volume, match.claim)
            for match in search.matches
            if match.choice[index] != NONE
        ],
        [provision.claim for provision in search.provisions if provision.where[index]],
    )


def assume(storage: Storage, wanted: Reservation, node_name: str) -> Reservation:
    """Assume all of it or nothing; raises AssumeError."""
    assumed = Reservation([], [])
    try:
        for binding in wanted.bindings:
            volume = bound_volume(binding.volume, binding.claim)
            if volume is not binding.volume:
                storage.volumes.assume(volume)
            assumed.bindings.append(StaticBinding(volume, binding.claim))
        for claim in wanted.provisions:
            selected = with_selected_node(claim, node_name)
            storage.claims.assume(selected)
            assumed.provisions.append(selected)
    except AssumeError:
        revert(storage, assumed)
        raise
    return assumed


def revert(storage: Storage, assumed: Reservation) -> None:
    """Revert the remaining assumptions. Idempotent."""
    for binding in assumed.bindings:
        storage.volumes.restore(binding.volume)
    for claim in assumed.provisions:
        storage.claims.restore(claim)


def bound_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume with a claimRef to the claim; the same object if it is already complete."""
    meta = claim.metadata
    reference, annotations = volume.spec.claim_ref, volume.metadata.annotations
    if reference is None or (reference.name, reference.namespace, reference.uid) != (
        meta.name,
        meta.namespace,
        meta.uid,
    ):
        reference = ObjectReference(
            kind="PersistentVolumeClaim",
            api_version="v1",
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
    # The annotation marks a binding chosen by a controller; volumes pre-bound by the user do not
    # get it.
    if not is_bound_to(volume, claim) and BOUND_BY_CONTROLLER not in (annotations or {}):
        annotations = {**(annotations or {}), BOUND_BY_CONTROLLER: "yes"}
    if reference is volume.spec.claim_ref and annotations is volume.metadata.annotations:
        return volume
    return structs.replace(
        volume,
        metadata=structs.replace(volume.metadata, annotations=annotations),
        spec=structs.replace(volume.spec, claim_ref=reference),
    )


def with_selected_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    annotations = {**(claim.metadata.annotations or {}), SELECTED_NODE: node_name}
    return structs.replace(claim, metadata=structs.replace(claim.metadata, annotations=annotations))


class VolumeBinder:
    """Writes reservations and waits until the claims are bound."""

    def __init__(
        self,
        storage: Storage,
        listers: Listers,
        client: SchedulerClient,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        self._storage = storage
        self._listers = listers
        self._client = client
        self._clock = clock
        self._timeout_s = timeout_s
        self._signals = BindingSignals(listers)

    def close(self) -> None:
        self._signals.close()

    async def bind(self, pod: Pod, node_name: str, reserved: Reservation) -> None:
        """Write, then wait until all is bound. Raises the error of a write, or BindingError."""
        await self._write(reserved)
        try:
            await self._wait(pod, node_name, reserved)
        except BindingError as error:
            raise BindingError(f"binding volumes: {error}") from error

    async def _write(self, reserved: Reservation) -> None:
        """Write volumes, then claims; after a failure, revert the assumptions not yet written."""
        unwritten = Reservation(list(reserved.bindings), list(reserved.provisions))
        try:
            for binding in reserved.bindings:
                binding.volume = await self._client.update(binding.volume)
                del unwritten.bindings[0]
            for index, claim in enumerate(reserved.provisions):
                reserved.provisions[index] = await self._client.update(claim)
                del unwritten.provisions[0]
        finally:
            revert(self._storage, unwritten)

    async def _wait(self, pod: Pod, node_name: str, reserved: Reservation) -> None:
        """Wait until all claims are bound. Changes wake it; timed by the injected clock."""
        deadline = self._clock.monotonic() + self._timeout_s
        with self._signals.watching(_subjects(pod, node_name, reserved)) as changed:
            while True:
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise BindingError("context deadline exceeded")
                changed.clear()
                if self._is_done(pod, node_name, reserved):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, LOOK_AGAIN_S)):
                        await changed.wait()

    # -- one look ----------------------------------------------------------------------------------

    def _is_done(self, pod: Pod, node_name: str, reserved: Reservation) -> bool:
        """Is everything bound? Raises BindingError if it never will be.

        Ignores assumptions: another attempt may have made different ones in the meantime.
        """
        node: Node | None = self._listers.of(Node).get("", node_name)
        if node is None:
            raise BindingError(f'failed to get node "{node_name}": {not_found("node", node_name)}')
        meta = pod.metadata
        if self._listers.of(Pod).get(meta.namespace, meta.name) is None:
            raise BindingError(f"pod does not exist any more: {not_found('pod', meta.name)}")
        return all(self._is_bound(binding, node) for binding in reserved.bindings) and all(
            self._is_provisioned(claim, node) for claim in reserved.provisions
        )

    def _is_bound(self, binding: StaticBinding, node: Node) -> bool:
        name = binding.volume.metadata.name
        volume = self._storage.volumes.listed(name)
        if volume is None:
            missing = not_found("persistentvolumes", name)
            raise BindingError(f"failed to check binding: {missing}")
        claim = self._listed(binding.claim, "failed to check binding")
        if binding.volume.metadata.is_newer_than(volume.metadata):
            return False  # the watch has not shown our own write yet
        self._check_reach(volume, node, "failed to translate pv to csi: ")
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise BindingError(f'ClaimRef got reset for pv "{name}"')
        # Pods that share a claim may have chosen different volumes for it. (Upstream accepts any
        # bound volume.)
        return self._has_volume_in_reach(claim, node)

    def _is_provisioned(self, written: PersistentVolumeClaim, node: Node) -> bool:
        name = written.metadata.name
        claim = self._listed(written, "failed to check provisioning pvc")
        if written.metadata.is_newer_than(claim.metadata):
            return False
        if claim.metadata.annotations is None:
            raise BindingError(f'selectedNode annotation reset for PVC "{name}"')
        if claim.metadata.annotations.get(SELECTED_NODE, "") != node.metadata.name:
            # A provisioner reports failure by removing the node's name.
            raise BindingError(f'provisioning failed for PVC "{name}"')
        return self._has_volume_in_reach(claim, node)

    def _listed(self, reserved: PersistentVolumeClaim, purpose: str) -> PersistentVolumeClaim:
        key = key_of(reserved.metadata)
        claim = self._storage.claims.listed(key)
        if claim is None:
            missing = not_found("persistentvolumeclaims", key)
            raise BindingError(f"{purpose}: {missing}")
        if claim.metadata.uid != reserved.metadata.uid:
            # Upstream waits until the timeout (ten minutes), although the reservation was for the
            # old claim.
            raise BindingError(f'{purpose}: persistentvolumeclaim "{key}" was replaced by another')
        return claim

    def _has_volume_in_reach(self, claim: PersistentVolumeClaim, node: Node) -> bool:
        if claim.spec.volume_name:
            volume = self._storage.volumes.listed(claim.spec.volume_name)
            if volume is None:
                return False  # the volume watch may lag behind the claim watch
            self._check_reach(volume, node, "")
        return is_fully_bound(claim)

    def _check_reach(self, volume: PersistentVolume, node: Node, prefix: str) -> None:
        name, node_name = volume.metadata.name, node.metadata.name
        plugin, affinity = plugin_of(volume.spec), volume.spec.node_affinity
        csi_node = self._storage.csi_node_lister.get("", node_name)
        if plugin is not None and hands_over(csi_node, plugin):
            try:
                affinity = translated_affinity(plugin, volume)
            except TranslationError as error:
                raise BindingError(f"{prefix}could not translate pv: {error}") from error
        if affinity is None or affinity.required is None:
            return
        selector = ParsedNodeSelector(affinity.required)
        if not selector.matches(node.metadata.labels, ""):
            problem = selector.error or "no matching NodeSelectorTerms"
            raise BindingError(
                f'pv "{name}" node affinity doesn\'t match node "{node_name}": {problem}'
            )


def _subjects(pod: Pod, node_name: str, reserved: Reservation) -> Iterator[Subject]:
    yield Pod, f"{pod.metadata.namespace}/{pod.metadata.name}"
    yield Node, node_name
    for binding in reserved.bindings:
        yield PersistentVolume, binding.volume.metadata.name
        yield PersistentVolumeClaim, key_of(binding.claim.metadata)
    for claim in reserved.provisions:
        yield PersistentVolumeClaim, key_of(claim.metadata)
