"""States of a recording at points in time, with a small cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

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
        self.reader = reader

        @lru_cache(KEPT)
        def view(wall_time: float | None, attempt: int | None) -> View:
            return view_of_state(reader().state_at(wall_time, attempt), config, gates)

        self._view = view

    def at(self, wall_time: float) -> View:
        """The cluster at a wall-clock time.

        Raises:
            RecordingError: the recording does not reach back that far, or is damaged.
        """
        return self._view(wall_time, None)

    def before_attempt(self, number: int) -> View:
        """The cluster right before an attempt of the last run.

        Raises RecordingError as `at` does.
        """
        return self._view(None, number)

    def attempts(self) -> list[Listed]:
        return from_recording(self.reader())

    def span(self) -> tuple[float, float]:
        """The first and last available time."""
        reader = self.reader()
        return reader.segments[0].header.wall_time, reader.end()
