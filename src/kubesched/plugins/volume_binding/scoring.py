"""Score (gated): maps the storage utilization of a node through the configured shape.

Sums of requested and available storage are columns over the nodes, one pair for each class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubesched.api.core_v1 import PersistentVolumeClaim
from kubesched.config.plugin_args import MAX_CUSTOM_PRIORITY_SCORE, UtilizationShapePoint
from kubesched.framework.interfaces import MAX_NODE_SCORE
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.plugins.helper.volumes.claims import class_of_claim, requested_storage
from kubesched.plugins.helper.volumes.first_match import NONE
from kubesched.plugins.node_resources.strategies import broken_linear
from kubesched.plugins.volume_binding.search import Search

MAX_UTILIZATION = 100


class CapacityScorer:
    """Turns requested and available storage by class into a score."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        scale = MAX_NODE_SCORE // MAX_CUSTOM_PRIORITY_SCORE
        points = [(point.utilization, point.score * scale) for point in shape]
        curve = [broken_linear(points, at) for at in range(MAX_UTILIZATION + 1)]
        self._curve: Ints = np.array(curve, dtype=np.int64)

    def score_nodes(self, search: Search) -> Ints:
        """A score per node of the search's view: the mean over classes, rounded half up.

        Where existing volumes serve some of the claims, they alone count.
        """
        by_class: dict[str, _Storage] = {}
        is_matched = np.zeros(len(search), dtype=np.bool_)
        for match in search.matches:
            found = np.flatnonzero(match.choice != NONE)
            is_matched[found] = True
            numbers = match.choice[found]
            offered = np.array([facts.capacity_bytes for facts in match.volumes], dtype=np.int64)
            requested = requested_storage(match.claim).value()
            names = [facts.volume.spec.storage_class_name for facts in match.volumes]
            for name in dict.fromkeys(names):
                storage = by_class.setdefault(name, _Storage(len(search)))
                is_here = np.array([other == name for other in names])[numbers]
                here = found[is_here]
                storage.requested[here] += requested
                storage.capacity[here] += offered[numbers[is_here]]
                storage.counts[here] = True
        for provision in search.provisions:
            if provision.choice is None:
                continue
            here = np.flatnonzero(provision.where & (provision.choice != NONE) & ~is_matched)
            storage = by_class.setdefault(_class_name(provision.claim), _Storage(len(search)))
            storage.requested[here] += requested_storage(provision.claim).value()
            # Upstream: claims of a class share one capacity, so it is set, not added up.
            storage.capacity[here] = provision.capacities[provision.choice[here]]
            storage.counts[here] = True
        total: Ints = np.zeros(len(search), dtype=np.int64)
        number: Ints = np.zeros(len(search), dtype=np.int64)
        for storage in by_class.values():
            total += np.where(storage.counts, self._shares(storage), 0)
            number += storage.counts
        return (2 * total + number) // np.maximum(2 * number, 1)

    def _shares(self, storage: _Storage) -> Ints:
        requested, capacity = storage.requested, storage.capacity
        is_full = (capacity == 0) | (requested > capacity)
        # Like Go's integers, products of absurd sizes wrap around.
        utilization = requested * MAX_UTILIZATION // np.where(capacity == 0, 1, capacity)
        return self._curve.take(np.where(is_full, MAX_UTILIZATION, utilization), mode="clip")


class _Storage:
    """Storage of one class on each node, where it counts."""

    def __init__(self, length: int) -> None:
        self.requested: Ints = np.zeros(length, dtype=np.int64)
        self.capacity: Ints = np.zeros(length, dtype=np.int64)
        self.counts: Mask = np.zeros(length, dtype=np.bool_)


def _class_name(claim: PersistentVolumeClaim) -> str:
    return claim.spec.storage_class_name or class_of_claim(claim)
