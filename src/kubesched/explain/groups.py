"""Pods with the same story, told together."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.explain.model import Explanation


def grouped(explanations: Sequence[Explanation]) -> list[list[Explanation]]:
    """Explanations with equal verdict, reasons and message, in order of first appearance."""
    groups: dict[object, list[Explanation]] = {}
    for each in explanations:
        story = (
            each.verdict,
            each.message,
            tuple((r.plugin, r.reason, r.detail, r.nodes) for r in each.reasons),
            tuple((w.code, w.what) for w in each.waiting_for),
            each.nodes.feasible,
            # Where a pod is belongs to its story; which of several equal nodes it would get does not.
            each.chosen.node if each.chosen is not None and each.verdict.value == "Placed" else "",
        )
        groups.setdefault(story, []).append(each)
    return list(groups.values())
