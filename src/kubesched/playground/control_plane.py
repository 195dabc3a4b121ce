"""Builds a registry with custom resources, admission checks and default objects."""

from __future__ import annotations

import random

from kubesched.base.clock import Clock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.playground.apimachinery.catalog import ResourceCatalog, served
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.releases import release_of
from kubesched.playground.registry.namespace_defaults import (
    NamespaceDefault,
    default_service_account,
    root_certificate,
)
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.resources.admission.limit_ranges import check_limits
from kubesched.playground.resources.admission.quotas import charge_quotas
from kubesched.playground.resources.custom_resources import CustomResources
from kubesched.playground.resources.strategies import strategies_for
from kubesched.playground.storage.store import Store

DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

_MANAGER = WriteOptions(manager="kube-apiserver")


def build_registry(
    store: Store,
    *,
    clock: Clock,
    rng: random.Random,
    gates: FeatureGates = DEFAULT_GATES,
) -> RestStorage:
    """Build a registry over a new or restored store, ready for use."""
    catalog = ResourceCatalog(served(gates))
    registry = RestStorage(
        store,
        catalog,
        clock=clock,
        rng=rng,
        kinds=strategies_for(gates),
        release=release_of(gates),
    )
    custom_resources = CustomResources(registry)
    NamespaceDefault(registry, "serviceaccounts", default_service_account())
    registry.checks += [check_limits, charge_quotas]
    custom_resources.resume()
    bootstrap(registry)
    return registry


def bootstrap(registry: RestStorage) -> None:
    """Create missing default objects; existing ones, restored from disk, are kept."""
    for name in DEFAULT_NAMESPACES:
        _ensure(
            registry,
            "namespaces",
            "",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
    for name, value, purpose in (
        ("system-cluster-critical", 2_000_000_000, "cluster"),
        ("system-node-critical", 2_000_001_000, "node"),
    ):
        _ensure(
            registry, "priorityclasses.scheduling.k8s.io", "", _priority_class(name, value, purpose)
        )


def _priority_class(name: str, value: int, purpose: str) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": f"For pods the {purpose} cannot work without.",
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _ensure(registry: RestStorage, resource: str, namespace: str, obj: JsonObject) -> None:
    info = registry.catalog.get(resource)
    if registry.store.get(info.storage_key, namespace, obj["metadata"]["name"]) is None:
        registry.create(info, namespace, obj, _MANAGER)


def publish(registry: RestStorage, ca_certificate: str, address: str, port: int) -> None:
    """Publish the API server's address and CA certificate to clients inside the cluster."""
    metadata: JsonObject = {"name": "kubernetes", "namespace": "default"}
    labels = {"component": "apiserver", "provider": "kubernetes"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "labels": labels},
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    }
    _ensure(registry, "services", "default", service)
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    skip = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    endpoints = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {**metadata, "labels": skip},
        "subsets": [{"addresses": [{"ip": address}], "ports": ports}],
    }
    _ensure(registry, "endpoints", "default", endpoints)
    endpoint_slice = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": ports,
    }
    _ensure(registry, "endpointslices.discovery.k8s.io", "default", endpoint_slice)
    # Delegated authentication (e.g. kube-scheduler's serving port) reads its CAs from here.
    authentication = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": ca_certificate,
            "requestheader-client-ca-file": ca_certificate,
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        },
    }
    _ensure(registry, "configmaps", "kube-system", authentication)
    NamespaceDefault(registry, "configmaps", root_certificate(ca_certificate))
    registry.admits_service_accounts = True
