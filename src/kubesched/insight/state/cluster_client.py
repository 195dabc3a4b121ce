"""The scheduler's client of an in-memory cluster: writes take effect at once and are recorded.

`before` holds hooks for tests. A hook runs before a call takes effect and makes it fail by raising,
or wait by returning an awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs, to_builtins

from kubesched.api import codec
from kubesched.api.core_v1 import (
    Pod,
    PodCondition,
    PodExtendedResourceClaimStatus,
    PodStatus,
)
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.base.errors import Conflict
from kubesched.insight.state.stored_objects import StoredObjects

if TYPE_CHECKING:
    from kubesched.insight.state.cluster import Cluster

R = TypeVar("R", bound=Record)

Hook = Callable[..., Awaitable[None] | None]


class ClusterClient(StoredObjects):
    """Handles the scheduler's calls."""

    def __init__(self, cluster: Cluster, *, remembers: bool = True) -> None:
        """Without `remembers`, calls are not recorded."""
        self._cluster = cluster
        self._remembers = remembers
        self.before: dict[str, Hook] = {}
        """Hooks by call, with its arguments: `bind_pod`, `patch_pod_status`, `delete_pod`, and
        `write` for writes of other kinds, which gets the object and cannot wait."""
        self.bindings: dict[str, str] = {}
        """Nodes by pod (`namespace/name`), in binding order."""
        self.patches: list[tuple[str, Mapping[str, Any]]] = []
        """Status patches: (pod, body)."""
        self.deleted: list[str] = []
        """Evicted pods."""
        self.written: list[Record] = []
        """Objects of other kinds, in write order."""
        self._generated = 0

    async def _before(self, call: str, *arguments: object) -> None:
        hook = self.before.get(call)
        if hook is not None:
            waits = hook(*arguments)
            if waits is not None:
                await waits

    # -- pods --------------------------------------------------------------------------------------

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        await self._before("bind_pod", pod, node_name)
        current = self._cluster.current(pod)
        if current.spec.node_name:
            key = key_of(pod.metadata)
            raise Conflict(f"pod {key} is already assigned to node {current.spec.node_name}")
        if self._remembers:
            self.bindings[key_of(pod.metadata)] = node_name
        self._cluster.bound(current, node_name)

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        await self._before("patch_pod_status", pod, patch)
        current = self._cluster.current(pod)
        if self._remembers:
            self.patches.append((key_of(pod.metadata), patch))
        self._cluster.patched(current, patched_status(current.status, patch["status"]))

    async def delete_pod(self, pod: Pod) -> None:
        await self._before("delete_pod", pod)
        current = self._cluster.current(pod)
        if self._remembers:
            self.deleted.append(key_of(pod.metadata))
        self._cluster.evicted(current)

    # -- other kinds -------------------------------------------------------------------------------

    def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        return self._cluster.find(kind, namespace, name)

    def store(self, obj: R) -> R:
        self._before_write(obj)
        if self._remembers:
            self.written.append(obj)
        return self._cluster.put(obj)

    def discard(self, obj: Record) -> None:
        self._before_write(obj)
        self._cluster.delete(obj)

    def new_suffix(self) -> str:
        self._generated += 1
        return str(self._generated)

    def _before_write(self, obj: Record) -> None:
        if "write" in self.before:
            self.before["write"](obj)


def patched_status(status: PodStatus, patch: Mapping[str, Any]) -> PodStatus:
    """A pod's status after a strategic merge patch, for the patches that the scheduler sends."""
    conditions = {condition.type: condition for condition in status.conditions or ()}
    for change in patch.get("conditions", ()):
        old = conditions.get(change["type"])
        known = {} if old is None else to_builtins(old)
        known |= {name: value for name, value in change.items() if not name.startswith("$")}
        conditions[change["type"]] = codec.convert(known, PodCondition)
    nominated = patch.get("nominatedNodeName", status.nominated_node_name) or ""
    status = structs.replace(
        status, conditions=list(conditions.values()) or None, nominated_node_name=nominated
    )
    extended = patch.get("extendedResourceClaimStatus")
    if extended is not None:
        made = codec.convert(dict(extended), PodExtendedResourceClaimStatus)
        status = structs.replace(status, extended_resource_claim_status=made)
    return status
