"""Groups pods with the same explanation."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.insight.explain.model import Explanation


def grouped(explanations: Sequence[Explanation]) -> list[list[Explanation]]:
    """Explanations with equal verdict, reasons and message, in order of first appearance."""
    groups: dict[object, list[Explanation]] = {}
    for explanation in explanations:
        story = (
            explanation.verdict,
            explanation.message,
            tuple((r.plugin, r.reason, r.detail, r.nodes) for r in explanation.reasons),
            tuple((w.code, w.what) for w in explanation.waiting_for),
            explanation.nodes.feasible,
            # A pod's current node matters; which of several equal nodes it would get does not.
            explanation.chosen.node
            if explanation.chosen is not None and explanation.verdict.value == "Placed"
            else "",
        )
        groups.setdefault(story, []).append(explanation)
    return list(groups.values())
