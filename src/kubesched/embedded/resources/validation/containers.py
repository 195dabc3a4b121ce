"""Rules for containers and volumes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubesched.api.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
)
from kubesched.embedded.apimachinery.object_meta import label_problems
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import (
    Problems,
    not_negative,
    one_of,
    port_number,
    refused,
)
from kubesched.embedded.resources.validation.resources import container_resources

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ENV_SOURCES = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_ENV_NAME = re.compile(r"[ -<>-~]+")


def volumes(items: Sequence[JsonObject], path: str) -> tuple[list[FieldError], set[str]]:
    """Problems of volumes, and the names that containers may mount."""
    problems: list[FieldError] = []
    names: set[str] = set()
    for index, volume in enumerate(items):
        here = f"{path}[{index}]"
        name = volume.get("name", "")
        if not name:
            problems.append(required(f"{here}.name"))
        else:
            problems += [invalid(f"{here}.name", name, text) for text in label_problems(name)]
        if name in names:
            problems.append(duplicate(f"{here}.name", name))
        names.add(name)
        sources = [key for key in volume if key != "name"]
        problems += [
            forbidden(f"{here}.{extra}", "may not specify more than 1 volume type")
            for extra in sources[1:]
        ]
        problems += _volume_source(volume, here)
    return problems, names


def _volume_source(volume: JsonObject, path: str) -> Problems:
    for source, field in (
        ("persistentVolumeClaim", "claimName"),
        ("secret", "secretName"),
        ("hostPath", "path"),
    ):
        body = volume.get(source)
        if body is not None and not body.get(field):
            return [required(f"{path}.{source}.{field}")]
    config_map = volume.get("configMap")
    if config_map is not None and not config_map.get("name"):
        return [required(f"{path}.configMap.name")]
    csi = volume.get("csi")
    if csi is not None and not csi.get("driver"):
        return [required(f"{path}.csi.driver")]
    return []


def containers(
    items: Sequence[JsonObject], path: str, volume_names: set[str], taken_names: set[str]
) -> Problems:
    """Problems of one list of containers; names must differ across the lists of a pod."""
    for index, container in enumerate(items):
        here = f"{path}[{index}]"
        name = container.get("name", "")
        if not name:
            yield required(f"{here}.name")
        else:
            yield from refused(f"{here}.name", name, label_problems(name))
        if name in taken_names:
            yield duplicate(f"{here}.name", name)
        taken_names.add(name)
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
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
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
    """What is wrong with the name of a port."""
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
        detail = "a valid environment variable name must consist only of printable ASCII characters other than '='"
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
    for index, mount in enumerate(mounts):
        here = f"{path}[{index}]"
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
