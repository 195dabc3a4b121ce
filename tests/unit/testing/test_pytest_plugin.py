"""The pytest plugin's fixtures, as a plugin's package uses them, and what it costs others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

TESTS = '''
import pytest
from kubesched.framework import FilterPlugin, unschedulable
from kubesched.testing import make_node, make_pod

class Never(FilterPlugin):
    name = "Never"

    def filter(self, state, pod, node_info):
        return unschedulable("never")

@pytest.fixture
def scheduler_config():
    return """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Never}]}}}]
"""

@pytest.fixture
def scheduler_plugins():
    return [Never]

def test_world(world):
    world.add(make_node("n").build(), make_pod("p").build())
    world.settle()
    assert "never" in world.condition("p")[1]
'''


def pytest_in(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_world_has_the_configuration_and_plugins_of_the_test(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    done = pytest_in(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_loading_it_imports_nothing_heavy():
    script = """
import sys, pytest
before = set(sys.modules)
import kubesched.testing.pytest_plugin
print(sorted(name for name in set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    names = [
        "kubesched",
        "kubesched.base",
        "kubesched.base.version",
        "kubesched.testing",
        "kubesched.testing.pytest_plugin",
    ]
    assert done.stdout.strip() == str(names)


@pytest.mark.slow
def test_the_cluster_schedules_over_http(tmp_path):
    (tmp_path / "never.py").write_text(TESTS.split("@pytest")[0])
    tests = (
        TESTS.replace("name: Never", "name: 'never:Never'").split("def test_world")[0]
        + """
def test_cluster(cluster):
    cluster.create(make_pod("p"))
    assert "never" in cluster.wait_for_rejection("p")
    assert cluster.call("GET", "/api/v1/nodes/node-0")["kind"] == "Node"
"""
    )
    (tmp_path / "test_it.py").write_text(tests)
    done = pytest_in(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
