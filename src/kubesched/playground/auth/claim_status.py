"""Permissions for changing a ResourceClaim's status, besides `resourceclaims/status`.

Changes of the allocation or reservations require `resourceclaims/binding` at cluster scope, because
a claim takes its devices from every namespace. Changes of a driver's device status require
`resourceclaims/driver` with the driver's name and the verb `arbitrary-node:update` (or `patch`);
on the node of the service account's pod, `associated-node:update` is enough.

These subresources exist only as permissions; no request names them. Writes of the process itself
have no user and are not checked. Tokens are not bound to nodes; only impersonation states a node.
Mirrors upstream's `AuthorizedForBinding` and `AuthorizedForDeviceStatus`.
"""

from __future__ import annotations

from kubesched.api.field_errors import FieldError, forbidden
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import invalid
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.auth.rbac import Attributes, RbacAuthorizer
from kubesched.playground.registry.rest_storage import AdmissionRequest
from kubesched.playground.registry.users import User

CLAIMS = "resourceclaims.resource.k8s.io"


class ClaimStatusCheck:
    """An `AdmissionCheck` for the status of ResourceClaims."""

    def __init__(self, authorizer: RbacAuthorizer) -> None:
        self._authorizer = authorizer

    def __call__(self, request: AdmissionRequest) -> None:
        _, resource, obj, old, _, options = request
        user = options.user
        if user is None or resource.key != CLAIMS:
            return
        before = old or {}
        problems: list[FieldError] = []
        if _binding(obj) != _binding(before):
            problems += self._binding_problems(user, resource, options.verb)
        if _binding(obj)[0] is not None:  # device status requires an allocation
            verbs = [f"arbitrary-node:{options.verb}"]
            if user.node and user.node == _node_of(obj["status"]["allocation"]):
                verbs.insert(0, f"associated-node:{options.verb}")
            namespace = obj["metadata"].get("namespace", "")
            for driver in _changed_drivers(obj, before):
                problems += self._driver_problems(user, resource, verbs, namespace, driver)
        if problems:
            raise invalid(resource, obj["metadata"]["name"], problems)

    def _binding_problems(self, user: User, resource: ResourceInfo, verb: str) -> list[FieldError]:
        wanted = Attributes(
            verb=verb, group=resource.group, resource=resource.plural, subresource="binding"
        )
        if self._authorizer.allows(user, wanted) is not None:
            return []
        detail = (
            "changing status.allocation or status.reservedFor requires "
            f'resource="resourceclaims/binding", verb="{verb}" permission: '
            f"{wanted.refusal(user.name)}"
        )
        return [forbidden("status.allocation", detail)]

    def _driver_problems(
        self, user: User, resource: ResourceInfo, verbs: list[str], namespace: str, driver: str
    ) -> list[FieldError]:
        wanted = [
            Attributes(
                verb=verb,
                group=resource.group,
                resource=resource.plural,
                subresource="driver",
                name=driver,
                namespace=namespace,
            )
            for verb in verbs
        ]
        if any(self._authorizer.allows(user, each) is not None for each in wanted):
            return []
        detail = (
            'changing status.devices requires resource="resourceclaims/driver", '
            f'verb="[{" ".join(verbs)}]" permission: {wanted[0].refusal(user.name)}'
        )
        return [forbidden("status.devices", detail)]


def _node_of(allocation: JsonObject) -> str | None:
    """The only node at which the claim can be used, if its selector names one."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    match terms:
        case [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} as term
        ] if not term.get("matchExpressions"):
            return str(name)
    return None


def _binding(claim: JsonObject) -> tuple[object, object]:
    status = claim.get("status") or {}
    return status.get("allocation"), status.get("reservedFor") or []


def _changed_drivers(new: JsonObject, old: JsonObject) -> list[str]:
    """Drivers with devices whose status was added, changed or removed, sorted."""
    after, before = _devices(new), _devices(old)
    keys = {*after, *before}
    return sorted({key[0] for key in keys if after.get(key) != before.get(key)})


def _devices(claim: JsonObject) -> dict[tuple[str, ...], JsonObject]:
    devices = (claim.get("status") or {}).get("devices") or ()
    fields = ("driver", "pool", "device", "shareID")
    return {tuple([device.get(field, "") for field in fields]): device for device in devices}
