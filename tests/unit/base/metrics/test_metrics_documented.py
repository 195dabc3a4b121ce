"""docs/reference/metrics.md lists every metric, those of the scheduler with type and labels: the
checklist in CONTRIBUTING.md.
"""

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from kubesched.base.metrics import MetricGates, MetricsRegistry, SchedulerMetrics

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
SOURCES = ROOT / "src" / "kubesched"
ROW = re.compile(r"\| `((?:scheduler|dynamic)_\w+)` \| (\w+) \| (.*?) \| .+ \|")


def test_every_metric_is_documented_as_it_is():
    registry = MetricsRegistry(shows_hidden=True)
    every_feature = MetricGates(
        async_preemption=True,
        async_api_calls=True,
        dra_extended_resource=True,
        dra_device_binding_conditions=True,
        generic_workload=True,
        topology_aware_workloads=True,
        shadows=True,
    )
    SchedulerMetrics(registry, every_feature)
    expected = {family.name: (family.type, family.label_names) for family in registry.families()}
    documented = {
        match[1]: (match[2], tuple(re.findall(r"`(\w+)`", match[3])))
        for match in map(ROW.fullmatch, PAGE.read_text().splitlines())
        if match
    }
    assert documented == expected


@pytest.mark.slow
def test_every_metric_of_the_process_is_documented():
    patterns = re.findall(r"`([a-z_]+\*?)`", PAGE.read_text())
    named = [name for path in SOURCES.rglob("*.py") for name in registered_names(path)]
    assert len(named) > 50
    assert [
        name for name in named if not any(fnmatchcase(name, pattern) for pattern in patterns)
    ] == []


def registered_names(path):
    """The names of metrics that a module registers: `registry.counter("name", …)`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("counter", "gauge", "histogram")
            and node.args
        ):
            match node.args[0]:
                case ast.Constant(value=str(name)):
                    yield name
                case ast.BinOp(left=ast.Name(id="_PREFIX"), right=ast.Constant(value=str(name))):
                    yield f"scheduler_{name}"
