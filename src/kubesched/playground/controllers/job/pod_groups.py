"""Workloads and pod groups of Jobs (feature gate WorkloadWithJob).

A Job gets a Workload with one template and a PodGroup made from it, before its first pod. A Job
with a managing controller gets only a PodGroup, from a template of that controller's Workload, and
only if its annotation names the template.
"""

from __future__ import annotations

from typing import Any

from kubesched.base.errors import ApiError, KubeschedError
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_of,
    controller_reference,
    find_condition,
    is_controlled_by,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
    value_at,
)
from kubesched.playground.client.controller import Controller
from kubesched.playground.client.informers import Index
from kubesched.playground.controllers.controller_revisions import compute_hash
from kubesched.playground.controllers.pod_group_protection import POD_GROUPS

WORKLOADS = "workloads.scheduling.k8s.io"
API_VERSION = "scheduling.k8s.io/v1beta1"
TEMPLATE_ANNOTATION = "scheduling.k8s.io/group-template-name"
_MIN_COUNT = ("schedulingPolicy", "gang", "minCount")


def _controller_key(namespace: str, group: str, kind: str, name: str) -> str:
    return f"{namespace}/{group}/{kind}/{name}"


def _for_controller(workload: JsonObject) -> tuple[str, ...]:
    ref = spec_of(workload).get("controllerRef")
    if not ref:
        return ()
    group = ref.get("apiGroup", "")
    return (_controller_key(namespace_of(workload), group, ref["kind"], ref["name"]),)


def _from_workload(group: JsonObject) -> tuple[str, ...]:
    name = value_at(group, ("spec", "workloadRef", "workloadName"))
    return (f"{namespace_of(group)}/{name}",) if name else ()


BY_CONTROLLER = Index(_for_controller, "spec")
BY_WORKLOAD = Index(_from_workload, "spec")


class JobPodGroups:
    """Creates the objects and keeps their minCount up to date."""

    def __init__(self, controller: Controller[Any]) -> None:
        self._controller = controller
        self._api = controller.api
        self._workloads = controller.watch(WORKLOADS, None, BY_CONTROLLER)
        self._groups = controller.watch(POD_GROUPS, None, BY_WORKLOAD)

    def group_of(self, job: JsonObject, pods: list[JsonObject]) -> JsonObject | None:
        """The group that new pods of the Job belong to, created if it is a new Job's."""
        if value_at(job, ("spec", "template", "spec", "schedulingGroup")) is not None:
            return None
        is_new = _is_new(job, pods)
        if controller_of(job) is None:
            return self._own_group(job, is_new)
        name = (job["metadata"].get("annotations") or {}).get(TEMPLATE_ANNOTATION)
        return self._delegated_group(job, name, is_new) if name is not None else None

    def _own_group(self, job: JsonObject, is_new: bool) -> JsonObject | None:
        key = _controller_key(namespace_of(job), "batch", "Job", name_of(job))
        workload = _only(
            [
                found
                for found in self._workloads.find(BY_CONTROLLER, key)
                if is_controlled_by(found, uid_of(job))
            ]
        )
        if workload is None and is_new:
            workload = self._create_workload(job)
        if workload is None:
            return None
        templates: list[JsonObject] = spec_of(workload).get("podGroupTemplates") or []
        if len(templates) != 1:
            raise KubeschedError(
                f"workload {namespace_of(job)}/{name_of(workload)} for job {namespace_of(job)}/"
                f"{name_of(job)} has {len(templates)} PodGroupTemplates, want exactly 1"
            )
        group = self._group(job, workload, templates[0], is_new, owned_by_workload=True)
        least = value_at(_template(job), _MIN_COUNT)
        if least is not None and value_at(templates[0], _MIN_COUNT) not in (None, least):
            changed = [{**templates[0], "schedulingPolicy": {"gang": {"minCount": least}}}]
            patch = {"spec": {"podGroupTemplates": changed}}
            self._api.patch_object(WORKLOADS, workload, patch)
        return self._with_min_count(group, least)

    def _delegated_group(self, job: JsonObject, name: str, is_new: bool) -> JsonObject | None:
        parent = controller_of(job)
        assert parent is not None
        group = parent.get("apiVersion", "").rpartition("/")[0]
        key = _controller_key(namespace_of(job), group, parent["kind"], parent["name"])
        for workload in self._workloads.find(BY_CONTROLLER, key):
            for template in spec_of(workload).get("podGroupTemplates") or ():
                if name in ("", template["name"]):
                    made = self._group(job, workload, template, is_new, owned_by_workload=False)
                    return self._with_min_count(made, value_at(template, _MIN_COUNT))
            return None
        return None

    def _create_workload(self, job: JsonObject) -> JsonObject:
        name = f"{name_of(job)}-{compute_hash(uid_of(job))}"
        body = {
            "metadata": {"name": name, "ownerReferences": [controller_reference(job)]},
            "spec": {
                "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": name_of(job)},
                "podGroupTemplates": [_template(job)],
            },
        }
        try:
            made = self._api.create(WORKLOADS, body, namespace_of(job))
        except ApiError as error:
            text = f"Failed to create Workload for Job {name_of(job)}: {error}"
            self._controller.warning(job, "FailedWorkloadCreate", text)
            raise
        text = f"Created Workload {name} for Job {name_of(job)}"
        self._controller.normal(job, "WorkloadCreated", text)
        return made

    def _group(
        self,
        job: JsonObject,
        workload: JsonObject,
        template: JsonObject,
        is_new: bool,
        *,
        owned_by_workload: bool,
    ) -> JsonObject | None:
        """The Job's group, which a new Job may still lack; None beside several, as upstream."""
        found = [
            group
            for group in self._groups.find(BY_WORKLOAD, f"{namespace_of(job)}/{name_of(workload)}")
            if is_controlled_by(group, uid_of(job))
        ]
        if found or not is_new:
            return _only(found)
        reference = {"workloadName": name_of(workload), "templateName": template["name"]}
        spec = {
            field: value
            for field, value in template.items()
            if value is not None and field not in ("name", "preemptionPolicy")
        }
        name = f"{name_of(workload)}-{template['name']}"
        name += f"-{compute_hash([name_of(workload), template['name']])}"
        owners = [controller_reference(job)]
        if owned_by_workload:
            owners.append(
                {
                    "apiVersion": API_VERSION,
                    "kind": "Workload",
                    "name": name_of(workload),
                    "uid": uid_of(workload),
                }
            )
        body = {
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {**spec, "workloadRef": reference},
        }
        made = self._api.create(POD_GROUPS, body, namespace_of(job))
        text = f"Created PodGroup {name} for Job {name_of(job)}"
        self._controller.normal(job, "PodGroupCreated", text)
        return made

    def _with_min_count(self, group: JsonObject | None, least: int | None) -> JsonObject | None:
        known = value_at(spec_of(group), _MIN_COUNT) if group is not None else None
        if group is not None and None not in (known, least) and known != least:
            patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}
            self._api.patch_object(POD_GROUPS, group, patch)
        return group


def _only(found: list[JsonObject]) -> JsonObject | None:
    return found[0] if len(found) == 1 else None


def _is_new(job: JsonObject, pods: list[JsonObject]) -> bool:
    status = status_of(job)
    started = pods or any(status.get(field) for field in ("startTime", "succeeded", "failed"))
    return not started and find_condition(status.get("conditions"), "Suspended") is None


def _template(job: JsonObject) -> JsonObject:
    """The template of the Job's pod group."""
    given = spec_of(job).get("scheduling") or {}
    policy = given.get("schedulingPolicy") or {"basic": {}}
    if policy.get("gang") is not None:
        least = policy["gang"].get("minCount") or max(1, spec_of(job).get("parallelism", 1))
        policy = {"gang": {"minCount": least}}
    template = {"name": f"{name_of(job)}-pgt-0", "schedulingPolicy": policy}
    if value_at(given, ("schedulingConstraints", "topology")):
        template["schedulingConstraints"] = given["schedulingConstraints"]
    for field in ("disruptionMode", "resourceClaims"):
        if given.get(field):
            template[field] = given[field]
    priority_class = value_at(job, ("spec", "template", "spec", "priorityClassName"))
    return {**template, "priorityClassName": priority_class} if priority_class else template
