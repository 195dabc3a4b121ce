"""Reading whole files up to a size limit, since a path may lead to an endless device."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1 << 30


def read_file(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Reads a file.

    Raises:
        OSError: it cannot be read, or is larger than `max_bytes` (EFBIG).
    """
    pieces, size = [], 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            pieces.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return b"".join(pieces)
