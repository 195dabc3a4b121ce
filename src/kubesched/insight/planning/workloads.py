"""Creates pods from workloads: the embedded control plane, in memory, for a plan's new objects.

Objects of files pass the embedded API server's defaulting, admission and validation. Controllers
create the pods, without HTTP and in the plan's time. Objects that scheduling reads are passed on as
records. The state's PriorityClasses and StorageClasses are loaded for admission; its nodes only if
there is a DaemonSet.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kubesched.api import codec
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.scheduling_v1 import PriorityClass
from kubesched.api.storage_v1 import StorageClass
from kubesched.base.clock import Clock
from kubesched.base.errors import AlreadyExists, ApiError
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.state.cluster_state import KINDS, ClusterState
from kubesched.insight.state.planned_cluster import PlanError
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import ChangeType, JsonObject, copy_json
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controller_manager import CONTROLLER_NAMES, ControllerOptions, start_all
from kubesched.playground.controllers.daemonset.controller import DaemonSetController
from kubesched.playground.controllers.deployment.controller import DeploymentController
from kubesched.playground.controllers.job.controller import JobController
from kubesched.playground.controllers.pods import pod_from_template
from kubesched.playground.controllers.replicaset import (
    ReplicaSetController,
    ReplicationControllerController,
)
from kubesched.playground.controllers.statefulset.controller import StatefulSetController
from kubesched.playground.controllers.volumes import EphemeralVolumes
from kubesched.playground.registry.rest_storage import WriteOptions
from kubesched.playground.registry.steps import at_once

SCALED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
TEMPLATED = (*SCALED, "DaemonSet", "Job")
PATIENCE_S = 60.0
"""Controller timers beyond this (progress deadlines, TTLs) create no pods."""

_ON = frozenset(
    controller.name
    for controller in (
        DeploymentController,
        ReplicaSetController,
        ReplicationControllerController,
        StatefulSetController,
        DaemonSetController,
        JobController,
        EphemeralVolumes,
    )
)

Listener = Callable[[ChangeType, Any], None]


class Workloads:
    """A control plane with the objects that a plan adds."""

    def __init__(
        self,
        state: ClusterState,
        clock: Clock,
        seed: int,
        listener: Listener,
        gates: FeatureGates = DEFAULT_GATES,
    ) -> None:
        """`listener` gets every object that scheduling reads, as a record."""
        self._api = LocalApi.in_memory(clock=clock, rng=Random(seed), gates=gates)
        self._state = state
        self._has_nodes = False
        for kind in (PriorityClass, StorageClass):
            for obj in state.of(kind):
                self._put(obj)
        self._controllers = start_all(
            self._api,
            clock,
            Random(seed),
            ControllerOptions(disabled=frozenset(CONTROLLER_NAMES) - _ON, events=False),
        )
        for kind_ in KINDS:
            is_served = self._api.registry.catalog.find_kind(kind_.api_version, kind_.kind)
            if kind_.record is not Node and is_served is not None:
                self._api.subscribe(
                    kind_.resource,
                    lambda change, obj, _old, record=kind_.record: listener(  # type: ignore[misc]  # bound per kind
                        change, codec.convert(obj, record)
                    ),
                    replay=False,
                )

    def create(self, manifest: Manifest, replicas: int | None = None) -> JsonObject:
        """Create an object of a file; `replicas` overrides a workload's replica count.

        Raises:
            PlanError: an API server would reject it, or the pods of its template.
        """
        obj = copy_json(manifest.obj)
        metadata = obj.setdefault("metadata", {})
        info = self._resource(manifest)
        manifest.check_fields()
        if info.namespaced:
            metadata.setdefault("namespace", "default")
            self._ensure_namespace(metadata["namespace"])
        for field in ("resourceVersion", "uid", "creationTimestamp"):
            metadata.pop(field, None)
        if manifest.kind == "Pod" and isinstance(obj.get("spec"), dict):
            obj["spec"].pop("nodeName", None)  # set if the manifest was dumped from a cluster
        if replicas is not None:
            _scale(obj, replicas)
        if manifest.kind == "DaemonSet":
            self._add_nodes()
        try:
            if manifest.kind in TEMPLATED:
                self._check_template(info, obj)
            return self._api.create(info, obj)
        except ApiError as error:
            raise PlanError(f"{manifest}: {_cause(error)}") from None

    def run(self) -> float | None:
        """Run the controllers; returns seconds until one of them needs another turn."""
        self._controllers.settle()
        due = self._controllers.next_due_s()
        return due if due is not None and due <= PATIENCE_S else None

    def owns(self, pod: Pod) -> bool:
        """Whether the pod was created here."""
        meta = pod.metadata
        entry = self._api.registry.store.get("pods", meta.namespace, meta.name)
        return entry is not None and entry.obj["metadata"]["uid"] == meta.uid

    def bound(self, pod: Pod) -> None:
        """Report a bound pod as ready, which only StatefulSets wait for."""
        owners = pod.metadata.owner_references or ()
        if not any(owner.kind == "StatefulSet" for owner in owners) or not self.owns(pod):
            return
        meta = pod.metadata
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._api.patch("pods", meta.namespace, meta.name, {"status": status}, subresource="status")

    def deleted(self, pod: Pod) -> None:
        """A pod was evicted or preempted; its controller replaces it."""
        if self.owns(pod):
            meta = pod.metadata
            self._api.patch("pods", meta.namespace, meta.name, {"metadata": {"finalizers": None}})
            self._api.delete("pods", meta.namespace, meta.name, grace_period_s=0)

    def _resource(self, manifest: Manifest) -> ResourceInfo:
        api_version, kind = manifest.obj["apiVersion"], manifest.kind
        info = self._api.registry.catalog.find_kind(api_version, kind)
        if info is None:
            where = f"{manifest.file}:{manifest.line}"
            known = any((each.api_version, each.kind) == (api_version, kind) for each in KINDS)
            why = "needs feature gates that are off (--feature-gates)" if known else "is not known"
            raise PlanError(f"{where}: kind: {kind} of {api_version} {why}")
        if kind == "Node":
            raise PlanError(f"{manifest}: nodes are added with --add-nodes")
        return info

    def _check_template(self, info: ResourceInfo, workload: JsonObject) -> None:
        """Run admission on a pod of the template; otherwise each pod would be rejected later."""
        template = (workload.get("spec") or {}).get("template")
        if not isinstance(template, dict):
            return  # validation reports it
        owner = {**workload, "apiVersion": info.api_version, "kind": info.kind}
        pod = pod_from_template(template, owner)
        pod["metadata"]["ownerReferences"][0]["uid"] = "planned"
        registry, namespace = self._api.registry, pod["metadata"]["namespace"]
        at_once(registry.create(registry.catalog.get("pods"), namespace, pod, _DRY_RUN))

    def _ensure_namespace(self, name: str) -> None:
        try:
            self._api.create("namespaces", {"metadata": {"name": name}})
        except AlreadyExists:
            return

    def _add_nodes(self) -> None:
        if not self._has_nodes:
            self._has_nodes = True
            for node in self._state.of(Node):
                self._put(node)

    def _put(self, obj: Any) -> None:  # noqa: ANN401  # a record of any kind
        value = codec.to_json(obj)
        for field in ("resourceVersion", "uid", "creationTimestamp"):
            value["metadata"].pop(field, None)
        kind = next(kind for kind in KINDS if kind.record is type(obj))
        try:
            self._api.create(kind.resource, value)
        except AlreadyExists:
            return


_DRY_RUN = WriteOptions(dry_run=True)


def _scale(obj: JsonObject, replicas: int) -> None:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    if obj["kind"] in SCALED:
        spec["replicas"] = replicas
    elif obj["kind"] == "Job":
        spec["parallelism"] = replicas
        if spec.get("completions") is not None or spec.get("completionMode") == "Indexed":
            spec["completions"] = replicas


def _cause(error: ApiError) -> str:
    """The fields named by the server, or its message."""
    details = error.details if isinstance(error.details, dict) else {}
    causes = details.get("causes") or ()
    named = [f"{cause['field']}: {cause['message']}" for cause in causes if cause.get("field")]
    return "; ".join(named) or str(error)
