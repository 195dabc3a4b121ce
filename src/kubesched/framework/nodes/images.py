"""Images by node, as upstream's snapshot would show them.

# Upstream: a node's snapshot record holds the number of nodes with an image as of the moment the
# record was last refreshed (a pod or the node itself changed). Another node gaining the image does
# not refresh it. So each image keeps the history of its node count, and each row the version at
# which it was last refreshed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.framework.nodes.columns import IntColumn, Ints, Mask, Rows

_HISTORY_LIMIT = 64


class ImageState:
    """One image: its first reported size, the rows that hold it, and the history of their count."""

    __slots__ = ("_compact_above", "counts", "rows", "size_bytes", "versions")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._compact_above = _HISTORY_LIMIT
        self.rows: set[int] = set()
        self.versions: list[int] = []
        self.counts: list[int] = []

    def record(self, version: int, newest_refresh: int, oldest_refresh: Callable[[], int]) -> None:
        """Record the row count at `version`; replaces an entry newer than every refresh.

        The first entry stays: rows that were refreshed before the history began read it.
        """
        if len(self.versions) > 1 and self.versions[-1] > newest_refresh:
            self.versions[-1], self.counts[-1] = version, len(self.rows)
            return
        self.versions.append(version)
        self.counts.append(len(self.rows))
        if len(self.versions) > self._compact_above:
            self.compact(oldest_refresh())

    def compact(self, oldest_refresh: int) -> None:
        """Drop entries that no row can read, given the version of the oldest refresh."""
        keep = max(bisect_right(self.versions, oldest_refresh) - 1, 0)
        del self.versions[:keep]
        del self.counts[:keep]
        self._compact_above = max(_HISTORY_LIMIT, 2 * len(self.versions))

    def count_at(self, version: int) -> int:
        """Number of nodes with the image at `version`; the first entry if that is older."""
        return self.counts[max(bisect_right(self.versions, version) - 1, 0)]


class ImageIndex:
    """Image name -> state. `version` increases with every change to any node's image list."""

    def __init__(self, capacity: int) -> None:
        self._images: dict[str, ImageState] = {}
        self._of_row: list[tuple[str, ...]] = [()] * capacity
        self._has_images: Mask = np.zeros(capacity, dtype=np.bool_)
        self._refreshed_at = IntColumn(capacity)
        self._newest_refresh = 0
        self.version = 0

    @property
    def is_empty(self) -> bool:
        """True if no node has reported an image."""
        return not self._images

    def grow(self, capacity: int) -> None:
        self._refreshed_at.grow(capacity)
        bigger = np.zeros(capacity, dtype=np.bool_)
        bigger[: len(self._has_images)] = self._has_images
        self._has_images = bigger
        self._of_row += [()] * (capacity - len(self._of_row))

    def set_row(self, row: int, node: Node | None) -> None:
        """Replace a row's images.

        Removes the old list first, so an image that only this row has loses its record.
        """
        old = self._of_row[row]
        images = (node.status.images or ()) if node is not None else ()
        if not old and not images:
            return
        self.version += 1
        touched = dict.fromkeys(old)
        for name in old:
            state = self._images[name]
            state.rows.discard(row)
            if not state.rows:
                del self._images[name]
        names: dict[str, None] = {}
        for image in images:
            for name in image.names or ():
                known = self._images.get(name)
                if known is None:
                    known = self._images[name] = ImageState(image.size_bytes)
                known.rows.add(row)
                names[name] = None
        self._has_images[row] = bool(names)
        self._of_row[row] = tuple(names)
        touched.update(names)
        for name in touched:
            if (current := self._images.get(name)) is not None:
                current.record(self.version, self._newest_refresh, self._oldest_refresh)

    def renew_row(self, row: int, node: Node) -> None:
        """Apply a node update that did not change the image names.

        # Upstream: a node update removes and re-adds the node's images, so an image on no other
        # node takes the size this update reports.
        """
        sizes: dict[str, int] = {}
        for image in node.status.images or ():
            for name in image.names or ():
                sizes.setdefault(name, image.size_bytes)
        resized = [
            (state, size)
            for name, size in sizes.items()
            if (state := self._images[name]).size_bytes != size and len(state.rows) == 1
        ]
        if resized:
            self.version += 1
            for state, size in resized:
                state.size_bytes = size
                state.record(self.version, self._newest_refresh, self._oldest_refresh)

    def _oldest_refresh(self) -> int:
        """Vectorized: during the initial node list all image histories hit the limit at once."""
        return int(self._refreshed_at.array.min(where=self._has_images, initial=self.version))

    def refresh_row(self, row: int) -> bool:
        """Refresh the row's snapshot record to current counts; False if nothing changes."""
        if self._refreshed_at.cells[row] == self.version:
            return False
        self._refreshed_at.cells[row] = self._newest_refresh = self.version
        return bool(self._of_row[row])

    def sizes(self) -> dict[str, int]:
        """Image name -> size in bytes, as reported by the first node."""
        return {name: state.size_bytes for name, state in self._images.items()}

    def restore_sizes(self, sizes: Mapping[str, int]) -> None:
        for name, state in self._images.items():
            state.size_bytes = sizes.get(name, state.size_bytes)

    def get(self, name: str) -> ImageState | None:
        return self._images.get(name)

    def frozen_counts(self, state: ImageState, rows: Rows) -> Ints:
        """Per row, the image's node count at the row's last refresh; 0 without the image."""
        refreshed = self._refreshed_at.array[rows]
        versions = np.asarray(state.versions, dtype=np.int64)
        counts = np.asarray(state.counts, dtype=np.int64)
        seen = counts[np.maximum(np.searchsorted(versions, refreshed, side="right") - 1, 0)]
        holds: Mask = np.zeros(len(self._refreshed_at.array), dtype=np.bool_)
        holds[list(state.rows)] = True
        return np.where(holds[rows], seen, 0)

    def count_seen_at(self, state: ImageState, row: int) -> int:
        """Like `frozen_counts`, for one row."""
        return state.count_at(self._refreshed_at.cells[row]) if row in state.rows else 0

    def states_of(self, row: int) -> dict[str, tuple[int, int]]:
        """Name -> (size in bytes, node count as this row sees it), for `NodeInfo`."""
        at = self._refreshed_at.cells[row]
        return {
            name: (s.size_bytes, s.count_at(at))
            for name in self._of_row[row]
            if (s := self._images[name])
        }
