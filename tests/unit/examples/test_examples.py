"""The examples work: their tests pass, their configurations are valid, their extender answers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from runpy import run_path

from kubesched.testing import make_node, make_pod
from kubesched.testing.harness import SchedulerHarness

EXAMPLES = Path(__file__).parents[3] / "examples"
RACKS = EXAMPLES / "rack-plugin"


def run(*words, path=""):
    environment = {**os.environ, "PYTHONPATH": str(path)}
    answer = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, env=environment, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_the_plugins_own_tests_pass():
    options = ("-q", "-p", "no:cacheprovider", "--asyncio-mode=auto", f"--rootdir={RACKS}")
    assert "2 passed" in run("pytest", *options, str(RACKS / "tests"), path=RACKS / "src")


def test_the_plugins_configuration_is_valid(tmp_path):
    """As `module:Class`: the entry point exists only where the package is installed."""
    config = (
        (RACKS / "scheduler.yaml").read_text().replace("name: Racks", "name: rack_plugin:Racks")
    )
    path = tmp_path / "scheduler.yaml"
    path.write_text(config)
    assert "ok" in run("kubesched", "config", "validate", str(path), path=RACKS / "src")
    assert 'Racks = "rack_plugin:Racks"' in (RACKS / "pyproject.toml").read_text()


async def test_the_extender_has_its_say():
    handler = run_path(str(EXAMPLES / "extender" / "extender.py"))["Handler"]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = (EXAMPLES / "extender" / "scheduler.yaml").read_text()
        config = config.replace(":8888", f":{server.server_port}")
        async with SchedulerHarness(config) as world:
            for name in ("n1", "node-2", "n2"):
                world.add_node(make_node(name).build())
            world.add_pod(make_pod("p").build())
            async with asyncio.timeout(30):
                while not world.client.bindings:  # noqa: ASYNC110  # the extender is another thread
                    await asyncio.sleep(0.01)
            assert world.client.bindings == {"default/p": "n2"}
            for extender in world.assembly.frameworks["default-scheduler"].handle.extenders:
                await extender.aclose()
        server.shutdown()
