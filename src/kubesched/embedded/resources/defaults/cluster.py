"""Defaults of namespaces, nodes, services, priority classes, secrets and events."""

from __future__ import annotations

import base64

from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.resources.defaults.quantities import round_list


def default_namespace(obj: JsonObject) -> None:
    name = obj["metadata"].get("name")
    if name:
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = name


def default_node(obj: JsonObject) -> None:
    if "spec" not in obj:
        obj["spec"] = {}
    status = obj.get("status")
    if status:
        round_list(status.get("capacity"))
        round_list(status.get("allocatable"))
        # Upstream: a node that states only its capacity offers all of it.
        if "allocatable" not in status and "capacity" in status:
            status["allocatable"] = dict(status["capacity"])


def default_service(obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))


def default_limit_range(obj: JsonObject) -> None:
    """Upstream: a bound without a default is the default, and a default limit is the default request."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        for field in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_list(item.get(field))
        if item.get("type") != "Container":
            continue
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        item["default"], item["defaultRequest"] = limits, requests


def default_resource_quota(obj: JsonObject) -> None:
    round_list((obj.get("spec") or {}).get("hard"))


def default_priority_class(obj: JsonObject) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    obj.setdefault("value", 0)


def default_secret(obj: JsonObject) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def default_event(obj: JsonObject) -> None:
    obj.setdefault("source", {})
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")
