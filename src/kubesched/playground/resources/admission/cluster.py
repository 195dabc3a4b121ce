"""Admission of all kinds except pods and devices: initial status, addresses, cluster defaults."""

from __future__ import annotations

from kubesched.playground.apimachinery.failures import forbidden
from kubesched.playground.apimachinery.objects import JsonObject, timestamp
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.storage.store import Collection

_SERVICE_NETWORK = (10, 96)  # 10.96.0.0/16, the usual choice
_ADDRESS_ATTEMPTS = 4096
_EXTERNAL = ("NodePort", "LoadBalancer")
_NODE_PORTS = range(30000, 32768)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


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
    """Assign addresses to a service, as a real cluster shows them; nothing is routed."""
    spec = obj["spec"]
    obj["status"] = {"loadBalancer": {}}
    if spec["type"] == "ExternalName":
        return
    _assign_addresses(registry, spec)


def _assign_addresses(registry: RestStorage, spec: JsonObject) -> None:
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(registry)
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in _EXTERNAL and spec.get("allocateLoadBalancerNodePorts") is not False:
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = _free_node_port(registry, spec)


def update_service(registry: RestStorage, obj: JsonObject, old: JsonObject) -> None:
    """Keep the addresses that an update omits; drop values that the new type does not have."""
    before, after = old["spec"], obj["spec"]
    kind = after["type"]
    is_external, has_address = kind in _EXTERNAL, kind != "ExternalName"
    for needed, fields in (
        (has_address, ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")),
        (is_external, ("externalTrafficPolicy",)),
        (kind == "LoadBalancer", ("allocateLoadBalancerNodePorts", "loadBalancerClass")),
        (after.get("externalTrafficPolicy") == "Local", ("healthCheckNodePort",)),
    ):
        for field in fields:
            if needed and field in before:
                after.setdefault(field, before[field])
            elif not needed and after.get(field) == before.get(field):
                after.pop(field, None)
    known = {port.get("name", ""): port.get("nodePort") for port in before.get("ports") or ()}
    for port in after.get("ports") or ():
        mine = known.get(port.get("name", ""))
        if is_external and mine:
            port.setdefault("nodePort", mine)
        elif not is_external and port.get("nodePort") == mine:
            port.pop("nodePort", None)
    if kind != "LoadBalancer" and "status" in obj:
        obj["status"] = {**obj["status"], "loadBalancer": {}}
    if has_address:
        _assign_addresses(registry, after)


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


def admit_persistent_volume(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": timestamp(registry.clock.now())}


def admit_persistent_volume_claim(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {"phase": "Pending"}
    spec = obj["spec"]
    if spec.get("storageClassName") is None:
        default = registry.derived(
            "default storage class", "storageclasses.storage.k8s.io", default_storage_class
        )
        if default is not None:
            spec["storageClassName"] = default


def default_storage_class(classes: Collection) -> str | None:
    """The newest class marked as default, by name among equals."""
    best: tuple[str, str] | None = None
    for entry in classes.entries():
        metadata = entry.obj["metadata"]
        if (metadata.get("annotations") or {}).get(DEFAULT_CLASS) == "true":
            created = metadata["creationTimestamp"]
            if best is None or created > best[0]:
                best = (created, metadata["name"])
    return best[1] if best is not None else None


def admit_job(registry: RestStorage, obj: JsonObject) -> None:
    """Select a Job's pods by its uid, unless it has a manual selector."""
    obj["status"] = {}
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    template = spec.get("template")
    if template is None:
        return
    uid, name = metadata["uid"], metadata["name"]
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    before = dict(labels)
    labels["batch.kubernetes.io/controller-uid"] = labels["controller-uid"] = uid
    labels["batch.kubernetes.io/job-name"] = labels["job-name"] = name
    # Upstream: labels that were defaulted from the template are one map with the template's.
    if metadata.get("labels") is None or metadata["labels"] == before:
        metadata["labels"] = dict(labels)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {})["batch.kubernetes.io/controller-uid"] = uid


def admit_pod_disruption_budget(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    }


def admit_workload(registry: RestStorage, obj: JsonObject) -> None:
    """Set the initial status of a workload."""
    obj["status"] = dict(_FIRST_STATUS.get(obj["kind"], {}))


_FIRST_STATUS: dict[str, JsonObject] = {
    "DaemonSet": {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    "ReplicaSet": {"replicas": 0},
    "ReplicationController": {"replicas": 0},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
}
