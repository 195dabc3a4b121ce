"""Pod groups, composite pod groups and workloads: defaults and admission."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import POD_GROUP_FINALIZER, JsonObject
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.resources.admission.priority import admit_priority


def default_group(obj: JsonObject) -> None:
    obj.setdefault("spec", {}).setdefault("disruptionMode", {"single": {}})


def default_group_with_policy(obj: JsonObject) -> None:
    """`default_group` with the gate PodGroupPreemptionPolicy."""
    default_group(obj)
    obj["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")


def admit_group(registry: RestStorage, obj: JsonObject) -> None:
    obj["status"] = {}
    sets_policy = "preemptionPolicy" in obj["spec"]  # with the gate there is a default, else none
    admit_priority(registry, obj, sets_policy=sets_policy)
    finalizers = obj["metadata"].get("finalizers") or []
    if obj["kind"] == "PodGroup" and POD_GROUP_FINALIZER not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, POD_GROUP_FINALIZER]


def complete_workload(
    registry: RestStorage, obj: JsonObject, old: JsonObject | None = None
) -> None:
    """Set the fields that are shown as null if they are not set."""
    obj["spec"].setdefault("podGroupTemplates", None)
    _complete_templates(obj["spec"])


def _complete_templates(parent: JsonObject) -> None:
    for template in parent.get("podGroupTemplates") or ():
        template.setdefault("schedulingConstraints", None)
    for template in parent.get("compositePodGroupTemplates") or ():
        _complete_templates(template)
