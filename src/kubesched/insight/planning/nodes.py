"""Nodes that a plan adds: from a template file, or like an existing node."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from kubesched.api import codec
from kubesched.api.codec import MalformedObject
from kubesched.api.core_v1 import Node
from kubesched.insight.planning.manifests import Manifest, read_manifests
from kubesched.insight.state.node_copies import add_copies, fresh, named
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster

_LIKE = "like="
MAX_NODES = 100_000


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
    if not new.like:
        return add_copies(world, _from_file(new.file), new.count)
    node = world.find(Node, "", new.like)
    if node is None:
        raise PlanError(f'--add-nodes: there is no node "{new.like}"')
    return add_copies(world, fresh(node), new.count, new.like)


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
        world.add(named(_sized(node, where), name))
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
    manifest.check_fields()
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
