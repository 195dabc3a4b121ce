"""Nodes that a plan adds: from a template file, or like an existing node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from kubesched.api import codec
from kubesched.api.codec import MalformedObject
from kubesched.api.core_v1 import Affinity, Node, Pod, PodStatus
from kubesched.api.storage_v1 import CSINode
from kubesched.insight.planning.drain import is_daemon, pods_on
from kubesched.insight.planning.manifests import Manifest, read_manifests
from kubesched.insight.planning.replacements import controller_of
from kubesched.insight.planning.world import PlanError, PlannedCluster
from kubesched.playground.controllers.daemonset.eligibility import pinned_to

HOSTNAME = "kubernetes.io/hostname"
_LIKE = "like="
MAX_NODES = 100_000
_OF_ITS_MOMENT = ("node.kubernetes.io/",)
"""Taints with this prefix reflect a node's condition; new nodes are assumed healthy."""


@dataclass(frozen=True, slots=True)
class NewNodes:
    """`N:TEMPLATE` or `N:like=NODE`."""

    count: int
    like: str
    file: str

    @classmethod
    def parse(cls, text: str) -> NewNodes:
        """Raises ValueError with the expected form."""
        number, colon, what = text.partition(":")
        if not colon or not what or not number.isdecimal():
            raise ValueError(f"{text!r}: expected N:FILE or N:like=NODE")
        if not 0 < int(number) <= MAX_NODES:
            raise ValueError(f"{text!r}: expected 1 to {MAX_NODES} nodes")
        if what.startswith(_LIKE):
            return cls(int(number), what.removeprefix(_LIKE), "")
        return cls(int(number), "", what)


def add_nodes(world: PlannedCluster, new: NewNodes) -> list[str]:
    """Add the nodes; returns their names.

    Raises:
        PlanError: the node does not exist, or the template is invalid.
    """
    template = _like(world, new.like) if new.like else _from_file(new.file)
    csi_node = world.find(CSINode, "", new.like) if new.like else None
    names = []
    for name in _free_names(world, template.metadata.name, new.count):
        if csi_node is not None:
            meta = structs.replace(csi_node.metadata, name=name, uid=f"csinode/{name}")
            world.add(structs.replace(csi_node, metadata=meta))
        world.add(_named(template, name))
        for pod in _daemons(world, new.like):
            world.add(_daemon_on(pod, name))
        names.append(name)
    return names


def _daemons(world: PlannedCluster, node: str) -> list[Pod]:
    """The DaemonSet pods of a node, which new nodes like it also get."""
    pods = pods_on(world, node) if node else []
    return sorted(filter(is_daemon, pods), key=lambda pod: pod.metadata.name)


def _daemon_on(pod: Pod, node: str) -> Pod:
    """The pod that the DaemonSet creates for another node."""
    given = codec.to_json(pod.spec.affinity) if pod.spec.affinity is not None else None
    affinity = codec.convert(pinned_to(given, node), Affinity)
    owner = controller_of(pod)
    name = f"{owner.name if owner is not None else pod.metadata.name}-{node}"
    metadata = structs.replace(pod.metadata, name=name, uid=f"planned/{name}", resource_version="")
    spec = structs.replace(pod.spec, node_name="", affinity=affinity)
    return structs.replace(pod, metadata=metadata, spec=spec, status=PodStatus(phase="Pending"))


def _like(world: PlannedCluster, name: str) -> Node:
    node = world.find(Node, "", name)
    if node is None:
        raise PlanError(f'--add-nodes: there is no node "{name}"')
    taints = [taint for taint in node.spec.taints or () if not taint.key.startswith(_OF_ITS_MOMENT)]
    spec = structs.replace(node.spec, unschedulable=False, taints=taints or None, provider_id="")
    status = structs.replace(node.status, images=None)
    return structs.replace(node, spec=spec, status=status)


def _from_file(path: str) -> Node:
    manifests = read_manifests([path])
    if len(manifests) != 1 or manifests[0].kind != "Node":
        raise PlanError(f"--add-nodes: {path}: expected one Node")
    try:
        return _sized(_node_of(manifests[0]), path)
    except PlanError as error:
        raise PlanError(f"--add-nodes: {error}") from None


def put_node(world: PlannedCluster, manifest: Manifest) -> str:
    """Add a node, or replace the one with that name; returns the name of an added node, else "".

    A replacement without a status keeps the status of the replaced node.

    Raises:
        PlanError: the manifest is not a node, or has no size.
    """
    node = _node_of(manifest)
    name = node.metadata.name
    where = f"{manifest.file}:{manifest.line}"
    known = world.find(Node, "", name)
    if known is None:
        world.add(_named(_sized(node, where), name))
        return name
    metadata = structs.replace(
        known.metadata,
        labels=node.metadata.labels if node.metadata.labels else known.metadata.labels,
    )
    status = _sized(node, where).status if _has_size(node) else known.status
    world.put(structs.replace(node, metadata=metadata, status=status))
    return ""


def _node_of(manifest: Manifest) -> Node:
    where = f"{manifest.file}:{manifest.line}"
    try:
        node = codec.convert(manifest.obj, Node)
    except MalformedObject as error:
        raise PlanError(f"{where}: {error}") from None
    if not node.metadata.name:
        raise PlanError(f"{where}: metadata.name: missing")
    return node


def _has_size(node: Node) -> bool:
    return bool(node.status.allocatable or node.status.capacity)


def _sized(node: Node, where: str) -> Node:
    """The node with allocatable set, by default to its capacity."""
    if not _has_size(node):
        raise PlanError(f"{where}: status.allocatable: missing, so nothing fits it")
    allocatable = node.status.allocatable or node.status.capacity
    return structs.replace(node, status=structs.replace(node.status, allocatable=allocatable))


def _free_names(world: PlannedCluster, base: str, count: int) -> Iterator[str]:
    number = 0
    while count:
        number += 1
        name = f"{base}-new-{number}"
        if world.find(Node, "", name) is None:
            count -= 1
            yield name


def _named(template: Node, name: str) -> Node:
    labels = {**(template.metadata.labels or {}), HOSTNAME: name}
    metadata = structs.replace(
        template.metadata, name=name, uid=f"node/{name}", labels=labels, resource_version=""
    )
    return structs.replace(template, metadata=metadata)
