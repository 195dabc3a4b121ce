"""All scheduler metrics, with upstream's names, labels, buckets and stability levels.

Dashboards and alerts written for kube-scheduler read these names, so they are a contract. The help
texts are ours. The metrics of a feature are on the page only if the feature is on; their
instruments always exist, so callers need not check.

Not here: `kube_pod_resource_*`, which are computed per scrape from the pods, and the metrics of the
client, the leader election and the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.base.metrics.instruments import (
    Counter,
    Family,
    Gauge,
    Histogram,
    exponential_buckets,
)
from kubesched.base.metrics.registry import MetricsRegistry

ATTEMPT_SECONDS: Final = exponential_buckets(0.001, 2, 15)
"""1 ms to 16 s: whole attempts and waits."""
POINT_SECONDS: Final = exponential_buckets(0.0001, 2, 12)
"""0.1 ms to 0.2 s: one extension point, one event handler."""
POD_SECONDS: Final = exponential_buckets(0.01, 2, 20)
"""10 ms to 87 min: a pod from first queueing to binding."""
PLUGIN_SECONDS: Final = exponential_buckets(0.00001, 1.5, 20)
"""10 µs to 22 ms: one call of one plugin."""
BATCH_SECONDS: Final = exponential_buckets(0.00001, 2, 12)
"""10 µs to 20 ms: batching look-ups."""
PREEMPTION_SECONDS: Final = exponential_buckets(0.001, 2, 16)
"""1 ms to 33 s: preemption by a group."""
VICTIMS: Final = exponential_buckets(1, 2, 7)
GROUP_VICTIMS: Final = exponential_buckets(1, 2, 11)
ATTEMPTS: Final = exponential_buckets(1, 2, 5)
BINDING_CONDITION_SECONDS: Final = exponential_buckets(0.1, 2, 14)
"""0.1 s to 14 min: preparing a device."""

_PREFIX: Final = "scheduler_"
FIRST_SUMMED_ATTEMPT: Final = 15
"""From this number on, all attempts share one series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGates:
    """The features and releases with their own metrics; defaults are those of 1.37."""

    entities: bool = True
    """1.37: queued entities and rescored batches are counted, and some metrics have new names."""
    async_preemption: bool = True
    async_api_calls: bool = False
    dra_extended_resource: bool = True
    dra_device_binding_conditions: bool = True
    generic_workload: bool = False
    topology_aware_workloads: bool = False
    shadows: bool = False


class SchedulerMetrics:
    """The instruments, one attribute per metric; the attribute is the name without `scheduler_`.

    A metric with labels is a family (`.labels(...)` returns the series), one without is the series
    itself.
    """

    def __init__(self, registry: MetricsRegistry, gates: MetricGates | None = None) -> None:
        gates = gates or MetricGates()
        self._registry = registry
        self._of_plugins: dict[str, Family[Gauge]] = {}
        unlisted = MetricsRegistry()  # instruments of disabled features, not on the page
        self._has_entities = gates.entities
        entities = registry if gates.entities else unlisted
        self._stage = "BETA" if gates.entities else "ALPHA"
        self._attempts(registry)
        self._queue(registry, entities)
        self._framework(registry)
        self._batching(registry, entities)
        background = registry if gates.async_preemption else unlisted
        is_hidden = gates.entities and not registry.shows_hidden
        self._preemption(registry, background, unlisted if is_hidden else background)
        self._api_calls(registry if gates.async_api_calls else unlisted)
        self._volumes(registry)
        self._devices(
            registry if gates.dra_extended_resource else unlisted,
            registry if gates.dra_device_binding_conditions else unlisted,
        )
        self._pod_groups(registry if gates.generic_workload else unlisted)
        self._placements(registry if gates.topology_aware_workloads else unlisted)
        self._shadows(registry if gates.shadows else unlisted)

    def gauge(self, name: str, help_text: str, *, labels: Sequence[str] = ()) -> Family[Gauge]:
        """A plugin's own gauge: the same one for its instances in all profiles."""
        if name not in self._of_plugins:
            self._of_plugins[name] = self._registry.gauge(name, help_text, labels=labels)
        return self._of_plugins[name]

    def _attempts(self, registry: MetricsRegistry) -> None:
        self.schedule_attempts_total: Family[Counter] = registry.counter(
            _PREFIX + "schedule_attempts_total",
            "[STABLE] Attempts to place a pod, by how they ended: 'scheduled', 'unschedulable' "
            "(no node would take the pod) or 'error' (something broke inside the scheduler).",
            labels=("result", "profile"),
        )
        self.scheduling_attempt_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "scheduling_attempt_duration_seconds",
            "[STABLE] Seconds one attempt took, from taking the pod off the queue to its binding "
            "or its failure.",
            labels=("result", "profile"),
            buckets=ATTEMPT_SECONDS,
        )
        self.scheduling_algorithm_duration_seconds: Histogram = registry.histogram(
            _PREFIX + "scheduling_algorithm_duration_seconds",
            f"[{self._stage}] Seconds spent choosing a node for one pod.",
            buckets=ATTEMPT_SECONDS,
        ).labels()
        self.pod_scheduling_sli_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "pod_scheduling_sli_duration_seconds",
            "[BETA] Seconds from a pod's first entry into the active queue to its binding, by the "
            "number of attempts; time spent gated before that entry does not count.",
            labels=("attempts",),
            buckets=POD_SECONDS,
        )
        self.pod_scheduling_attempts: Histogram = registry.histogram(
            _PREFIX + "pod_scheduling_attempts",
            "[STABLE] Attempts a pod needed until it was bound.",
            buckets=ATTEMPTS,
        ).labels()
        self.pod_scheduled_after_flush_total: Counter = registry.counter(
            _PREFIX + "pod_scheduled_after_flush_total",
            "[ALPHA] Pods bound after they had sat among the unschedulable until the time limit "
            "and no event had freed them.",
        ).labels()

    def _queue(self, registry: MetricsRegistry, entities: MetricsRegistry) -> None:
        self.pending_pods: Family[Gauge] = registry.gauge(
            _PREFIX + "pending_pods",
            "[STABLE] Pods waiting, by queue: 'active', 'backoff', 'unschedulable' (tried and "
            "waiting for an event) and 'gated' (not to be tried yet).",
            labels=("queue",),
        )
        self.queued_entities: Family[Gauge] = entities.gauge(
            _PREFIX + "queued_entities",
            "[ALPHA] Pods that belong to no group, and pod groups, waiting, by queue as for "
            "pending pods.",
            labels=("queue", "type"),
        )
        self.queue_incoming_entities_total: Family[Counter] = entities.counter(
            _PREFIX + "queue_incoming_entities_total",
            "[ALPHA] Pods that belong to no group, and pod groups, entering a queue on which no "
            "event had decided, by the event that brought them there.",
            labels=("queue", "event", "type"),
        )
        self.pre_queueing_hint_evaluations_total: Family[Counter] = entities.counter(
            _PREFIX + "pre_queueing_hint_evaluations_total",
            "[ALPHA] Events that a plugin has narrowed to some pods, or could not.",
            labels=("plugin", "result"),
        )
        self.queue_incoming_pods_total: Family[Counter] = registry.counter(
            _PREFIX + "queue_incoming_pods_total",
            "[STABLE] Pods entering a queue, by the event that brought them there.",
            labels=("queue", "event"),
        )
        self.unschedulable_pods: Family[Gauge] = registry.gauge(
            _PREFIX + "unschedulable_pods",
            "[BETA] Waiting pods by the plugin that turned them away; a pod rejected by several "
            "plugins counts for each.",
            labels=("plugin", "profile"),
        )
        self.event_handling_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "event_handling_duration_seconds",
            "[ALPHA] Seconds spent taking in one change of the cluster.",
            labels=("event",),
            buckets=POINT_SECONDS,
        )
        self.cache_size: Family[Gauge] = registry.gauge(
            _PREFIX + "cache_size",
            "[ALPHA] Nodes, pods and assumed (bound, not yet confirmed) pods the scheduler knows.",
            labels=("type",),
        )
        self.queueing_hint_execution_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "queueing_hint_execution_duration_seconds",
            "[ALPHA] Seconds one queueing hint took to say whether an event may help a waiting "
            "pod.",
            labels=("plugin", "event", "hint"),
            buckets=PLUGIN_SECONDS,
        )
        self.inflight_events: Family[Gauge] = registry.gauge(
            _PREFIX + "inflight_events",
            "[ALPHA] Events remembered on behalf of pods that are being scheduled right now.",
            labels=("event",),
        )

    def _framework(self, registry: MetricsRegistry) -> None:
        self.framework_extension_point_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "framework_extension_point_duration_seconds",
            "[STABLE] Seconds all plugins of an extension point took together.",
            labels=("extension_point", "status", "profile"),
            buckets=POINT_SECONDS,
        )
        self.plugin_execution_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "plugin_execution_duration_seconds",
            f"[{self._stage}] Seconds one plugin took at one extension point, measured in a sample "
            "of the cycles.",
            labels=("plugin", "extension_point", "status"),
            buckets=PLUGIN_SECONDS,
        )
        self.plugin_evaluation_total: Family[Counter] = registry.counter(
            _PREFIX + "plugin_evaluation_total",
            "[BETA] Attempts in which a plugin was asked, by extension point (PreFilter, Filter, "
            "PreScore, Score).",
            labels=("plugin", "extension_point", "profile"),
        )
        self.permit_wait_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "permit_wait_duration_seconds",
            "[BETA] Seconds a pod waited on Permit, by the outcome.",
            labels=("result",),
            buckets=ATTEMPT_SECONDS,
        )
        self.goroutines: Family[Gauge] = registry.gauge(
            _PREFIX + "goroutines",
            "[BETA] Concurrent pieces of work, by the operation they carry out.",
            labels=("operation",),
        )

    def _batching(self, registry: MetricsRegistry, rescoring: MetricsRegistry) -> None:
        self.batch_attempts_total: Family[Counter] = registry.counter(
            _PREFIX + "batch_attempts_total",
            "[ALPHA] Attempts by whether the result of an identical pod could be reused.",
            labels=("profile", "result"),
        )
        self.batch_cache_flushed_total: Family[Counter] = registry.counter(
            _PREFIX + "batch_cache_flushed_total",
            "[ALPHA] Times the result of an identical pod could not be reused, by the reason.",
            labels=("profile", "reason"),
        )
        self.get_node_hint_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "get_node_hint_duration_seconds",
            "[ALPHA] Seconds spent looking for a node that an identical pod left over.",
            labels=("hinted", "profile"),
            buckets=BATCH_SECONDS,
        )
        self.store_schedule_results_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "store_schedule_results_duration_seconds",
            "[ALPHA] Seconds spent keeping a result for identical pods.",
            labels=("profile",),
            buckets=BATCH_SECONDS,
        )
        self.batch_rescore_attempts_total: Family[Counter] = rescoring.counter(
            _PREFIX + "batch_rescore_attempts_total",
            "[ALPHA] Times the last node was scored again because it still had room.",
            labels=("profile",),
        )
        self.batch_rescore_duration_seconds: Family[Histogram] = rescoring.histogram(
            _PREFIX + "batch_rescore_duration_seconds",
            "[ALPHA] Seconds spent scoring the last node again.",
            labels=("profile",),
            buckets=BATCH_SECONDS,
        )

    def _preemption(
        self, registry: MetricsRegistry, background: MetricsRegistry, deprecated: MetricsRegistry
    ) -> None:
        self.preemption_victims: Histogram = registry.histogram(
            _PREFIX + "preemption_victims",
            "[STABLE] Pods chosen for eviction by one preemption.",
            buckets=VICTIMS,
        ).labels()
        self.preemption_attempts_total: Counter = registry.counter(
            _PREFIX + "preemption_attempts_total",
            "[STABLE] Times preemption was tried.",
        ).labels()
        note = "(Deprecated since 1.37.0) " if self._has_entities else ""
        self.preemption_goroutines_duration_seconds: Family[Histogram] = deprecated.histogram(
            _PREFIX + "preemption_goroutines_duration_seconds",
            f"[ALPHA] {note}Seconds the background part of one preemption took.",
            labels=("result",),
            buckets=POD_SECONDS,
        )
        self.preemption_goroutines_execution_total: Family[Counter] = background.counter(
            _PREFIX + "preemption_goroutines_execution_total",
            "[ALPHA] Background parts of preemptions that ran, by the outcome.",
            labels=("result",),
        )

    def _api_calls(self, registry: MetricsRegistry) -> None:
        self.async_api_call_execution_total: Family[Counter] = registry.counter(
            _PREFIX + "async_api_call_execution_total",
            "[ALPHA] API calls the dispatcher executed, by the outcome.",
            labels=("call_type", "result"),
        )
        self.async_api_call_execution_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "async_api_call_execution_duration_seconds",
            "[ALPHA] Seconds one API call of the dispatcher took.",
            labels=("call_type", "result"),
            buckets=ATTEMPT_SECONDS,
        )
        self.pending_async_api_calls: Family[Gauge] = registry.gauge(
            _PREFIX + "pending_async_api_calls",
            "[ALPHA] API calls waiting in the dispatcher.",
            labels=("call_type",),
        )

    def _volumes(self, registry: MetricsRegistry) -> None:
        self.volume_binder_cache_requests_total: Family[Counter] = registry.counter(
            _PREFIX + "volume_binder_cache_requests_total",
            "[ALPHA] Requests to the volume binding cache.",
            labels=("operation",),
        )
        self.volume_scheduling_stage_error_total: Family[Counter] = registry.counter(
            _PREFIX + "volume_scheduling_stage_error_total",
            "[ALPHA] Failures of volume scheduling, by stage.",
            labels=("operation",),
        )

    def _devices(
        self, extended_resources: MetricsRegistry, binding_conditions: MetricsRegistry
    ) -> None:
        creates = "[ALPHA] Claims the scheduler tried to create for extended resources, by "
        if self._has_entities:
            self._created_claims: Family[Counter] = extended_resources.counter(
                "dynamic_resource_allocation_resourceclaim_creates_total",
                f"{creates}the outcome, admin access and owner.",
                labels=("status", "admin_access", "owner_api_group", "owner_api_kind"),
            )
            self._claim_labels: tuple[str, ...] = ("false", "", "Pod")
        else:
            self._created_claims = extended_resources.counter(
                _PREFIX + "resourceclaim_creates_total",
                f"{creates}the outcome.",
                labels=("status",),
            )
            self._claim_labels = ()
        self.dra_bindingconditions_allocations_total: Family[Counter] = binding_conditions.counter(
            _PREFIX + "dra_bindingconditions_allocations_total",
            "[ALPHA] Allocations of devices with binding conditions, by how the wait for them "
            "ended.",
            labels=("profile", "driver", "status"),
        )
        self.dra_bindingconditions_wait_duration_seconds: Family[Histogram] = (
            binding_conditions.histogram(
                _PREFIX + "dra_bindingconditions_wait_duration_seconds",
                "[ALPHA] Seconds a pod waited for the binding conditions of its devices.",
                labels=("profile", "driver", "status"),
                buckets=BINDING_CONDITION_SECONDS,
            )
        )

    def count_created_claim(self, outcome: str) -> None:
        """Count a claim that the scheduler made for a pod's extended resources, or could not."""
        self._created_claims.labels(outcome, *self._claim_labels).inc()

    def _pod_groups(self, registry: MetricsRegistry) -> None:
        self.podgroup_schedule_attempts_total: Family[Counter] = registry.counter(
            _PREFIX + "podgroup_schedule_attempts_total",
            "[ALPHA] Attempts to place a pod group, by how they ended.",
            labels=("result", "profile"),
        )
        self.podgroup_scheduling_attempt_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "podgroup_scheduling_attempt_duration_seconds",
            "[ALPHA] Seconds one attempt to place a pod group took.",
            labels=("result", "profile"),
            buckets=ATTEMPT_SECONDS,
        )
        self.podgroup_scheduling_algorithm_duration_seconds: Histogram = registry.histogram(
            _PREFIX + "podgroup_scheduling_algorithm_duration_seconds",
            "[ALPHA] Seconds spent choosing nodes for one pod group.",
            buckets=ATTEMPT_SECONDS,
        ).labels()
        self.workload_preemption_attempts_total: Family[Counter] = registry.counter(
            _PREFIX + "workload_preemption_attempts_total",
            "[ALPHA] Attempts of pod groups to preempt, by how they ended.",
            labels=("result",),
        )
        self.workload_preemption_victims: Histogram = registry.histogram(
            _PREFIX + "workload_preemption_victims",
            "[ALPHA] Pods evicted by one preemption of a pod group.",
            buckets=GROUP_VICTIMS,
        ).labels()
        self.preemption_workload_disruptions: Family[Histogram] = registry.histogram(
            _PREFIX + "preemption_workload_disruptions",
            "[ALPHA] Groups, or members of groups, evicted by one preemption.",
            labels=("preemptor",),
            buckets=GROUP_VICTIMS,
        )
        self.preemption_evaluation_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "preemption_evaluation_duration_seconds",
            "[ALPHA] Seconds it took to find the victims of one preemption.",
            labels=("preemptor", "result"),
            buckets=PREEMPTION_SECONDS,
        )
        self.preemption_execution_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "preemption_execution_duration_seconds",
            "[ALPHA] Seconds it took to evict the victims of one preemption.",
            labels=("preemptor", "result"),
            buckets=PREEMPTION_SECONDS,
        )
        self.preemption_pdb_violations_total: Family[Counter] = registry.counter(
            _PREFIX + "preemption_pdb_violations_total",
            "[ALPHA] Victims whose eviction violates a disruption budget.",
            labels=("preemptor",),
        )

    def _placements(self, registry: MetricsRegistry) -> None:
        self.generated_placements_total: Family[Counter] = registry.counter(
            _PREFIX + "generated_placements_total",
            "[ALPHA] Placements generated for pod groups.",
            labels=("profile",),
        )
        self.placement_evaluations_total: Family[Counter] = registry.counter(
            _PREFIX + "placement_evaluations_total",
            "[ALPHA] Placements of pod groups that were tried, by result.",
            labels=("result", "profile"),
        )
        self.placement_evaluation_duration_seconds: Family[Histogram] = registry.histogram(
            _PREFIX + "placement_evaluation_duration_seconds",
            "[ALPHA] Seconds one placement of a pod group took to try.",
            labels=("result", "profile"),
            buckets=ATTEMPT_SECONDS,
        )

    def _shadows(self, registry: MetricsRegistry) -> None:
        self.shadow_decisions_total: Family[Counter] = registry.counter(
            _PREFIX + "shadow_decisions_total",
            "[ALPHA] Decisions of a shadow profile beside those of the live one: 'same', 'tie' "
            "(the live node is among its best), 'different', 'only_live', 'only_shadow' (only one "
            "finds a node), 'neither' or 'error'.",
            labels=("profile", "of", "result"),
        )


def attempts_label(attempts: int) -> str:
    """The `attempts` label of `pod_scheduling_sli_duration_seconds`: exact up to 14, then `15+`."""
    return str(attempts) if attempts < FIRST_SUMMED_ATTEMPT else f"{FIRST_SUMMED_ATTEMPT}+"
