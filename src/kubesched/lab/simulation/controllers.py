"""Controllers of the embedded server that react to changes after a delay."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.insight.state.virtual_loop import LoopClock, VirtualLoop
from kubesched.playground.client.local import LocalApi
from kubesched.playground.controller_manager import CONTROLLER_NAMES, ControllerOptions, start_all
from kubesched.playground.controllers.volumes import StorageDriver
from kubesched.playground.storage.store import Change, Store


class SlowControllers:
    """Several controllers, with reaction times."""

    def __init__(
        self,
        loop: VirtualLoop,
        store: Store,
        api: LocalApi,
        clock: LoopClock,
        random: Random,
        *,
        names: Iterable[str],
        resources: Iterable[str],
        storage: tuple[StorageDriver, ...] = (),
        gates: FeatureGates = DEFAULT_GATES,
    ) -> None:
        """Changes to `resources` trigger the controllers."""
        self._loop = loop
        self._random = random
        self._is_due = False
        self.is_slow = True
        disabled = frozenset(CONTROLLER_NAMES) - frozenset(names)
        options = ControllerOptions(disabled=disabled, events=False, storage=storage)
        self._controllers = start_all(api, clock, random, options, gates)
        for resource in resources:
            store.subscribe(resource, self._on_change)
        self._controllers.settle()

    def _on_change(self, _change: Change) -> None:
        self._look_in(self._random.uniform(0.01, 4.0 if self.is_slow else 0.3))

    def _look_in(self, seconds: float) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._is_due = False
        self._controllers.settle()
        due_s = self._controllers.next_due_s()
        if due_s is not None:
            self._look_in(max(due_s, 0.1))

    def disconnect(self) -> None:
        self._controllers.disconnect()
