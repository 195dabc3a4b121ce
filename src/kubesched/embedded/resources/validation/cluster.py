"""Rules for nodes, services, priority classes, configuration, leases and events."""

from __future__ import annotations

import re

from kubesched.api import quantity
from kubesched.api.field_errors import FieldError, forbidden, invalid, required, too_long
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import (
    IS_IMMUTABLE,
    IS_NEGATIVE,
    one_of,
    port_number,
    unchanged,
)
from kubesched.embedded.resources.validation.scheduling import taints

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PRIORITY_CLASSES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}

_DATA_KEY_HELP = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',"
    "  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_DATA_LIMIT_BYTES = 1024 * 1024


def validate_node(obj: JsonObject) -> list[FieldError]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    # Upstream: the path says metadata, though taints are in the spec; capacities are named with a dot.
    problems = taints(spec.get("taints") or (), "metadata.taints")
    for field in ("capacity", "allocatable"):
        for name, amount in (status.get(field) or {}).items():
            if quantity.nanos(amount) < 0:
                problems.append(invalid(f"status.{field}.{name}", amount, IS_NEGATIVE))
    return problems


def validate_service(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    kinds = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    problems = one_of(spec["type"], kinds, "spec.type")
    ports = spec.get("ports") or ()
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        problems.append(required("spec.ports"))
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        problems.append(required("spec.externalName"))
    for index, port in enumerate(ports):
        here = f"spec.ports[{index}]"
        problems += port_number(port.get("port", 0), f"{here}.port")
        target = port.get("targetPort")
        if isinstance(target, int):
            problems += port_number(target, f"{here}.targetPort")
        problems += one_of(port["protocol"], ("SCTP", "TCP", "UDP"), f"{here}.protocol")
        if len(ports) > 1 and not port.get("name"):
            problems.append(required(f"{here}.name"))
    return problems + one_of(spec["sessionAffinity"], ("ClientIP", "None"), "spec.sessionAffinity")


def validate_priority_class(obj: JsonObject) -> list[FieldError]:
    name, value = obj["metadata"].get("name", ""), obj["value"]
    problems: list[FieldError] = []
    if name.startswith("system-"):
        if SYSTEM_PRIORITY_CLASSES.get(name) != value:
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only."
                f" error: {name} is not a known system priority class"
            )
            problems.append(forbidden("metadata.name", detail))
    elif value > HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        problems.append(forbidden("value", detail))
    policies = ("Never", "PreemptLowerPriority")
    return problems + one_of(obj["preemptionPolicy"], policies, "preemptionPolicy")


def validate_priority_class_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    problems: list[FieldError] = []
    if new["value"] != old["value"]:
        problems.append(forbidden("value", "may not be changed in an update."))
    return problems + unchanged(
        new["preemptionPolicy"], old["preemptionPolicy"], "preemptionPolicy"
    )


def validate_config_data(obj: JsonObject) -> list[FieldError]:
    """Keys and size of config maps and secrets."""
    problems: list[FieldError] = []
    size = 0
    for field in ("data", "binaryData"):
        for key, value in (obj.get(field) or {}).items():
            size += len(value)
            if not _DATA_KEY.fullmatch(key) or key in (".", ".."):
                problems.append(invalid(f"{field}[{key}]", key, _DATA_KEY_HELP))
    if size > _DATA_LIMIT_BYTES:
        problems.append(too_long("", _DATA_LIMIT_BYTES))
    return problems


def validate_config_data_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    problems = (
        []
        if new.get("immutable")
        else [forbidden("immutable", "field is immutable when `immutable` is set")]
    )
    return problems + [
        forbidden(field, "field is immutable when `immutable` is set")
        for field in ("data", "binaryData")
        if new.get(field) != old.get(field)
    ]


def validate_lease(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    problems: list[FieldError] = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        problems.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        problems.append(invalid("spec.leaseTransitions", transitions, IS_NEGATIVE))
    return problems


def validate_event(obj: JsonObject) -> list[FieldError]:
    """The rule that ties an event to the namespace of what it is about; cluster objects' events live in default."""
    about = (obj.get("involvedObject") or {}).get("namespace", "")
    namespace = obj["metadata"].get("namespace", "")
    if about == namespace or (not about and namespace == "default"):
        return []
    return [invalid("involvedObject.namespace", about, "does not match event.namespace")]


def validate_runtime_immutable(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """Controller revisions record history: their data never changes."""
    if new.get("data") == old.get("data"):
        return []
    return [invalid("data", new.get("data"), IS_IMMUTABLE)]
