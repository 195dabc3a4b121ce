"""Details of a rejection beyond the plugin's message.

For display only. Rows are already rejected by a plugin; the details are read from the pod, the node
and the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kubesched.api.core_v1 import NodeSelectorRequirement, Pod, Taint
from kubesched.api.tolerations import DO_NOT_SCHEDULE, is_tolerated
from kubesched.framework.nodes.columns import Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.insight.explain import amounts
from kubesched.insight.explain.reasons import (
    HOST_PORT_TAKEN,
    INSUFFICIENT,
    INSUFFICIENT_RESOURCE,
    NODE_AFFINITY_MISMATCH,
    POD_AFFINITY,
    POD_ANTI_AFFINITY,
    SPREAD_LABEL_MISSING,
    SPREAD_VIOLATED,
    TOO_MANY_PODS,
    UNTOLERATED_TAINT,
    ReasonCode,
)
from kubesched.plugins.taint_toleration import taint_column

TOO_SMALL = "a smaller request, or a larger node"
"""Remedy if no pod has to leave, since an empty node would not do, either."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A detail and the rows it applies to."""

    text: str
    rows: Mask
    is_whole: Mask
    """The rows for which the detail covers everything in the plugin's reason."""
    remedy: str = ""
    """What would change it, if less or more helps than the reason's code says."""


def untolerated(pod: Pod, taints: tuple[Taint, ...] | list[Taint] | None) -> list[Taint]:
    """The taints that the pod does not tolerate."""
    return [
        taint
        for taint in taints or ()
        if taint.effect in DO_NOT_SCHEDULE
        and not is_tolerated(taint, pod.spec.tolerations, comparison_operators=True)
    ]


def taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def split(
    table: NodeTable, pod: PodInfo, code: ReasonCode, reason: str, rows: Mask
) -> Iterator[Detail]:
    """Group the rows rejected for one reason by the exact obstacle."""
    if code is UNTOLERATED_TAINT:
        yield from _by_taint(table, pod, rows)
    elif code is INSUFFICIENT_RESOURCE:
        resource = reason.removeprefix(INSUFFICIENT)
        text, is_too_small = _shortage(table, pod, resource, rows)
        yield Detail(text, rows, rows, TOO_SMALL if is_too_small else "")
    else:
        about = _ABOUT_POD.get(code.code)
        yield Detail(about(pod) if about is not None else "", rows, rows)


def _by_taint(table: NodeTable, pod: PodInfo, rows: Mask) -> Iterator[Detail]:
    column = taint_column(table)
    ids = column.ids[: len(rows)]
    by_taint: dict[str, Mask] = {}
    several = np.zeros(len(rows), dtype=np.bool_)
    for value_id in np.unique(ids[rows]).tolist():
        if value_id < 0:
            continue
        taints = untolerated(pod.pod, column.values[value_id])
        here = rows & (ids == value_id)
        if len(taints) > 1:
            several |= here
        for taint in taints:
            text = taint_text(taint)
            by_taint[text] = by_taint[text] | here if text in by_taint else here
    for text, mask in by_taint.items():
        yield Detail(f"taint {text}", mask, mask & ~several)
    explained = np.logical_or.reduce([*by_taint.values(), np.zeros(len(rows), dtype=np.bool_)])
    if (rows & ~explained).any():
        yield Detail("", rows & ~explained, rows & ~explained)


def _shortage(table: NodeTable, pod: PodInfo, resource: str, rows: Mask) -> tuple[str, bool]:
    """What is missing, and whether none of the nodes is large enough."""
    wanted = pod.requests.get(resource)
    column = table.resource_index.get(resource)
    if column is None:
        return f"wants {amounts.shown(resource, wanted)}, no node offers any", True
    offered = table.allocatable[column].array[: len(rows)][rows]
    free = int((offered - table.requested[column].array[: len(rows)][rows]).max())
    text = (
        f"wants {amounts.shown(resource, wanted)}, "
        f"largest free part is {amounts.shown(resource, max(free, 0))}"
    )
    if int(offered.max()) >= wanted:
        return text, False
    text += f", the largest of these nodes offers {amounts.shown(resource, int(offered.max()))}"
    return text, True


# -- details about the pod, independent of the node ------------------------------------------------


def _ports(pod: PodInfo) -> str:
    return "host port " + ", ".join(f"{port.port}/{port.protocol}" for port in pod.host_ports)


def selector_text(pod: Pod) -> str:
    """The pod's requirements on node labels."""
    spec = pod.spec
    parts = [f"{key}={value}" for key, value in (spec.node_selector or {}).items()]
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    terms = []
    for term in (required.node_selector_terms if required else None) or ():
        conditions = [*(term.match_expressions or ()), *(term.match_fields or ())]
        terms.append(" and ".join(map(requirement_text, conditions)))
    if terms:
        parts.append(" or ".join(terms))
    return "wants " + ", ".join(parts) if parts else ""


def requirement_text(requirement: NodeSelectorRequirement) -> str:
    """`key In [a, b]`."""
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _spread(pod: PodInfo) -> str:
    constraints = [
        f"{constraint.topology_key} (maxSkew {constraint.max_skew})"
        for constraint in pod.pod.spec.topology_spread_constraints or ()
        if constraint.when_unsatisfiable == "DoNotSchedule"
    ]
    return "spread over " + ", ".join(constraints) if constraints else ""


def _terms(kind: str) -> Callable[[PodInfo], str]:
    def text(pod: PodInfo) -> str:
        terms = pod.affinity_terms
        listed = terms.required_affinity if kind == "affinity" else terms.required_anti_affinity
        return "over " + ", ".join(dict.fromkeys(term.topology_key for term in listed))

    return text


_ABOUT_POD: dict[str, Callable[[PodInfo], str]] = {
    HOST_PORT_TAKEN.code: _ports,
    NODE_AFFINITY_MISMATCH.code: lambda pod: selector_text(pod.pod),
    SPREAD_VIOLATED.code: _spread,
    SPREAD_LABEL_MISSING.code: _spread,
    POD_AFFINITY.code: _terms("affinity"),
    POD_ANTI_AFFINITY.code: _terms("anti-affinity"),
}


def on_node(table: NodeTable, pod: PodInfo, code: ReasonCode, reason: str, row: int) -> str:
    """A short description of what one node lacks."""
    if code is INSUFFICIENT_RESOURCE:
        resource = reason.removeprefix(INSUFFICIENT)
        free, offered = amounts.free_of(table, resource, row)
        missing = pod.requests.get(resource) - max(free, 0)
        return (
            f"{amounts.shown(resource, missing)} {resource} "
            f"({amounts.shown(resource, max(free, 0))} of {amounts.shown(resource, offered)} free)"
        )
    if code is TOO_MANY_PODS:
        return f"a place (all {int(table.allowed_pods.array[row])} pods are there)"
    if code is UNTOLERATED_TAINT:
        node = table.nodes[row]
        taints = untolerated(pod.pod, node.spec.taints if node is not None else None)
        return "taint " + ", ".join(map(taint_text, taints)) if taints else reason
    about = _ABOUT_POD.get(code.code)
    said = about(pod) if about is not None else ""
    return (
        f"{reason.removeprefix('node(s) ')} ({said})" if said else reason.removeprefix("node(s) ")
    )
