"""Admission of priorities: pods and pod groups get the value and policy of their class."""

from __future__ import annotations

from kubesched.base.errors import Forbidden
from kubesched.playground.apimachinery.failures import forbidden
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.storage.store import Collection

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_FROM_CLASS = "priority admission controller computed {} from the given PriorityClass name"
_WORDS = {
    "Pod": ("pods", "pod"),
    "PodGroup": ("podgroups.scheduling.k8s.io", "pod group"),
    "CompositePodGroup": ("compositepodgroups.scheduling.k8s.io", "composite pod group"),
}
"""Resource by kind, and its name in messages."""


def admit_priority(registry: RestStorage, obj: JsonObject, *, sets_policy: bool = True) -> None:
    """Resolve the priority class; a stated priority or policy must match it."""
    spec, (resource, words) = obj["spec"], _WORDS[obj["kind"]]

    def refuse(why: str) -> Forbidden:
        return forbidden(registry.catalog.get(resource), obj["metadata"].get("name", ""), why)

    class_name = spec.get("priorityClassName")
    if class_name:
        entry = registry.store.get(PRIORITY_CLASSES, "", class_name)
        if entry is None:
            raise refuse(f"no PriorityClass with name {class_name} was found")
        chosen = entry.obj
    else:
        default = registry.derived("default priority class", PRIORITY_CLASSES, _global_default)
        chosen = default if default is not None else {}
        if default is not None:
            spec["priorityClassName"] = default["metadata"]["name"]
    value = chosen.get("value", 0)
    stated = spec.get("priority")
    if stated is not None and stated != value:
        if words == "pod":
            why = f"the integer value of priority ({stated}) must not be provided in pod spec"
            raise refuse(f"{why}; {_FROM_CLASS.format(value)}")
        why = f"priority set in the {words} ({stated}) must match the priority computed ({value})"
        raise refuse(f"{why} based on the priority class set in the spec")
    spec["priority"] = value
    if not sets_policy:
        return
    policy = chosen.get("preemptionPolicy", "PreemptLowerPriority")
    stated = spec.get("preemptionPolicy", policy)
    if stated != policy:
        why = (
            f"the string value of PreemptionPolicy ({stated}) must not be provided in {words} spec"
        )
        raise refuse(f"{why}; {_FROM_CLASS.format(policy)}")
    spec["preemptionPolicy"] = policy


def _global_default(priority_classes: Collection) -> JsonObject | None:
    """The default class; of several (upstream: only after races) the one with the lowest value."""
    best: JsonObject | None = None
    for entry in priority_classes.entries():
        if entry.obj.get("globalDefault") and (best is None or entry.obj["value"] < best["value"]):
            best = entry.obj
    return best
