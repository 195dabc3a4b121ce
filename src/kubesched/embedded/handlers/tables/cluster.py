"""Rows of nodes, namespaces, storage, services, configuration and events."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.handlers.tables.table import AGE, NAME, Column, age
from kubesched.embedded.registry.scale import selector_text

_NONE = "<none>"
_UNSET = "<unset>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _text(name: str, *path: str, default: str = "", priority: int = 0) -> Column:
    def cell(obj: JsonObject, _: float) -> str:
        value: object = obj
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if value not in (None, "") else default

    return Column(name, cell, priority=priority)


def _node_status(node: JsonObject) -> str:
    words = ["Unknown"]
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            words = ["Ready" if condition.get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: JsonObject) -> str:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or _NONE


def _node_address(kind: str) -> Column:
    def cell(node: JsonObject, _: float) -> str:
        for address in (node.get("status") or {}).get("addresses") or ():
            if address.get("type") == kind:
                text: str = address.get("address", "")
                return text
        return _NONE

    return Column("Internal-IP" if kind == "InternalIP" else "External-IP", cell, priority=1)


NODE_COLUMNS = (
    NAME,
    Column("Status", lambda node, _: _node_status(node)),
    Column("Roles", lambda node, _: _node_roles(node)),
    AGE,
    _text("Version", "status", "nodeInfo", "kubeletVersion"),
    _node_address("InternalIP"),
    _node_address("ExternalIP"),
    _text("OS-Image", "status", "nodeInfo", "osImage", default="<unknown>", priority=1),
    _text("Kernel-Version", "status", "nodeInfo", "kernelVersion", default="<unknown>", priority=1),
    _text(
        "Container-Runtime",
        "status",
        "nodeInfo",
        "containerRuntimeVersion",
        default="<unknown>",
        priority=1,
    ),
)
NAMESPACE_COLUMNS = (NAME, _text("Status", "status", "phase"), AGE)


def _claim_status(obj: JsonObject) -> str:
    if obj["metadata"].get("deletionTimestamp") is not None:
        return "Terminating"
    phase: str = (obj.get("status") or {}).get("phase", "")
    return phase


def _modes(modes: list[str] | None) -> str:
    order = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
    return ",".join(_ACCESS_MODES[mode] for mode in order if mode in (modes or ()))


def _claim_capacity(obj: JsonObject) -> str:
    # Upstream: size and modes are those of the bound volume; an unbound claim shows none.
    if not (obj.get("spec") or {}).get("volumeName"):
        return ""
    return str(((obj.get("status") or {}).get("capacity") or {}).get("storage", ""))


def _claim_modes(obj: JsonObject) -> str:
    if not (obj.get("spec") or {}).get("volumeName"):
        return ""
    return _modes((obj.get("status") or {}).get("accessModes"))


CLAIM_COLUMNS = (
    NAME,
    Column("Status", lambda obj, _: _claim_status(obj)),
    _text("Volume", "spec", "volumeName"),
    Column("Capacity", lambda obj, _: _claim_capacity(obj)),
    Column("Access Modes", lambda obj, _: _claim_modes(obj)),
    _text("StorageClass", "spec", "storageClassName"),
    _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=_UNSET),
    AGE,
    _text("VolumeMode", "spec", "volumeMode", default=_UNSET, priority=1),
)


def _claim_of(obj: JsonObject) -> str:
    reference = (obj.get("spec") or {}).get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


VOLUME_COLUMNS = (
    NAME,
    _text("Capacity", "spec", "capacity", "storage"),
    Column("Access Modes", lambda obj, _: _modes((obj.get("spec") or {}).get("accessModes"))),
    _text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
    Column("Status", lambda obj, _: _claim_status(obj)),
    Column("Claim", lambda obj, _: _claim_of(obj)),
    _text("StorageClass", "spec", "storageClassName"),
    _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=_UNSET),
    _text("Reason", "status", "reason"),
    AGE,
    _text("VolumeMode", "spec", "volumeMode", default=_UNSET, priority=1),
)


def _class_name(obj: JsonObject) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    name: str = obj["metadata"]["name"]
    return f"{name} (default)" if is_default else name


STORAGE_CLASS_COLUMNS = (
    Column("Name", lambda obj, _: _class_name(obj), format="name"),
    _text("Provisioner", "provisioner"),
    _text("ReclaimPolicy", "reclaimPolicy"),
    _text("VolumeBindingMode", "volumeBindingMode"),
    _text("AllowVolumeExpansion", "allowVolumeExpansion", default="false"),
    AGE,
)
CSI_NODE_COLUMNS = (
    NAME,
    Column(
        "Drivers", lambda obj, _: len((obj.get("spec") or {}).get("drivers") or ()), type="integer"
    ),
    AGE,
)
CSI_DRIVER_COLUMNS = (
    NAME,
    _text("AttachRequired", "spec", "attachRequired", default="true"),
    _text("PodInfoOnMount", "spec", "podInfoOnMount", default="false"),
    _text("StorageCapacity", "spec", "storageCapacity", default="false"),
    Column(
        "TokenRequests",
        lambda obj, _: (
            ",".join(
                token_request.get("audience", "")
                for token_request in (obj.get("spec") or {}).get("tokenRequests") or ()
            )
            or _UNSET
        ),
    ),
    _text("RequiresRepublish", "spec", "requiresRepublish", default="false"),
    Column(
        "Modes",
        lambda obj, _: ",".join((obj.get("spec") or {}).get("volumeLifecycleModes") or ()) or _NONE,
    ),
    AGE,
)
ATTACHMENT_COLUMNS = (
    NAME,
    _text("Attacher", "spec", "attacher"),
    _text("PV", "spec", "source", "persistentVolumeName"),
    _text("Node", "spec", "nodeName"),
    _text("Attached", "status", "attached", default="false"),
    AGE,
)


def _external_address(obj: JsonObject) -> str:
    spec = obj.get("spec") or {}
    kind = spec.get("type")
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    addresses = (
        [point.get("ip") or point.get("hostname", "") for point in ingress]
        if kind == "LoadBalancer"
        else []
    )
    addresses += spec.get("externalIPs") or []
    return ",".join(addresses) or ("<pending>" if kind == "LoadBalancer" else _NONE)


def _service_ports(obj: JsonObject) -> str:
    texts = []
    for port in (obj.get("spec") or {}).get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(texts) or _NONE


SERVICE_COLUMNS = (
    NAME,
    _text("Type", "spec", "type"),
    _text("Cluster-IP", "spec", "clusterIP", default=_NONE),
    Column("External-IP", lambda obj, _: _external_address(obj)),
    Column("Port(s)", lambda obj, _: _service_ports(obj)),
    AGE,
    Column(
        "Selector",
        lambda obj, _: selector_text((obj.get("spec") or {}).get("selector")) or _NONE,
        priority=1,
    ),
)
CONFIG_MAP_COLUMNS = (
    NAME,
    Column(
        "Data",
        lambda obj, _: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
        type="integer",
    ),
    AGE,
)
SECRET_COLUMNS = (
    NAME,
    _text("Type", "type"),
    Column("Data", lambda obj, _: len(obj.get("data") or ()), type="integer"),
    AGE,
)
SERVICE_ACCOUNT_COLUMNS = (
    NAME,
    Column("Secrets", lambda obj, _: len(obj.get("secrets") or ()), type="integer"),
    AGE,
)
LEASE_COLUMNS = (NAME, _text("Holder", "spec", "holderIdentity"), AGE)
PRIORITY_CLASS_COLUMNS = (
    NAME,
    Column("Value", lambda obj, _: obj.get("value", 0), type="integer"),
    Column("Global-Default", lambda obj, _: bool(obj.get("globalDefault")), type="boolean"),
    AGE,
    _text("PreemptionPolicy", "preemptionPolicy"),
)


def _event_times(event: JsonObject) -> tuple[str | None, str | None]:
    """First and last time, wherever the writer put them."""
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


EVENT_COLUMNS = (
    Column("Last Seen", lambda obj, now: age(_event_times(obj)[1], now)),
    _text("Type", "type"),
    _text("Reason", "reason"),
    Column("Object", lambda obj, _: _event_object(obj)),
    _text("Subobject", "involvedObject", "fieldPath", priority=1),
    Column("Source", lambda obj, _: _event_source(obj), priority=1),
    Column("Message", lambda obj, _: (obj.get("message") or "").strip()),
    Column("First Seen", lambda obj, now: age(_event_times(obj)[0], now), priority=1),
    Column("Count", lambda obj, _: _event_count(obj), type="integer", priority=1),
    Column("Name", lambda obj, _: obj["metadata"]["name"], format="name", priority=1),
)
CREATED_AT_COLUMNS = (NAME, _text("Created At", "metadata", "creationTimestamp"))


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


RESOURCE_CLAIM_COLUMNS = (NAME, Column("State", lambda obj, _: _claim_state(obj)), AGE)
RESOURCE_SLICE_COLUMNS = (
    NAME,
    _text("Node", "spec", "nodeName"),
    _text("Driver", "spec", "driver"),
    _text("Pool", "spec", "pool", "name"),
    AGE,
)


def _role(obj: JsonObject) -> str:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


ROLE_BINDING_COLUMNS = (NAME, Column("Role", lambda obj, _: _role(obj)), AGE)


def _endpoints(obj: JsonObject) -> str:
    rows = []
    for subset in obj.get("subsets") or ():
        ports = [entry.get("port") for entry in subset.get("ports") or ()] or [None]
        rows += [
            f"{address.get('ip')}:{port}" if port else str(address.get("ip"))
            for port in ports
            for address in subset.get("addresses") or ()
        ]
    if len(rows) > 3:
        return f"{','.join(rows[:3])} + {len(rows) - 3} more..."
    return ",".join(rows) or _NONE


ENDPOINTS_COLUMNS = (NAME, Column("Endpoints", lambda obj, _: _endpoints(obj)), AGE)
