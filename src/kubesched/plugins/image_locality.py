"""ImageLocality: prefers nodes that already have the pod's images.

The score grows with the size of the images present, each weighted by the share of nodes that have
it. Mirrors upstream's `imagelocality/image_locality.go`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import MAX_NODE_SCORE, ScorePlugin, SignPlugin
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope

_MIB = 1024 * 1024
MIN_THRESHOLD_BYTES = 23 * _MIB
"""Up to this many bytes on a node score 0."""
MAX_CONTAINER_THRESHOLD_BYTES = 1000 * _MIB
"""This many bytes per image earn the full score."""

_COUNTS_LIMIT: Final = 512
"""Maximum number of node count combinations to compare; above it, all rows are rescored."""


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

    def score_rule(self, state: CycleState, pod: Pod) -> Rule[int]:
        """Depends on the node's images and, if any node has one of the pod's, on the node count."""
        table, wanted = self.handle.table, self._images(state, pod)

        def at(row: int) -> int:
            return wanted.score(sum([bytes_present(table, name, row) for name in wanted.names]))

        return Rule(Scope.ROW, premise=NodeCounts(table, wanted).changes, at=at)

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        # Upstream: images mounted as volumes are left out.
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        names = {normalized_image_name(container.image) for container in containers}
        return {"v1.Pod.Spec.CanonicalImageNames()": sorted(names)}

    def _images(self, state: CycleState, pod: Pod) -> PodImages:
        return state.remember(self.name, lambda: pod_images(pod, self._volumes_count))


class NodeCounts:
    """Detects whether a change in the number of nodes changes the score of a row.

    Every score depends on that number, but few change with it: there are 101 scores, and an image
    on a thousand nodes counts nearly the same among 5,000 nodes as among 5,001. So the scores of
    all counts that rows may see are cached and compared. A row whose counts differ is dirty.
    """

    __slots__ = ("_changes", "_names", "_scores", "_seen", "_table", "_wanted")

    def __init__(self, table: NodeTable, wanted: PodImages) -> None:
        self._table = table
        self._wanted = wanted
        self._names = tuple(dict.fromkeys(wanted.names))
        self._scores: dict[tuple[int, ...], int] | None = None
        """By the node count of each image; None if unknown, so that any change counts."""
        self._changes = 0
        self._seen: tuple[int, int] | None = None
        """The last seen number of nodes and image version."""

    def changes(self) -> int:
        """Number of score changes so far; 0 while no node has any of the images."""
        seen = self._table.node_count, self._table.images.version
        if seen != self._seen:
            self._seen = seen
            self._compare()
        return 0 if self._scores == {} else self._changes

    def _compare(self) -> None:
        before, images = self._scores, self._table.images
        if not any(images.get(name) is not None for name in self._names):
            self._scores = {}
            return
        in_use = images.counts_in_use(self._names, _COUNTS_LIMIT)
        if in_use is None:
            self._scores = None
            self._changes += 1
            return
        after = self._scores = {seen: self._score(seen) for seen in in_use}
        if not before or any(before.get(seen, score) != score for seen, score in after.items()):
            self._changes += 1

    def _score(self, counts: tuple[int, ...]) -> int:
        """The score of a row with these counts, which are 0 for images it lacks."""
        images, total = self._table.images, 0
        present = dict(zip(self._names, counts, strict=True))
        for name in self._wanted.names:
            image = images.get(name)
            if image is not None and present[name]:
                total += scaled_bytes(image.size_bytes, present[name], self._table.node_count)
        return self._wanted.score(total)


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
