"""States of a recording at points in time, with a small cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.page.attempts import Listed, from_recording
from kubesched.insight.page.source import View, view_of_state
from kubesched.insight.recording.reader import RecordingReader

KEPT: Final = 6


class Moments:
    """Views of the past. Blocking: call it in a thread, one call at a time."""

    def __init__(
        self,
        reader: Callable[[], RecordingReader],
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
    ) -> None:
        self._reader = reader
        self._config = config
        self._gates = gates
        self._views: OrderedDict[tuple[str, float], View] = OrderedDict()

    def reader(self) -> RecordingReader:
        return self._reader()

    def at(self, wall_time: float) -> View:
        """The cluster at a wall-clock time.

        Raises:
            RecordingError: the recording does not reach back that far, or is damaged.
        """
        return self._view(("time", wall_time), lambda reader: reader.state_at(wall_time=wall_time))

    def before_attempt(self, number: int) -> View:
        """The cluster right before an attempt of the last run.

        Raises RecordingError as `at` does.
        """
        return self._view(
            ("attempt", float(number)), lambda reader: reader.state_at(attempt=number)
        )

    def _view(self, key: tuple[str, float], load: Callable[[RecordingReader], Any]) -> View:
        view = self._views.get(key)
        if view is None:
            view = view_of_state(load(self._reader()), self._config, self._gates)
            self._views[key] = view
            if len(self._views) > KEPT:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(key)
        return view

    def attempts(self) -> list[Listed]:
        return from_recording(self._reader())

    def span(self) -> tuple[float, float]:
        """The first and last available time."""
        reader = self._reader()
        return reader.segments[0].header.wall_time, reader.end()
