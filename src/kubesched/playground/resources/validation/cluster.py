"""Validation of nodes, services, priority and runtime classes, configuration, leases and events."""

from __future__ import annotations

import re

from kubesched.api import quantity
from kubesched.api.field_errors import forbidden, invalid, required, too_long
from kubesched.playground.apimachinery.object_meta import label_problems, validate_labels
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import (
    IS_NEGATIVE,
    Problems,
    choice,
    needed,
    numbered,
    one_of,
    port_number,
    unchanged,
)
from kubesched.playground.resources.validation import scheduling
from kubesched.playground.resources.validation.scheduling import taints

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PRIORITY_CLASSES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}

_DATA_KEY_HELP = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    "  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_DATA_LIMIT_BYTES = 1024 * 1024


def validate_node(obj: JsonObject) -> Problems:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    # Upstream: the path says metadata although taints are in spec; a dot precedes capacities.
    yield from taints(spec.get("taints") or (), "metadata.taints")
    for field in ("capacity", "allocatable"):
        for name, amount in (status.get(field) or {}).items():
            if quantity.nanos(amount) < 0:
                yield invalid(f"status.{field}.{name}", amount, IS_NEGATIVE)


def validate_service(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    yield from choice(obj, "spec.type", "ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    ports = spec.get("ports") or ()
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    for here, port in numbered(ports, "spec.ports"):
        yield from port_number(port.get("port", 0), f"{here}.port")
        target = port.get("targetPort")
        if isinstance(target, int):
            yield from port_number(target, f"{here}.targetPort")
        yield from one_of(port["protocol"], ("SCTP", "TCP", "UDP"), f"{here}.protocol")
        if len(ports) > 1 and not port.get("name"):
            yield required(f"{here}.name")
    yield from choice(obj, "spec.sessionAffinity", "ClientIP", "None")


def validate_priority_class(obj: JsonObject) -> Problems:
    name, value = obj["metadata"].get("name", ""), obj["value"]
    if name.startswith("system-"):
        if SYSTEM_PRIORITY_CLASSES.get(name) != value:
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only."
                f" error: {name} is not a known system priority class"
            )
            yield forbidden("metadata.name", detail)
    elif value > HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        yield forbidden("value", detail)
    yield from choice(obj, "preemptionPolicy", "Never", "PreemptLowerPriority")


def validate_priority_class_update(new: JsonObject, old: JsonObject) -> Problems:
    if new["value"] != old["value"]:
        yield forbidden("value", "may not be changed in an update.")
    yield from unchanged(new["preemptionPolicy"], old["preemptionPolicy"], "preemptionPolicy")


def validate_config_data(obj: JsonObject) -> Problems:
    """Validate keys and size of config maps and secrets."""
    size = 0
    for field in ("data", "binaryData"):
        for key, value in (obj.get(field) or {}).items():
            size += len(value)
            if not _DATA_KEY.fullmatch(key) or key in (".", ".."):
                yield invalid(f"{field}[{key}]", key, _DATA_KEY_HELP)
    if size > _DATA_LIMIT_BYTES:
        yield too_long("", _DATA_LIMIT_BYTES)


def validate_config_data_update(new: JsonObject, old: JsonObject) -> Problems:
    if not old.get("immutable"):
        return
    if not (new.get("immutable")):
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    yield from (
        forbidden(field, "field is immutable when `immutable` is set")
        for field in ("data", "binaryData")
        if new.get(field) != old.get(field)
    )


def validate_lease(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, IS_NEGATIVE)


def validate_event(obj: JsonObject) -> Problems:
    """Require the namespace of the involved object; cluster-scoped objects use `default`."""
    about = (obj.get("involvedObject") or {}).get("namespace", "")
    namespace = obj["metadata"].get("namespace", "")
    if about == namespace or (not about and namespace == "default"):
        return []
    return [invalid("involvedObject.namespace", about, "does not match event.namespace")]


def validate_runtime_class(obj: JsonObject) -> Problems:
    yield from needed("handler", obj.get("handler") or "", label_problems)
    placement = obj.get("scheduling") or {}
    yield from validate_labels(placement.get("nodeSelector") or {}, "scheduling.nodeSelector")
    yield from scheduling.tolerations(placement.get("tolerations") or (), "scheduling.tolerations")
