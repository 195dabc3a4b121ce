"""Files of certificates: what is not a file is written to, not replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kubesched.base.certificates import write_private


def test_a_file_is_replaced_and_a_device_is_not(tmp_path: Path) -> None:
    """`up --kubeconfig /dev/null` as root would leave the machine without /dev/null."""
    path, pipe = tmp_path / "file", tmp_path / "pipe"
    write_private(path, b"old")
    write_private(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        write_private(pipe, b"text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
