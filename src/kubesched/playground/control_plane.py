"""Builds a registry with custom resources, admission checks and `default_objects.yaml`."""

from __future__ import annotations

import random
from functools import cache
from importlib import resources

from kubesched.api.yaml_nodes import load
from kubesched.base.clock import Clock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.playground.apimachinery.catalog import ResourceCatalog, served
from kubesched.playground.apimachinery.objects import Json, JsonObject, copy_json
from kubesched.playground.apimachinery.releases import release_of
from kubesched.playground.registry.namespace_defaults import (
    NamespaceDefault,
    default_service_account,
    root_certificate,
)
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.registry.steps import at_once
from kubesched.playground.resources.admission.limit_ranges import check_limits
from kubesched.playground.resources.admission.quotas import charge_quotas
from kubesched.playground.resources.custom_resources import CustomResources
from kubesched.playground.resources.strategies import strategies_for
from kubesched.playground.storage.store import Store

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
    for obj in _default_objects()["objects"]:
        _ensure(registry, copy_json(obj))


def _ensure(registry: RestStorage, obj: JsonObject) -> None:
    info = registry.catalog.find_kind(obj["apiVersion"], obj["kind"])
    assert info is not None, obj["kind"]
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    if registry.store.get(info.storage_key, namespace, name) is None:
        at_once(registry.create(info, namespace, obj, _MANAGER))


def publish(registry: RestStorage, ca_certificate: str, address: str, port: int) -> None:
    """Publish the API server's address and CA certificate to clients inside the cluster."""
    values = {
        "$address": address,
        "$family": "IPv6" if ":" in address else "IPv4",
        "$port": port,
        "$ca": ca_certificate,
    }
    for obj in _default_objects()["published"]:
        _ensure(registry, _filled(obj, values))
    NamespaceDefault(registry, "configmaps", root_certificate(ca_certificate))
    registry.admits_service_accounts = True


@cache
def _default_objects() -> dict[str, list[JsonObject]]:
    objects: dict[str, list[JsonObject]] = load(
        resources.files(__package__).joinpath("default_objects.yaml").read_bytes()
    )
    return objects


def _filled(value: Json, values: dict[str, Json]) -> Json:
    """A copy with the values in place of their names."""
    if isinstance(value, dict):
        return {key: _filled(member, values) for key, member in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    return values.get(value, value)
