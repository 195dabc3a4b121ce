"""The plugin guide works as printed: its files are written out, its configuration validated, its
tests run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/how-to/write-a-plugin.md"
BLOCK = re.compile(r"```(\w+)\n# ([\w.]+)(?:, continued)?\n(.*?)```", re.DOTALL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The files of the guide, in a folder of their own."""
    for _language, name, text in BLOCK.findall(GUIDE.read_text()):
        with (tmp_path / name).open("a") as file:
            file.write(text + "\n\n")
    return tmp_path


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=package, capture_output=True, text=True, timeout=120
    )


def test_every_python_block_belongs_to_a_file() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert (
        len(blocks)
        == sum(language == "python" for language, _, _ in BLOCK.findall(GUIDE.read_text()))
        >= 5
    )


@pytest.mark.slow
def test_the_printed_tests_pass(package: Path) -> None:
    done = run(package, "pytest", "-q", "-p", "no:cacheprovider", "test_racks.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_printed_configuration_is_valid(package: Path) -> None:
    done = run(package, "kubesched", "config", "validate", "racks.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_other_modules_import_and_decide(package: Path) -> None:
    script = """
from kubesched.testing import Cluster, make_node, make_pod
from racks_one_by_one import RackOnlyOneByOne
from quotas import ServiceFirst
from kubesched.api.core_v1 import Service
from kubesched.api.meta import ObjectMeta

CONFIG = '''
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: RackOnlyOneByOne}, {name: ServiceFirst}]
'''

def story():
    with Cluster(config=CONFIG, plugins=[RackOnlyOneByOne, ServiceFirst]) as world:
        world.add(make_node("bare").build())
        world.add(make_node("racked").label("rack", "a").build())
        world.add(make_pod("a").build())
        world.add(make_pod("b").label("service", "web").build())
        world.settle()
        assert world.client.bindings == {"default/a": "racked"}, world.client.bindings
        assert "service web does not exist" in world.pod("b").status.conditions[0].message
        world.put(Service(metadata=ObjectMeta(name="web", namespace="default")))
        world.advance(seconds=400)
        assert world.client.bindings["default/b"] == "racked"

story()
"""
    done = run(package, "timeit", "-n1", "-r1", script)
    assert done.returncode == 0, done.stdout + done.stderr
