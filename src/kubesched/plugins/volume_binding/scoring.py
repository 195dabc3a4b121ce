"""Score (gated): maps the storage utilization of a node through the configured shape.

Nodes that would serve the claims from the same volumes and capacities score the same, so each
combination is scored once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubesched.api import quantity
from kubesched.api.core_v1 import PersistentVolumeClaim
from kubesched.config.plugin_args import MAX_CUSTOM_PRIORITY_SCORE, UtilizationShapePoint
from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import Ints
from kubesched.plugins.helper.volumes.claims import (
    class_of_claim,
    requested_storage,
    storage_capacity,
)
from kubesched.plugins.helper.volumes.first_match import NONE
from kubesched.plugins.node_resources.strategies import broken_linear
from kubesched.plugins.volume_binding.search import Search

MAX_UTILIZATION = 100


class CapacityScorer:
    """Turns requested and available storage by class into a score."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        scale = MAX_NODE_SCORE // MAX_CUSTOM_PRIORITY_SCORE
        points = [(point.utilization, point.score * scale) for point in shape]
        self._curve = [broken_linear(points, at) for at in range(MAX_UTILIZATION + 1)]

    def score_nodes(self, search: Search) -> Ints:
        """A score per node of the search's view."""
        if not search.scores:
            search.scores.append(self._score_all(search))
        return search.scores[0]

    def _score_all(self, search: Search) -> Ints:
        length = len(search)
        columns = [match.choice for match in search.matches]
        for provision in search.provisions:
            if provision.choice is None:
                columns.append(np.full(length, NONE, dtype=np.int32))
            else:
                columns.append(np.where(provision.where, provision.choice, np.int32(NONE)))
        if not columns:
            return np.zeros(length, dtype=np.int64)
        distinct, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
        scores = [self._score(search, combination.tolist()) for combination in distinct.T]
        return np.array(scores, dtype=np.int64)[which.reshape(-1)]

    def _score(self, search: Search, combination: Sequence[int]) -> int:
        """The mean over classes, rounded half up; existing volumes alone count if there are any."""
        matched = combination[: len(search.matches)]
        amounts: dict[str, tuple[int, int]] = {}
        if any(number != NONE for number in matched):
            for match, number in zip(search.matches, matched, strict=True):
                if number != NONE:
                    volume = match.volumes[number]
                    requested, capacity = amounts.get(volume.spec.storage_class_name, (0, 0))
                    amounts[volume.spec.storage_class_name] = (
                        requested + requested_storage(match.claim).value(),
                        capacity + storage_capacity(volume).value(),
                    )
        else:
            provisioned = combination[len(search.matches) :]
            for provision, number in zip(search.provisions, provisioned, strict=True):
                if number != NONE:
                    raw = provision.capacities[number].capacity
                    name = _class_name(provision.claim)
                    # Upstream: claims of a class share one capacity, so it is set, not added up.
                    amounts[name] = (
                        amounts.get(name, (0, 0))[0] + requested_storage(provision.claim).value(),
                        0 if raw is None else quantity.value(raw),
                    )
        if not amounts:
            return 0
        total = sum(self._share(requested, capacity) for requested, capacity in amounts.values())
        return (2 * total + len(amounts)) // (2 * len(amounts))

    def _share(self, requested: int, capacity: int) -> int:
        if capacity == 0 or requested > capacity:
            return self._curve[MAX_UTILIZATION]
        return self._curve[requested * MAX_UTILIZATION // capacity]


def _class_name(claim: PersistentVolumeClaim) -> str:
    return claim.spec.storage_class_name or class_of_claim(claim)
