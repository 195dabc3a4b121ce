"""Validation of containers, their requests and limits, and volumes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from kubesched.api import quantity
from kubesched.api.field_errors import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
)
from kubesched.api.names import label_key_problems
from kubesched.playground.apimachinery.object_meta import label_problems
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.validation import (
    IS_NEGATIVE,
    Problems,
    needed,
    not_negative,
    numbered,
    one_of,
    port_number,
    refused,
)

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ENV_SOURCES = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or"
    " `fileKeyRef`"
)
_SOURCES = {
    "persistentVolumeClaim": "claimName",
    "secret": "secretName",
    "hostPath": "path",
    "configMap": "name",
    "csi": "driver",
}
"""Volume sources, and the required field of each."""
_ENV_NAME = re.compile(r"[ -<>-~]+")
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_MUST_BE_INTEGER = "must be an integer"
_NOT_STANDARD = "must be a standard resource for containers"


def volumes(items: Sequence[JsonObject], path: str) -> Problems:
    names: set[str] = set()
    for here, volume in numbered(items, path):
        yield from _own_name(volume, here, names)
        for extra in [key for key in volume if key != "name"][1:]:
            yield forbidden(f"{here}.{extra}", "may not specify more than 1 volume type")
        yield from _volume_source(volume, here)


def _own_name(item: JsonObject, path: str, taken: set[str]) -> Problems:
    """Problems of a name, which must be unique; adds it to `taken`."""
    name = item.get("name", "")
    yield from needed(f"{path}.name", name, label_problems)
    if name in taken:
        yield duplicate(f"{path}.name", name)
    taken.add(name)


def _volume_source(volume: JsonObject, path: str) -> Problems:
    for source, field in _SOURCES.items():
        if volume.get(source) is not None and not volume[source].get(field):
            return [required(f"{path}.{source}.{field}")]
    return []


def containers(
    items: Sequence[JsonObject], path: str, volume_names: set[str], taken_names: set[str]
) -> Problems:
    """Problems of one list of containers; names must be unique across a pod's lists."""
    for here, container in numbered(items, path):
        yield from _own_name(container, here, taken_names)
        yield from _container(container, here, volume_names)


def _container(container: JsonObject, path: str, volume_names: set[str]) -> Problems:
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    if container["imagePullPolicy"] not in _PULL_POLICIES:
        yield from one_of(container["imagePullPolicy"], _PULL_POLICIES, f"{path}.imagePullPolicy")
    ports = container.get("ports")
    if ports:
        yield from _ports(ports, f"{path}.ports")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _environment(variable, f"{path}.env[{index}]")
    mounts = container.get("volumeMounts")
    if mounts:
        yield from _mounts(mounts, f"{path}.volumeMounts", volume_names)
    resources = container["resources"]
    if resources:
        yield from container_resources(resources, f"{path}.resources")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            yield from _probe(probe, f"{path}.{name}", must_succeed_once=name != "readinessProbe")


def _ports(ports: Sequence[JsonObject], path: str) -> Problems:
    names: set[str] = set()
    for here, port in numbered(ports, path):
        name = port.get("name")
        if name:
            yield from refused(f"{here}.name", name, port_name_problems(name))
            if name in names:
                yield duplicate(f"{here}.name", name)
            names.add(name)
        if not port.get("containerPort"):
            yield required(f"{here}.containerPort")
        else:
            yield from port_number(port["containerPort"], f"{here}.containerPort")
        if port.get("hostPort"):
            yield from port_number(port["hostPort"], f"{here}.hostPort")
        yield from one_of(port.get("protocol", "TCP"), _PROTOCOLS, f"{here}.protocol")


def port_name_problems(name: str) -> list[str]:
    if len(name) > 15:
        return ["must be no more than 15 characters"]
    if not re.fullmatch(r"[-a-z0-9]+", name):
        return ["must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"]
    problems = []
    if not re.search(r"[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def _environment(variable: JsonObject, path: str) -> Problems:
    name = variable.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif not _ENV_NAME.fullmatch(name):
        detail = (
            "a valid environment variable name must consist only of printable ASCII characters"
            " other than '='"
        )
        yield invalid(f"{path}.name", name, detail)
    source = variable.get("valueFrom")
    if source is not None:
        detail = ""
        if not source:
            detail = _ENV_SOURCES
        elif variable.get("value"):
            detail = "may not be specified when `value` is not empty"
        elif len(source) > 1:
            detail = "may not have more than one field specified at a time"
        if detail:
            yield invalid(f"{path}.valueFrom", "", detail)


def _mounts(mounts: Sequence[JsonObject], path: str, volume_names: set[str]) -> Problems:
    paths: set[str] = set()
    for here, mount in numbered(mounts, path):
        name, mount_path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{here}.name")
        elif name not in volume_names:
            yield not_found(f"{here}.name", name)
        if not mount_path:
            yield required(f"{here}.mountPath")
        elif mount_path in paths:
            yield invalid(f"{here}.mountPath", mount_path, "must be unique")
        paths.add(mount_path)


def _probe(probe: JsonObject, path: str, *, must_succeed_once: bool) -> Problems:
    handlers = [item for item in ("exec", "httpGet", "tcpSocket", "grpc") if item in probe]
    if not handlers:
        yield required(path, "must specify a handler type")
    yield from (
        forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
        for extra in handlers[1:]
    )
    for field in (
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ):
        yield from not_negative(probe.get(field, 0), f"{path}.{field}")
    if must_succeed_once and probe.get("successThreshold", 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def container_resources(resources: JsonObject, path: str) -> Problems:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for name, amount in limits.items():
        yield from _amount(name, amount, f"{path}.limits[{name}]")
    for name, amount in requests.items():
        yield from _amount(name, amount, f"{path}.requests[{name}]")
        limit = limits.get(name)
        if limit is not None:
            yield from _within_limit(name, amount, limit, f"{path}.requests")
        elif not _may_overcommit(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    names = {*limits, *requests}
    if names.isdisjoint(("cpu", "memory")) and any(map(_is_huge_page, names)):
        yield forbidden(path, "HugePages require cpu or memory")


def _amount(name: str, amount: Json, path: str) -> Problems:
    yield from refused(path, name, _name_problems(name))
    nanos = quantity.nanos(amount)
    if nanos < 0:
        yield invalid(path, amount, IS_NEGATIVE)
    elif nanos % 1_000_000_000 and is_integer_resource(name):
        yield invalid(path, amount, _MUST_BE_INTEGER)


def _within_limit(name: str, amount: Json, limit: Json, path: str) -> Problems:
    asked, allowed = quantity.nanos(amount), quantity.nanos(limit)
    if asked != allowed and not _may_overcommit(name):
        return [
            invalid(path, amount, f"must be equal to {name} limit of {quantity.canonical(limit)}")
        ]
    if asked > allowed:
        return [
            invalid(
                path,
                amount,
                f"must be less than or equal to {name} limit of {quantity.canonical(limit)}",
            )
        ]
    return []


@lru_cache(maxsize=1024)
def _name_problems(name: str) -> tuple[str, ...]:
    if name in _STANDARD or _is_huge_page(name):
        return ()
    problems = label_key_problems(name)
    if not problems and "/" not in name:
        return ("must be a standard resource type or fully qualified", _NOT_STANDARD)
    return problems


@lru_cache(maxsize=1024)
def is_integer_resource(name: str) -> bool:
    """Whether only whole numbers are allowed: extended resources and huge pages."""
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


@lru_cache(maxsize=1024)
def _may_overcommit(name: str) -> bool:
    """Whether a request may be below its limit; false for devices and huge pages."""
    return not is_integer_resource(name) and not _is_huge_page(name)


def _is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")
