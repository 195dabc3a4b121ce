"""Row layers: verdicts and scores per row that classes of pods share.

A layer is a `ClassIndex` with the premises of its plugins. Plugins of NODE and ROW scope do not look at labels and owner of a
pod (see `Plugin.reads_pod_labels`), so all classes of one *shape* (equal but for these) share a layer, and a dirty row is
evaluated once for all of them:

```
 shape 100m, 500Mi      layer by zone     fits? level? raw scores, per row      one entry per dirty row
      |
      +- app=web        plan: counters, constraints     rows 2, 4
      +- app=db         plan: ...                       row 7          overlay.py: rows with pods of the app
      +- job=x-1        plan: ...                       no rows
```

A class with many such rows, or one whose pods come in a row, has a layer of its own, split off from the shared one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from kubesched.equivalence.class_index import ClassIndex, Unfit
from kubesched.equivalence.layer_stack import LayerStacks
from kubesched.equivalence.premises import Premises
from kubesched.snapshot.node_table import NodeTable

LAYER_LIMIT: Final = 256
"""Layers kept at most."""
BYTES_PER_ROW: Final = 40
"""Approximate cost of a layer."""
BYTES_LIMIT: Final = 256 * 1024 * 1024
"""Memory limit of all layers; a very large cluster keeps fewer."""
PATIENCE: Final = 4
"""A layer is evicted for a new one if it went unused for this many uses per layer kept."""
SEEN_LIMIT: Final = 4096
"""Shapes remembered. A layer is made when a shape is seen again, so one-off pods cost nothing."""


class NoRoom(Unfit):
    """All layers are in use."""


class RowLayer:
    """One index, the premises under which it is valid, and when it was last used."""

    __slots__ = ("index", "is_dropped", "key", "last_used", "premises")

    def __init__(self, key: tuple[bytes, Hashable], index: ClassIndex, premises: Premises) -> None:
        self.key = key
        self.index = index
        self.premises = premises
        self.last_used = 0
        self.is_dropped = False


class RowLayers:
    """Layers by shape and kind; the least recently used is dropped, if it has been unused for long enough.

    With more layers in active use than fit, the present ones stay. Plain LRU would evict every layer before its next
    pod comes.
    """

    def __init__(self, table: NodeTable, limit: int = LAYER_LIMIT) -> None:
        self._table = table
        self._limit = limit
        self._tick = 0
        self._layers: dict[tuple[bytes, Hashable], RowLayer] = {}
        self._shapes: dict[bytes, int] = {}
        """Shape -> number of its layers."""
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self.stacks = LayerStacks(table)

    def knows(self, shape: bytes) -> bool:
        """Is there any layer of that shape?"""
        return shape in self._shapes

    def is_worth_a_layer(self, shape: bytes) -> bool:
        """The shape has been seen before, and there is room for a layer."""
        if shape in self._shapes:
            return True
        if shape not in self._seen:
            self._seen[shape] = None
            if len(self._seen) > SEEN_LIMIT:
                self._seen.popitem(last=False)
            return False
        self._tick += 1
        return len(self._layers) < self._room or self._is_idle(self._oldest())

    @property
    def _room(self) -> int:
        fitting = BYTES_LIMIT // (BYTES_PER_ROW * max(self._table.capacity, 1))
        return max(min(self._limit, fitting), 1)

    def _oldest(self) -> RowLayer:
        return min(self._layers.values(), key=lambda layer: layer.last_used)

    def _is_idle(self, layer: RowLayer) -> bool:
        return self._tick - layer.last_used >= PATIENCE * self._room

    def replace(
        self, shape: bytes, kind: Hashable, make: Callable[[], tuple[ClassIndex, Premises]]
    ) -> RowLayer:
        """A new layer of a shape and kind. Raises Unfit."""
        layer = self._layers.get((shape, kind))
        if layer is not None:
            self.drop(layer)
        return self.layer(shape, kind, make)

    def layer(
        self, shape: bytes, kind: Hashable, make: Callable[[], tuple[ClassIndex, Premises]]
    ) -> RowLayer:
        """The layer of a shape and kind; made if it is missing or stale. Raises Unfit."""
        key = (shape, kind)
        layer = self._layers.get(key)
        if layer is not None and not layer.premises.hold():
            self.drop(layer)
            layer = None
        if layer is None:
            self._make_room()
            layer = self._layers[key] = RowLayer(key, *make())
            self._shapes[shape] = self._shapes.get(shape, 0) + 1
        self._tick = layer.last_used = self._tick + 1
        return layer

    def _make_room(self) -> None:
        room = self._room
        while len(self._layers) >= room:
            oldest = self._oldest()
            if len(self._layers) == room and not self._is_idle(oldest):
                raise NoRoom
            self.drop(oldest)

    def drop(self, layer: RowLayer) -> None:
        """Plans over this layer must not use it any more."""
        layer.is_dropped = True
        layer.index.leave_stack()
        del self._layers[layer.key]
        shape = layer.key[0]
        left = self._shapes[shape] - 1
        if left:
            self._shapes[shape] = left
        else:
            del self._shapes[shape]

    def holds(self, layer: RowLayer) -> bool:
        """May the layer be used? Marks it as used."""
        if layer.is_dropped:
            return False
        if not layer.premises.hold():
            self.drop(layer)
            return False
        self._tick = layer.last_used = self._tick + 1
        return True

    def __len__(self) -> int:
        return len(self._layers)
