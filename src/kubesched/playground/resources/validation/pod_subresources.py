"""Writes to `pods/ephemeralcontainers` and `pods/resize`: merging and validation."""

from __future__ import annotations

from kubesched.api.field_errors import forbidden, invalid, not_found
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import Problems
from kubesched.playground.resources.admission.quota_usage import qos_class
from kubesched.playground.resources.defaults.pod_level import default_pod_level_resources
from kubesched.playground.resources.defaults.pods import default_pod
from kubesched.playground.resources.validation.containers import containers
from kubesched.playground.resources.validation.pods import pod_spec

_RESIZABLE = ("cpu", "memory")
_NOT_EPHEMERAL = (
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
)
"""Fields that an ephemeral container cannot have; `resources` must be empty."""


def with_ephemeral_containers(new: JsonObject, old: JsonObject) -> JsonObject:
    """The old pod with the new one's ephemeral containers."""
    ephemeral = (new.get("spec") or {}).get("ephemeralContainers")
    spec = {key: value for key, value in old["spec"].items() if key != "ephemeralContainers"}
    if ephemeral:
        spec["ephemeralContainers"] = ephemeral
    return {**old, "metadata": new["metadata"], "spec": spec}


def validate_ephemeral_containers(new: JsonObject, old: JsonObject) -> Problems:
    path = "spec.ephemeralContainers"
    spec = new["spec"]
    volume_names = {volume.get("name", "") for volume in spec.get("volumes") or ()}
    names = {
        container["name"]
        for field in ("containers", "initContainers")
        for container in spec.get(field) or ()
    }
    ephemeral = spec.get("ephemeralContainers") or []
    problems = [*containers(ephemeral, path, volume_names, set(names))]
    for index, container in enumerate(ephemeral):
        target = container.get("targetContainerName")
        if target and target not in names:
            problems.append(not_found(f"{path}[{index}].targetContainerName", target))
        problems += [
            forbidden(f"{path}[{index}].{field}", "cannot be set for an Ephemeral Container")
            for field in (*_NOT_EPHEMERAL, "resources")
            if container.get(field)
        ]
    if problems:
        return problems
    known = {container["name"]: container for container in ephemeral}
    for container in old["spec"].get("ephemeralContainers") or ():
        name = container["name"]
        if name not in known:
            detail = f'existing ephemeral containers "{name}" may not be removed\n'
            problems.append(forbidden(path, detail))
        elif known[name] != container:
            detail = f'existing ephemeral containers "{name}" may not be changed\n'
            problems.append(forbidden(path, detail))
    return problems


_CONTAINER_LISTS = ("containers", "initContainers")


def with_resources(new: JsonObject, old: JsonObject) -> JsonObject:
    """The old pod with the new one's resources and resize policies; other changes are ignored.

    A changed set or order of containers is kept, for validation to reject.
    """
    spec = dict(old["spec"])
    for field in _CONTAINER_LISTS:
        wanted, known = new["spec"].get(field) or [], spec.get(field) or []
        if _names(wanted) != _names(known):
            spec[field] = wanted
        elif known:
            pairs = zip(known, wanted, strict=True)
            spec[field] = [{**container, **_resizable(other)} for container, other in pairs]
    if "resources" in new["spec"]:
        spec["resources"] = new["spec"]["resources"]
    return {**old, "metadata": new["metadata"], "spec": spec}


def with_completed_resources(new: JsonObject, old: JsonObject) -> JsonObject:
    """`with_resources`, and the defaults of pod-level resources."""
    pod = with_resources(new, old)
    default_pod(pod)
    default_pod_level_resources(pod["spec"], with_limits=True)
    return pod


def _names(containers: list[JsonObject]) -> list[str]:
    return [container.get("name", "") for container in containers]


def _resizable(container: JsonObject) -> JsonObject:
    return {
        field: container[field] for field in ("resources", "resizePolicy") if field in container
    }


def validate_resize(new: JsonObject, old: JsonObject) -> Problems:
    yield from pod_spec(new["spec"], "spec")
    if qos_class(new["spec"]) != qos_class(old["spec"]):
        detail = "Pod QOS Class may not change as a result of resizing"
        yield invalid("spec", qos_class(new["spec"]), detail)
    for field in _CONTAINER_LISTS:
        wanted, known = new["spec"].get(field) or [], old["spec"].get(field) or []
        if len(wanted) != len(known):
            yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            continue
        for index, (after, before) in enumerate(zip(wanted, known, strict=True)):
            if after.get("name") != before.get("name"):
                detail = f"{field} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{field}[{index}].name", detail)
            yield from _resize_problems(
                after.get("resources") or {},
                before.get("resources") or {},
                f"spec.{field}[{index}].resources",
            )


def _resize_problems(after: JsonObject, before: JsonObject, path: str) -> Problems:
    for side in ("requests", "limits"):
        new, old = after.get(side) or {}, before.get(side) or {}
        if set(old) - set(new):
            yield forbidden(f"{path}.{side}", f"resource {side} cannot be removed")
        changed = {name for name in {*new, *old} if new.get(name) != old.get(name)}
        if changed - set(_RESIZABLE):
            yield forbidden("spec", "only cpu and memory resources are mutable")
