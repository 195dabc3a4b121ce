"""The operations of a workload, and the objects that each one creates.

Operations are scheduler_perf's; fields have its names in Python spelling, with parameters filled in
and absolute template paths. `manifests` yields JSON objects with apiVersion, kind, name and
namespace in creation order, the same ones every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from msgspec import field, structs

from kubesched.api.kinds import KINDS
from kubesched.api.meta import Record
from kubesched.config.schema import Seconds
from kubesched.lab.benchmarking.templates import Manifest, Value, load_template

HOSTNAME = "kubernetes.io/hostname"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"

DEFAULT_NODE: Manifest = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"generateName": "node-"},
    "spec": {},
    "status": {
        "capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
"""Nodes without a template: upstream's values."""


DEFAULT_POD: Manifest = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-"},
    "spec": {
        "containers": [
            {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.1",
                "ports": [{"containerPort": 80}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "500Mi"},
                    "limits": {"cpu": "100m", "memory": "500Mi"},
                },
            }
        ]
    },
}
"""Pods for which neither the operation nor the case names a template."""


DEFAULT_NAMESPACE: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}


class Names:
    """Counted names for objects with a `generateName`, so that all runs create the same names."""

    def __init__(self) -> None:
        self._made: Counter[tuple[str, str, str]] = Counter()

    def give(self, manifest: Manifest) -> str:
        """Fill in `metadata.name` if it is missing."""
        meta: dict[str, Any] = manifest["metadata"]
        name: str = meta.get("name") or ""
        if not name:
            prefix = meta.pop("generateName", "") or f"{manifest['kind'].lower()}-"
            key = (manifest["kind"], meta.get("namespace", ""), prefix)
            name = meta["name"] = f"{prefix}{self._made[key]}"
            self._made[key] += 1
        return name


def _rendered(
    path: str, default: Manifest, index: int, count: int, params: Mapping[str, Value]
) -> Manifest:
    if path:
        return load_template(path).render(index, count, params)
    return {**default, "metadata": dict(default["metadata"])}


class LabelNodePrepareStrategy(Record):
    """Every node gets the label, with the values in turn."""

    label_key: str = ""
    label_values: tuple[str, ...] = ()


class UniqueNodeLabelStrategy(Record):
    """Every node gets the label with a unique value."""

    label_key: str = ""


class DriverAllocatable(Record):
    """Attachable volumes of a CSI driver per node."""

    count: int = 0


class NodeAllocatableStrategy(Record):
    """Allocatable resources in addition to the node template, and CSI drivers."""

    node_allocatable: dict[str, str] = field(default_factory=dict)
    csi_node_allocatable: dict[str, DriverAllocatable] = field(default_factory=dict)
    migrated_plugins: tuple[str, ...] = ()


class Op(Record):
    """One operation."""

    opcode: ClassVar[str] = ""

    def namespaces_used(self) -> tuple[str, ...]:
        """Namespaces that must exist before the operation."""
        return ()


class CreateNodes(Op):
    """Create nodes, and their CSINodes if the strategy requires them."""

    opcode: ClassVar[str] = "createNodes"
    count: int
    node_template_path: str = ""
    node_allocatable_strategy: NodeAllocatableStrategy | None = None
    label_node_prepare_strategy: LabelNodePrepareStrategy | None = None
    unique_node_label_strategy: UniqueNodeLabelStrategy | None = None
    template_params: dict[str, Any] = field(default_factory=dict)
    declared_features: int = 0
    """Features that each node declares; scheduler_perf passes this outside the file."""

    def manifests(self, names: Names) -> Iterator[Manifest]:
        for index in range(self.count):
            node = self._node(index)
            name = names.give(node)
            labels = node["metadata"]["labels"] = dict(node["metadata"].get("labels") or {})
            labels.setdefault(HOSTNAME, name)
            if self.label_node_prepare_strategy is not None:
                values = self.label_node_prepare_strategy.label_values
                labels[self.label_node_prepare_strategy.label_key] = values[index % len(values)]
            if self.unique_node_label_strategy is not None:
                labels[self.unique_node_label_strategy.label_key] = name
            yield node
            if self.node_allocatable_strategy is not None:
                yield _csi_node(name, self.node_allocatable_strategy)

    def _node(self, index: int) -> Manifest:
        node = _rendered(
            self.node_template_path, DEFAULT_NODE, index, self.count, self.template_params
        )
        status = node["status"] = dict(node.get("status") or {})
        allocatable = dict(status.get("allocatable") or status.get("capacity") or {})
        if self.node_allocatable_strategy is not None:
            allocatable |= self.node_allocatable_strategy.node_allocatable
        status["allocatable"] = allocatable
        if self.declared_features:
            status["declaredFeatures"] = [
                f"feature-{number}" for number in range(self.declared_features)
            ]
        return node


def _csi_node(name: str, strategy: NodeAllocatableStrategy) -> Manifest:
    metadata: Manifest = {"name": name}
    if strategy.migrated_plugins:
        metadata["annotations"] = {MIGRATED_PLUGINS: ",".join(strategy.migrated_plugins)}
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": {"count": limit.count}}
        for driver, limit in strategy.csi_node_allocatable.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": metadata,
        "spec": {"drivers": drivers},
    }


class CreateNamespaces(Op):
    """Create namespaces, named by a prefix and a number from 0."""

    opcode: ClassVar[str] = "createNamespaces"
    prefix: str
    count: int
    namespace_template_path: str = ""

    def manifests(self, names: Names) -> Iterator[Manifest]:
        del names  # names follow from the prefix
        for index in range(self.count):
            made = _rendered(self.namespace_template_path, DEFAULT_NAMESPACE, index, self.count, {})
            made["metadata"]["name"] = f"{self.prefix}-{index}"
            yield made


class CreatePods(Op):
    """Create pods, each with its own claim and bound volume if there are templates for them."""

    opcode: ClassVar[str] = "createPods"
    count: int = 0
    pod_template_path: str = ""
    namespace: str = ""
    collect_metrics: bool = False
    skip_wait_to_completion: bool = False
    steady_state: bool = False
    """Replace each scheduled pod with a new one, for `duration`."""
    duration: Seconds = 0.0
    persistent_volume_template_path: str = ""
    persistent_volume_claim_template_path: str = ""
    count_multiplier: int = 1
    """Pods per group, where `count` is the number of groups."""
    signature_batch_size: int = 0
    """This many pods in a row share a label `signature`; 0: no such label.

    Upstream: 1.37 labels every pod made from a template, each differently by default.
    """
    template_params: dict[str, Any] = field(default_factory=dict)

    def namespaces_used(self) -> tuple[str, ...]:
        return (self.namespace,)

    def manifests(self, names: Names) -> Iterator[Manifest]:
        """Per pod: volume and claim, if any, then the pod."""
        for index in range(self.count):
            yield from self.manifests_of(index, names)

    def manifests_of(self, index: int, names: Names) -> Iterator[Manifest]:
        pod = _rendered(
            self.pod_template_path, DEFAULT_POD, index, self.count, self.template_params
        )
        pod["metadata"]["namespace"] = self.namespace
        names.give(pod)
        if self.signature_batch_size:
            signature = f"signature-label-{index // self.signature_batch_size}"
            labels = pod["metadata"].get("labels") or {}
            pod["metadata"]["labels"] = {**labels, "signature": signature}
        if self.persistent_volume_claim_template_path:
            claim = self._claim(index)
            spec = pod["spec"] = dict(pod.get("spec") or {})
            reference = {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
            spec["volumes"] = [*(spec.get("volumes") or ()), {"name": "vol", **reference}]
            if self.persistent_volume_template_path:
                yield self._volume_of(claim, index)
            yield claim
        yield pod

    def _claim(self, index: int) -> Manifest:
        path = self.persistent_volume_claim_template_path
        claim = _rendered(path, {}, index, self.count, self.template_params)
        claim["metadata"] |= {"namespace": self.namespace, "name": f"pvc-{index}"}
        return claim

    def _volume_of(self, claim: Manifest, index: int) -> Manifest:
        """Create a volume and bind it and the claim to each other."""
        path = self.persistent_volume_template_path
        volume = _rendered(path, {}, index, self.count, self.template_params)
        name = volume["metadata"]["name"] = f"pv-{self.namespace}-{index}"
        claim["spec"] = {**(claim.get("spec") or {}), "volumeName": name}
        claim["status"] = {"phase": "Bound", "accessModes": claim["spec"].get("accessModes")}
        spec = volume["spec"] = dict(volume.get("spec") or {})
        spec["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": self.namespace,
            "name": claim["metadata"]["name"],
        }
        volume["status"] = {"phase": "Bound"}
        if "csi" in spec:
            spec["csi"] = {**spec["csi"], "volumeHandle": name}
        if "awsElasticBlockStore" in spec:
            spec["awsElasticBlockStore"] = {**spec["awsElasticBlockStore"], "volumeID": name}
        return volume


class CreatePodSets(Op):
    """Create the same pods in each of the namespaces with a prefix and a number from 0."""

    opcode: ClassVar[str] = "createPodSets"
    count: int
    namespace_prefix: str
    create_pods_op: CreatePods

    def sets(self) -> Iterator[CreatePods]:
        for index in range(self.count):
            yield structs.replace(self.create_pods_op, namespace=f"{self.namespace_prefix}-{index}")

    def namespaces_used(self) -> tuple[str, ...]:
        return tuple(pod_set.namespace for pod_set in self.sets())

    def manifests(self, names: Names) -> Iterator[Manifest]:
        for pod_set in self.sets():
            yield from pod_set.manifests(names)


class DeletePods(Op):
    """Delete the pods of a namespace, at a rate per second or all at once (0)."""

    opcode: ClassVar[str] = "deletePods"
    namespace: str
    label_selector: dict[str, str] = field(default_factory=dict)
    delete_pods_per_second: int = 0
    skip_wait_to_completion: bool = False


class Churn(Op):
    """Create objects (`create`), or create and delete them (`recreate`), in the background."""

    opcode: ClassVar[str] = "churn"
    mode: str
    template_paths: tuple[str, ...]
    number: int = 0
    """`create`: limit per template (0: none). `recreate`: number created, then deleted again."""
    interval_milliseconds: int = 500
    namespace: str = ""

    def namespaces_used(self) -> tuple[str, ...]:
        return (self.namespace,)

    def manifests_of(self, turn: int, names: Names) -> Iterator[Manifest]:
        """One object per template; the API server drops the namespace of cluster-scoped kinds."""
        for path in self.template_paths:
            made = _rendered(path, {}, turn, self.number or 1, {})
            if all(kind.namespaced for kind in KINDS if kind.kind == made["kind"]):
                made["metadata"]["namespace"] = self.namespace
            else:
                made["metadata"].pop("namespace", None)
            names.give(made)
            yield made


class Barrier(Op):
    """Wait until all pods of these namespaces (all if empty) are scheduled, or tried once."""

    opcode: ClassVar[str] = "barrier"
    namespaces: tuple[str, ...] = ()
    label_selector: dict[str, str] = field(default_factory=dict)
    stage_requirement: str = "Scheduled"


class Sleep(Op):
    """Wait for a time."""

    opcode: ClassVar[str] = "sleep"
    duration: Seconds = 0.0


class StartCollectingMetrics(Op):
    """Start measuring pods of these namespaces with these labels."""

    opcode: ClassVar[str] = "startCollectingMetrics"
    namespaces: tuple[str, ...]
    name: str = ""
    label_selector: dict[str, str] = field(default_factory=dict)


class StopCollectingMetrics(Op):
    """Stop measuring."""

    opcode: ClassVar[str] = "stopCollectingMetrics"


class CreateAny(Op):
    """Create objects of any kind."""

    opcode: ClassVar[str] = "createAny"
    template_path: str
    namespace: str = ""
    count: int = 1
    template_params: dict[str, Any] = field(default_factory=dict)

    def namespaces_used(self) -> tuple[str, ...]:
        return (self.namespace,) if self.namespace else ()

    def manifests(self, names: Names) -> Iterator[Manifest]:
        for index in range(self.count):
            made = _rendered(self.template_path, {}, index, self.count, self.template_params)
            if self.namespace:
                made["metadata"]["namespace"] = self.namespace
            names.give(made)
            yield made


class CreatePodGroups(CreateAny):
    """Create pod groups, whose names the template gives."""

    opcode: ClassVar[str] = "createPodGroups"


class UpdateAny(Op):
    """Replace existing objects, at a rate per second or at full speed (0)."""

    opcode: ClassVar[str] = "updateAny"
    template_path: str
    namespace: str = ""
    count: int = 1
    update_per_second: int = 0
    subresources: tuple[str, ...] = ()
    skip_wait_to_completion: bool = False
    template_params: dict[str, Any] = field(default_factory=dict)

    def manifests(self, names: Names) -> Iterator[Manifest]:
        del names  # the objects exist, so the template names them
        for index in range(self.count):
            made = _rendered(self.template_path, {}, index, self.count, self.template_params)
            if self.namespace:
                made["metadata"]["namespace"] = self.namespace
            yield made


class CreateResourceDriver(Op):
    """Create a driver with this many devices on every node with a matching name."""

    opcode: ClassVar[str] = "createResourceDriver"
    driver_name: str
    nodes: str
    max_claims_per_node: int = 0

    def manifests(self, node_names: Iterable[str]) -> Iterator[Manifest]:
        """One slice per node, with scheduler_perf's devices."""
        for name in node_names:
            if fnmatchcase(name, self.nodes):
                devices = [_test_device(number) for number in range(self.max_claims_per_node)]
                yield {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": name},
                    "spec": {
                        "driver": self.driver_name,
                        "nodeName": name,
                        "pool": {"name": name, "generation": 0, "resourceSliceCount": 1},
                        "devices": devices,
                    },
                }


def _test_device(number: int) -> Manifest:
    return {
        "name": f"instance-{number}",
        "attributes": {
            "model": {"string": "A100"},
            "family": {"string": "GPU"},
            "driverVersion": {"version": "1.2.3"},
            "dra.example.com/numa": {"int": number},
        },
        "capacity": {"memory": {"value": "1Gi"}},
    }


class AllocResourceClaims(Op):
    """Allocate devices for every unallocated claim of a namespace, on random nodes."""

    opcode: ClassVar[str] = "allocResourceClaims"
    namespace: str

    def namespaces_used(self) -> tuple[str, ...]:
        return (self.namespace,)


class NotSupported(Op):
    """A known operation that cannot be run here; `reason` says what is missing."""

    code: str = ""
    reason: str = ""


OPS: dict[str, type[Op]] = {
    operation.opcode: operation
    for operation in (
        CreateNodes,
        CreateNamespaces,
        CreatePods,
        CreatePodSets,
        DeletePods,
        Churn,
        Barrier,
        Sleep,
        StartCollectingMetrics,
        StopCollectingMetrics,
        CreateAny,
        CreatePodGroups,
        UpdateAny,
        CreateResourceDriver,
        AllocResourceClaims,
    )
}
