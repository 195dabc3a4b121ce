"""ImageLocality: prefers nodes that already have the pod's images, large and widespread ones most."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import MAX_NODE_SCORE, RowScorePlugin, SignPlugin
from kubesched.plugins.value_tables import remember
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.node_table import NodeTable
from kubesched.snapshot.views import NodeColumns

_MIB = 1024 * 1024
MIN_THRESHOLD_BYTES = 23 * _MIB
"""Less than this on a node is not worth a point."""
MAX_CONTAINER_THRESHOLD_BYTES = 1000 * _MIB
"""This much per container earns the full score."""


class PodImages(NamedTuple):
    """What the score reads of a pod. Images that are used twice count twice."""

    names: tuple[str, ...]
    max_threshold_bytes: int


class ImageLocality(RowScorePlugin, SignPlugin):
    """Scores by the bytes that need not be pulled, each image weighed by the share of nodes that hold it.

    A row's answer changes with the row (its images, or its pods: then its image counts are refreshed) and with the
    number of nodes.
    """

    name = "ImageLocality"

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints:
        wanted = self._images(state, pod)
        index, node_count = nodes.table.images, nodes.table.node_count
        total: Ints | None = None
        for name in wanted.names:
            image = index.get(name)
            if image is None:
                continue
            spread = index.frozen_counts(image, nodes.rows, len(nodes)) / float(node_count)
            present = (float(image.size_bytes) * spread).astype(np.int64)
            total = present if total is None else total + present
        if total is None:
            # Nothing the pod wants is anywhere.
            return np.zeros(len(nodes), dtype=np.int64)
        low, high = MIN_THRESHOLD_BYTES, wanted.max_threshold_bytes
        worth = np.where(total < low, low, np.minimum(total, high))
        # Without containers the span is negative, but then numerator and quotient are exact as well.
        scores: Ints = MAX_NODE_SCORE * (worth - low) // (high - low)
        return scores

    def row_score(self, state: CycleState, pod: Pod, table: NodeTable, row: int) -> int:
        wanted = self._images(state, pod)
        total = 0
        held: dict[str, tuple[int, int]] | None = None
        for name in wanted.names:
            if table.images.get(name) is None:
                continue
            held = table.images.states_of(row) if held is None else held
            if name in held:
                size_bytes, node_count = held[name]
                total += int(float(size_bytes) * (float(node_count) / float(table.node_count)))
        low, high = MIN_THRESHOLD_BYTES, wanted.max_threshold_bytes
        worth = low if total < low else min(total, high)
        return MAX_NODE_SCORE * (worth - low) // (high - low)

    def score_version(self, state: CycleState, pod: Pod) -> int:
        """The node count, as long as any node has any of the pod's images; before that nothing matters."""
        images = self.handle.table.images
        known = any(images.get(name) is not None for name in self._images(state, pod).names)
        return self.handle.table.node_count if known else 0

    def _images(self, state: CycleState, pod: Pod) -> PodImages:
        return remember(state, self.name, lambda: pod_images(pod))

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        # Upstream: images mounted as volumes are left out.
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        names = {normalized_image_name(each.image) for each in containers}
        return {"v1.Pod.Spec.CanonicalImageNames()": sorted(names)}


def pod_images(pod: Pod) -> PodImages:
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    references = [each.image for each in containers]
    references += [
        volume.image.reference for volume in pod.spec.volumes or () if volume.image is not None
    ]
    return PodImages(
        tuple(map(normalized_image_name, references)),
        MAX_CONTAINER_THRESHOLD_BYTES * len(containers),
    )


def normalized_image_name(name: str) -> str:
    """The name as nodes report it: with a tag, if it has neither tag nor digest."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
