"""Our decisions for recorded pods with resource claims: nodes, devices and writes."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import structs, to_builtins

from kubesched.api.codec import without_nulls
from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.clock import ManualClock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.status import NodeToStatus
from kubesched.insight.state.memory import MemoryLister
from kubesched.insight.state.stored_objects import StoredObjects
from kubesched.insight.state.virtual_loop import VirtualLoop
from kubesched.lab.conformance.comparison import Aspect, Finding, compare
from kubesched.lab.conformance.placements import Cluster
from kubesched.lab.conformance.recordings import (
    DeviceAnswer,
    DevicePending,
    DevicePlacement,
    JsonObject,
    RecordedAnswer,
    RecordingError,
    Rejection,
)
from kubesched.plugins.dynamic_resources.plugin import STATE, DynamicResources
from kubesched.plugins.dynamic_resources.state import DRAState

R = TypeVar("R", bound=Record)
T = TypeVar("T")

NOW = 1_893_456_000.0
"""The year 2030: some binding conditions have timed out, others have not."""


class DeviceCluster:
    """A recorded cluster with devices."""

    def __init__(self, placement: DevicePlacement, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._client = _RecordingClient()
        self._cluster = Cluster(
            placement.without_devices(), gates, clock=ManualClock(NOW), client=self._client
        )
        listers = self._cluster.listers
        for objects in (
            placement.device_classes,
            placement.resource_slices,
            placement.resource_claims,
            placement.device_taint_rules,
        ):
            for obj in objects:
                listers.of(type(obj)).put(obj)
        self._claims = self._client.claims = listers.of(ResourceClaim)

    def compare(self, pending: DevicePending) -> Iterator[Finding]:
        """Decide about the pod and compare; keep its effects as far as the recording says."""
        expected, pod, state = pending.expect, pending.pod, CycleState()
        plugin = self._plugin(pod)
        yield Finding(Aspect.PRE_ENQUEUE, expected.pre_enqueue, _pre_enqueue(plugin, pod))
        answer = self._cluster.place(pod, state)
        yield from compare(expected, answer)
        if expected.error or answer.error or expected.feasible != answer.feasible:
            return
        before = {key_of(claim.metadata): claim for claim in self._claims.list()}
        if not answer.feasible:
            yield from self._post_filter(plugin, state, pod, expected)
            self._restore(before)
            return
        yield from _allocations(state.get(STATE), expected, answer)
        node_name = expected.chosen
        status = plugin.reserve(state, pod, node_name)
        if status is not None:
            yield Finding(Aspect.PRE_BIND, expected.pre_bind, status.message)
            return
        if pending.commit != "reserve":
            yield from self._pre_bind(plugin, state, pod, expected)
        if not pending.commit:
            self._forget(plugin, state.get(STATE), pod)
            self._restore(before)
        else:
            bound = structs.replace(pod, spec=structs.replace(pod.spec, node_name=node_name))
            self._cluster.table.add_pod(PodInfo(bound), node_name)
            self._cluster.table.refresh()

    def _plugin(self, pod: Pod) -> DynamicResources:
        for plugin in self._cluster.framework_for(pod).plugins:
            if isinstance(plugin, DynamicResources):
                return plugin
        raise RecordingError(f"no DynamicResources in the profile of {PodInfo(pod).key}")

    def _post_filter(
        self, plugin: DynamicResources, state: CycleState, pod: Pod, expected: DeviceAnswer
    ) -> Iterator[Finding]:
        self._client.writes.clear()
        answer = plugin.post_filter(state, pod, NodeToStatus({}))
        _, status = VirtualLoop().run(answer) if inspect.isawaitable(answer) else answer
        assert status is not None, "PostFilter always rejects"
        theirs = dict(expected.post_filter)
        candidates = theirs.pop("candidates", None)
        ours: JsonObject = {"code": status.code.upstream_name, "message": status.message}
        writes = self._client.writes
        if "writes" in theirs:
            ours["writes"] = writes
        elif candidates is not None and writes and writes[0]["name"] not in candidates:
            ours["candidates"] = writes[0]["name"]
        yield Finding(Aspect.POST_FILTER, theirs, ours)

    def _pre_bind(
        self, plugin: DynamicResources, state: CycleState, pod: Pod, expected: DeviceAnswer
    ) -> Iterator[Finding]:
        self._client.writes.clear()
        is_waiting, status = _until_it_waits(plugin.pre_bind(state, pod, expected.chosen))
        error = "" if status is None else status.message
        yield Finding(
            Aspect.PRE_BIND,
            (expected.pre_bind, expected.waits_for_binding_conditions),
            (error, is_waiting),
        )
        writes = without_nulls(expected.writes or [])
        yield Finding(Aspect.WRITES, writes, list(self._client.writes))

    def _forget(self, plugin: DynamicResources, state: DRAState, pod: Pod) -> None:
        """Release what a PreBind that failed, or waits, still holds."""
        for info in state.claims:
            uid = state.special_uid if info.is_special else info.claim.metadata.uid
            plugin.handle.dra_manager.claims.remove_in_flight(uid, pod.metadata.uid)

    def _restore(self, claims: Mapping[str, ResourceClaim]) -> None:
        """Revert writes to claims."""
        for claim in self._claims.list():
            if key_of(claim.metadata) not in claims:
                self._claims.remove(claim.metadata.namespace, claim.metadata.name)
        for claim in claims.values():
            if self._claims.get(claim.metadata.namespace, claim.metadata.name) is not claim:
                self._claims.put(claim)


def _pre_enqueue(plugin: DynamicResources, pod: Pod) -> Rejection | None:
    status = plugin.pre_enqueue(pod)
    if status is None:
        return None
    return Rejection(plugin.name, status.code.upstream_name, list(status.all_reasons))


def _allocations(
    state: DRAState, expected: DeviceAnswer, answer: RecordedAnswer
) -> Iterator[Finding]:
    for node in answer.feasible:
        allocation = state.allocation_on(node)
        claims: list[JsonObject] = []
        mappings: list[JsonObject] = []
        if allocation is not None:
            for info, result in zip(state.unallocated(), allocation.results, strict=True):
                entry = {
                    "claim": key_of(info.claim.metadata),
                    "allocation": masked(to_builtins(result)),
                }
                special = allocation.special_claim
                if info.is_special and special is not None:
                    entry["requests"] = to_builtins(special.spec.devices.requests)
                claims.append(entry)
            mappings = to_builtins(allocation.mappings)
        yield Finding(Aspect.DEVICES, expected.allocations.get(node, []), claims, node)
        yield Finding(Aspect.MAPPINGS, expected.request_mappings.get(node, []), mappings, node)


def masked(allocation: JsonObject) -> JsonObject:
    """Replaces values that differ between runs with `*`."""
    _mask_shares(allocation["devices"].get("results", ()))
    if "allocationTimestamp" in allocation:
        allocation["allocationTimestamp"] = "*"
    return allocation


def _mask_shares(devices: Iterable[JsonObject]) -> None:
    for device in devices:
        if "shareID" in device:
            device["shareID"] = "*"


def _until_it_waits(work: Coroutine[Any, Any, T]) -> tuple[bool, T | None]:
    """Returns (True, None) if the work blocks, otherwise False and its result."""
    loop = VirtualLoop()
    task = loop.create_task(work)
    loop.run_until_idle()
    is_waiting = not task.done()
    result = None if is_waiting else task.result()
    loop.finish()
    return is_waiting, result


class _RecordingClient(StoredObjects):
    """Applies and remembers writes to claims."""

    claims: MemoryLister

    def __init__(self) -> None:
        self.writes: list[JsonObject] = []
        self._revision = 1_000_000
        self._created = 0

    def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        stored: R | None = self.claims.get(namespace, name)
        return stored

    def store(self, obj: R) -> R:
        self._revision += 1
        record: Any = obj
        meta = structs.replace(record.metadata, resource_version=str(self._revision))
        stored: R = structs.replace(record, metadata=meta)
        self.claims.put(stored)
        return stored

    def discard(self, obj: Record) -> None:
        meta = _claim(obj).metadata
        self.claims.remove(meta.namespace, meta.name)

    def new_suffix(self) -> str:
        self._created += 1
        return str(self._created)

    async def create(self, obj: R) -> R:
        claim = _claim(obj)
        body = {"metadata": to_builtins(claim.metadata), "spec": to_builtins(claim.spec)}
        self._note("create", "", "", body)
        return await super().create(obj)

    async def update(self, obj: R) -> R:
        meta = _claim(obj).metadata
        self._note("update", "", key_of(meta), {"finalizers": meta.finalizers})
        return await super().update(obj)

    async def update_status(self, obj: R) -> R:
        claim = _claim(obj)
        body = to_builtins(claim.status)
        if "allocation" in body:
            masked(body["allocation"])
        _mask_shares(body.get("devices", ()))
        self._note("update", "status", key_of(claim.metadata), body)
        return await super().update_status(obj)

    async def delete(self, obj: Record) -> None:
        self._note("delete", "", key_of(_claim(obj).metadata), None)
        await super().delete(obj)

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        self._note("patch", "status", PodInfo(pod).key, dict(patch), "pods")

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        raise AssertionError("a recording ends before the binding")

    async def delete_pod(self, pod: Pod) -> None:
        raise AssertionError("DynamicResources deletes no pods")

    def _note(
        self,
        verb: str,
        subresource: str,
        name: str,
        body: JsonObject | None,
        resource: str = "resourceclaims",
    ) -> None:
        write: JsonObject = {"verb": verb, "resource": resource}
        if subresource:
            write["subresource"] = subresource
        if name:
            write["name"] = name
        if body is not None:
            write["body"] = body
        self.writes.append(write)


def _claim(obj: Record) -> ResourceClaim:
    assert isinstance(obj, ResourceClaim), "nothing but claims is written"
    return obj
