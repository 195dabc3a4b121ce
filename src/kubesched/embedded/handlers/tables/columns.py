"""Which columns each kind has; custom resources bring their own."""

from __future__ import annotations

from kubesched.embedded.apimachinery.catalog import ResourceInfo
from kubesched.embedded.handlers.tables import cluster, networking, workloads
from kubesched.embedded.handlers.tables.custom import custom_columns
from kubesched.embedded.handlers.tables.pods import POD_COLUMNS
from kubesched.embedded.handlers.tables.table import AGE, NAME, Column
from kubesched.embedded.registry.rest_storage import RestStorage

DEFAULT_COLUMNS = (NAME, AGE)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "configmaps": cluster.CONFIG_MAP_COLUMNS,
    "clusterrolebindings.rbac.authorization.k8s.io": cluster.ROLE_BINDING_COLUMNS,
    "clusterroles.rbac.authorization.k8s.io": cluster.CREATED_AT_COLUMNS,
    "controllerrevisions.apps": workloads.REVISION_COLUMNS,
    "cronjobs.batch": workloads.CRON_JOB_COLUMNS,
    "csidrivers.storage.k8s.io": cluster.CSI_DRIVER_COLUMNS,
    "csinodes.storage.k8s.io": cluster.CSI_NODE_COLUMNS,
    "customresourcedefinitions.apiextensions.k8s.io": cluster.CREATED_AT_COLUMNS,
    "daemonsets.apps": workloads.DAEMON_SET_COLUMNS,
    "deployments.apps": workloads.DEPLOYMENT_COLUMNS,
    "endpoints": cluster.ENDPOINTS_COLUMNS,
    "endpointslices.discovery.k8s.io": networking.ENDPOINT_SLICE_COLUMNS,
    "events": cluster.EVENT_COLUMNS,
    "horizontalpodautoscalers.autoscaling": networking.AUTOSCALER_COLUMNS,
    "ingresses.networking.k8s.io": networking.INGRESS_COLUMNS,
    "jobs.batch": workloads.JOB_COLUMNS,
    "leases.coordination.k8s.io": cluster.LEASE_COLUMNS,
    "namespaces": cluster.NAMESPACE_COLUMNS,
    "networkpolicies.networking.k8s.io": networking.NETWORK_POLICY_COLUMNS,
    "nodes": cluster.NODE_COLUMNS,
    "persistentvolumeclaims": cluster.CLAIM_COLUMNS,
    "persistentvolumes": cluster.VOLUME_COLUMNS,
    "poddisruptionbudgets.policy": workloads.BUDGET_COLUMNS,
    "pods": POD_COLUMNS,
    "priorityclasses.scheduling.k8s.io": cluster.PRIORITY_CLASS_COLUMNS,
    "replicasets.apps": workloads.REPLICA_SET_COLUMNS,
    "replicationcontrollers": workloads.REPLICA_SET_COLUMNS,
    "resourceclaims.resource.k8s.io": cluster.RESOURCE_CLAIM_COLUMNS,
    "resourceslices.resource.k8s.io": cluster.RESOURCE_SLICE_COLUMNS,
    "rolebindings.rbac.authorization.k8s.io": cluster.ROLE_BINDING_COLUMNS,
    "roles.rbac.authorization.k8s.io": cluster.CREATED_AT_COLUMNS,
    "secrets": cluster.SECRET_COLUMNS,
    "serviceaccounts": cluster.SERVICE_ACCOUNT_COLUMNS,
    "services": cluster.SERVICE_COLUMNS,
    "statefulsets.apps": workloads.STATEFUL_SET_COLUMNS,
    "storageclasses.storage.k8s.io": cluster.STORAGE_CLASS_COLUMNS,
    "volumeattachments.storage.k8s.io": cluster.ATTACHMENT_COLUMNS,
}


def columns_for(registry: RestStorage, resource: ResourceInfo) -> tuple[Column, ...]:
    if resource.custom:
        return custom_columns(registry, resource)
    return COLUMNS.get(resource.storage_key, DEFAULT_COLUMNS)
