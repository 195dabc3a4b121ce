"""Wakes waiting bindings when a volume, claim, pod or node they wait for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kubesched.api.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.meta import ApiObject
from kubesched.framework.handle import Listers
from kubesched.plugins.helper.change_signals import ChangeSignals
from kubesched.plugins.helper.volumes.wiring import changed_key

Subject = tuple[type[object], str]
"""A kind and an object key."""


class BindingSignals(ChangeSignals[Subject]):
    """Subscribes to listers only while a binding waits, with one listener per kind."""

    def __init__(self, listers: Listers) -> None:
        super().__init__()
        self._listers = listers
        self._stops: list[Callable[[], None]] = []

    @contextmanager
    def watching(self, keys: Iterable[Subject]) -> Iterator[asyncio.Event]:
        if not self:
            self._listen()
        try:
            with super().watching(keys) as event:
                yield event
        finally:
            if not self:
                self.close()

    def close(self) -> None:
        """Unsubscribe; waiting bindings are no longer woken."""
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
        return lambda old, new: self.wake((kind, changed_key(old, new)))

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """Wake bindings that wait for the volume, and those whose claim it was created for."""
        for volume in (old, new):
            if volume is not None:
                reference = volume.spec.claim_ref
                if reference is not None:
                    key = f"{reference.namespace}/{reference.name}"
                    self.wake((PersistentVolumeClaim, key))
        self.wake((PersistentVolume, changed_key(old, new)))
