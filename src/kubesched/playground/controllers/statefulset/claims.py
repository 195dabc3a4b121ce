"""The volume claims of a StatefulSet's pods.

Claims are created before their pod and outlive it. The garbage collector deletes them by their
owner: the set (`whenDeleted: Delete`), or the pod once it is scaled down (`whenScaled: Delete`).
"""

from __future__ import annotations

from kubesched.base.errors import AlreadyExists, ApiError, NotFound
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_of,
    controller_reference,
    copy_json,
    is_deleting,
    name_of,
    namespace_of,
    owners_of,
    spec_of,
    uid_of,
)
from kubesched.playground.client.controller import ControllerContext
from kubesched.playground.controllers.statefulset.identity import (
    claim_name,
    claim_templates,
    ordinal_of,
    ordinals,
)

COMPONENT = "statefulset-controller"
RESOURCE = "persistentvolumeclaims"


class ClaimControl:
    """Creates claims and keeps their owners in line with the retention policy."""

    def __init__(self, context: ControllerContext) -> None:
        self._api = context.api
        self._events = context.events
        self._claims = context.informers.informer(RESOURCE)

    def ensure(self, stateful_set: JsonObject, pod: str) -> bool:
        """Create the pod's missing claims; False while a previous claim is still terminating."""
        for template in claim_templates(stateful_set):
            existing = self._claim(stateful_set, template, pod)
            if existing is None:
                self._create(stateful_set, template, pod)
            elif is_deleting(existing):
                return False
        return True

    def keep_owners(self, stateful_set: JsonObject, pod: JsonObject) -> None:
        """Bring the owner references of the pod's claims in line with the retention policy."""
        for template in claim_templates(stateful_set):
            claim = self._claim(stateful_set, template, name_of(pod))
            if claim is None:
                continue
            wanted = _wanted_owners(stateful_set, pod, claim)
            if wanted != owners_of(claim):
                patch = {"metadata": {"ownerReferences": wanted or None}}
                try:
                    self._api.patch_object(RESOURCE, claim, patch)
                except NotFound:
                    continue

    def _claim(self, stateful_set: JsonObject, template: JsonObject, pod: str) -> JsonObject | None:
        return self._claims.get(f"{namespace_of(stateful_set)}/{claim_name(template, pod)}")

    def _create(self, stateful_set: JsonObject, template: JsonObject, pod: str) -> None:
        name = claim_name(template, pod)
        metadata = template["metadata"]
        selector_labels = (spec_of(stateful_set).get("selector") or {}).get("matchLabels") or {}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": namespace_of(stateful_set),
                "labels": {**(metadata.get("labels") or {}), **selector_labels},
                "annotations": dict(metadata.get("annotations") or {}),
            },
            "spec": copy_json(template.get("spec") or {}),
        }
        subject = f"Claim {name} Pod {pod} in StatefulSet {name_of(stateful_set)}"
        try:
            self._api.create(RESOURCE, claim)
        except AlreadyExists:
            return
        except ApiError as error:
            message = f"create {subject} failed error: {error}"
            self._events.warning(stateful_set, COMPONENT, "FailedCreate", message)
            raise
        self._events.normal(
            stateful_set, COMPONENT, "SuccessfulCreate", f"create {subject} success"
        )


def _wanted_owners(
    stateful_set: JsonObject, pod: JsonObject, claim: JsonObject
) -> list[JsonObject]:
    ours = (uid_of(stateful_set), uid_of(pod))
    others = [owner for owner in owners_of(claim) if owner.get("uid") not in ours]
    manager = controller_of(claim)
    if manager is not None and manager.get("uid") not in ours:
        return others  # managed by another controller; the policy does not apply
    policy = spec_of(stateful_set).get("persistentVolumeClaimRetentionPolicy") or {}
    is_scaled_away = ordinal_of(pod) not in ordinals(stateful_set)
    if policy.get("whenScaled") == "Delete" and is_scaled_away:
        return [*others, controller_reference(pod)]
    if policy.get("whenDeleted") == "Delete" and not (
        is_scaled_away and policy.get("whenScaled") == "Delete"
    ):
        return [*others, controller_reference(stateful_set)]
    return others
