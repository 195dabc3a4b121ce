"""Rows of nodes, namespaces, storage, services, configuration and events."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import JsonObject, labels_of, spec_of, status_of
from kubesched.playground.handlers.tables.table import AGE, NAME, NONE, Column, age, text
from kubesched.playground.registry.scale import selector_text

_UNSET = "<unset>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _node_status(node: JsonObject) -> str:
    words = ["Unknown"]
    for condition in status_of(node).get("conditions") or ():
        if condition.get("type") == "Ready":
            words = ["Ready" if condition.get("status") == "True" else "NotReady"]
    if spec_of(node).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: JsonObject) -> str:
    roles = set()
    for key, value in labels_of(node).items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or NONE


def _node_address(kind: str) -> Column:
    def cell(node: JsonObject, _: float) -> str:
        for address in status_of(node).get("addresses") or ():
            if address.get("type") == kind:
                text: str = address.get("address", "")
                return text
        return NONE

    return Column("Internal-IP" if kind == "InternalIP" else "External-IP", cell, priority=1)


def _claim_status(obj: JsonObject) -> str:
    if obj["metadata"].get("deletionTimestamp") is not None:
        return "Terminating"
    phase: str = status_of(obj).get("phase", "")
    return phase


def _modes(modes: list[str] | None) -> str:
    order = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
    return ",".join(_ACCESS_MODES[mode] for mode in order if mode in (modes or ()))


def _claim_capacity(obj: JsonObject) -> str:
    # Upstream: size and modes are those of the bound volume; an unbound claim shows none.
    if not spec_of(obj).get("volumeName"):
        return ""
    return str((status_of(obj).get("capacity") or {}).get("storage", ""))


def _claim_modes(obj: JsonObject) -> str:
    if not spec_of(obj).get("volumeName"):
        return ""
    return _modes(status_of(obj).get("accessModes"))


def _claim_of(obj: JsonObject) -> str:
    reference = spec_of(obj).get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def _class_name(obj: JsonObject) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    name: str = obj["metadata"]["name"]
    return f"{name} (default)" if is_default else name


def _external_address(obj: JsonObject) -> str:
    spec = spec_of(obj)
    kind = spec.get("type")
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    ingress = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
    addresses = (
        [point.get("ip") or point.get("hostname", "") for point in ingress]
        if kind == "LoadBalancer"
        else []
    )
    addresses += spec.get("externalIPs") or []
    return ",".join(addresses) or ("<pending>" if kind == "LoadBalancer" else NONE)


def _service_ports(obj: JsonObject) -> str:
    texts = []
    for port in spec_of(obj).get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(texts) or NONE


def _event_times(event: JsonObject) -> tuple[str | None, str | None]:
    """First and last time of an event, from whichever fields are set."""
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or series.get("lastObservedTime") or first
    return first, last


def _event_count(event: JsonObject) -> int:
    count: int = (event.get("series") or {}).get("count") or event.get("count") or 1
    return count


def _event_object(event: JsonObject) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_source(event: JsonObject) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or ""
    return f"{component}, {host}" if host else component


def _claim_state(obj: JsonObject) -> str:
    status = obj.get("status") or {}
    words = []
    if obj["metadata"].get("deletionTimestamp") is not None:
        words.append("deleted")
    if status.get("allocation") is not None:
        words.append("allocated")
        if status.get("reservedFor"):
            words.append("reserved")
    return ",".join(words) or "pending"


def _role(obj: JsonObject) -> str:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


_CREATED_AT_COLUMNS = (NAME, text("Created At", "metadata", "creationTimestamp"))
_ROLE_BINDING_COLUMNS = (NAME, Column("Role", lambda obj, _: _role(obj)), AGE)

CLUSTER: dict[str, tuple[Column, ...]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _ROLE_BINDING_COLUMNS,
    "clusterroles.rbac.authorization.k8s.io": _CREATED_AT_COLUMNS,
    "configmaps": (
        NAME,
        Column(
            "Data",
            lambda obj, _: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
            type="integer",
        ),
        AGE,
    ),
    "csidrivers.storage.k8s.io": (
        NAME,
        text("AttachRequired", "spec", "attachRequired", default="true"),
        text("PodInfoOnMount", "spec", "podInfoOnMount", default="false"),
        text("StorageCapacity", "spec", "storageCapacity", default="false"),
        Column(
            "TokenRequests",
            lambda obj, _: (
                ",".join(
                    token_request.get("audience", "")
                    for token_request in spec_of(obj).get("tokenRequests") or ()
                )
                or _UNSET
            ),
        ),
        text("RequiresRepublish", "spec", "requiresRepublish", default="false"),
        Column(
            "Modes",
            lambda obj, _: ",".join(spec_of(obj).get("volumeLifecycleModes") or ()) or NONE,
        ),
        AGE,
    ),
    "csinodes.storage.k8s.io": (
        NAME,
        Column("Drivers", lambda obj, _: len(spec_of(obj).get("drivers") or ()), type="integer"),
        AGE,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": _CREATED_AT_COLUMNS,
    "events": (
        Column("Last Seen", lambda obj, now: age(_event_times(obj)[1], now)),
        text("Type", "type"),
        text("Reason", "reason"),
        Column("Object", lambda obj, _: _event_object(obj)),
        text("Subobject", "involvedObject", "fieldPath", priority=1),
        Column("Source", lambda obj, _: _event_source(obj), priority=1),
        Column("Message", lambda obj, _: (obj.get("message") or "").strip()),
        Column("First Seen", lambda obj, now: age(_event_times(obj)[0], now), priority=1),
        Column("Count", lambda obj, _: _event_count(obj), type="integer", priority=1),
        Column("Name", lambda obj, _: obj["metadata"]["name"], format="name", priority=1),
    ),
    "leases.coordination.k8s.io": (NAME, text("Holder", "spec", "holderIdentity"), AGE),
    "namespaces": (NAME, text("Status", "status", "phase"), AGE),
    "nodes": (
        NAME,
        Column("Status", lambda node, _: _node_status(node)),
        Column("Roles", lambda node, _: _node_roles(node)),
        AGE,
        text("Version", "status", "nodeInfo", "kubeletVersion"),
        _node_address("InternalIP"),
        _node_address("ExternalIP"),
        text("OS-Image", "status", "nodeInfo", "osImage", default="<unknown>", priority=1),
        text(
            "Kernel-Version", "status", "nodeInfo", "kernelVersion", default="<unknown>", priority=1
        ),
        text(
            "Container-Runtime",
            "status",
            "nodeInfo",
            "containerRuntimeVersion",
            default="<unknown>",
            priority=1,
        ),
    ),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", lambda obj, _: _claim_status(obj)),
        text("Volume", "spec", "volumeName"),
        Column("Capacity", lambda obj, _: _claim_capacity(obj)),
        Column("Access Modes", lambda obj, _: _claim_modes(obj)),
        text("StorageClass", "spec", "storageClassName"),
        text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=_UNSET),
        AGE,
        text("VolumeMode", "spec", "volumeMode", default=_UNSET, priority=1),
    ),
    "persistentvolumes": (
        NAME,
        text("Capacity", "spec", "capacity", "storage"),
        Column("Access Modes", lambda obj, _: _modes(spec_of(obj).get("accessModes"))),
        text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
        Column("Status", lambda obj, _: _claim_status(obj)),
        Column("Claim", lambda obj, _: _claim_of(obj)),
        text("StorageClass", "spec", "storageClassName"),
        text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=_UNSET),
        text("Reason", "status", "reason"),
        AGE,
        text("VolumeMode", "spec", "volumeMode", default=_UNSET, priority=1),
    ),
    "priorityclasses.scheduling.k8s.io": (
        NAME,
        Column("Value", lambda obj, _: obj.get("value", 0), type="integer"),
        Column("Global-Default", lambda obj, _: bool(obj.get("globalDefault")), type="boolean"),
        AGE,
        text("PreemptionPolicy", "preemptionPolicy"),
    ),
    "resourceclaims.resource.k8s.io": (
        NAME,
        Column("State", lambda obj, _: _claim_state(obj)),
        AGE,
    ),
    "resourceslices.resource.k8s.io": (
        NAME,
        text("Node", "spec", "nodeName"),
        text("Driver", "spec", "driver"),
        text("Pool", "spec", "pool", "name"),
        AGE,
    ),
    "rolebindings.rbac.authorization.k8s.io": _ROLE_BINDING_COLUMNS,
    "roles.rbac.authorization.k8s.io": _CREATED_AT_COLUMNS,
    "secrets": (
        NAME,
        text("Type", "type"),
        Column("Data", lambda obj, _: len(obj.get("data") or ()), type="integer"),
        AGE,
    ),
    "serviceaccounts": (
        NAME,
        Column("Secrets", lambda obj, _: len(obj.get("secrets") or ()), type="integer"),
        AGE,
    ),
    "services": (
        NAME,
        text("Type", "spec", "type"),
        text("Cluster-IP", "spec", "clusterIP", default=NONE),
        Column("External-IP", lambda obj, _: _external_address(obj)),
        Column("Port(s)", lambda obj, _: _service_ports(obj)),
        AGE,
        Column(
            "Selector",
            lambda obj, _: selector_text(spec_of(obj).get("selector")) or NONE,
            priority=1,
        ),
    ),
    "storageclasses.storage.k8s.io": (
        Column("Name", lambda obj, _: _class_name(obj), format="name"),
        text("Provisioner", "provisioner"),
        text("ReclaimPolicy", "reclaimPolicy"),
        text("VolumeBindingMode", "volumeBindingMode"),
        text("AllowVolumeExpansion", "allowVolumeExpansion", default="false"),
        AGE,
    ),
    "volumeattachments.storage.k8s.io": (
        NAME,
        text("Attacher", "spec", "attacher"),
        text("PV", "spec", "source", "persistentVolumeName"),
        text("Node", "spec", "nodeName"),
        text("Attached", "status", "attached", default="false"),
        AGE,
    ),
}
"""Columns by kind, in the order of `kubectl get`."""
