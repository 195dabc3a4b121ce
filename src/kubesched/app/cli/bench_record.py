"""`kubesched bench run --record`: record core-mode runs, replay them, compare every decision."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubesched.lab.benchmarking.core_mode import CoreOptions
    from kubesched.lab.benchmarking.progress import Progress
    from kubesched.lab.benchmarking.workload_files import Workload


class RecordedWorkloads:
    """Recordings of workloads, one subfolder of `folder` each."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._decisions = 0
        self._workloads = 0

    def recorded(self, workload: Workload, options: CoreOptions) -> CoreOptions:
        """The same options, with a recording of every repetition in the workload's folder.

        Raises:
            KubeschedError: the folder is not empty.
        """
        from kubesched.base.errors import KubeschedError
        from kubesched.insight.recording.recorded_dependencies import open_recording
        from kubesched.insight.recording.writer import Limits

        folder = self._folder_of(workload)
        if folder.exists() and any(folder.iterdir()):
            raise KubeschedError(f"{folder} is not empty")
        folder.parent.mkdir(parents=True, exist_ok=True)
        record = partial(
            open_recording,
            str(folder),
            limits=Limits(),
            random=Random(options.seed),
            classes=options.classes,
        )
        return replace(
            options, record=lambda config, gates, clock: record(config, gates, clock=clock)
        )

    def verify(self, workload: Workload, progress: Progress) -> None:
        """Replay all repetitions of a workload.

        Raises:
            KubeschedError: a decision differs, or a recording cannot be replayed.
        """
        from kubesched.base.errors import KubeschedError
        from kubesched.insight.recording.reader import RecordingReader
        from kubesched.lab.traces.log_player import play

        runs = RecordingReader.of_folder(str(self._folder_of(workload))).runs()
        for number, run in enumerate(runs, start=1):
            progress(f"{workload.full_name}: playing: recording {number} of {len(runs)}")
            played = play(run)
            if played.difference:
                raise KubeschedError(f"played differently: {played.difference}")
            self._decisions += played.decisions
        self._workloads += 1

    def summary(self) -> str:
        return (
            f"{self._decisions:,} decisions of {self._workloads} recorded workloads came out "
            "the same when played"
        )

    def _folder_of(self, workload: Workload) -> Path:
        case, _, size = workload.full_name.partition("/")
        return self._folder / case / size.replace("/", "-")
