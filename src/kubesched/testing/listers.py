"""Listers over objects in memory: what a plugin sees of the cluster besides nodes and pods, without a cluster.

listers = MemoryListers(claim, volume)
plugin = MyPlugin(args, Handle(table, listers=listers))
listers.put(newer_claim)
"""

from __future__ import annotations

from typing import Any

from kubesched.api.names import key_of
from kubesched.informers.lister import Lister
from kubesched.informers.store import Store


class MemoryListers:
    """A lister per kind of object that was ever put in; others are empty until something is."""

    def __init__(self, *objects: Any) -> None:  # noqa: ANN401  # records of any kind
        self._stores: dict[type[Any], Store[Any]] = {}
        self._listers: dict[type[Any], Lister[Any]] = {}
        for obj in objects:
            self.put(obj)

    def of(self, kind: type[Any]) -> Lister[Any]:
        lister = self._listers.get(kind)
        if lister is None:
            store = self._stores[kind] = Store()
            lister = self._listers[kind] = Lister(store)
        return lister

    def put(self, obj: Any) -> None:  # noqa: ANN401  # as above
        """Add an object, or replace the one of its name."""
        self.of(type(obj))
        self._stores[type(obj)].put(key_of(obj.metadata), obj)

    def remove(self, obj: Any) -> None:  # noqa: ANN401  # as above
        self.of(type(obj))
        self._stores[type(obj)].remove(key_of(obj.metadata))
