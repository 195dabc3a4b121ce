"""The Krew plugin `kubectl why`: its archive, its manifest, and what it calls."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("krew")
    words = [
        sys.executable,
        ROOT / "scripts/krew",
        "1.2.3",
        "https://example.com/why.tar.gz",
        folder,
    ]
    subprocess.run(words, check=True, timeout=60)
    return folder


def test_the_manifest_describes_the_archive(made):
    manifest = yaml.safe_load((made / "why.yaml").read_text())
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "why")
    assert manifest["spec"]["version"] == "v1.2.3"
    (platform,) = manifest["spec"]["platforms"]
    assert platform["uri"] == "https://example.com/why.tar.gz"
    data = (made / "kubectl-why.tar.gz").read_bytes()
    assert platform["sha256"] == hashlib.sha256(data).hexdigest()
    with tarfile.open(made / "kubectl-why.tar.gz") as tar:
        assert tar.getnames() == [platform["bin"], "LICENSE"]
        assert tar.getmember(platform["bin"]).mode == 0o755


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["web-1", "-n", "x"], "explain pod web-1 -n x --fix"),
        (["deployment/web"], "explain deployment/web --fix"),
        (["pods", "-A"], "explain pods -A --fix"),
        ([], "explain pod --help"),
        (["--help"], "explain pod --help"),
    ],
)
def test_the_plugin_asks_kubesched(words, asked, tmp_path):
    program = tmp_path / "kubesched"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    done = _why(words, f"{tmp_path}:/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (0, f"{asked}\n")


def test_without_kubesched_it_says_so():
    done = _why(["web-1"], "/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "error: kubectl why needs kubesched on the PATH\n"


def _why(words, path):
    return subprocess.run(
        [ROOT / "deploy/krew/kubectl-why", *words],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
