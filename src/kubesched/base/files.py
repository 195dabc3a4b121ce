"""Files that are read whole, within a bound: a path may lead to a device that never ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1 << 30


def read_file(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of a file.

    Raises:
        OSError: it cannot be read, or has more bytes than that (EFBIG).
    """
    pieces, size = [], 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            pieces.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return b"".join(pieces)
