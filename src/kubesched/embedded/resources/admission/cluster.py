"""Admission of namespaces, services and priority classes: first status, addresses, the one global default."""

from __future__ import annotations

from kubesched.embedded.apimachinery.failures import forbidden
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.registry.rest_storage import RestStorage

_SERVICE_NETWORK = (10, 96)  # 10.96.0.0/16, the usual choice
_ADDRESS_ATTEMPTS = 4096
_NODE_PORTS = range(30000, 32768)


def admit_namespace(registry: RestStorage, obj: JsonObject) -> None:
    spec = obj.setdefault("spec", {})
    spec["finalizers"] = ["kubernetes"]
    obj["status"] = {"phase": "Active"}


def admit_priority_class(registry: RestStorage, obj: JsonObject) -> None:
    if not obj.get("globalDefault"):
        return
    name = obj["metadata"]["name"]
    for entry in registry.store.collection("priorityclasses.scheduling.k8s.io").entries():
        other = entry.obj["metadata"]["name"]
        if entry.obj.get("globalDefault") and other != name:
            why = f"PriorityClass {other} is already marked as default. Only one default can exist"
            raise forbidden(registry.catalog.get("priorityclasses.scheduling.k8s.io"), name, why)


def admit_priority_class_update(registry: RestStorage, obj: JsonObject, old: JsonObject) -> None:
    if not old.get("globalDefault"):
        admit_priority_class(registry, obj)


def admit_service(registry: RestStorage, obj: JsonObject) -> None:
    """Give a service its addresses; clients see the same fields as in a real cluster, nothing is routed."""
    spec = obj["spec"]
    obj["status"] = {"loadBalancer": {}}
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(registry)
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = _free_node_port(registry, spec)


def keep_service_addresses(registry: RestStorage, obj: JsonObject, old: JsonObject) -> None:
    """An update that does not mention the addresses keeps them."""
    before, after = old["spec"], obj["spec"]
    if after["type"] == "ExternalName":
        return
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if field in before:
            after.setdefault(field, before[field])
    if not after.get("clusterIP"):
        status = obj.get("status")
        admit_service(registry, obj)
        if status is not None:
            obj["status"] = status


def _free_address(registry: RestStorage) -> str:
    taken = {
        entry.obj["spec"].get("clusterIP")
        for entry in registry.store.collection("services").entries()
    }
    for _attempt in range(_ADDRESS_ATTEMPTS):
        high, low = registry.rng.randrange(256), registry.rng.randrange(2, 255)
        address = f"{_SERVICE_NETWORK[0]}.{_SERVICE_NETWORK[1]}.{high}.{low}"
        if address not in taken:
            return address
    raise forbidden(registry.catalog.get("services"), "", "no cluster address is free")


def _free_node_port(registry: RestStorage, spec: JsonObject) -> int:
    taken = {
        port.get("nodePort")
        for entry in registry.store.collection("services").entries()
        for port in entry.obj["spec"].get("ports") or ()
    }
    taken |= {port.get("nodePort") for port in spec.get("ports") or ()}
    for _attempt in range(_ADDRESS_ATTEMPTS):
        port: int = registry.rng.choice(_NODE_PORTS)
        if port not in taken:
            return port
    raise forbidden(registry.catalog.get("services"), "", "no node port is free")
