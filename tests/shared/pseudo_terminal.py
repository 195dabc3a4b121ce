"""Output as a terminal of a given width gets it: stdout is a pseudo-terminal of the kernel."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def printed_on_terminal(print_it: Callable[[], object], columns: int) -> str:
    """What `print_it` prints when stdout is a terminal that is so wide, without its styles."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    chunks: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(ours, chunks))
    reader.start()
    before = sys.stdout
    try:
        with open(theirs, "w", encoding="utf-8") as sys.stdout:
            print_it()
    finally:
        sys.stdout = before
        reader.join()
        os.close(ours)
    return plain(b"".join(chunks).decode())


def _read_all(descriptor: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # EIO: the last writer has closed its side
            return
        if not chunk:
            return
        chunks.append(chunk)


def plain(text: str) -> str:
    """Without styles and the terminal's carriage returns."""
    return _STYLES.sub("", text).replace("\r\n", "\n")
