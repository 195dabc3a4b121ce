"""A plugin's author begins: the wheel in a fresh environment, a new package, its own tests."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*words, cwd, env=None):
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_new_plugin_works_with_the_wheel_in_a_fresh_environment(tmp_path):
    """Nothing is downloaded: the tools are those of this environment, kubesched is the wheel's."""
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    wheel = run(sys.executable, "-c", build, cwd=ROOT).splitlines()[-1]
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    to = ("--target", site, "--disable-pip-version-check")
    run(sys.executable, *install, *to, tmp_path / wheel, cwd=tmp_path)
    (site / "tools.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    where = run(python, "-c", "import kubesched; print(kubesched.__file__)", cwd=tmp_path, env=env)
    assert where.startswith(str(site))
    run(python, "-m", "kubesched", "plugin", "new", "RackAware", cwd=tmp_path, env=env)
    package = tmp_path / "rack-aware"
    install = (*install, "--no-build-isolation")
    run(sys.executable, *install, *to, package, cwd=package)
    listed = run(python, "-m", "kubesched", "plugin", "list", cwd=tmp_path, env=env)
    assert "RackAware   rack-aware 0.1.0   filter, score" in listed
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=package, env=env)
    assert "4 passed" in done
    words = ("config", "validate", "scheduler.yaml")
    assert "ok" in run(python, "-m", "kubesched", *words, cwd=package, env=env)
