"""New nodes like an existing one, with what comes with a node: its CSINode, devices and daemons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from kubesched.api import codec
from kubesched.api.core_v1 import Affinity, Node, Pod, PodStatus
from kubesched.api.resource_v1 import ResourceSlice
from kubesched.api.storage_v1 import CSINode
from kubesched.insight.state.claim_controller import existing_claims
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.insight.state.replacements import is_daemon, pods_on, with_claims
from kubesched.playground.controllers.daemonset.eligibility import pinned_to

HOSTNAME = "kubernetes.io/hostname"
_OF_ITS_MOMENT = ("node.kubernetes.io/",)
"""Taints with this prefix reflect a node's condition; new nodes are assumed healthy."""


def add_copies(world: PlannedCluster, template: Node, count: int, like: str = "") -> list[str]:
    """Add nodes made from a template; with `like`, also what that node comes with."""
    csi_node = world.find(CSINode, "", like) if like else None
    names = []
    for name in _free_names(world, template.metadata.name, count):
        if csi_node is not None:
            meta = structs.replace(csi_node.metadata, name=name, uid=f"csinode/{name}")
            world.add(structs.replace(csi_node, metadata=meta))
        for slice_ in world.objects(ResourceSlice) if like else ():
            if slice_.spec.node_name == like:
                world.add(_slice_on(slice_, name))
        world.add(named(template, name))
        add_daemons(world, _daemons(world, like), name)
        names.append(name)
    return names


def add_daemons(world: PlannedCluster, like: Iterable[Pod], node: str) -> None:
    """Add the pods that the DaemonSets of the given pods create for a node."""
    for pod in like:
        world.add(with_claims(world, _daemon_on(pod, node), existing_claims(world, pod)))


def fresh(node: Node) -> Node:
    """The node without cordon and taints of its condition, as a template of new ones."""
    taints = [taint for taint in node.spec.taints or () if not taint.key.startswith(_OF_ITS_MOMENT)]
    spec = structs.replace(node.spec, unschedulable=False, taints=taints or None, provider_id="")
    status = structs.replace(node.status, images=None)
    return structs.replace(node, spec=spec, status=status)


def named(template: Node, name: str) -> Node:
    """A node made from a template."""
    labels = {**(template.metadata.labels or {}), HOSTNAME: name}
    metadata = structs.replace(
        template.metadata, name=name, uid=f"node/{name}", labels=labels, resource_version=""
    )
    return structs.replace(template, metadata=metadata)


def _free_names(world: PlannedCluster, base: str, count: int) -> Iterator[str]:
    number = 0
    while count:
        number += 1
        name = f"{base}-new-{number}"
        if world.find(Node, "", name) is None:
            count -= 1
            yield name


def _slice_on(slice_: ResourceSlice, node: str) -> ResourceSlice:
    """The same devices in a pool of another node."""
    name = f"{slice_.metadata.name}-{node}"
    metadata = structs.replace(slice_.metadata, name=name, uid=f"slice/{name}", resource_version="")
    pool = structs.replace(slice_.spec.pool, name=f"{slice_.spec.pool.name}-{node}")
    spec = structs.replace(slice_.spec, node_name=node, pool=pool)
    return structs.replace(slice_, metadata=metadata, spec=spec)


def _daemons(world: PlannedCluster, node: str) -> list[Pod]:
    """The DaemonSet pods of a node, which new nodes like it also get."""
    pods = pods_on(world, node) if node else []
    return sorted(filter(is_daemon, pods), key=lambda pod: pod.metadata.name)


def _daemon_on(pod: Pod, node: str) -> Pod:
    """The pod that the DaemonSet creates for another node."""
    given = codec.to_json(pod.spec.affinity) if pod.spec.affinity is not None else None
    affinity = codec.convert(pinned_to(given, node), Affinity)
    owner = pod.metadata.controller()
    name = f"{owner.name if owner is not None else pod.metadata.name}-{node}"
    metadata = structs.replace(pod.metadata, name=name, uid=f"planned/{name}", resource_version="")
    spec = structs.replace(pod.spec, node_name="", affinity=affinity)
    return structs.replace(pod, metadata=metadata, spec=spec, status=PodStatus(phase="Pending"))
