"""An in-memory cluster: what the scheduler writes takes effect at once and comes back as an event.

Bindings always succeed, deletions take effect immediately whatever the grace period, finalizers keep a pod as long as the
run lasts. Time is the run's own: it passes at a fixed pace per attempt and jumps over idle stretches, while inside an
attempt it runs as on the wall, so that durations are real and rates in workload files mean the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from time import perf_counter
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import (
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodCondition,
    PodExtendedResourceClaimStatus,
)
from kubesched.api.kinds import KINDS, Kind, find_kind
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import ResourceClaim, ResourceClaimStatus, ResourceClaimTemplate
from kubesched.benchmarking.templates import Manifest
from kubesched.config.features import FeatureGates
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.embedded.registry.patching.merge_patch import apply_merge_patch
from kubesched.embedded.resources.strategies import STRATEGIES
from kubesched.errors import Conflict, KubeschedError, NotFound
from kubesched.explain.extenders import KeptObjects
from kubesched.framework.events import Action
from kubesched.framework.extenders import Extender
from kubesched.metrics.registry import MetricsRegistry
from kubesched.metrics.scheduler import SchedulerMetrics
from kubesched.plugins.registry import in_tree_registry
from kubesched.recording.recorded_dependencies import Recording, recorded_dependencies
from kubesched.scheduler.factory import Assembly, Dependencies, assemble, no_extenders
from kubesched.scheduler.http_extender import make_extenders
from kubesched.snapshot.node_table import NodeTable
from kubesched.state.memory import NoEvents
from kubesched.state.stored_objects import StoredObjects
from kubesched.testing.claim_controller import (
    claim_statuses,
    claims_of,
    generated_claim,
    is_orphan,
    template_entries,
)
from kubesched.testing.harness import DictListers
from kubesched.testing.volume_controller import bound_to, made_for, wants_volume

R = TypeVar("R", bound=Record)

PACE_S = 0.001
"""How much time passes per attempt: rates in workload files relate to a scheduler that makes a thousand a second."""

_RESOURCES: dict[type[Any], str] = {kind.record: kind.resource for kind in KINDS if kind.has_record}

_START = 1_767_225_600.0  # 2026-01-01T00:00:00Z
_CREATED = "2026-01-01T00:00:00Z"


class PacedClock:
    """Time as the core sees it; never runs backwards."""

    def __init__(self) -> None:
        self._base = _START
        self._entered: float | None = None

    def now(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        entered = self._entered  # few steps: the time they take counts as the core's
        return self._base if entered is None else self._base + (perf_counter() - entered)

    def enter(self) -> None:
        """Work begins whose duration matters."""
        self._entered = perf_counter()

    def leave(self, at_least_s: float = 0.0) -> None:
        """It is over and took at least so long."""
        assert self._entered is not None, "nothing was begun"
        self._base += max(at_least_s, perf_counter() - self._entered)
        self._entered = None

    def advance_to(self, instant: float) -> None:
        self._base = max(self._base, instant)


MakeRecording = Callable[[KubeSchedulerConfiguration, FeatureGates, PacedClock], Recording]
"""Begins the recording of one run."""


class CoreCluster(StoredObjects):
    """The store, its events, and the scheduler's client."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        *,
        classes: bool = True,
        seed: int = 1,
        record: MakeRecording | None = None,
    ) -> None:
        self.clock = PacedClock()
        self.recording = record(config, gates, self.clock) if record is not None else None
        self.listers = DictListers()
        self.metrics = SchedulerMetrics(MetricsRegistry())
        self.on_bound: Callable[[Pod], None] = lambda _pod: None
        """Called when a pod has got its node."""
        self._revision = 0
        self._claim_templates: dict[tuple[str, str], Manifest] = {}
        dependencies = Dependencies(
            listers=self.listers,
            client=self,
            recorder=lambda _name: NoEvents(),
            clock=self.clock,
            random=Random(seed),
            call_later=_no_timers,
            metrics=self.metrics,
            extenders=_extenders_for_few,
        )
        if self.recording is not None:
            dependencies = recorded_dependencies(dependencies, self.recording)
        self.assembly: Assembly = assemble(
            config, gates, in_tree_registry(), dependencies, classes=classes
        )
        handlers = self.assembly.handlers
        self._generic: dict[tuple[str, Action], Callable[[object, object], None]] = {}
        for resource, actions in self.assembly.hints.actions_by_resource().items():
            for action in (Action.ADD, Action.UPDATE, Action.DELETE):
                if actions & action:
                    self._generic[resource, action] = handlers.generic(resource, action)

    # -- objects -----------------------------------------------------------------------------------------------------

    def made(self, manifest: Manifest) -> Record:
        """The record of a manifest, with the defaults an API server fills in.

        Raises:
            KubeschedError: the kind is not known, or the object is malformed.
        """
        kind = _kind(manifest)
        own: Manifest = msgspec.json.decode(
            msgspec.json.encode(manifest)
        )  # shared parts must not be changed
        strategy = STRATEGIES.get(kind.resource)
        if strategy is not None and strategy.default is not None:
            strategy.default(own)
        self._revision += 1
        own["metadata"] |= {
            "uid": f"uid-{self._revision}",
            "resourceVersion": str(self._revision),
            "creationTimestamp": _CREATED,
        }
        if kind.record is ResourceClaimTemplate:
            self._claim_templates[own["metadata"]["namespace"], own["metadata"]["name"]] = own
        elif kind.record is Pod:
            self._make_claims(own)
        return codec.convert(own, kind.record)

    def _make_claims(self, pod: Manifest) -> None:
        """Make claims from templates, as the claim controller does."""
        entries = template_entries(pod)
        if not entries:
            return
        namespace = pod["metadata"]["namespace"]
        for entry, name in entries:
            template = self._claim_templates.get((namespace, name))
            if template is None:
                raise KubeschedError(f"ResourceClaimTemplate {namespace}/{name} does not exist")
            self.add(self.made(generated_claim(pod, entry, template)))
        pod["status"] = {**pod.get("status", {}), **claim_statuses(pod)}

    def _release_claims(self, pod: Pod) -> None:
        """Take the reservations of a deleted pod back; claims that were made for it go."""
        uid = pod.metadata.uid
        for name in claims_of(pod):
            claim = self.find(ResourceClaim, pod.metadata.namespace, name)
            if claim is None:
                continue
            remaining = [it for it in claim.status.reserved_for or () if it.uid != uid]
            status = (
                structs.replace(claim.status, reserved_for=remaining)
                if remaining
                else ResourceClaimStatus()
            )
            released = self.store(structs.replace(claim, status=status))
            if is_orphan(released, lambda owner: owner != uid):
                self.discard(released)

    def add(self, obj: Any) -> None:  # noqa: ANN401  # of whichever kind
        """Create the object and send the event."""
        if self._put(obj) is not None:
            raise KubeschedError(f"{_named(obj)} exists already")
        handlers = self.assembly.handlers
        if isinstance(obj, Pod):
            handlers.pod_added(obj)
        elif isinstance(obj, Node):
            handlers.node_added(obj)
        elif isinstance(obj, Namespace):
            handlers.namespace_changed(obj)
        else:
            self._changed(obj, Action.ADD, None, obj)

    def replace(self, obj: Any) -> None:  # noqa: ANN401  # as above
        """Update the object: uid and, for a pod, the node stay."""
        old = self.listers.of(type(obj)).get(obj.metadata.namespace, obj.metadata.name)
        if old is None:
            raise KubeschedError(f"{_named(obj)} does not exist and cannot be updated")
        meta = structs.replace(obj.metadata, uid=old.metadata.uid)
        obj = structs.replace(obj, metadata=meta)
        if isinstance(obj, Pod):
            spec = structs.replace(obj.spec, node_name=old.spec.node_name)
            self.update_pod(structs.replace(obj, spec=spec, status=old.status))
            return
        self._put(obj)
        if isinstance(obj, Node):
            self.assembly.handlers.node_updated(old, obj)
        elif isinstance(obj, Namespace):
            self.assembly.handlers.namespace_changed(obj)
        else:
            self._changed(obj, Action.UPDATE, old, obj)

    def remove_if_there(self, obj: Any) -> None:  # noqa: ANN401  # as above
        """Delete; what is gone already stays gone."""
        old = self.listers.of(type(obj)).get(obj.metadata.namespace, obj.metadata.name)
        if old is None or old.metadata.uid != obj.metadata.uid:
            return
        if isinstance(old, Pod):
            self._remove_pod(old)
            return
        self._drop(old)
        if isinstance(obj, Node):
            self.assembly.handlers.node_deleted(old)
        elif isinstance(obj, Namespace):
            self.assembly.handlers.namespace_deleted(old)
        else:
            self._changed(obj, Action.DELETE, old, None)

    def _put(self, obj: Any) -> Any:  # noqa: ANN401  # as above
        """Store an object; returns the one it replaces."""
        lister, meta = self.listers.of(type(obj)), obj.metadata
        if self.recording is not None:
            old = lister.get(meta.namespace, meta.name)
            self.recording.recorder.changed(
                _RESOURCES[type(obj)], "a" if old is None else "u", key_of(meta), old, obj
            )
        return lister.put(obj)

    def _drop(self, obj: Any) -> None:  # noqa: ANN401  # as above
        """Remove an object from the store."""
        meta = obj.metadata
        if self.recording is not None:
            self.recording.recorder.changed(_RESOURCES[type(obj)], "d", key_of(meta), obj, obj)
        self.listers.of(type(obj)).remove(meta.namespace, meta.name)

    def _changed(self, obj: Record, action: Action, old: object, new: object) -> None:
        kind = find_kind(obj.api_version, obj.kind)  # type: ignore[attr-defined]  # every kind has them
        assert kind is not None, "made from a manifest of a known kind"
        handler = self._generic.get((kind.event_resource, action))
        if handler is not None:
            handler(old, new)

    # -- pods --------------------------------------------------------------------------------------------------------

    def pods(self, namespaces: tuple[str, ...], labels: Mapping[str, str]) -> list[Pod]:
        """Pods of these namespaces (none named: all) that carry these labels."""
        return [
            pod
            for pod in self.listers.of(Pod).objects.values()
            if (not namespaces or pod.metadata.namespace in namespaces) and has_labels(pod, labels)
        ]

    def current(self, pod: Pod) -> Pod:
        current: Pod | None = self.listers.of(Pod).get(pod.metadata.namespace, pod.metadata.name)
        if current is None or current.metadata.uid != pod.metadata.uid:
            raise NotFound(f'pods "{pod.metadata.name}" not found')
        return current

    def update_pod(self, pod: Pod) -> None:
        self._revision += 1
        meta = structs.replace(pod.metadata, resource_version=str(self._revision))
        pod = structs.replace(pod, metadata=meta)
        old = self._put(pod)
        self.assembly.handlers.pod_updated(old, pod)

    def _remove_pod(self, pod: Pod) -> None:
        if pod.metadata.finalizers:
            if pod.metadata.deletion_timestamp is None:
                meta = structs.replace(pod.metadata, deletion_timestamp=_CREATED)
                self.update_pod(structs.replace(pod, metadata=meta))
            return
        self._drop(pod)
        self.assembly.handlers.pod_deleted(pod)
        self._release_claims(pod)

    # -- what the scheduler asks of a client -------------------------------------------------------------------------

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        current = self.current(pod)
        if current.spec.node_name:
            raise Conflict(f"pod {_named(pod)} is already assigned to {current.spec.node_name}")
        bound = structs.replace(current, spec=structs.replace(current.spec, node_name=node_name))
        self.update_pod(bound)
        self.on_bound(bound)

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        current = self.current(pod)
        status = patch["status"]
        conditions = {condition.type: condition for condition in current.status.conditions or ()}
        for change in status.get("conditions", ()):
            old = conditions.get(change["type"])
            known = {} if old is None else msgspec.to_builtins(old)
            known |= {name: value for name, value in change.items() if not name.startswith("$")}
            conditions[change["type"]] = codec.convert(known, PodCondition)
        nominated = status.get("nominatedNodeName", current.status.nominated_node_name) or ""
        changed = structs.replace(
            current.status,
            conditions=list(conditions.values()) or None,
            nominated_node_name=nominated,
        )
        extended = status.get("extendedResourceClaimStatus")
        if extended is not None:
            made = codec.convert(dict(extended), PodExtendedResourceClaimStatus)
            changed = structs.replace(changed, extended_resource_claim_status=made)
        self.update_pod(structs.replace(current, status=changed))

    async def delete_pod(self, pod: Pod) -> None:
        self._remove_pod(self.current(pod))

    def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        stored: R | None = self.listers.of(kind).get(namespace, name)
        return stored

    def store(self, obj: R) -> R:
        self._revision += 1
        record: Any = obj
        meta = structs.replace(record.metadata, resource_version=str(self._revision))
        stored: R = structs.replace(record, metadata=meta)
        if self.find(type(obj), meta.namespace, meta.name) is None:
            self.add(stored)
        else:
            self.replace(stored)
        if isinstance(stored, PersistentVolumeClaim) and wants_volume(stored):
            self._provision(stored)
        return stored

    def _provision(self, claim: PersistentVolumeClaim) -> None:
        """Make the volume and bind the claim to it, as a provisioner and the volume controller do."""
        volume = made_for(claim)
        self.add(self.made(volume))
        change = bound_to(volume["metadata"]["name"])
        bound = apply_merge_patch(msgspec.to_builtins(claim), change)
        self.store(codec.convert(bound, PersistentVolumeClaim))

    def discard(self, obj: Record) -> None:
        self.remove_if_there(obj)

    def new_suffix(self) -> str:
        return str(self._revision)


def _extenders_for_few(
    configured: Sequence[ExtenderConfig], table: NodeTable
) -> Sequence[Extender]:
    """Those that are only asked about pods with certain resources; of the others each decision would be a request."""
    if not all(extender.managed_resources for extender in configured):
        return no_extenders(configured, table)
    return make_extenders(configured, KeptObjects(), table)


class _NeverCancelled:
    def cancel(self) -> None:
        pass


def _no_timers(seconds: float, function: Callable[[], None]) -> _NeverCancelled:
    """Timers belong to pods that wait on Permit, and no plugin of the core makes one wait."""
    del seconds, function
    return _NeverCancelled()


def _kind(manifest: Manifest) -> Kind[Record]:
    kind = find_kind(manifest["apiVersion"], manifest["kind"])
    if kind is None:
        raise KubeschedError(
            f"kind {manifest['kind']} of {manifest['apiVersion']} is nothing a scheduler knows"
        )
    return kind


def has_labels(pod: Pod, labels: Mapping[str, str]) -> bool:
    own = pod.metadata.labels or {}
    return all(own.get(key) == value for key, value in labels.items())


def _named(obj: Any) -> str:  # noqa: ANN401  # anything with metadata
    return f"{type(obj).__name__} {key_of(obj.metadata)}"
