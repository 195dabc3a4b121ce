"""Paths that lead to what never ends, or unpacks to more than there is room for: refused with a
sentence.
"""

from __future__ import annotations

import gzip

import pytest

from kubesched.app.cli.main import main
from kubesched.base.files import read_file
from kubesched.config import load as config_load
from kubesched.insight.planning import manifests
from kubesched.lab.traces import rows
from kubesched.lab.traces.trace import TraceError


def test_a_file_is_read_whole_within_its_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    assert read_file(path, 3_000_000) == path.read_bytes()
    with pytest.raises(OSError, match="File too large"):
        read_file(path, 2_999_999)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["explain", "pods", "--from", "/dev/zero"], "NUL bytes"),
        (["explain", "pods", "--config", "/dev/zero", "--from", "/dev/null"], "File too large"),
        (["plan", "-f", "/dev/zero", "--from", "/dev/null"], "File too large"),
        (["replay", "/dev/zero"], "File too large"),
    ],
)
def test_devices_that_never_end_are_refused(words, reason, monkeypatch, capsys):
    monkeypatch.setattr(config_load, "_MAX_BYTES", 1 << 21)
    monkeypatch.setattr(rows, "MAX_BYTES", 1 << 21)
    monkeypatch.setattr(manifests, "MAX_BYTES", 1 << 21)
    assert main(words) == 1
    shown = capsys.readouterr()
    assert reason in shown.out + shown.err


def test_a_packed_trace_does_not_unpack_without_end(monkeypatch, tmp_path):
    monkeypatch.setattr(rows, "MAX_BYTES", 1 << 20)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"0" * (1 << 24)))
    with pytest.raises(TraceError, match="File too large"):
        rows.read_bytes(str(path))
