"""Records simulated schedulers and replays the recordings: `kubesched simulate --replay`.

The simulation injects faults, crashes and leader changes; every decision must come out the same
when the recording of its process is replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from kubesched.app.simulated import SimulatedProcess, playing_registry
from kubesched.base.errors import KubeschedError
from kubesched.insight.recording.reader import RecordingReader, Run
from kubesched.insight.recording.recorded_dependencies import Recording, open_recording
from kubesched.insight.recording.segments import RecordingError
from kubesched.insight.recording.writer import Limits
from kubesched.lab.simulation.options import Options, of_seed, recorded
from kubesched.lab.simulation.processes import ProcessParts
from kubesched.lab.simulation.run import SimulationResult, simulate
from kubesched.lab.traces.log_player import play

SEGMENT_BYTES = 4_000
FLUSH_AT = 64
"""Small segments, so that these short recordings are also replayed from the middle."""


@dataclass(frozen=True, slots=True)
class PlayedSimulation:
    """Result of recording and replaying one seed."""

    outcome: SimulationResult
    processes: int
    decisions: int
    difference: str
    """Difference in the first process whose replay diverged; empty if none did."""


def play_simulation(
    seed: int, options: Options | None = None, *, safe_point: Callable[[], None] = lambda: None
) -> PlayedSimulation:
    """Simulate a seed with every scheduler process recorded, and replay each recording."""
    outcome, runs = record_simulation(seed, options, safe_point=safe_point)
    decisions, difference = 0, ""
    for run in runs:
        for part in (run, _from_the_middle(run)):
            if part is None:
                continue
            try:
                gangs = part.segments[0].header.gates().GenericWorkload
                played = play(part, playing_registry(gangs=gangs))
            except KubeschedError as error:
                difference = difference or f"cannot be played: {error}"
                continue
            decisions += played.decisions
            difference = difference or played.difference
    return PlayedSimulation(outcome, len(runs), decisions, difference)


def _from_the_middle(run: Run) -> Run | None:
    """What remains of a run after its first half was deleted to stay within a limit."""
    return Run(run.segments[(len(run.segments) + 1) // 2 :]).playable()


def record_simulation(
    seed: int,
    options: Options | None = None,
    *,
    limits: Limits | None = None,
    safe_point: Callable[[], None] = lambda: None,
) -> tuple[SimulationResult, list[Run]]:
    """A simulation with one recorded run per scheduler process.

    The randomly failing plugin is left out: its random draws are not in the log.
    """
    recordings: list[Recording] = []

    def record(parts: ProcessParts) -> Recording:
        opened = open_recording(
            None,
            parts.config,
            parts.gates,
            limits=limits or Limits(segment_bytes=SEGMENT_BYTES),
            clock=parts.clock,
            random=Random(f"{seed}/{len(recordings)}"),
            threaded=False,
            flush_at=FLUSH_AT,
        )
        recordings.append(opened)
        return opened

    options = recorded(options or of_seed(seed, faults=True), None)
    outcome = simulate(
        seed, partial(SimulatedProcess, record=record), options=options, safe_point=safe_point
    )
    runs: list[Run] = []
    for recording in recordings:
        recording.close()
        if recording.recorder.stopped_reason:
            raise RecordingError(f"seed {seed}: {recording.recorder.stopped_reason}")
        runs += RecordingReader(recording.storage, f"seed {seed}").runs()
    return outcome, runs
