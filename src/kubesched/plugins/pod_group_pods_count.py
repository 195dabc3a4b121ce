"""PodGroupPodsCount: prefers placements that take more pods of the group.

Mirrors `podgrouppodscount/podgroup_pods_count.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.framework.groups.tree import GroupNode, PlacedPod, Placement
from kubesched.framework.interfaces import PlacementScorePlugin
from kubesched.framework.status import Status, error_status

_MAX_SCORE = 100


class PodGroupPodsCount(PlacementScorePlugin):
    """Scores a placement by the number of pods that it would hold."""

    name = "PodGroupPodsCount"

    def score_placement(
        self, group: GroupNode, placement: Placement, placed: Sequence[PlacedPod]
    ) -> int:
        groups = self.handle.groups
        assert groups is not None, "placements need the gate GenericWorkload"
        return len(groups.scheduled_pods_below(group.key)) + len(placed)

    def normalize_placement_scores(self, scores: list[int]) -> list[int] | Status:
        most = max(scores)
        if most == 0:
            return error_status(
                "no pods from pod group are assigned to any of the candidate placements"
            )
        return [score * _MAX_SCORE // most for score in scores]
