"""All scheduler metrics by their upstream names; `metrics.txt` describes them.

The metrics of a feature are on the page only if the feature is on; their instruments always exist,
so callers need not check.

Not here: `kube_pod_resource_*`, which are computed per scrape from the pods, and the metrics of the
client, the leader election and the process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from kubesched.base.metrics import table
from kubesched.base.metrics.instruments import Counter, Family, Gauge, Histogram
from kubesched.base.metrics.registry import MetricsRegistry

FIRST_SUMMED_ATTEMPT: Final = 15
"""From this number on, all attempts share one series."""


ENTITIES: Final = "entities"
"""1.37: queued entities and rescored batches are counted, and some metrics have new names."""
SHADOWS: Final = "shadows"
ON_BY_DEFAULT: Final = frozenset(
    (ENTITIES, "SchedulerAsyncPreemption", "DRAExtendedResource", "DRADeviceBindingConditions")
)
"""What holds of the conditions in `metrics.txt` in 1.37."""


class SchedulerMetrics:
    """The instruments, one attribute per metric; the attribute is the name without `scheduler_`.

    A metric with labels is a family (`.labels(...)` returns the series), one without is the series
    itself.
    """

    schedule_attempts_total: Family[Counter]
    scheduling_attempt_duration_seconds: Family[Histogram]
    scheduling_algorithm_duration_seconds: Histogram
    pod_scheduling_sli_duration_seconds: Family[Histogram]
    pod_scheduling_attempts: Histogram
    pod_scheduled_after_flush_total: Counter
    pending_pods: Family[Gauge]
    queued_entities: Family[Gauge]
    queue_incoming_entities_total: Family[Counter]
    pre_queueing_hint_evaluations_total: Family[Counter]
    queue_incoming_pods_total: Family[Counter]
    unschedulable_pods: Family[Gauge]
    event_handling_duration_seconds: Family[Histogram]
    cache_size: Family[Gauge]
    queueing_hint_execution_duration_seconds: Family[Histogram]
    inflight_events: Family[Gauge]
    framework_extension_point_duration_seconds: Family[Histogram]
    plugin_execution_duration_seconds: Family[Histogram]
    plugin_evaluation_total: Family[Counter]
    permit_wait_duration_seconds: Family[Histogram]
    goroutines: Family[Gauge]
    batch_attempts_total: Family[Counter]
    batch_cache_flushed_total: Family[Counter]
    get_node_hint_duration_seconds: Family[Histogram]
    store_schedule_results_duration_seconds: Family[Histogram]
    batch_rescore_attempts_total: Family[Counter]
    batch_rescore_duration_seconds: Family[Histogram]
    preemption_victims: Histogram
    preemption_attempts_total: Counter
    preemption_goroutines_duration_seconds: Family[Histogram]
    preemption_goroutines_execution_total: Family[Counter]
    async_api_call_execution_total: Family[Counter]
    async_api_call_execution_duration_seconds: Family[Histogram]
    pending_async_api_calls: Family[Gauge]
    volume_binder_cache_requests_total: Family[Counter]
    volume_scheduling_stage_error_total: Family[Counter]
    dra_bindingconditions_allocations_total: Family[Counter]
    dra_bindingconditions_wait_duration_seconds: Family[Histogram]
    podgroup_schedule_attempts_total: Family[Counter]
    podgroup_scheduling_attempt_duration_seconds: Family[Histogram]
    podgroup_scheduling_algorithm_duration_seconds: Histogram
    workload_preemption_attempts_total: Family[Counter]
    workload_preemption_victims: Histogram
    preemption_workload_disruptions: Family[Histogram]
    preemption_evaluation_duration_seconds: Family[Histogram]
    preemption_execution_duration_seconds: Family[Histogram]
    preemption_pdb_violations_total: Family[Counter]
    generated_placements_total: Family[Counter]
    placement_evaluations_total: Family[Counter]
    placement_evaluation_duration_seconds: Family[Histogram]
    shadow_decisions_total: Family[Counter]

    def __init__(
        self, registry: MetricsRegistry, conditions: Collection[str] = ON_BY_DEFAULT
    ) -> None:
        self._registry = registry
        self._conditions = conditions
        self._unlisted = MetricsRegistry()  # instruments of disabled features, not on the page
        self._of_plugins: dict[str, Family[Gauge]] = {}
        for attribute in SchedulerMetrics.__annotations__:
            family = self._add(f"scheduler_{attribute}")
            setattr(self, attribute, family if family.label_names else family.labels())
        self._created_claims: Family[Counter] = self._add(
            "dynamic_resource_allocation_resourceclaim_creates_total"
            if ENTITIES in conditions
            else "scheduler_resourceclaim_creates_total"
        )

    def _add(self, name: str) -> Family[Any]:
        rows = table.rows()[name]
        for row in rows:
            if all(map(self._holds, row.conditions)):
                return self._registry.add(row)
        return self._unlisted.add(rows[0])

    def _holds(self, condition: str) -> bool:
        if condition == "hidden":
            return self._registry.shows_hidden
        name = condition.removeprefix("!")
        return (name in self._conditions) is (name == condition)

    def gauge(self, name: str, help_text: str, *, labels: Sequence[str] = ()) -> Family[Gauge]:
        """A plugin's own gauge: the same one for its instances in all profiles."""
        if name not in self._of_plugins:
            self._of_plugins[name] = self._registry.gauge(name, help_text, labels=labels)
        return self._of_plugins[name]

    def count_created_claim(self, outcome: str) -> None:
        """Count a claim that the scheduler made for a pod's extended resources, or could not."""
        owner = ("false", "", "Pod") if ENTITIES in self._conditions else ()
        self._created_claims.labels(outcome, *owner).inc()


def attempts_label(attempts: int) -> str:
    """The `attempts` label of `pod_scheduling_sli_duration_seconds`: exact up to 14, then `15+`."""
    return str(attempts) if attempts < FIRST_SUMMED_ATTEMPT else f"{FIRST_SUMMED_ATTEMPT}+"
