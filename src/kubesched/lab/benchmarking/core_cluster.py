"""The in-memory cluster of core mode: workload objects and the controllers they need.

Bindings always succeed, deletions ignore the grace period, and finalizers keep a pod until the run
ends. Time is virtual: it advances at a fixed pace per attempt and skips idle periods. Inside an
attempt it follows the wall clock, so durations are real while rates in workload files stay
reproducible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import msgspec
from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import PersistentVolumeClaim, Pod
from kubesched.api.kinds import Kind, find_kind
from kubesched.api.meta import Record
from kubesched.api.resource_v1 import ResourceClaimTemplate
from kubesched.base.clock import ManualClock
from kubesched.base.errors import KubeschedError
from kubesched.client.informers.sharing import Sharing
from kubesched.config.features import FeatureGates
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.extenders import Extender
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.state.claim_controller import (
    claim_statuses,
    existing_claims,
    generated_claim,
    release_claims,
    template_entries,
)
from kubesched.insight.state.planned_cluster import SteppedCluster
from kubesched.lab.benchmarking.templates import Manifest
from kubesched.playground.registry.patching.verb import apply_merge_patch
from kubesched.playground.resources.strategies import STRATEGIES
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.factory import Dependencies, no_extenders
from kubesched.scheduler.scheduling_cycle import Assumed
from kubesched.testing.volume_controller import bound_to, made_for, wants_volume

PACE_S = 0.001
"""Virtual time per attempt: workload rates assume a scheduler with 1,000 attempts per second."""

_SAME_AS = {
    "resource.k8s.io/v1beta2": "resource.k8s.io/v1",
    "scheduling.k8s.io/v1alpha3": "scheduling.k8s.io/v1beta1",
}
"""Versions with the same fields; an API server converts them."""

_CREATED = "2026-01-01T00:00:00Z"


class PacedClock(ManualClock):
    """The core's clock; never runs backwards."""

    def __init__(self) -> None:
        super().__init__()
        self._entered: float | None = None

    def now(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        entered = self._entered  # kept short: this time is charged to the core
        base = self._monotonic
        return base if entered is None else base + (perf_counter() - entered)

    def enter(self) -> None:
        """Start following the wall clock."""
        self._entered = perf_counter()

    def leave(self, at_least_s: float = 0.0) -> None:
        """Stop following the wall clock, after at least this much time."""
        assert self._entered is not None, "nothing was begun"
        self._monotonic += max(at_least_s, perf_counter() - self._entered)
        self._entered = None


class CoreCluster(SteppedCluster):
    """The objects of a workload, and the scheduler that places its pods."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        *,
        classes: bool = True,
        seed: int = 1,
        clock: PacedClock | None = None,
        wrap: Callable[[Dependencies], Dependencies] = lambda dependencies: dependencies,
    ) -> None:
        clock = clock or PacedClock()
        self.on_bound: Callable[[Pod], None] = lambda _pod: None
        """Called when a pod is bound."""
        self.on_binding: Callable[[], None] = lambda: None
        """Called when an attempt has found a node, before the binding cycle."""
        self._claim_templates: dict[tuple[str, str], Manifest] = {}
        self._made = 0
        self._sharing = Sharing()
        """As the informer of pods: the scheduler never sees equal parts twice."""
        super().__init__(
            (),
            config,
            gates=gates,
            registry=in_tree_registry(),
            seed=seed,
            classes=classes,
            remembers=False,
            clock=clock,
            wrap=wrap,
        )
        self.paced = clock
        """The clock with its concrete type."""

    def make_extenders(
        self, configured: Sequence[ExtenderConfig], table: NodeTable
    ) -> Sequence[Extender]:
        """Only extenders with managed resources: others would cost one request per decision."""
        if not all(extender.managed_resources for extender in configured):
            return no_extenders(configured, table)
        return super().make_extenders(configured, table)

    # -- objects -----------------------------------------------------------------------------------

    def made(self, manifest: Manifest) -> Record:
        """Decode a manifest into a record, with the API server's defaults.

        Raises:
            KubeschedError: the kind is not known, or the object is malformed.
        """
        kind = _kind(manifest)
        # Shared parts must not be modified.
        own: Manifest = msgspec.json.decode(msgspec.json.encode(manifest))
        strategy = STRATEGIES.get(kind.resource)
        if strategy is not None and strategy.default is not None:
            strategy.default(own)
        self._made += 1
        own["metadata"] |= {
            "uid": f"uid-{self._made}",
            "resourceVersion": str(self._made),
            "creationTimestamp": _CREATED,
        }
        if kind.record is ResourceClaimTemplate:
            self._claim_templates[own["metadata"]["namespace"], own["metadata"]["name"]] = own
        elif kind.record is Pod:
            self._make_claims(own)
            return self._sharing.share(codec.convert(own, Pod))
        return codec.convert(own, kind.record)

    def _make_claims(self, pod: Manifest) -> None:
        """Create claims from templates, like the claim controller."""
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

    def replace(self, obj: Any) -> None:  # noqa: ANN401  # of whichever kind
        """Update the object, keeping its uid and, for a pod, its node."""
        old = self.find(type(obj), obj.metadata.namespace, obj.metadata.name)
        if old is not None:
            obj = structs.replace(obj, metadata=structs.replace(obj.metadata, uid=old.metadata.uid))
        if isinstance(old, Pod):
            spec = structs.replace(obj.spec, node_name=old.spec.node_name)
            obj = structs.replace(obj, spec=spec, status=old.status)
        self.update(obj)

    def put(self, obj: Any) -> Any:  # noqa: ANN401  # as above
        stored = super().put(obj)
        if isinstance(stored, PersistentVolumeClaim) and wants_volume(stored):
            self._provision(stored)
        return stored

    def _provision(self, claim: PersistentVolumeClaim) -> None:
        """Create and bind a volume, like a provisioner and the volume controller."""
        volume = made_for(claim)
        self.add(self.made(volume))
        change = bound_to(volume["metadata"]["name"])
        bound = apply_merge_patch(msgspec.to_builtins(claim), change)
        self.put(codec.convert(bound, PersistentVolumeClaim))

    def delete(self, obj: Any) -> None:  # noqa: ANN401  # as above
        old = self.find(type(obj), obj.metadata.namespace, obj.metadata.name)
        if old is None or old.metadata.uid != obj.metadata.uid:
            return
        if not isinstance(old, Pod):
            super().delete(old)
        elif not old.metadata.finalizers:
            super().delete(old)
            release_claims(self, existing_claims(self, old), lambda uid: uid != old.metadata.uid)
        elif old.metadata.deletion_timestamp is None:
            meta = structs.replace(old.metadata, deletion_timestamp=_CREATED)
            self.put(structs.replace(old, metadata=meta))

    def bound(self, pod: Pod, node_name: str) -> None:
        bound = structs.replace(pod, spec=structs.replace(pod.spec, node_name=node_name))
        self.on_bound(self._put(pod, bound))

    def bind(self, assumed: Assumed) -> asyncio.Task[None]:
        self.on_binding()
        task = super().bind(assumed)
        if not task.done():  # e.g. for a volume that only a controller binds
            raise KubeschedError("a binding waits for what does not happen in core mode")
        return task

    def pods(self, namespaces: tuple[str, ...], labels: Mapping[str, str]) -> list[Pod]:
        """Pods in these namespaces (all if empty) with these labels."""
        return [
            pod
            for pod in self.objects(Pod)
            if (not namespaces or pod.metadata.namespace in namespaces) and has_labels(pod, labels)
        ]


def _kind(manifest: Manifest) -> Kind[Record]:
    version: str = manifest["apiVersion"]
    name: str = manifest["kind"]
    kind = find_kind(version, name) or find_kind(_SAME_AS.get(version, version), name)
    if kind is None:
        raise KubeschedError(
            f"kind {manifest['kind']} of {manifest['apiVersion']} is nothing a scheduler knows"
        )
    return kind


def has_labels(pod: Pod, labels: Mapping[str, str]) -> bool:
    own = pod.metadata.labels or {}
    return all(own.get(key) == value for key, value in labels.items())
