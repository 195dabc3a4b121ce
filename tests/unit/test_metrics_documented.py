"""docs/reference/metrics.md lists every metric of the scheduler, with its type and labels, and no other."""

import re
from pathlib import Path

from kubesched.metrics import MetricGates, MetricsRegistry, SchedulerMetrics

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"\| `(scheduler_\w+)` \| (\w+) \| (.*?) \| .+ \|")


def test_every_metric_is_documented_as_it_is():
    registry = MetricsRegistry()
    every_feature = MetricGates(
        queueing_hints=True,
        async_preemption=True,
        async_api_calls=True,
        dra_extended_resource=True,
        dra_device_binding_conditions=True,
        generic_workload=True,
    )
    SchedulerMetrics(registry, every_feature)
    expected = {family.name: (family.type, family.label_names) for family in registry.families()}
    documented = {
        match[1]: (match[2], tuple(re.findall(r"`(\w+)`", match[3])))
        for match in map(ROW.fullmatch, PAGE.read_text().splitlines())
        if match
    }
    assert documented == expected
