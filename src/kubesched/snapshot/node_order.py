"""The order in which nodes are evaluated: round robin over zones, as upstream's node tree lists them.

Zones are ordered by first appearance and disappear with their last node. Inside a zone nodes keep insertion order.
Example: zones [a, b, c] [d] [e, f] give a, d, e, b, f, c.
"""

from __future__ import annotations

from itertools import chain, zip_longest

from kubesched.api.core_v1 import Node
from kubesched.logs import ObjectRef, get_logger

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
    """The existing nodes by zone."""

    __slots__ = ("_listed", "_zone_of", "_zones", "version")

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}
        self._listed: list[str] | None = None
        self.version = 0
        """Increases whenever `names` may return something else."""

    def __len__(self) -> int:
        return len(self._zone_of)

    def put(self, node: Node) -> None:
        """Add the node, or move it to the end of its new zone when the zone changed.

        # Upstream: the list of nodes is rebuilt only when a node is added or removed, so a move alone does not show.
        """
        name, zone = node.metadata.name, zone_key(node)
        if self._zone_of.get(name) == zone:
            return
        if name in self._zone_of:
            self._take_out(name)
        else:
            self._changed()
        self._zones.setdefault(zone, {})[name] = None
        self._zone_of[name] = zone
        log.info("Added node to NodeTree", v=2, node=ObjectRef(name), zone=zone)

    def remove(self, name: str) -> None:
        self._take_out(name)
        self._changed()

    def _changed(self) -> None:
        self._listed = None
        self.version += 1

    def _take_out(self, name: str) -> None:
        zone = self._zone_of.pop(name)
        members = self._zones[zone]
        del members[name]
        if not members:
            del self._zones[zone]
        log.info("Removed node from NodeTree", v=2, node=ObjectRef(name), zone=zone)

    def names(self) -> list[str]:
        if self._listed is None:
            rounds = zip_longest(*self._zones.values())
            self._listed = [name for name in chain.from_iterable(rounds) if name is not None]
        return self._listed
