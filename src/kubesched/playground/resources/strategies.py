"""The write strategy of each built-in kind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kubesched.config.features import FeatureGates
from kubesched.playground.apimachinery.object_meta import label_problems, path_segment_problems
from kubesched.playground.apimachinery.releases import release_of
from kubesched.playground.apimachinery.validation import never_changes
from kubesched.playground.registry.strategy import WRITABLE_METADATA, Strategy, SubresourceWrite
from kubesched.playground.resources import custom_resources, pod_groups
from kubesched.playground.resources.admission import cluster as cluster_admission
from kubesched.playground.resources.admission import devices as device_admission
from kubesched.playground.resources.admission.pods import (
    admit_pod,
    admit_pod_and_complete,
    admit_pod_update,
    admit_pod_update_and_keep,
)
from kubesched.playground.resources.admission.runtime_classes import RUNTIME_CLASSES
from kubesched.playground.resources.defaults import cluster as cluster_defaults
from kubesched.playground.resources.defaults import workloads as workload_defaults
from kubesched.playground.resources.defaults.pods import (
    default_pod,
    default_pod_status,
    default_pod_with_requests,
)
from kubesched.playground.resources.gated_fields import GATED, dropped_fields, dropping
from kubesched.playground.resources.validation import (
    cluster,
    pod_subresources,
    pods,
    resource_claims,
    resource_slices,
    storage,
    workloads,
)
from kubesched.playground.resources.validation import pod_groups as pod_group_rules

_WORKLOAD = Strategy(
    tracks_generation=True,
    admit=cluster_admission.admit_workload,
    validate_update=never_changes("spec.selector"),
)
_RETURNED = Strategy(returns_deleted_object=True)
_POD_GROUP = Strategy(
    allows_unconditional_update=False,
    status_keeps_metadata=WRITABLE_METADATA,
    default=pod_groups.default_group,
    admit=pod_groups.admit_group,
    validate=pod_group_rules.validate_group,
    validates_only_creation=True,
    validate_update=pod_group_rules.validate_group,
    validate_status=pod_group_rules.validate_group_status,
)


def strategies_for(gates: FeatureGates) -> dict[str, Strategy]:
    """The strategies by resource; those that differ in this release replace the newest ones."""
    release = release_of(gates)
    known = dict(STRATEGIES)
    slices, rules = "resourceslices.resource.k8s.io", "devicetaintrules.resource.k8s.io"
    if not release.range_steps_are_checked:
        validate = partial(resource_slices.validate_resource_slice, checks_steps=False)
        known[slices] = replace(known[slices], validate=validate)
    if not release.taint_rules_are_stable:
        known[rules] = replace(known[rules], returns_deleted_object=True)
    if not release.pod_level_limits_are_defaulted:
        pod = known["pods"]
        resize = SubresourceWrite(pod_subresources.with_resources, pod_subresources.validate_resize)
        known["pods"] = replace(
            pod,
            default=default_pod_with_requests,
            admit=admit_pod,
            prepare_update=admit_pod_update,
            subresources={**pod.subresources, "resize": resize},
        )
    if gates.PodGroupPreemptionPolicy:
        for groups in ("podgroups.scheduling.k8s.io", "compositepodgroups.scheduling.k8s.io"):
            known[groups] = replace(known[groups], default=pod_groups.default_group_with_policy)
    for resource in GATED:
        if dropped := dropped_fields(resource, gates):
            known[resource] = dropping(dropped, known[resource])
    return known


STRATEGIES: dict[str, Strategy] = {
    "certificatesigningrequests.certificates.k8s.io": Strategy(
        subresources={
            "approval": SubresourceWrite(
                merge=lambda new, old: {**new, "spec": old["spec"]},
                validate=lambda _new, _old: (),
            )
        }
    ),
    "compositepodgroups.scheduling.k8s.io": _POD_GROUP,
    "configmaps": Strategy(
        validate=cluster.validate_config_data, validate_update=cluster.validate_config_data_update
    ),
    "controllerrevisions.apps": Strategy(validate_update=never_changes("data")),
    "cronjobs.batch": Strategy(
        tracks_generation=True,
        default=workload_defaults.default_cron_job,
        admit=cluster_admission.admit_workload,
        validate=workloads.validate_cron_job,
    ),
    "csidrivers.storage.k8s.io": Strategy(
        allows_unconditional_update=False, default=cluster_defaults.default_csi_driver
    ),
    "csinodes.storage.k8s.io": Strategy(
        allows_unconditional_update=False, validate=storage.validate_csi_node
    ),
    "csistoragecapacities.storage.k8s.io": Strategy(allows_unconditional_update=False),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        allows_unconditional_update=False,
        tracks_generation=True,
        default=custom_resources.default_definition,
        admit=custom_resources.admit_definition,
        validate=custom_resources.validate_definition,
        validate_update=never_changes(
            "spec.group", "spec.scope", "spec.names.plural", "spec.names.kind"
        ),
    ),
    "daemonsets.apps": replace(
        _WORKLOAD,
        default=workload_defaults.default_daemon_set,
        validate=workloads.validate_daemon_set,
    ),
    "deployments.apps": replace(
        _WORKLOAD,
        status_keeps_metadata=("labels",),
        default=workload_defaults.default_deployment,
        validate=workloads.validate_deployment,
    ),
    "deviceclasses.resource.k8s.io": Strategy(
        tracks_generation=True,
        returns_deleted_object=True,
        validate=resource_claims.validate_device_class,
    ),
    "devicetaintrules.resource.k8s.io": Strategy(
        tracks_generation=True,
        allows_unconditional_update=False,
        admit=device_admission.admit_device_taint_rule,
        prepare_update=device_admission.admit_device_taint_rule_update,
        validate=resource_slices.validate_device_taint_rule,
        validate_status=resource_slices.validate_device_taint_rule_status,
    ),
    "events": Strategy(default=cluster_defaults.default_event, validate=cluster.validate_event),
    "jobs.batch": replace(
        _WORKLOAD,
        # Upstream: jobs and replication controllers leave their pods behind unless told otherwise.
        default_propagation="Orphan",
        default=workload_defaults.default_job,
        admit=cluster_admission.admit_job,
        validate=workloads.validate_job,
        validate_update=workloads.validate_job_update,
    ),
    "leases.coordination.k8s.io": Strategy(
        allows_unconditional_update=False, validate=cluster.validate_lease
    ),
    "limitranges": Strategy(default=cluster_defaults.default_limit_range),
    "namespaces": Strategy(
        spec_subresource="finalize",
        returns_deleted_object=True,
        default=cluster_defaults.default_namespace,
        admit=cluster_admission.admit_namespace,
        name_rule=label_problems,
    ),
    "nodes": Strategy(
        keeps_status_on_create=True,
        default=cluster_defaults.default_node,
        default_status=cluster_defaults.default_node,
        validate=cluster.validate_node,
        validate_status=cluster.validate_node,
    ),
    "persistentvolumeclaims": Strategy(
        returns_deleted_object=True,
        default=cluster_defaults.default_persistent_volume_claim,
        admit=cluster_admission.admit_persistent_volume_claim,
        validate=storage.validate_persistent_volume_claim,
        validate_update=storage.validate_persistent_volume_claim_update,
    ),
    "persistentvolumes": Strategy(
        returns_deleted_object=True,
        default=cluster_defaults.default_persistent_volume,
        admit=cluster_admission.admit_persistent_volume,
        validate=storage.validate_persistent_volume,
        validate_update=storage.validate_persistent_volume_update,
    ),
    "poddisruptionbudgets.policy": Strategy(
        allows_unconditional_update=False,
        tracks_generation=True,
        admit=cluster_admission.admit_pod_disruption_budget,
        validate=workloads.validate_pod_disruption_budget,
    ),
    "podgroups.scheduling.k8s.io": _POD_GROUP,
    "pods": Strategy(
        tracks_generation=True,
        status_keeps_metadata=("ownerReferences",),
        returns_deleted_object=True,
        default=default_pod,
        default_status=default_pod_status,
        admit=admit_pod_and_complete,
        admission_reads=(
            "limitranges",
            "nodes",
            "priorityclasses.scheduling.k8s.io",
            RUNTIME_CLASSES,
            "serviceaccounts",
        ),
        prepare_update=admit_pod_update_and_keep,
        validate=pods.validate_pod,
        validate_update=pods.validate_pod_update,
        subresources={
            "ephemeralcontainers": SubresourceWrite(
                pod_subresources.with_ephemeral_containers,
                pod_subresources.validate_ephemeral_containers,
            ),
            "resize": SubresourceWrite(
                pod_subresources.with_completed_resources, pod_subresources.validate_resize
            ),
        },
    ),
    "podtemplates": _RETURNED,
    "priorityclasses.scheduling.k8s.io": Strategy(
        tracks_generation=True,
        default=cluster_defaults.default_priority_class,
        admit=cluster_admission.admit_priority_class,
        prepare_update=cluster_admission.admit_priority_class_update,
        validate=cluster.validate_priority_class,
        validate_update=cluster.validate_priority_class_update,
    ),
    "replicasets.apps": replace(
        _WORKLOAD,
        default=workload_defaults.default_replica_set,
        validate=workloads.validate_replica_set,
    ),
    "replicationcontrollers": Strategy(
        tracks_generation=True,
        default_propagation="Orphan",
        admit=cluster_admission.admit_workload,
        default=workload_defaults.default_replication_controller,
        validate=workloads.validate_replication_controller,
    ),
    "resourceclaims.resource.k8s.io": Strategy(
        returns_deleted_object=True,
        status_keeps_metadata=WRITABLE_METADATA,
        has_immutable_spec=True,
        default=cluster_defaults.default_resource_claim,
        default_status=cluster_defaults.default_claim_status,
        admit=device_admission.admit_resource_claim,
        prepare_status_update=device_admission.admit_claim_status,
        validate=resource_claims.validate_resource_claim,
        validate_status_update=resource_claims.validate_resource_claim_status,
    ),
    "resourceclaimtemplates.resource.k8s.io": Strategy(
        returns_deleted_object=True,
        has_immutable_spec=True,
        default=cluster_defaults.default_resource_claim_template,
        admit=device_admission.admit_resource_claim_template,
        validate=resource_claims.validate_resource_claim_template,
    ),
    "resourceslices.resource.k8s.io": Strategy(
        returns_deleted_object=True,
        tracks_generation=True,
        default=cluster_defaults.default_resource_slice,
        admit=device_admission.set_taint_times,
        prepare_update=device_admission.set_taint_times,
        validate=resource_slices.validate_resource_slice,
        validate_update=never_changes("spec.pool.name", "spec.driver", "spec.nodeName"),
    ),
    "resourcequotas": replace(_RETURNED, default=cluster_defaults.default_resource_quota),
    "roles.rbac.authorization.k8s.io": Strategy(name_rule=path_segment_problems),
    "rolebindings.rbac.authorization.k8s.io": Strategy(name_rule=path_segment_problems),
    "clusterroles.rbac.authorization.k8s.io": Strategy(name_rule=path_segment_problems),
    "clusterrolebindings.rbac.authorization.k8s.io": Strategy(name_rule=path_segment_problems),
    "secrets": Strategy(
        default=cluster_defaults.default_secret,
        validate=cluster.validate_config_data,
        validate_update=cluster.validate_config_data_update,
    ),
    "serviceaccounts": _RETURNED,
    "services": Strategy(
        returns_deleted_object=True,
        default=cluster_defaults.default_service,
        admit=cluster_admission.admit_service,
        prepare_update=cluster_admission.update_service,
        validate=cluster.validate_service,
        name_rule=label_problems,
    ),
    "statefulsets.apps": replace(
        _WORKLOAD,
        default=workload_defaults.default_stateful_set,
        validate=workloads.validate_stateful_set,
        validate_update=workloads.validate_stateful_set_update,
    ),
    "storageclasses.storage.k8s.io": Strategy(
        default=cluster_defaults.default_storage_class,
        validate=storage.validate_storage_class,
        validate_update=never_changes(
            "parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"
        ),
    ),
    "volumeattachments.storage.k8s.io": Strategy(
        status_keeps_metadata=WRITABLE_METADATA, allows_unconditional_update=False
    ),
    "workloads.scheduling.k8s.io": Strategy(
        allows_unconditional_update=False,
        admit=pod_groups.complete_workload,
        prepare_update=pod_groups.complete_workload,
        validate=pod_group_rules.validate_workload,
        validates_only_creation=True,
        validate_update=pod_group_rules.validate_workload,
    ),
    "ingresses.networking.k8s.io": Strategy(tracks_generation=True),
    "networkpolicies.networking.k8s.io": Strategy(tracks_generation=True),
    RUNTIME_CLASSES: Strategy(
        allows_unconditional_update=False,
        validate=cluster.validate_runtime_class,
        validate_update=never_changes("handler"),
    ),
    **{
        f"{plural}.admissionregistration.k8s.io": Strategy(
            tracks_generation=True, allows_unconditional_update=False
        )
        for plural in (
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        )
    },
}
