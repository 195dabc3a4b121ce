"""Simulated disks for recordings: short writes, errors, full disks, crashes and torn sectors.

A disk belongs to a machine and outlives its processes, which mount it one after the other
(`MountedDisk` is the `recording.storage.Storage` of one process). Synced bytes always survive.
Unsynced bytes survive the end of the process; on power loss, each unsynced sector may be lost.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from random import Random
from typing import BinaryIO, Final

from kubesched.insight.recording.segments import SUFFIX, Storage
from kubesched.insight.recording.writer import Limits
from kubesched.lab.simulation.census import Census
from kubesched.lab.simulation.options import DiskOptions

SECTOR_BYTES: Final = 128
"""Smaller than a real sector, in proportion to the recordings."""
MIN_FULL_S, MAX_FULL_S = 1.0, 20.0


class _File:
    """File contents, of which a prefix survives power loss."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0


class Disk:
    """Numbered files and scheduled failures."""

    def __init__(
        self, options: DiskOptions, random: Random, census: Census, now: Callable[[], float]
    ) -> None:
        self.options = options
        self.files: dict[int, _File] = {}
        self.is_healthy = False
        self._random = random
        self._census = census
        self._now = now
        self._full_until = 0.0

    @property
    def limits(self) -> Limits:
        options = self.options
        return Limits(total_bytes=options.total_bytes, segment_bytes=options.segment_bytes)

    def chance(self, rate: float) -> bool:
        return not self.is_healthy and self._random.random() < rate

    def draw(self, limit: int) -> int:
        """A random number from zero up to the limit."""
        return self._random.randint(0, limit)

    def tally(self, what: str) -> None:
        self._census.tally("disks", what)

    def is_full(self) -> bool:
        """Whether the disk is full, either still or starting now for a while."""
        if self.is_healthy:
            return False
        if self._now() >= self._full_until:
            if not self.chance(self.options.fill):
                return False
            self._full_until = self._now() + self._random.uniform(MIN_FULL_S, MAX_FULL_S)
        self.tally("no room")
        return True

    def lose_power(self) -> None:
        """Lose a random part of the unsynced sectors and of the end of each file."""
        self.tally("power failed")
        for file in self.files.values():
            for start in range(file.synced, len(file.data), SECTOR_BYTES):
                if self._random.random() < 0.5:
                    end = min(start + SECTOR_BYTES, len(file.data))
                    file.data[start:end] = bytes(end - start)
                    self.tally("sector torn")
            if self._random.random() < 0.5:
                del file.data[file.synced + self.draw(len(file.data) - file.synced) :]


class MountedDisk(Storage):
    """One process's view of a disk. Calls after the process has ended have no effect."""

    def __init__(self, disk: Disk, crash: Callable[[], None]) -> None:
        """`crash` ends the process that has mounted the disk."""
        self.disk = disk
        self.errors: list[str] = []
        """Errors that the process received."""
        self.is_dead = False
        self._crash = crash

    def numbers(self) -> list[int]:
        return sorted(self.disk.files)

    def create(self, number: int) -> BinaryIO:
        self._check_alive()
        assert number not in self.disk.files, "numbers are given once"
        if self.disk.is_full():
            raise self._error(errno.ENOSPC)
        if self.disk.chance(self.disk.options.fail):
            self.disk.tally("write failed")
            raise self._error(errno.EIO)
        file = self.disk.files[number] = _File()
        return _OpenFile(self, file)

    def open(self, number: int) -> BinaryIO:
        return io.BytesIO(bytes(self.disk.files[number].data))

    def name(self, number: int) -> str:
        return f"{number:08d}{SUFFIX}"

    def size(self, number: int) -> int:
        return len(self.disk.files[number].data)

    def delete(self, number: int) -> None:
        self._check_alive()
        if self.disk.chance(self.disk.options.fail_delete):
            self.disk.tally("file not deleted")
            raise self._error(errno.EIO)
        del self.disk.files[number]

    def sync(self, file: BinaryIO) -> None:
        assert isinstance(file, _OpenFile)
        self._check_alive()
        if self.disk.chance(self.disk.options.fail_sync):
            self.disk.tally("not synced")
            raise self._error(errno.EIO)
        file.file.synced = len(file.file.data)

    def close(self) -> None:
        """No-op."""

    def write(self, file: _File, data: memoryview) -> int:
        """Append data or a part of it; returns the number of bytes."""
        self._check_alive()
        disk = self.disk
        if disk.is_full():
            self._append(file, data[: disk.draw(len(data))])
            raise self._error(errno.ENOSPC)
        if disk.chance(disk.options.fail):
            disk.tally("write failed")
            self._append(file, data[: disk.draw(len(data))])
            raise self._error(errno.EIO)
        if disk.chance(disk.options.crash):
            disk.tally("crashed in a write")
            self._append(file, data[: disk.draw(len(data))])
            self.is_dead = True
            self._crash()
            self._check_alive()
        if len(data) > 1 and disk.chance(disk.options.short):
            disk.tally("short write")
            data = data[: 1 + disk.draw(len(data) - 2)]
        self._append(file, data)
        return len(data)

    def _check_alive(self) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, "the process has ended")

    def _append(self, file: _File, data: memoryview) -> None:
        file.data += data

    def _error(self, code: int) -> OSError:
        self.errors.append(os.strerror(code))
        return OSError(code, os.strerror(code))


class _OpenFile(io.RawIOBase, BinaryIO):
    """A file open for writing."""

    def __init__(self, mounted: MountedDisk, file: _File) -> None:
        super().__init__()
        self._mounted = mounted
        self.file = file

    def write(self, data: object, /) -> int:
        return self._mounted.write(self.file, memoryview(data))  # type: ignore[arg-type]  # any buffer
