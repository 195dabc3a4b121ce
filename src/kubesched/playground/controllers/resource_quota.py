"""The resource quota controller: writes a namespace's usage into the status of its quotas.

Admission charges new objects as they are written (`resources.admission.quotas`). This controller
initializes new quotas and recounts when an object is deleted or needs less.
"""

from __future__ import annotations

from kubesched.api import quantity
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    key_of,
    namespace_of,
    spec_of,
    status_of,
)
from kubesched.playground.apimachinery.pods import is_finished
from kubesched.playground.client.controller import Controller, ControllerContext, settling_s
from kubesched.playground.client.informers import BY_NAMESPACE, EveryResource
from kubesched.playground.resources.admission.quota_usage import (
    DEVICES_OF_CLASS,
    add,
    attributes_classes,
    matches_scopes,
    usage_of,
)

RESOURCE = "resourcequotas"
CLAIMS = "resourceclaims.resource.k8s.io"
RESYNC_S = 300.0
"""Interval of recounts that no change caused; they restore a status that was overwritten."""

_NAMED = (
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
)


class ResourceQuotaController(Controller[str]):
    """Keeps the status of every quota accurate."""

    name = "resourcequota"

    def __init__(self, context: ControllerContext, everything: EveryResource) -> None:
        super().__init__(context)
        self._everything = everything
        self._quotas = self.watch(RESOURCE, self._quota_changed, BY_NAMESPACE)
        everything.follow(self._changed)

    def sync(self, key: str) -> float | None:
        quota = self._quotas.get(key)
        if quota is None:
            return None
        hard = spec_of(quota).get("hard") or {}
        used = {name: quantity.parse(0) for name in hard}
        for resource in self._counted(hard):
            for obj in self.api.list(resource, namespace_of(quota))[0]:
                if matches_scopes(quota, resource, obj):
                    used = add(used, usage_of(resource, obj))
        amounts = {name: str(amount) for name, amount in used.items()}
        status = {**status_of(quota), "hard": dict(hard), "used": amounts}
        self.api.write_status(RESOURCE, quota, status)
        return RESYNC_S

    def _counted(self, hard: JsonObject) -> list[ResourceInfo]:
        """The resources that can use this quota."""
        keys: set[str] = {name.removeprefix("count/") for name in hard if name.startswith("count/")}
        keys |= {"pods", *(name for name in hard if name in _NAMED)}
        if any(name.startswith("services") for name in hard):
            keys.add("services")
        if any("storage" in name for name in hard):
            keys.add("persistentvolumeclaims")
        if any(name.endswith(DEVICES_OF_CLASS) for name in hard):
            keys.add(CLAIMS)
        return [resource for resource in self._everything.resources() if resource.key in keys]

    def _quota_changed(self, kind: str, quota: JsonObject, old: JsonObject | None) -> None:
        if old is None or spec_of(quota).get("hard") != status_of(quota).get("hard"):
            self.queue.add(key_of(quota))

    def _changed(
        self, resource: ResourceInfo, kind: str, obj: JsonObject, old: JsonObject | None
    ) -> None:
        namespace = namespace_of(obj)
        if not namespace or not self._quotas.count(BY_NAMESPACE, namespace):
            return
        if kind == "DELETED" or (old is not None and _needs_recount(resource.key, obj, old)):
            pause_s = settling_s(self.api.count(resource))
            for quota in self._quotas.find(BY_NAMESPACE, namespace):
                self.queue.add_after(key_of(quota), pause_s)


def _needs_recount(resource: str, obj: JsonObject, old: JsonObject) -> bool:
    """Whether an update may have freed usage, or moved it to other scopes."""
    new_spec, old_spec = spec_of(obj), spec_of(old)
    if resource == "pods":
        return is_finished(obj) is not is_finished(old) or any(
            new_spec.get(field) != old_spec.get(field)
            for field in ("activeDeadlineSeconds", "containers")
        )
    if resource == "services":
        return bool(new_spec.get("type") != old_spec.get("type"))
    return resource == "persistentvolumeclaims" and (
        attributes_classes(obj) != attributes_classes(old)
    )
