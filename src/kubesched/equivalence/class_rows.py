"""The rows of one class: a row layer, shared or its own, and what the class adds to it.

An overlay costs more with every row on which pods of the class are counted, a layer of its own with every dirty row. So a
class moves between the two:

```
                overlays have cost as much as a layer, or differ in too many rows
 shared layer + overlay  ---------------------------------------------------->  layer of its own
                         <----------------------------------------------------
                        many dirty rows since its last pod, few rows of its own
```
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.equivalence.class_index import ClassIndex, Unfit
from kubesched.equivalence.overlay import Overlay
from kubesched.equivalence.premises import Premises
from kubesched.equivalence.ranking import Ranking, SortedRanking, TooManyGroups
from kubesched.equivalence.row_layers import NoRoom, RowLayer, RowLayers
from kubesched.equivalence.signature import ClassKey
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.traits import Trait
from kubesched.snapshot.columns import Indices
from kubesched.snapshot.node_table import NodeTable

FEW_ROWS: Final = 48
MANY_ROWS: Final = 96
"""A class that differs from others of its shape in more rows than the first number gets a layer of its own if it can, and
with more than the second it must."""
SPLIT_ROWS: Final = 64
"""A layer of its own costs a class about as much as an overlay over this many rows."""
LAG_ROWS: Final = 3
"""A dirty row costs a layer about as much as an overlay over this many rows."""
BUSY_ROWS: Final = 24
"""With more dirty rows since its last use, a class goes back to the layer that it shares, if it differs in few rows."""

MakeLayer = Callable[[Sequence[Trait] | None], tuple[ClassIndex, Premises]]


class ClassRows:
    """Verdicts and scores per row for one class."""

    def __init__(
        self,
        table: NodeTable,
        layers: RowLayers,
        key: ClassKey,
        plugins: Hashable,
        traits: Sequence[Trait] | None,
        make: MakeLayer,
    ) -> None:
        """`plugins` are those whose answers are in the layer; without traits rows are not grouped. Raises Unfit."""
        self._table = table
        self._layers = layers
        self._key = key
        self._traits = traits or ()
        self._sparse: list[Trait] = []
        """Traits by which a few rows differ from what the layer says about them."""
        self._shared: RowLayer | None = None
        """The layer to go back to from a layer of its own."""
        self._spent = 0
        """What overlays have cost of late, in rows."""
        self._last_used = table.pod_log.end
        self._layer = self._find_layer(plugins, traits, make)
        self.index = self._layer.index

    def _find_layer(
        self, plugins: Hashable, traits: Sequence[Trait] | None, make: MakeLayer
    ) -> RowLayer:
        """The layer that the classes of this shape share, or one of its own if they differ in too many rows."""
        layers, shape = self._layers, self._key[0]
        if traits is None:
            return layers.layer(shape, (plugins, None), lambda: make(None))
        bases = [trait.base() for trait in traits]
        known = {base.key: base for base in bases if base is not None}
        self._sparse = [trait for trait in traits if not trait.is_static]
        if None in bases or len(self._deviating_rows()) > FEW_ROWS:
            self._sparse = []
            return layers.replace(shape, self._key, lambda: make(traits))
        kind = (plugins, frozenset(known))
        return layers.layer(shape, kind, lambda: make(list(known.values())))

    def _deviating_rows(self) -> set[int]:
        rows: set[int] = set()
        for trait in self._sparse:
            rows.update(trait.deviating_rows())
        return rows

    def hold(self) -> bool:
        """Is the layer still valid?"""
        if self._shared is not None and (self._layer.is_dropped or self.index.lag > BUSY_ROWS):
            self._return_to_shared(self._shared)
        return self._layers.holds(self._layer)

    def ranked(
        self, state: CycleState, pod: Pod, refused: Indices | None, *, by_row: bool
    ) -> Overlay | Ranking:
        """The groups of the class for one decision, without the refused rows. Raises Unfit.

        With `by_row` the group of every row is wanted.
        """
        try:
            self.index.sync(state, pod)
        except Unfit:
            self._layers.drop(self._layer)
            raise
        rows = self._rows_apart() if self._sparse else None
        ranking = self.index.ranking
        if not rows and refused is None:
            return ranking
        rows, traits = rows or set(), self._sparse
        are_many = refused is not None and len(refused) > MANY_ROWS
        if isinstance(ranking, SortedRanking) and not by_row and not are_many:
            if refused is None:
                return Overlay(ranking, rows, traits)
            out = refused.tolist()
            return Overlay(ranking, rows.difference(out), traits, out)
        try:
            return ranking.with_rows_apart(
                rows, lambda row: tuple([trait.at(row) for trait in traits]), refused
            )
        except TooManyGroups:
            raise Unfit from None

    def _rows_apart(self) -> set[int]:
        """The rows in which this class differs from its layer; none once it has a layer of its own. Raises Unfit."""
        rows = self._deviating_rows()
        end = self._table.pod_log.end
        lag, self._last_used = end - self._last_used, end
        self._spent = max(self._spent + len(rows) - LAG_ROWS * lag, 0)
        if (self._spent > SPLIT_ROWS or len(rows) > FEW_ROWS) and self._leave_shared(rows):
            return set()
        if len(rows) > MANY_ROWS:
            raise Unfit
        return rows

    def _leave_shared(self, rows: set[int]) -> bool:
        """Take a layer of its own, made from the shared one; False if there is no room or rows are not sorted."""
        shared, index = self._layer, self.index.split(self._traits, rows)
        if index is None:
            return False
        try:
            self._layer = self._layers.replace(
                self._key[0], self._key, lambda: (index, shared.premises)
            )
        except NoRoom:
            return False
        self.index, self._shared, self._sparse = index, shared, []
        return True

    def _return_to_shared(self, shared: RowLayer) -> None:
        """Use the shared layer again, if it is there and this class differs from it in few rows."""
        self._sparse = [trait for trait in self._traits if not trait.is_static]
        count = len(self._deviating_rows())
        if shared.is_dropped or count > FEW_ROWS:
            self._sparse = []
            if count > MANY_ROWS:  # its pods are not going to vanish: count them no more
                self._shared = None
            return
        if not self._layer.is_dropped:
            self._layers.drop(self._layer)
        self._layer, self.index, self._shared = shared, shared.index, None
        self._spent, self._last_used = 0, self._table.pod_log.end
