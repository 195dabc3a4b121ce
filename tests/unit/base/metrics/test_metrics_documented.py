"""docs/reference/metrics.md lists every metric, those of the scheduler with type and labels: the
checklist in CONTRIBUTING.md.
"""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics, table

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
SOURCES = ROOT / "src" / "kubesched"
ROW = re.compile(r"\| `((?:scheduler|dynamic)_\w+)` \| (\w+) \| (.*?) \| .+ \|")


def test_every_metric_is_documented_as_it_is():
    registry = MetricsRegistry(shows_hidden=True)
    conditions = {name for rows in table.rows().values() for row in rows for name in row.conditions}
    SchedulerMetrics(registry, conditions)
    expected = {family.name: (family.type, family.label_names) for family in registry.families()}
    documented = {
        match[1]: (match[2], tuple(re.findall(r"`(\w+)`", match[3])))
        for match in map(ROW.fullmatch, PAGE.read_text().splitlines())
        if match
    }
    assert documented == expected


def test_every_metric_of_the_process_is_documented():
    patterns = re.findall(r"`([a-z_]+\*?)`", PAGE.read_text())
    assert len(table.rows()) > 80
    assert [
        name for name in table.rows() if not any(fnmatchcase(name, pattern) for pattern in patterns)
    ] == []


def test_every_metric_of_the_table_is_registered():
    attributes = {f"scheduler_{name}" for name in SchedulerMetrics.__annotations__}
    text = "".join(path.read_text() for path in SOURCES.rglob("*.py"))
    assert [
        name for name in table.rows() if name not in attributes and f'"{name}"' not in text
    ] == []
