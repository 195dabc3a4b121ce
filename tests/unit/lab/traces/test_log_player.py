"""Playing recordings: differences are found and explained."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from kubesched.api.core_v1 import Pod
from kubesched.app.recorded_simulation import record_simulation
from kubesched.app.simulated import SilentAuditor, playing_registry
from kubesched.base.version import __version__
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.status import Code, Status
from kubesched.insight.recording import recorder
from kubesched.insight.recording.reader import Run
from kubesched.insight.recording.records import (
    AnyEntry,
    Attempt,
    CheckpointEnd,
    Decision,
    SavedScheduler,
    Stored,
)
from kubesched.insight.recording.segments import RecordingError
from kubesched.insight.recording.writer import Limits
from kubesched.lab.simulation.audit import AUDITOR
from kubesched.lab.simulation.options import of_seed, with_groups
from kubesched.lab.traces import log_player, played_calls
from kubesched.lab.traces.log_player import play
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.checkpoint import Checkpoints, SchedulerState

SEED = 103


@pytest.fixture(scope="module")
def run() -> Run:
    return max(record_simulation(SEED)[1], key=lambda each: sum(1 for _ in each.entries()))


class Tampered(Run):
    """A run whose log is changed while it is read."""

    def __init__(self, run: Run, change: Any) -> None:
        super().__init__(run.segments)
        object.__setattr__(self, "change", change)

    def entries(self) -> Iterator[AnyEntry]:
        return self.change(super().entries())  # type: ignore[attr-defined, no-any-return]  # set above


@pytest.fixture(scope="module")
def segmented() -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "BLOCK_RECORDS", 16)
        _, runs = record_simulation(73, limits=Limits(segment_bytes=1_000))  # many decisions
    return max(runs, key=lambda run: len(run.segments))


def test_a_run_over_several_segments_plays_as_one(segmented: Run) -> None:
    assert len(segmented.segments) >= 3
    played = play(segmented, playing_registry())
    assert played.difference == ""
    assert played.decisions > 50


def test_another_node_is_a_difference(run: Run) -> None:
    def change(entries: Iterator[AnyEntry]) -> Iterator[AnyEntry]:
        for entry in entries:
            if isinstance(entry, Decision) and entry.node and entry.number > 3:
                entry.node = "elsewhere"
            yield entry

    played = play(Tampered(run, change), playing_registry())
    assert "logged node elsewhere; played node " in played.difference
    assert played.difference.startswith("attempt ")


def test_another_message_is_a_difference(run: Run) -> None:
    def change(entries: Iterator[AnyEntry]) -> Iterator[AnyEntry]:
        for entry in entries:
            if isinstance(entry, Decision) and entry.digest:
                entry.digest = "0123456789abcdef"
            yield entry

    played = play(Tampered(run, change), playing_registry())
    assert "(digest 0123456789abcdef); played " in played.difference
    assert "nodes are available" in played.difference


def test_another_pod_is_a_difference(run: Run) -> None:
    def change(entries: Iterator[AnyEntry]) -> Iterator[AnyEntry]:
        for entry in entries:
            if isinstance(entry, Attempt) and entry.number == 5:
                entry.uid, entry.pod = "nobody", "default/nobody"
            yield entry

    played = play(Tampered(run, change), playing_registry())
    assert "default/nobody was taken off the queue; played, it is " in played.difference


def test_a_decision_that_was_not_logged_is_a_difference(run: Run) -> None:
    def change(entries: Iterator[AnyEntry]) -> Iterator[AnyEntry]:
        return (each for each in entries if not (isinstance(each, Decision) and each.number == 4))

    played = play(Tampered(run, change), playing_registry())
    assert "is decided when played, but was not then" in played.difference


def test_a_difference_names_the_version_that_recorded_if_it_is_another(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(entries: Iterator[AnyEntry]) -> Iterator[AnyEntry]:
        return (each for each in entries if not (isinstance(each, Decision) and each.number == 4))

    assert "recorded by" not in play(Tampered(run, change), playing_registry()).difference
    monkeypatch.setattr(log_player, "__version__", "99.0.0")
    played = play(Tampered(run, change), playing_registry())
    assert played.difference.endswith(f" (recorded by kubesched {__version__})")


def test_a_plugin_that_reads_the_outside_world_is_found(run: Run) -> None:
    weather = itertools.count()

    class Moody(SilentAuditor):
        def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            return Status(Code.UNSCHEDULABLE, ("it rains",)) if next(weather) == 2 else None

    registry = in_tree_registry()
    registry.register(AUDITOR, lambda: Moody)
    played = play(run, registry)
    assert "logged node" in played.difference
    assert "it rains" in played.difference


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "has_groups"),
    [
        (SEED, False),
        (49, False),  # evictions, whose numbers go on
        (55, False),  # PreBind is called off before it has begun
        (170, False),
        (509, False),  # volumes, which a plugin looks at for the first time after the checkpoint
        (6, True),
        (12, True),
    ],
)
def test_a_run_is_played_from_every_segment_that_holds_the_scheduler(
    seed: int, *, has_groups: bool
) -> None:
    options = replace(of_seed(seed, faults=True), gates=())
    if has_groups:
        options = with_groups(options, Random(seed))
    _, runs = record_simulation(seed, options, limits=Limits(segment_bytes=1_500))
    parts = [Run(run.segments[at:]) for run in runs for at in range(1, len(run.segments))]
    playable = [part for part in parts if part.is_playable]
    assert playable
    for part in playable:
        logged = sum(isinstance(entry, Decision) for entry in part.entries())
        played = play(part, playing_registry())
        assert (played.difference, played.decisions) == ("", logged)


def test_what_is_restored_from_a_checkpoint_gives_the_same_checkpoint() -> None:
    """Taken again right after it was restored; the plain twin of all that saving and restoring
    do.
    """
    seen = []
    for seed, groups in ((SEED, False), (49, False), (509, False), (6, True), (3, True)):
        options = of_seed(seed, faults=True)
        options = with_groups(options, Random(seed)) if groups else options
        _, runs = record_simulation(seed, options, limits=Limits(segment_bytes=1_500))
        for run in runs:
            for at, segment in enumerate(run.segments):
                if at and segment.header.is_playable:
                    seen.append(_saved_twice(Run(run.segments[at:])))
    assert len(seen) >= 3
    for first, second in seen:
        assert msgspec.structs.replace(second, seed=first.seed) == first
    assert any(first.assumed for first, _ in seen)
    assert any(first.queue.unschedulable for first, _ in seen)
    assert any(first.queue.groups for first, _ in seen)
    assert any(first.queue.incomplete for first, _ in seen)


def _saved_twice(run: Run) -> tuple[SchedulerState, SchedulerState]:
    (saved,) = [each for each in run.entries() if isinstance(each, SavedScheduler)]
    again: list[SchedulerState | None] = []

    class Watched(Run):
        def entries(self) -> Iterator[AnyEntry]:
            return itertools.takewhile(
                lambda entry: isinstance(entry, Stored | SavedScheduler | CheckpointEnd),
                super().entries(),
            )

    original = Checkpoints.restore

    def restore(self: Checkpoints, state: SchedulerState) -> None:
        original(self, state)
        again.append(self.take())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "restore", restore)
        play(Watched(run.segments), playing_registry())
    (taken,) = again
    assert taken is not None
    return saved.state, taken


def test_a_segment_without_the_scheduler_cannot_be_played_from(segmented: Run) -> None:
    first, _second, *others = segmented.segments
    with pytest.raises(RecordingError, match="the segment before it is missing"):
        play(Run([first, *others]), playing_registry())
    blind = replace(others[0], header=msgspec.structs.replace(others[0].header, is_playable=False))
    with pytest.raises(RecordingError, match="begins without the state of the scheduler"):
        play(Run([blind]), playing_registry())
    assert Run([blind]).playable() is None
    part = Run([blind, *others[1:]]).playable()
    assert part is None or part.segments[0] is not blind


def test_errors_of_calls_come_back_as_they_were() -> None:
    raised = played_calls._raised(["Conflict", "changed", "409", "Conflict"])
    assert (type(raised).__name__, str(raised)) == ("Conflict", "changed")
    raised = played_calls._raised(["ConnectFailed", "not sent"])
    assert type(raised).__name__ == "ConnectFailed"
