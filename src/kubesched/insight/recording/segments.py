"""The segment format, and where segments are stored: a folder, or memory.

A crash loses at most the end of the last segment:

    magic, format version (2 bytes)
    block: header (MessagePack)
    block: records …
    block: records …

A block is its length, a checksum, and compressed data. Each block uses the end of the previous one
as its dictionary, so that small blocks compress as well as large ones. A truncated block or a
checksum mismatch ends the segment there.

Compression is zlib at level 1. Measured on the lives of 20,000 pods (benchmarks/recording.py):
zlib 1 compresses a life of 4,611 bytes to 290 in 10 us, zlib 6 to 252 in 27 us, zstandard 1 to 155
in 9 us. That is not worth a dependency.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from kubesched.base.errors import KubeschedError
from kubesched.config import features
from kubesched.config.features import FeatureGates
from kubesched.config.versions import parse_versions
from kubesched.insight.recording.records import AnyEntry, decode_entries

MAGIC = b"KUBESCHED-REC\n"
FORMAT_VERSION = 2
SUFFIX = ".rec"

_VERSION = struct.Struct(">H")
_BLOCK = struct.Struct(">II")
MAX_BLOCK_BYTES = 64 << 20
"""Maximum size of a compressed block; a larger length indicates damage."""
MAX_UNPACKED_BYTES = 1 << 30
_WINDOW_BYTES = 32 << 10
_LEVEL = 1


class RecordingError(KubeschedError):
    """A recording cannot be used; the message names the folder or segment and the cause."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a segment."""

    number: int
    """Number of the segment; numbers are consecutive."""
    run: int
    """Number of the first segment of this scheduler run."""
    made_by: str
    """Version of kubesched."""
    wall_time: float
    """Wall-clock time at the start of the segment, in seconds since the epoch."""
    time: float
    """The scheduler's clock at that moment."""
    attempts: int
    """Attempts of this run before the segment."""
    seed: int
    """Seed of the random numbers used in decisions."""
    config: dict[str, Any]
    """The KubeSchedulerConfiguration in effect."""
    feature_gates: dict[str, bool]
    reference_version: str = "1.36"
    """The kube-scheduler release that was stood in for; recordings that do not say it mean 1.36."""
    emulated_version: str = ""
    min_compatibility_version: str = ""
    max_in_unschedulable_s: float = 300.0
    """The flag --pod-max-in-unschedulable-pods-duration."""
    classes: bool = True
    """Whether equal pods shared answers and waited as one; False for `bench run --no-classes`."""
    is_playable: bool = False
    """Whether the checkpoint includes the scheduler's state."""

    def gates(self) -> FeatureGates:
        """The feature gates in effect, and the release.

        Raises:
            ConfigError: this version of kubesched does not know the release.
        """
        versions = parse_versions(
            self.reference_version,
            [self.emulated_version] if self.emulated_version else [],
            [self.min_compatibility_version] if self.min_compatibility_version else [],
        )
        # Older versions of kubesched listed gates that kube-scheduler does not have.
        known = features.known(versions)
        given = {name: on for name, on in self.feature_gates.items() if name in known}
        return features.from_map(given, versions)

    @property
    def is_origin(self) -> bool:
        """Whether the run starts here, with empty state."""
        return self.number == self.run


class SegmentWriter:
    """Writes one segment to a file-like object; `storage` decides when to start another."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._window = b""
        self.size = 0
        self._write(MAGIC + _VERSION.pack(FORMAT_VERSION))
        self.write_block(msgspec.msgpack.encode(header))

    def write_block(self, data: bytes) -> None:
        """Write data as one block; the segment is complete up to here afterwards."""
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, zdict=self._window)
        packed = packer.compress(data) + packer.flush()
        self._window = (self._window + data)[-_WINDOW_BYTES:]
        self._write(_BLOCK.pack(len(packed), zlib.crc32(packed)) + packed)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = self._file.write(view)
            if not written:  # otherwise a full disk would cause an endless loop
                raise OSError(errno.EIO, "the disk takes no data")
            view = view[written:]
        self.size += len(data)


@dataclass(slots=True)
class SegmentReader:
    """Reads one segment from the beginning."""

    file: BinaryIO
    name: str
    header: Header
    torn_at: int | None = None
    """Offset where the segment breaks off, set after reading up to it."""
    _window: bytes = b""
    _offset: int = 0

    @classmethod
    def open(cls, file: BinaryIO, name: str) -> SegmentReader:
        """Read the header.

        Raises:
            RecordingError: not a segment, a newer format, or truncated in the header.
        """
        start = file.read(len(MAGIC) + _VERSION.size)
        if len(start) < len(MAGIC) + _VERSION.size and MAGIC.startswith(start[: len(MAGIC)]):
            raise RecordingError(f"{name}: broken off before its header")
        if not any(start):  # file created, but power failed before its data was written
            raise RecordingError(f"{name}: broken off before its header")
        if not start.startswith(MAGIC):
            raise RecordingError(f"{name}: not a segment of a recording")
        [version] = _VERSION.unpack(start[len(MAGIC) :])
        if version > FORMAT_VERSION:
            raise RecordingError(
                f"{name}: recorded in format {version} by a newer kubesched; "
                f"this one reads format {FORMAT_VERSION} and older"
            )
        reader = cls(file, name, _NO_HEADER, _offset=len(start))
        data = reader._next_block()
        if data is None:
            raise RecordingError(f"{name}: broken off in its header")
        try:
            reader.header = msgspec.msgpack.decode(data, type=Header)
        except msgspec.MsgspecError as error:
            raise RecordingError(f"{name}: not a valid header: {error}") from None
        return reader

    def blocks(self) -> Iterator[list[AnyEntry]]:
        """All records up to the end or the break, grouped as written."""
        while (data := self._next_block()) is not None:
            try:
                yield decode_entries(data)
            except msgspec.MsgspecError as error:
                # The checksum matches, so this is not a torn end but another program's data.
                raise RecordingError(f"{self.name}: unreadable records: {error}") from None

    def _next_block(self) -> bytes | None:
        lead = self.file.read(_BLOCK.size)
        if not lead:
            return None
        packed = b""
        if len(lead) == _BLOCK.size:
            length, checksum = _BLOCK.unpack(lead)
            if length <= MAX_BLOCK_BYTES:
                packed = self.file.read(length)
            if len(packed) == length and zlib.crc32(packed) == checksum:
                data = self._unpacked(packed)
                if data is not None:
                    self._offset += _BLOCK.size + length
                    return data
        self.torn_at = self._offset
        return None

    def _unpacked(self, packed: bytes) -> bytes | None:
        unpacker = zlib.decompressobj(-15, zdict=self._window)
        try:
            data = unpacker.decompress(packed, MAX_UNPACKED_BYTES)
        except zlib.error:
            return None
        if not unpacker.eof:
            return None
        self._window = (self._window + data)[-_WINDOW_BYTES:]
        return data


_NO_HEADER = Header(
    number=0,
    run=0,
    made_by="",
    wall_time=0,
    time=0,
    attempts=0,
    seed=0,
    config={},
    feature_gates={},
)


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
