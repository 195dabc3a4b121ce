"""Who may bind claims: changes of a claim's allocation or reservations need `resourceclaims/binding` besides the status.

No request names this subresource; it exists as a permission only. Users need it for the whole cluster, since a claim that
takes a device takes it from every namespace. Writes of the process itself have no user and are not checked. Mirrors
upstream's `AuthorizedForBinding`.
"""

from __future__ import annotations

from kubesched.api import field_errors
from kubesched.embedded.auth.rbac import Attributes, RbacAuthorizer
from kubesched.embedded.failures import invalid
from kubesched.embedded.objects import JsonObject
from kubesched.embedded.registry.rest_storage import RestStorage, WriteOptions
from kubesched.embedded.resources.catalog import ResourceInfo

CLAIMS = "resourceclaims.resource.k8s.io"


class ClaimBindingCheck:
    """An `AdmissionCheck` for the status of claims."""

    def __init__(self, authorizer: RbacAuthorizer) -> None:
        self._authorizer = authorizer

    def __call__(
        self,
        registry: RestStorage,
        resource: ResourceInfo,
        obj: JsonObject,
        old: JsonObject | None,
        subresource: str,
        options: WriteOptions,
    ) -> None:
        user = options.user
        if user is None or resource.key != CLAIMS:
            return
        if _binding(obj) == _binding(old or {}):
            return
        wanted = Attributes(
            verb=options.verb, group=resource.group, resource=resource.plural, subresource="binding"
        )
        if self._authorizer.allows(user, wanted) is None:
            detail = (
                "changing status.allocation or status.reservedFor requires "
                f'resource="resourceclaims/binding", verb="{options.verb}" permission: '
                f"{wanted.refusal(user.name)}"
            )
            problem = field_errors.forbidden("status.allocation", detail)
            raise invalid(resource, obj["metadata"]["name"], [problem])


def _binding(claim: JsonObject) -> tuple[object, object]:
    status = claim.get("status") or {}
    return status.get("allocation"), status.get("reservedFor") or []
