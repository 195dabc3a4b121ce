"""Storage for segments: a folder, or memory for a ring that lives as long as the process."""

from __future__ import annotations

import fcntl
import io
import os
import re
from pathlib import Path
from typing import BinaryIO, Protocol

from kubesched.insight.recording.segments import SUFFIX, RecordingError

_NAME = re.compile(r"([0-9]{8})" + re.escape(SUFFIX))
_LOCK = "lock"


class Storage(Protocol):
    """Numbered segments."""

    def numbers(self) -> list[int]:
        """Numbers of all segments, oldest first."""
        ...

    def create(self, number: int) -> BinaryIO: ...

    def open(self, number: int) -> BinaryIO: ...

    def name(self, number: int) -> str:
        """Name for messages."""
        ...

    def size(self, number: int) -> int: ...

    def delete(self, number: int) -> None: ...

    def sync(self, file: BinaryIO) -> None:
        """Make written data durable."""
        ...

    def close(self) -> None: ...


class FolderStorage:
    """Segments as files that only their owner can read."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._lock: int | None = None

    def lock(self) -> None:
        """Create the folder and lock it against other writers.

        Raises:
            RecordingError: another process records there, or the folder cannot be used.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RecordingError(f"{self._folder}: {error.strerror or error}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise RecordingError(f"{self._folder}: another process records there") from None
        self._lock = handle

    def numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except OSError as error:
            raise RecordingError(f"{self._folder}: {error.strerror or error}") from None
        return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)

    def create(self, number: int) -> BinaryIO:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        handle = os.open(self._path(number), flags, 0o600)
        try:
            self._sync_folder()
        except OSError:
            os.close(handle)
            raise
        return open(handle, "wb", buffering=0)

    def _sync_folder(self) -> None:
        """Sync the folder: a power failure loses a synced file whose name was not synced."""
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def open(self, number: int) -> BinaryIO:
        return open(self._path(number), "rb")

    def name(self, number: int) -> str:
        return str(self._path(number))

    def size(self, number: int) -> int:
        return self._path(number).stat().st_size

    def delete(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)

    def sync(self, file: BinaryIO) -> None:
        os.fdatasync(file.fileno())

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}{SUFFIX}"


class _Kept(io.BytesIO):
    """An in-memory file that stays readable after close."""

    def close(self) -> None:
        """Keeps the contents."""


class MemoryStorage:
    """Segments in memory."""

    def __init__(self) -> None:
        self._segments: dict[int, io.BytesIO] = {}

    def numbers(self) -> list[int]:
        return sorted(self._segments)

    def create(self, number: int) -> BinaryIO:
        assert number not in self._segments
        made = self._segments[number] = _Kept()
        return made

    def open(self, number: int) -> BinaryIO:
        return io.BytesIO(self._segments[number].getvalue())

    def name(self, number: int) -> str:
        return f"segment {number} in memory"

    def size(self, number: int) -> int:
        return len(self._segments[number].getbuffer())

    def delete(self, number: int) -> None:
        self._segments.pop(number, None)

    def sync(self, file: BinaryIO) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
