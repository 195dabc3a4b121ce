"""Why an unplaced pod of a plan fits nowhere, by zone."""

from __future__ import annotations

from collections import Counter

from kubesched.api.core_v1 import Node, Pod
from kubesched.insight.explain import Explainer, Explanation
from kubesched.insight.explain.selection import every_node
from kubesched.insight.planning.model import Stop, ZoneStop
from kubesched.insight.state.planned_cluster import PlannedCluster

ZONE = "topology.kubernetes.io/zone"


def zone_of(node: Node | None) -> str:
    labels = (node.metadata.labels if node is not None else None) or {}
    return labels.get(ZONE, "")


def stop_of(world: PlannedCluster, pod: Pod) -> Stop:
    """The pod's verdict from `explain`, with reasons counted per zone."""
    explanation = Explainer(world.assembly).explain(pod, every_node)
    return Stop(
        pod=explanation.pod,
        verdict=explanation.verdict,
        summary=explanation.summary,
        message=explanation.message,
        reasons=explanation.reasons,
        zones=_zones(world, explanation),
        preemption=explanation.preemption,
    )


def _zones(world: PlannedCluster, explanation: Explanation) -> list[ZoneStop]:
    reasons: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for row in explanation.matrix:
        zone = zone_of(world.find(Node, "", row.node))
        counts[zone] += 1
        by_reason = reasons.setdefault(zone, Counter())
        by_reason.update({reason for failure in row.failures for reason in failure.reasons})
    return [
        ZoneStop(
            zone=zone,
            nodes=counts[zone],
            reasons=dict(sorted(reasons[zone].items(), key=lambda item: (-item[1], item[0]))),
        )
        for zone in sorted(counts)
    ]
