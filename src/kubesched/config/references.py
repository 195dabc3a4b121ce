"""The kube-scheduler releases that kubesched can stand in for, and how their behaviour differs.

`--reference-version` chooses one. Almost nothing that changes between two releases is behind a
feature gate, so this is not what `--emulated-version` does: that flag moves the defaults of gates
within one release. A behaviour is a field of `Reference` with one value per release; code asks for
it by name, once, when it is built, and never compares version numbers. Where a difference is whole,
both forms stand in the module that owns the subject. Feature gates are in `feature_gates.txt`.

A release that is added gets a row in `REFERENCES` (one between the oldest and the newest names what
it has not changed yet), its gates, and its recordings; CONTRIBUTING has the checklist.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A release of kube-scheduler; the behaviours are those of the newest one by default."""

    version: str
    """Minor version, as `--reference-version` takes it."""
    release: str
    """The release whose decisions were recorded."""

    # Messages
    deallocation_has_text: bool = False
    """DynamicResources' PostFilter says that there is nothing to deallocate."""
    preemption_has_text: bool = True
    """A successful preemption names the node and the number of victims."""
    cel_errors_name_the_device: bool = True
    """A selector that fails at run time names the device and gives a hint."""

    # Events and queue
    node_additions_imply_taints: bool = False
    """Plugins that register for added nodes are also told about changed taints."""
    target_pod_events: bool = True
    """Updates of a waiting pod are TargetPod events, those of other pods UnscheduledPod events.

    Requests that grew and a node's podPreemptionPolicy have events, too. Otherwise both kinds of
    pod are labelled UnschedulablePod, and every update of an assigned pod is looked at.
    """
    any_anti_affinity_term_wakes: bool = True
    """A pod is retried when another one stops matching any of its anti-affinity terms, not all."""
    deleted_claims_wake: bool = True
    """Deleting an allocated ResourceClaim wakes pods that wait for devices."""
    gated_pods_are_nominated: bool = True
    """A nomination counts before its pod may enter the queue."""
    rejectors_forgotten_everywhere: bool = True
    """A deleted pod leaves `unschedulable_pods` whichever queue it is in."""
    waiting_requests_follow: bool = True
    """A waiting pod that is resized counts with its new requests once it is on a node."""
    flushed_pods_are_counted: bool = True
    """`pod_scheduled_after_flush_total` moves."""

    # Plugins
    node_name_first: bool = True
    """NodeName comes before NodeUnschedulable; both and TaintToleration have a PreFilter."""
    namespace_selectors_are_expanded: bool = True
    """A term's namespaceSelector matches existing namespaces only, not every unlabelled one."""
    deferred_pod_scheduling: bool = True
    """The plugin DeferredPodScheduling exists."""
    image_volumes_count: bool = True
    """ImageLocality divides by image volumes, too."""
    footprint_is_max_of_sums: bool = True
    """A pod being resized takes the largest of its sums, not the sum of the largest parts."""
    budgets_stop_at_first_violation: bool = True
    """A victim is not charged to budgets after the first that it violates."""
    terminating_victims_are_counted: bool = True
    """`preemption_victims` moves even if all victims are terminating already."""
    last_victim_in_memory_activates: bool = True
    """The preemptor is tried at once if its last victim was not yet bound."""
    bindings_are_retried: bool = True
    """A binding is sent again if the server cannot be reached (after its errors it always is)."""
    batches_are_scored_again: bool = True
    """Opportunistic batching scores the last node again instead of giving up."""

    # Devices
    taint_rules_are_stable: bool = True
    """DeviceTaintRules are read as `resource.k8s.io/v1`."""
    device_configuration_is_deduplicated: bool = True
    """An allocation holds each configuration once, without naming all requests."""
    device_attributes_are_dynamic: bool = True
    """Selectors can read attributes with several values, and know `includes`."""
    distinct_attribute_counts_all: bool = True
    """distinctAttribute looks at every device picked, not at one per request."""
    full_devices_fail_all: bool = True
    """allocationMode All fails if a shareable device is full, instead of leaving it out."""
    shared_counters_charged_once: bool = True
    """A shareable device without capacity consumes its counters once."""
    capacity_overflow_is_an_error: bool = True
    """Capacity that cannot be computed is an error; results take the format of the step."""
    counter_slices_need_their_node: bool = True
    """Slices with shared counters matter only to the nodes that they name."""
    alpha_device_fields_are_refused: bool = True
    """Slices with compatibility groups are ignored, requests with derived attributes an error, and
    devices with skipped node operations left to nodes that declare the feature.

    Otherwise these fields are not known.
    """
    pending_allocations_kept_until_bound: bool = True
    """Allocations stay pending until PreBind has succeeded as a whole."""
    deleted_special_claims_are_fine: bool = True
    """A special claim that is gone already counts as deleted."""

    # Metrics and configuration
    entity_metrics: bool = True
    """Queued entities, rescored batches and informers have metrics, and others new names."""
    pod_group_post_filter: bool = True
    """`plugins.podGroupPostFilter` exists."""


def _oldest(version: str, release: str) -> Reference:
    """The first of these releases: every behaviour has changed since, or it would be no field."""
    behaviours = (field for field in fields(Reference) if field.type == "bool")
    before: dict[str, Any] = {field.name: not field.default for field in behaviours}
    return Reference(version=version, release=release, **before)


REFERENCES: Final = {
    reference.version: reference
    for reference in (_oldest("1.36", "1.36.4"), Reference(version="1.37", release="1.37.0"))
}
DEFAULT_REFERENCE: Final = REFERENCES["1.37"]
