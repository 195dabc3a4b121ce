"""Resource claims of pods and groups: created from templates, reserved in use, then released.

pod or group names a template      claim is generated, recorded in status.resourceClaimStatuses
pod has the same entry as its group  the group's claim is recorded in its status, too
pod bound without the scheduler    its allocated claims are reserved for it or its group
pod finished, replaced or deleted  reservation is removed; allocation and finalizer with the last
group replaced or deleted          the same
generated claim of a pod           deleted (by the garbage collector if the pod was deleted)
"""

from __future__ import annotations

from kubesched.api.resource_v1 import FINALIZER, MAX_RESERVED_FOR, POD_CLAIM_NAME_ANNOTATION
from kubesched.base.errors import ApiError, NotFound
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    controller_of,
    copy_json,
    is_controlled_by,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import is_finished, node_name_of
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import Index, Informer
from kubesched.playground.controllers.pod_group_protection import BY_GROUP, POD_GROUPS, group_of

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
GROUP_API = "scheduling.k8s.io"

_MAX_GENERATE_NAME = 57
"""Leaves room for a hyphen and five random characters in a name of 63."""

Key = tuple[str, str]
"""("pod", "group" or "claim", namespace/name)."""


class ResourceClaimController(Controller[Key]):
    """Creates, reserves and releases the claims of pods and, if enabled, of pod groups."""

    name = "resource-claim"
    component = "resource_claim"

    def __init__(self, context: ControllerContext, of_groups: bool = False) -> None:
        super().__init__(context)
        self._claims = self.watch(CLAIMS, self._claim_changed, BY_OWNER)
        self._templates = self.watch(TEMPLATES, self._template_changed)
        self._pods = self.watch("pods", self._pod_changed, BY_CLAIM, BY_TEMPLATE)
        self._groups: Informer | None = None
        if of_groups:
            self._pods.add_index(BY_GROUP)
            self._groups = self.watch(POD_GROUPS, self._group_changed, BY_CLAIM, BY_TEMPLATE)

    def sync(self, key: Key) -> float | None:
        kind, name = key
        if kind == "pod":
            pod = self._pods.get(name)
            if pod is not None and not is_deleting(pod) and not is_finished(pod):
                self._sync_pod(pod)
        elif kind == "group":
            group = self._find_group(name)
            if group is not None and not is_deleting(group):
                self._record_claims(POD_GROUPS, group, None)
        else:
            claim = self._claims.get(name)
            if claim is not None:
                self._sync_claim(claim)
        return None

    # -- pods and groups ---------------------------------------------------------------------------

    def _sync_pod(self, pod: JsonObject) -> None:
        group = None
        for key in group_of(pod) if self._groups is not None else ():
            group = self._find_group(key)
            if group is None:
                return  # whose claims these are is known with the group
        pod = self._record_claims("pods", pod, group)
        if node_name_of(pod):
            self._reserve(pod, group)

    def _find_group(self, key: str) -> JsonObject | None:
        return None if self._groups is None else self._groups.get(key)

    def _record_claims(
        self, resource: str, owner: JsonObject, group: JsonObject | None
    ) -> JsonObject:
        """Generate missing claims of a pod or group; returns it with their names."""
        statuses = []
        for entry in spec_of(owner).get("resourceClaims") or ():
            try:
                claim = self._ensure_claim(owner, entry, group)
            except ApiError as error:
                message = f"{owner['kind']}ResourceClaim {entry['name']}: {error}"
                self.warning(owner, "FailedResourceClaimCreation", message)
                raise
            if claim is not None:
                statuses.append({"name": entry["name"], "resourceClaimName": name_of(claim)})
        if not statuses:
            return owner
        patch = {
            "metadata": {"uid": uid_of(owner)},
            "status": {"resourceClaimStatuses": statuses},
        }
        where = namespace_of(owner), name_of(owner)
        return self.api.patch(resource, *where, patch, "strategic", "status")

    def _ensure_claim(
        self, owner: JsonObject, entry: JsonObject, group: JsonObject | None
    ) -> JsonObject | None:
        """Claim of an entry not yet recorded in the owner's status, else None."""
        template_name = entry.get("resourceClaimTemplateName")
        if template_name is None:
            return None
        whose = group if group is not None and _has_entry(group, entry) else owner
        is_recorded, name = _recorded_claim(owner, entry["name"])
        if is_recorded:
            claim = self._claims.get(f"{namespace_of(owner)}/{name}") if name else None
            if not name or (claim is not None and is_controlled_by(claim, uid_of(whose))):
                return None
        for claim in self._claims.find(BY_OWNER, uid_of(whose)):
            if annotations_of(claim).get(POD_CLAIM_NAME_ANNOTATION) == entry["name"]:
                return claim
        if whose is group:
            return None  # it is made for the group first
        template = self._templates.get(f"{namespace_of(owner)}/{template_name}")
        if template is None:
            raise NotFound(
                f'resource claim template "{template_name}":'
                f' resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            )
        return self.api.create(CLAIMS, _generated_claim(owner, entry["name"], spec_of(template)))

    def _reserve(self, pod: JsonObject, group: JsonObject | None) -> None:
        """Reserve the claims of a pod bound without them, for example by `spec.nodeName`."""
        for entry, key in _entries_and_keys(pod):
            claim = self._claims.get(key)
            if claim is None:
                return
            mine = {"resource": "pods", "name": name_of(pod), "uid": uid_of(pod)}
            if group is not None and _has_entry(group, entry):
                mine = {"apiGroup": GROUP_API, "resource": "podgroups"}
                mine |= {"name": name_of(group), "uid": uid_of(group)}
            status = status_of(claim)
            consumers = status.get("reservedFor") or []
            if (
                status.get("allocation") is None
                or len(consumers) >= MAX_RESERVED_FOR
                or any(consumer.get("uid") == mine["uid"] for consumer in consumers)
            ):
                continue
            self._write_status(claim, {**status, "reservedFor": [*consumers, mine]})

    # -- claims ------------------------------------------------------------------------------------

    def _sync_claim(self, claim: JsonObject) -> None:
        status = status_of(claim)
        consumers = status.get("reservedFor") or []
        remaining = [consumer for consumer in consumers if self._keeps(claim, consumer)]
        if len(remaining) < len(consumers):
            claim = self._release(claim, remaining)
        elif is_deleting(claim) and not remaining and FINALIZER in _finalizers(claim):
            claim = self._release(claim, [])
        if not remaining and self._is_unused(claim):
            self.api.delete_object(CLAIMS, claim)

    def _keeps(self, claim: JsonObject, consumer: JsonObject) -> bool:
        key = f"{namespace_of(claim)}/{consumer.get('name', '')}"
        kind = (consumer.get("apiGroup", ""), consumer.get("resource"))
        if kind == (GROUP_API, "podgroups") and self._groups is not None:
            group = self._groups.get(key)
            return group is not None and uid_of(group) == consumer.get("uid")
        if kind != ("", "pods"):
            return True
        pod = self._pods.get(key)
        return pod is not None and uid_of(pod) == consumer.get("uid") and not _is_done(pod)

    def _release(self, claim: JsonObject, remaining: list[JsonObject]) -> JsonObject:
        """Write the remaining reservations; if none, remove allocation, then finalizer."""
        status = dict(status_of(claim))
        status.pop("reservedFor", None)
        is_protected = FINALIZER in _finalizers(claim)
        if remaining:
            status["reservedFor"] = remaining
        elif is_protected:
            status.pop("allocation", None)
        if status != status_of(claim):
            claim = self._write_status(claim, status)
        if not is_protected or status.get("allocation") is not None:
            return claim
        finalizers = [name for name in _finalizers(claim) if name != FINALIZER]
        metadata = {**claim["metadata"], "finalizers": finalizers}
        return self.api.update(CLAIMS, {**claim, "metadata": metadata})

    def _is_unused(self, claim: JsonObject) -> bool:
        """Whether the claim was generated for a pod that has finished or was replaced."""
        owner = controller_of(claim)
        if owner is None or owner.get("kind") != "Pod" or is_deleting(claim):
            return False
        pod = self._pods.get(f"{namespace_of(claim)}/{owner['name']}")
        return pod is not None and (uid_of(pod) != owner["uid"] or _is_done(pod))

    def _write_status(self, claim: JsonObject, status: JsonObject) -> JsonObject:
        return self.api.update_status(CLAIMS, {**claim, "status": status})

    # -- events ------------------------------------------------------------------------------------

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        extended = status_of(pod).get("extendedResourceClaimStatus")
        if not spec_of(pod).get("resourceClaims") and not extended:
            return
        if kind == "DELETED" or _is_done(pod):
            for key in _claim_keys(pod):
                self.queue.add(("claim", key))
        else:
            self.queue.add(("pod", key_of(pod)))

    def _group_changed(self, kind: str, group: JsonObject, old: JsonObject | None) -> None:
        if kind == "DELETED":
            for key in _claim_keys(group):
                self.queue.add(("claim", key))
        elif spec_of(group).get("resourceClaims"):
            self.queue.add(("group", key_of(group)))
        for pod in self._pods.find(BY_GROUP, key_of(group)):
            self._pod_changed(kind="MODIFIED", pod=pod, old=None)

    def _claim_changed(self, kind: str, claim: JsonObject, old: JsonObject | None) -> None:
        if kind != "DELETED":
            self.queue.add(("claim", key_of(claim)))
        self._add_owners(BY_CLAIM, claim)

    def _template_changed(self, kind: str, template: JsonObject, old: JsonObject | None) -> None:
        if kind == "ADDED":
            self._add_owners(BY_TEMPLATE, template)

    def _add_owners(self, index: Index, used: JsonObject) -> None:
        """Sync the pods and groups that use a claim or template."""
        for pod in self._pods.find(index, key_of(used)):
            self.queue.add(("pod", key_of(pod)))
        for group in () if self._groups is None else self._groups.find(index, key_of(used)):
            self.queue.add(("group", key_of(group)))


def _is_done(pod: JsonObject) -> bool:
    """Whether the pod no longer needs its claims: finished, or deleted before it was bound."""
    return is_finished(pod) or (is_deleting(pod) and not node_name_of(pod))


def _finalizers(obj: JsonObject) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def _has_entry(group: JsonObject, entry: JsonObject) -> bool:
    """Whether the claim of a pod's entry is the group's."""
    return entry in (spec_of(group).get("resourceClaims") or ())


def _recorded_claim(owner: JsonObject, entry_name: str) -> tuple[bool, str]:
    """Whether the status records the entry, and the claim name; "" if it needs no claim."""
    for status in status_of(owner).get("resourceClaimStatuses") or ():
        if status.get("name") == entry_name:
            return True, status.get("resourceClaimName") or ""
    return False, ""


def _entries_and_keys(owner: JsonObject) -> list[tuple[JsonObject, str]]:
    """Entries of a pod or group with the keys of their claims; {} for extended resources."""
    entries = spec_of(owner).get("resourceClaims") or ()
    named = [
        (entry, entry.get("resourceClaimName") or _recorded_claim(owner, entry.get("name", ""))[1])
        for entry in entries
    ]
    extended = status_of(owner).get("extendedResourceClaimStatus") or {}
    named.append(({}, extended.get("resourceClaimName")))
    return [(entry, f"{namespace_of(owner)}/{name}") for entry, name in named if name]


def _claim_keys(owner: JsonObject) -> tuple[str, ...]:
    """Keys of the claims that a pod or group uses."""
    return tuple(key for _, key in _entries_and_keys(owner))


def _template_keys(owner: JsonObject) -> tuple[str, ...]:
    """Keys of the templates that a pod or group names."""
    entries = spec_of(owner).get("resourceClaims")
    if not entries:
        return ()
    names = (entry.get("resourceClaimTemplateName") for entry in entries)
    return tuple(f"{namespace_of(owner)}/{name}" for name in names if name)


def _owner_uid(claim: JsonObject) -> tuple[str, ...]:
    """Uid of the pod or group that the claim was created for."""
    owner = controller_of(claim)
    is_known = owner is not None and owner.get("kind") in ("Pod", "PodGroup")
    return (owner["uid"],) if owner is not None and is_known else ()


def _generated_claim(owner: JsonObject, entry_name: str, template: JsonObject) -> JsonObject:
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), POD_CLAIM_NAME_ANNOTATION: entry_name}
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
    }
    made: JsonObject = {
        "generateName": _generate_name(name_of(owner), entry_name),
        "namespace": namespace_of(owner),
        "annotations": annotations,
        "ownerReferences": [reference],
    }
    if metadata.get("labels"):
        made["labels"] = dict(metadata["labels"])
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": made,
        "spec": copy_json(template.get("spec") or {}),
    }


def _generate_name(owner: str, entry_name: str) -> str:
    """`<owner>-<entry>-`; if too long, both parts are truncated in proportion."""
    full = f"{owner}-{entry_name}-"
    if len(full) <= _MAX_GENERATE_NAME:
        return full

    def cut(part: str) -> str:
        return part[: len(part) * _MAX_GENERATE_NAME // len(full)]

    return f"{cut(owner)}-{cut(entry_name)}"


BY_CLAIM = Index(_claim_keys)
BY_TEMPLATE = Index(_template_keys)
BY_OWNER = Index(_owner_uid)
