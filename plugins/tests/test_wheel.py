"""The wheel beside kubesched's in a fresh environment: its plugins are found by their names."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*words: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_is_found_beside_kubesched(tmp_path: Path) -> None:
    """Nothing is downloaded: dependencies are those of this environment."""
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    wheels = [run(sys.executable, "-c", build, cwd=at).split()[-1] for at in (ROOT.parent, ROOT)]
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site)
    files = [tmp_path / wheel for wheel in wheels]
    run(sys.executable, *install, "--disable-pip-version-check", *files, cwd=tmp_path)
    (site / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    python = home / "bin" / "python"
    where = "import kubesched, kubesched_plugins as p; print(kubesched.__file__, p.__file__)"
    found = run(python, "-c", where, cwd=tmp_path, env=env).split()
    assert all(path.startswith(str(site)) for path in found)
    listed = run(python, "-m", "kubesched", "plugin", "list", cwd=tmp_path, env=env)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in project["entry-points"]["kubesched.plugins"]:
        (line,) = [line for line in listed.splitlines() if line.split()[:1] == [name]]
        assert f"kubesched-plugins {project['version']}" in line
