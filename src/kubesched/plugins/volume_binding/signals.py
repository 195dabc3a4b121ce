"""Wakes waiting bindings when an object they wait for changes.

Subscribes to the listers only while a binding waits, with one listener per kind for all bindings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.meta import ApiObject
from kubesched.framework.handle import Listers
from kubesched.plugins.helper.volumes.wiring import changed_key

Subject = tuple[type[object], str]
"""A kind and an object's key."""


class ChangeSignals:
    """The waiting bindings by the objects they wait for."""

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self._waiting: dict[Subject, dict[asyncio.Event, None]] = {}
        self._stops: list[Callable[[], None]] = []

    @contextmanager
    def watching(self, subjects: Iterable[Subject]) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of the objects changes, appears or disappears."""
        event, mine = asyncio.Event(), list(dict.fromkeys(subjects))
        if not self._waiting:
            self._listen()
        for subject in mine:
            self._waiting.setdefault(subject, {})[event] = None
        try:
            yield event
        finally:
            for subject in mine:
                waiting = self._waiting[subject]
                del waiting[event]
                if not waiting:
                    del self._waiting[subject]
            if not self._waiting:
                self.close()

    def close(self) -> None:
        """Unsubscribe; bindings that still wait are no longer woken."""
        for stop in self._stops:
            stop()
        self._stops.clear()

    def _listen(self) -> None:
        of = self._listers.of
        self._stops = [
            of(PersistentVolume).subscribe(self._volume_changed),
            *(
                of(kind).subscribe(self._teller(kind))
                for kind in (PersistentVolumeClaim, Pod, Node)
            ),
        ]

    def _teller(self, kind: type[object]) -> Callable[[ApiObject | None, ApiObject | None], None]:
        return lambda old, new: self._wake((kind, changed_key(old, new)))

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """A volume concerns those who wait for it and those whose claim it was made for."""
        for volume in (old, new):
            if volume is not None:
                reference = volume.spec.claim_ref
                if reference is not None:
                    key = f"{reference.namespace}/{reference.name}"
                    self._wake((PersistentVolumeClaim, key))
        self._wake((PersistentVolume, changed_key(old, new)))

    def _wake(self, subject: Subject) -> None:
        for event in self._waiting.get(subject, ()):
            event.set()
