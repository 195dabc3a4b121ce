"""Nodes and pods from the figures of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubesched.api.core_v1 import (
    Affinity,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kubesched.api.meta import ObjectMeta, RawQuantity

NAMESPACE = "trace"
HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
PODS_PER_NODE = 1000
"""Pods per node: published traces have no limit, so this one is never reached."""


def node(name: str, amounts: Mapping[str, RawQuantity], labels: Mapping[str, str]) -> Node:
    """A ready node; `amounts` are its allocatable resources."""
    allocatable: dict[str, RawQuantity] = {**amounts, "pods": PODS_PER_NODE}
    return Node(
        metadata=ObjectMeta(name=name, uid=f"node/{name}", labels={HOSTNAME: name, **labels}),
        status=NodeStatus(capacity=allocatable, allocatable=allocatable),
    )


class PodMaker:
    """Creates pods with shared specs, so that the scheduler finds their class at once."""

    def __init__(self) -> None:
        self._specs: dict[tuple[object, ...], PodSpec] = {}

    def pod(
        self,
        name: str,
        amounts: Mapping[str, RawQuantity],
        *,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        node_label: tuple[str, Sequence[str]] | None = None,
    ) -> Pod:
        """`node_label` is a node label and its allowed values."""
        key = (tuple(amounts.items()), priority, node_label and (node_label[0], *node_label[1]))
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = _spec(amounts, priority, node_label)
        meta = ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            uid=f"pod/{name}",
            labels=dict(labels) if labels else None,
        )
        return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Pending"))


def _spec(
    amounts: Mapping[str, RawQuantity], priority: int, node_label: tuple[str, Sequence[str]] | None
) -> PodSpec:
    affinity = None
    if node_label is not None:
        label, values = node_label
        wanted = NodeSelectorRequirement(key=label, operator="In", values=list(values))
        term = NodeSelectorTerm(match_expressions=[wanted])
        required = NodeSelector(node_selector_terms=[term])
        affinity = Affinity(
            node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required)
        )
    resources = ResourceRequirements(requests=dict(amounts), limits=dict(amounts))
    return PodSpec(
        containers=[Container(name="main", resources=resources)],
        scheduler_name="default-scheduler",
        priority=priority,
        affinity=affinity,
    )
