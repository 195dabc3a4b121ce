"""`kubesched up`: what it does before a cluster starts."""

from __future__ import annotations

import pytest

from kubesched.cli import main as cli
from kubesched.cli import up
from kubesched.embedded.storage.database import open_database
from kubesched.embedded.storage.journal import DATABASE


@pytest.mark.parametrize("words", [(), ("--data-dir", "missing")])
def test_a_repair_needs_a_data_directory(capsys, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["up", "--repair", *words]) == 1
    assert "--repair needs --data-dir with an existing directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_repair_says_what_it_did(capsys, tmp_path):
    open_database(tmp_path / DATABASE, is_new=True).close()
    up._repair(str(tmp_path))
    assert "is not damaged" in capsys.readouterr().out
    (tmp_path / DATABASE).write_bytes(b"nonsense" * 1000)
    up._repair(str(tmp_path))
    assert f"0 objects kept; the damaged file is {tmp_path / DATABASE}.damaged-1" in (
        capsys.readouterr().out
    )
