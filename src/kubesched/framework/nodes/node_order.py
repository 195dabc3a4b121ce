"""The evaluation order of nodes: round robin over zones, like upstream's node tree.

Zones are ordered by first appearance and disappear with their last node. Inside a zone nodes keep
insertion order. Example: zones [a, b, c] [d] [e, f] give a, d, e, b, f, c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kubesched.api.core_v1 import Node
from kubesched.base.logs import ObjectRef, get_logger
from kubesched.framework.nodes.columns import Indices

log = get_logger(__name__)

_ZONE_KEYS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION_KEYS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


def zone_key(node: Node) -> str:
    """Region and zone as one key; empty when the node has neither label.

    # Upstream: the deprecated label wins when both are present, even if it is empty.
    """
    labels = node.metadata.labels or {}
    region = next((labels[key] for key in _REGION_KEYS if key in labels), "")
    zone = next((labels[key] for key in _ZONE_KEYS if key in labels), "")
    return f"{region}:\0:{zone}" if region or zone else ""


class NodeOrder:
    """The rows of the existing nodes by zone.

    The list is computed on demand: only sampling, `parallelism: 1` and diagnoses read it.
    """

    __slots__ = ("_is_fixed", "_listed", "_zone_of", "_zones")

    def __init__(self) -> None:
        self._zones: dict[str, dict[int, None]] = {}
        self._zone_of: list[str | None] = []
        """The zone of each row; None for a row without a node."""
        self._listed: Indices | None = None
        self._is_fixed = False
        """True if a cycle began since the last added or removed node: zone moves must not show."""

    def fix(self) -> None:
        """Begin a scheduling cycle: freeze the list, even if it is computed later."""
        self._is_fixed = True

    def put(self, row: int, node: Node) -> None:
        """Add the node, or move it to the end of its new zone when the zone changed.

        # Upstream: the list of nodes is rebuilt only when a node is added or removed, so a move
        # alone does not show.
        """
        while row >= len(self._zone_of):
            self._zone_of.append(None)
        zone, before = zone_key(node), self._zone_of[row]
        if before == zone:
            return
        if before is None:
            self._changed()
        else:
            if self._is_fixed:
                self.rows()
            self._take_out(row, node.metadata.name)
        self._zones.setdefault(zone, {})[row] = None
        self._zone_of[row] = zone
        log.info("Added node to NodeTree", v=2, node=ObjectRef(node.metadata.name), zone=zone)

    def remove(self, row: int, name: str) -> None:
        self._take_out(row, name)
        self._changed()

    def _changed(self) -> None:
        self._listed = None
        self._is_fixed = False

    def _take_out(self, row: int, name: str) -> None:
        zone = self._zone_of[row]
        assert zone is not None, f"row {row} of node {name} has no zone"
        self._zone_of[row] = None
        members = self._zones[zone]
        del members[row]
        if not members:
            del self._zones[zone]
        log.info("Removed node from NodeTree", v=2, node=ObjectRef(name), zone=zone)

    def zones(self) -> dict[str, list[int]]:
        """Rows by zone, both in order."""
        return {zone: list(rows) for zone, rows in self._zones.items()}

    def begin_anew(self, zones: Mapping[str, Iterable[int]] | None = None) -> None:
        """Recompute the list on the next read; with `zones`, in their order."""
        if zones is not None:
            self._zones = {zone: dict.fromkeys(rows) for zone, rows in zones.items()}
        self._changed()

    def rows(self) -> Indices:
        """All rows in order. The same array until a node is added or removed."""
        if self._listed is None:
            zones = self._zones.values()
            rounds = [np.arange(len(zone), dtype=np.intp) for zone in zones]
            rows = [np.fromiter(zone, dtype=np.intp, count=len(zone)) for zone in zones]
            if len(rows) > 1:
                turns = np.argsort(np.concatenate(rounds), kind="stable")
                self._listed = np.concatenate(rows)[turns]
            else:
                self._listed = rows[0] if rows else np.zeros(0, dtype=np.intp)
        return self._listed
