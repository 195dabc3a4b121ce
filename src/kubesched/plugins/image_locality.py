"""ImageLocality: prefers nodes that already have the pod's images.

The score grows with the size of the images present, each weighted by the share of nodes that have
it. Mirrors upstream's `imagelocality/image_locality.go`.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, RowRule
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import MAX_NODE_SCORE, ScorePlugin, SignPlugin
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule

_MIB = 1024 * 1024
MIN_THRESHOLD_BYTES = 23 * _MIB
"""Up to this many bytes on a node score 0."""
MAX_CONTAINER_THRESHOLD_BYTES = 1000 * _MIB
"""This many bytes per image earn the full score."""


class PodImages(NamedTuple):
    """The parts of a pod that the score depends on. An image used twice counts twice."""

    names: tuple[str, ...]
    max_threshold_bytes: int

    def score(self, total: int) -> int:
        """The score for the total scaled size of the images on a node."""
        low, high = MIN_THRESHOLD_BYTES, self.max_threshold_bytes
        worth = low if total < low else min(total, high)
        return MAX_NODE_SCORE * (worth - low) // (high - low)


class ImageLocality(ScorePlugin, SignPlugin, InTreePlugin):
    """Scores by the bytes that need not be pulled.

    A row's score changes with the row (its images, or its pods, which refresh its image counts)
    and, rarely, with the number of nodes.
    """

    name = "ImageLocality"
    answers_by_spec = True

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # takes none
        super().__init__(args, handle)
        self._volumes_count = handle.feature_gates.reference.image_volumes_count

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | int:
        wanted = self._images(state, pod)
        total: Ints | None = None
        for name in () if nodes.is_bare else wanted.names:
            if nodes.table.images.get(name) is not None:
                present = bytes_on(nodes, name)
                total = present if total is None else total + present
        if total is None:
            return 0  # no node has any of the images
        low, high = MIN_THRESHOLD_BYTES, wanted.max_threshold_bytes
        worth = np.where(total < low, low, np.minimum(total, high))
        # Without containers the span is negative, but the division is then exact, so rounding does
        # not matter.
        scores: Ints = MAX_NODE_SCORE * (worth - low) // (high - low)
        return scores

    def score_rule(self, state: CycleState, pod: Pod) -> Rule:
        """Depends on the node's images and, if any node has one of the pod's, on the node count.

        How many nodes have an image is no premise: a row sees that number as of its own change.
        """
        table, wanted = self.handle.table, self._images(state, pod)

        def premise() -> Hashable:
            known = [table.images.get(name) for name in wanted.names]
            sizes = [None if image is None else image.size_bytes for image in known]
            return 0 if sizes.count(None) == len(sizes) else (table.node_count, *sizes)

        def at(row: int) -> int:
            return wanted.score(sum([bytes_present(table, name, row) for name in wanted.names]))

        return RowRule(premise=premise, at=at)

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        # Upstream: images mounted as volumes are left out.
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        names = {normalized_image_name(container.image) for container in containers}
        return {"v1.Pod.Spec.CanonicalImageNames()": sorted(names)}

    def _images(self, state: CycleState, pod: Pod) -> PodImages:
        return state.remember(self.name, lambda: pod_images(pod, self._volumes_count))


def bytes_on(nodes: NodeColumns, name: str) -> Ints:
    """The scaled size of an image that some node has, on each node."""
    table, image = nodes.table, nodes.table.images.get(name)
    assert image is not None, "the caller has looked"
    share = table.images.frozen_counts(image, nodes.rows) / float(table.node_count)
    return (float(image.size_bytes) * share).astype(np.int64)


def bytes_present(table: NodeTable, name: str, row: int) -> int:
    """The scaled size of one image on one row."""
    image = table.images.get(name)
    if image is None:
        return 0
    return scaled_bytes(image.size_bytes, table.images.count_seen_at(image, row), table.node_count)


def scaled_bytes(size_bytes: int, count: int, node_count: int) -> int:
    """The size of an image times the share of nodes that have it."""
    return int(float(size_bytes) * (float(count) / float(node_count)))


def pod_images(pod: Pod, volumes_count: bool = True) -> PodImages:
    """The pod's images. Without `volumes_count`, only containers raise the full score."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    references = [container.image for container in containers]
    references += [
        volume.image.reference for volume in pod.spec.volumes or () if volume.image is not None
    ]
    count = len(references) if volumes_count else len(containers)
    return PodImages(
        tuple(map(normalized_image_name, references)), MAX_CONTAINER_THRESHOLD_BYTES * count
    )


@lru_cache(maxsize=4096)
def normalized_image_name(name: str) -> str:
    """The name as nodes report it: with a tag, if it has neither tag nor digest."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
