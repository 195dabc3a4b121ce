"""Resource claims of pods: created from templates, reserved while in use, then released.

pod names a template               claim is generated, recorded in status.resourceClaimStatuses
pod bound without the scheduler    its allocated claims are reserved for it
pod finished, replaced or deleted  reservation is removed; allocation and finalizer with the last
its generated claim                deleted (by the garbage collector if the pod was deleted)
"""

from __future__ import annotations

from collections.abc import Iterator

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
from kubesched.playground.client.informers import Index

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"

_MAX_GENERATE_NAME = 57
"""Leaves room for a hyphen and five random characters in a name of 63."""

Key = tuple[str, str]
"""("pod", namespace/name) or ("claim", namespace/name)."""


class ResourceClaimController(Controller[Key]):
    """Creates, reserves and releases the claims of pods."""

    name = "resource-claim"
    component = "resource_claim"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claims = self.watch(CLAIMS, self._claim_changed, BY_OWNER)
        self._templates = self.watch(TEMPLATES, self._template_changed)
        self._pods = self.watch("pods", self._pod_changed, BY_CLAIM, BY_TEMPLATE)

    def sync(self, key: Key) -> float | None:
        kind, name = key
        if kind == "pod":
            pod = self._pods.get(name)
            if pod is not None and not is_deleting(pod) and not is_finished(pod):
                self._sync_pod(pod)
        else:
            claim = self._claims.get(name)
            if claim is not None:
                self._sync_claim(claim)
        return None

    # -- pods --------------------------------------------------------------------------------------

    def _sync_pod(self, pod: JsonObject) -> None:
        statuses = []
        for entry in spec_of(pod).get("resourceClaims") or ():
            try:
                claim = self._ensure_claim(pod, entry)
            except ApiError as error:
                message = f"PodResourceClaim {entry['name']}: {error}"
                self.warning(pod, "FailedResourceClaimCreation", message)
                raise
            if claim is not None:
                statuses.append({"name": entry["name"], "resourceClaimName": name_of(claim)})
        if statuses:
            patch = {
                "metadata": {"uid": uid_of(pod)},
                "status": {"resourceClaimStatuses": statuses},
            }
            pod = self.api.patch(
                "pods", namespace_of(pod), name_of(pod), patch, "strategic", "status"
            )
        if node_name_of(pod):
            self._reserve(pod)

    def _ensure_claim(self, pod: JsonObject, entry: JsonObject) -> JsonObject | None:
        """Claim of an entry not yet recorded in the pod's status, else None."""
        template_name = entry.get("resourceClaimTemplateName")
        if template_name is None:
            return None
        is_recorded, name = _recorded_claim(pod, entry["name"])
        if is_recorded:
            claim = self._claims.get(f"{namespace_of(pod)}/{name}") if name else None
            if not name or (claim is not None and is_controlled_by(claim, uid_of(pod))):
                return None
        for claim in self._claims.find(BY_OWNER, uid_of(pod)):
            if annotations_of(claim).get(POD_CLAIM_NAME_ANNOTATION) == entry["name"]:
                return claim
        template = self._templates.get(f"{namespace_of(pod)}/{template_name}")
        if template is None:
            raise NotFound(
                f'resource claim template "{template_name}":'
                f' resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            )
        return self.api.create(CLAIMS, _generated_claim(pod, entry["name"], spec_of(template)))

    def _reserve(self, pod: JsonObject) -> None:
        """Reserve the claims of a pod bound without them, for example by `spec.nodeName`."""
        for key in _claim_keys(pod):
            claim = self._claims.get(key)
            if claim is None:
                return
            status = status_of(claim)
            consumers = status.get("reservedFor") or []
            if (
                status.get("allocation") is None
                or len(consumers) >= MAX_RESERVED_FOR
                or any(consumer.get("uid") == uid_of(pod) for consumer in consumers)
            ):
                continue
            mine = {"resource": "pods", "name": name_of(pod), "uid": uid_of(pod)}
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
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        pod = self._pods.get(f"{namespace_of(claim)}/{consumer.get('name', '')}")
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

    def _claim_changed(self, kind: str, claim: JsonObject, old: JsonObject | None) -> None:
        if kind != "DELETED":
            self.queue.add(("claim", key_of(claim)))
        for pod in self._pods.find(BY_CLAIM, key_of(claim)):
            self.queue.add(("pod", key_of(pod)))

    def _template_changed(self, kind: str, template: JsonObject, old: JsonObject | None) -> None:
        if kind == "ADDED":
            for pod in self._pods.find(BY_TEMPLATE, key_of(template)):
                self.queue.add(("pod", key_of(pod)))


def _is_done(pod: JsonObject) -> bool:
    """Whether the pod no longer needs its claims: finished, or deleted before it was bound."""
    return is_finished(pod) or (is_deleting(pod) and not node_name_of(pod))


def _finalizers(obj: JsonObject) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def _recorded_claim(pod: JsonObject, entry_name: str) -> tuple[bool, str]:
    """Whether the status records the entry, and the claim name; "" if it needs no claim."""
    for status in status_of(pod).get("resourceClaimStatuses") or ():
        if status.get("name") == entry_name:
            return True, status.get("resourceClaimName") or ""
    return False, ""


def _claim_keys(pod: JsonObject) -> tuple[str, ...]:
    """Keys of the claims a pod uses, including the one for extended resources."""
    return tuple(f"{namespace_of(pod)}/{name}" for name in _claim_names(pod))


def _claim_names(pod: JsonObject) -> Iterator[str]:
    for entry in spec_of(pod).get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or _recorded_claim(pod, entry.get("name", ""))[1]
        if name:
            yield name
    extended = status_of(pod).get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        yield extended["resourceClaimName"]


def _template_keys(pod: JsonObject) -> tuple[str, ...]:
    """Keys of the templates a pod names."""
    entries = spec_of(pod).get("resourceClaims")
    if not entries:
        return ()
    names = (entry.get("resourceClaimTemplateName") for entry in entries)
    return tuple(f"{namespace_of(pod)}/{name}" for name in names if name)


def _pod_uid(claim: JsonObject) -> tuple[str, ...]:
    """Uid of the pod that the claim was created for."""
    owner = controller_of(claim)
    return (owner["uid"],) if owner is not None and owner.get("kind") == "Pod" else ()


def _generated_claim(pod: JsonObject, entry_name: str, template: JsonObject) -> JsonObject:
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), POD_CLAIM_NAME_ANNOTATION: entry_name}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": name_of(pod),
        "uid": uid_of(pod),
        "controller": True,
    }
    made: JsonObject = {
        "generateName": _generate_name(name_of(pod), entry_name),
        "namespace": namespace_of(pod),
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    if metadata.get("labels"):
        made["labels"] = dict(metadata["labels"])
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": made,
        "spec": copy_json(template.get("spec") or {}),
    }


def _generate_name(pod_name: str, entry_name: str) -> str:
    """`<pod>-<entry>-`; if too long, both parts are truncated in proportion."""
    full = f"{pod_name}-{entry_name}-"
    if len(full) <= _MAX_GENERATE_NAME:
        return full

    def cut(part: str) -> str:
        return part[: len(part) * _MAX_GENERATE_NAME // len(full)]

    return f"{cut(pod_name)}-{cut(entry_name)}"


BY_CLAIM = Index(_claim_keys)
BY_TEMPLATE = Index(_template_keys)
BY_OWNER = Index(_pod_uid)
