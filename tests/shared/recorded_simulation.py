"""Simulated schedulers that are recorded, and a registry to play the recordings with."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.app.simulated import SimulatedProcess
from kubesched.clock import Clock
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import ReservePlugin
from kubesched.framework.registry import Registry
from kubesched.framework.status import Status
from kubesched.plugins.registry import in_tree_registry
from kubesched.recording.reader import RecordingReader, Run
from kubesched.recording.surroundings import Recording, open_recording
from kubesched.recording.writer import Limits
from kubesched.simulation.audit import AUDITOR
from kubesched.simulation.options import draw
from kubesched.simulation.run import simulate


class SilentAuditor(ReservePlugin):
    """Stands where the simulation's auditor stood, which decides nothing."""

    name = AUDITOR

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Nothing was booked."""


def playing_registry() -> Registry:
    registry = in_tree_registry()
    registry.register(AUDITOR, lambda: SilentAuditor)
    return registry


def record_simulation(seed: int, *, segment_bytes: int = 0) -> list[Run]:
    """One run for every scheduler process of a simulation with faults.

    Without the plugin that misbehaves at random: what it draws is not in the log.
    """
    recordings: list[Recording] = []

    def record(config: KubeSchedulerConfiguration, gates: FeatureGates, clock: Clock) -> Recording:
        opened = open_recording(
            None,
            config,
            gates,
            limits=Limits(segment_bytes=segment_bytes),
            clock=clock,
            random=Random(f"{seed}/{len(recordings)}"),
            threaded=False,
        )
        recordings.append(opened)
        return opened

    def make_process(*arguments: Any, **settings: Any) -> SimulatedProcess:
        return SimulatedProcess(*arguments, record=record, **settings)

    options = replace(draw(Random(f"{seed}/options"), faults=True), mischief=0.0)
    simulate(seed, make_process, options=options)
    runs: list[Run] = []
    for recording in recordings:
        recording.close()
        assert not recording.recorder.stopped_reason
        runs += RecordingReader(recording.storage, f"seed {seed}").runs()
    return runs
