"""Checks recordings on faulty disks: synced data survives, and the rest replays unchanged.

Runs after the simulation, on the final disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from kubesched.api.kinds import KINDS
from kubesched.api.names import key_of
from kubesched.base.errors import KubeschedError
from kubesched.insight.recording.reader import Objects, RecordingReader, Run
from kubesched.insight.recording.recorder import Recorder
from kubesched.insight.recording.records import Changed
from kubesched.insight.recording.segments import RecordingError, SegmentReader
from kubesched.lab.simulation.census import Census
from kubesched.lab.simulation.disk import Disk, MountedDisk
from kubesched.lab.simulation.options import DiskOptions
from kubesched.lab.simulation.trace import Violation

Play = Callable[[Run], str]
"""Plays a run; returns the first difference, or an empty string."""


@dataclass(slots=True)
class Recorded:
    """One recorded process."""

    name: str
    disk: MountedDisk
    recorder: Recorder
    play: Play


@dataclass(slots=True)
class Recordings:
    """The disks of a run, by machine, and the processes that wrote to them."""

    options: DiskOptions | None
    _seed: str
    _census: Census
    _now: Callable[[], float]
    _disks: dict[int, Disk] = field(default_factory=dict)
    _recorded: list[Recorded] = field(default_factory=list)

    def mount(self, slot: int, crash: Callable[[], None]) -> MountedDisk | None:
        """Mount this machine's disk for a new process; None if the run is not recorded."""
        if self.options is None:
            return None
        if slot not in self._disks:
            random = Random(f"{self._seed}/disk/{slot}")
            self._disks[slot] = Disk(self.options, random, self._census, self._now)
        return MountedDisk(self._disks[slot], crash)

    def add(self, recorded: Recorded) -> None:
        self._recorded.append(recorded)

    def crash(self, name: str) -> None:
        """A process crashed, sometimes together with its machine."""
        for recorded in self._recorded:
            if recorded.name == name:
                recorded.disk.is_dead = True
                if recorded.disk.disk.chance(0.5):
                    recorded.disk.disk.lose_power()

    def end(self, name: str) -> None:
        """A process ended by itself."""
        for recorded in self._recorded:
            if recorded.name == name and not recorded.disk.is_dead:
                _stop(recorded)
                recorded.disk.is_dead = True

    def heal(self) -> None:
        for disk in self._disks.values():
            disk.is_healthy = True

    def check(self) -> None:
        """Raises `Violation` if a disk lacks data that it should hold."""
        self.heal()
        for recorded in self._recorded:
            if not recorded.disk.is_dead:
                _stop(recorded)
            _check_reason(recorded)
            recorded.disk.is_dead = True
        for slot, disk in self._disks.items():
            recorder = next(item for item in self._recorded if item.disk.disk is disk)
            _check_disk(f"machine {slot}", disk, recorder.play)


def _stop(recorded: Recorded) -> None:
    try:
        recorded.recorder.stop()
    except OSError as error:
        raise Violation("no scheduler dies by itself", f"{recorded.name}: {error!r}") from error


def _check_reason(recorded: Recorded) -> None:
    told, reason = recorded.disk.errors, recorded.recorder.stopped_reason
    # The disk reports errors to an ended process while its tasks are cancelled.
    is_right = told[0] in reason if told else not reason or recorded.disk.is_dead
    if not is_right:
        raise Violation(
            "a recording that ends says why",
            f"{recorded.name}: the disk said {told}, the recorder says {reason!r}",
        )


def _check_disk(name: str, disk: Disk, play: Play) -> None:
    mounted = MountedDisk(disk, crash=lambda: None)
    for number, file in disk.files.items():
        readable = _readable_bytes(mounted, number)
        if readable < file.synced:
            raise Violation(
                "what was synced can be read",
                f"{name}: {mounted.name(number)} is readable up to byte {readable} "
                f"of {file.synced}",
            )
    if not any(file.synced for file in disk.files.values()):
        return
    reader = RecordingReader(mounted, name)
    _check_state(name, reader)
    for run in reader.runs():
        for problem in _problems(run, play):
            raise Violation("what is left of a recording is played as it was", f"{name}: {problem}")


def _readable_bytes(mounted: MountedDisk, number: int) -> int:
    """Number of readable bytes of a segment."""
    try:
        reader = SegmentReader.open(mounted.open(number), mounted.name(number))
    except RecordingError:
        return 0
    for _block in reader.blocks():
        pass
    return mounted.size(number) if reader.torn_at is None else reader.torn_at


def _problems(run: Run, play: Play) -> Iterator[str]:
    """Play from the beginning, and from the middle as if the first half had been deleted."""
    for part in (run.playable(), Run(run.segments[(len(run.segments) + 1) // 2 :]).playable()):
        if part is None:
            continue
        try:
            difference = play(part)
        except KubeschedError as error:
            difference = f"cannot be played: {error}"
        if difference:
            yield f"run {run.segments[0].header.run}: {difference}"


def _check_state(name: str, reader: RecordingReader) -> None:
    """The final objects from the last checkpoint match those from the whole log of the last run."""
    run = reader.runs()[-1]
    if not run.is_complete or not run.segments[0].has_checkpoint():
        return
    objects = Objects(name)
    for entry in run.entries():
        if isinstance(entry, Changed):
            objects.change(entry)
    wanted = {(type(obj), key_of(obj.metadata)): obj for obj in objects}
    state = reader.state_at()
    known = {
        (type(obj), key_of(obj.metadata)): obj
        for kind in KINDS
        if kind.has_record
        for obj in state.of(kind.record)
    }
    if known != wanted:
        raise Violation(
            "the state at the end of a recording is that of its log",
            f"{name}: {sorted(key for _kind, key in wanted.keys() ^ known.keys())}",
        )
