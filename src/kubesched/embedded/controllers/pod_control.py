"""Making and removing pods on behalf of a controller, with the events that tell of it."""

from __future__ import annotations

from typing import Any

from kubesched.embedded.apimachinery.objects import (
    JsonObject,
    controller_reference,
    copy_json,
    name_of,
    namespace_of,
)
from kubesched.embedded.client.controller import ControllerContext
from kubesched.errors import ApiError


def pod_from_template(template: JsonObject, owner: JsonObject) -> JsonObject:
    """A pod as the template says, owned by `owner`, to be named by the server."""
    template_metadata = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "generateName": f"{name_of(owner)}-",
        "namespace": namespace_of(owner),
        "ownerReferences": [controller_reference(owner)],
    }
    for field in ("labels", "annotations", "finalizers"):
        if template_metadata.get(field):
            metadata[field] = copy_json(template_metadata[field])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": copy_json(template.get("spec") or {}),
    }


class PodControl:
    """Creates and deletes pods for one kind of owner."""

    def __init__(self, context: ControllerContext, component: str) -> None:
        self._api = context.api
        self._events = context.events
        self._component = component

    def create(self, pod: JsonObject, owner: JsonObject) -> JsonObject:
        """Create the pod; failure is told as an event on the owner and raised."""
        try:
            created = self._api.create("pods", pod, namespace_of(owner))
        except ApiError as error:
            self._events.warning(owner, self._component, "FailedCreate", f"Error creating: {error}")
            raise
        self._events.normal(
            owner, self._component, "SuccessfulCreate", f"Created pod: {name_of(created)}"
        )
        return created

    def delete(self, pod: JsonObject, owner: JsonObject) -> None:
        """Ask for the pod's graceful end; one that is gone already is fine."""
        try:
            is_deleted = self._api.delete_object("pods", pod)
        except ApiError as error:
            self._events.warning(owner, self._component, "FailedDelete", f"Error deleting: {error}")
            raise
        if is_deleted:
            message = f"Deleted pod: {name_of(pod)}"
            self._events.normal(owner, self._component, "SuccessfulDelete", message)
