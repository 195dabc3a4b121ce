"""Segments: how records lie in a file, so that a crash costs the end of the last one and nothing else.

    magic, format version (2 bytes)
    block: header (MessagePack)
    block: records …
    block: records …

A block is its length, a checksum, and packed data. Blocks of one segment share a window of text:
each is packed with the end of the one before as its dictionary, so that small blocks pack as well
as large ones. A block that is cut short or does not match its checksum ends the segment there.

Packing is zlib at level 1. Measured on the lives of 20,000 pods (benchmarks/recording.py): zlib 1
packs a life of 4,611 bytes into 290 in 10 us, zlib 6 into 252 in 27 us, zstandard 1 into 155 in 9
us. That is not worth a dependency.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from kubesched.base.errors import KubeschedError
from kubesched.insight.recording.records import AnyEntry, decode_entries

MAGIC = b"KUBESCHED-REC\n"
FORMAT_VERSION = 2
SUFFIX = ".rec"

_VERSION = struct.Struct(">H")
_BLOCK = struct.Struct(">II")
MAX_BLOCK_BYTES = 64 << 20
"""Of a packed block; a larger length is a damaged one."""
MAX_UNPACKED_BYTES = 1 << 30
_WINDOW_BYTES = 32 << 10
_LEVEL = 1


class RecordingError(KubeschedError):
    """A recording cannot be used; the text names folder or segment and says why."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment says about itself."""

    number: int
    """Of the segment; they are numbered through."""
    run: int
    """Number of the segment with which this run of the scheduler began."""
    made_by: str
    """Version of kubesched."""
    wall_time: float
    """Time of day, in seconds since the epoch, when the segment was begun."""
    time: float
    """The scheduler's clock at that moment."""
    attempts: int
    """Attempts of this run before the segment."""
    seed: int
    """Of the random numbers that enter decisions."""
    config: dict[str, Any]
    """KubeSchedulerConfiguration, as it was in effect."""
    feature_gates: dict[str, bool]
    max_in_unschedulable_s: float = 300.0
    """The flag --pod-max-in-unschedulable-pods-duration."""
    classes: bool = True
    """Whether equal pods shared answers, and waited as one (`bench run --no-classes`: they did
    not).
    """
    is_playable: bool = False
    """Whether the checkpoint holds the state of the scheduler, too."""

    @property
    def is_origin(self) -> bool:
        """Whether the run begins here, with nothing known."""
        return self.number == self.run


class SegmentWriter:
    """Writes one segment to a file-like object.

    Not responsible for when to begin another (`storage`).
    """

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._window = b""
        self.size = 0
        self._write(MAGIC + _VERSION.pack(FORMAT_VERSION))
        self.write_block(msgspec.msgpack.encode(header))

    def write_block(self, data: bytes) -> None:
        """Write data as one block; after it has been written the segment is whole up to here."""
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, zdict=self._window)
        packed = packer.compress(data) + packer.flush()
        self._window = (self._window + data)[-_WINDOW_BYTES:]
        self._write(_BLOCK.pack(len(packed), zlib.crc32(packed)) + packed)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = self._file.write(view)
            if not written:  # else a disk that takes nothing is asked for ever
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
    """Offset at which the segment broke off, once all before it was read."""
    _window: bytes = b""
    _offset: int = 0

    @classmethod
    def open(cls, file: BinaryIO, name: str) -> SegmentReader:
        """Read the header.

        Raises:
            RecordingError: it is no segment, or of a newer format, or broke off in its header.
        """
        start = file.read(len(MAGIC) + _VERSION.size)
        if len(start) < len(MAGIC) + _VERSION.size and MAGIC.startswith(start[: len(MAGIC)]):
            raise RecordingError(f"{name}: broken off before its header")
        if not any(start):  # the file was made, its data was not written before power failed
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
        """All records up to the end, or to where the segment broke off, as they were written together."""
        while (data := self._next_block()) is not None:
            try:
                yield decode_entries(data)
            except msgspec.MsgspecError as error:
                # The checksum was right, so this was written so: not a torn end but another
                # program's data.
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
