"""`serviceaccounts/token`: tokens for service accounts, as `kubectl create token` asks for them."""

from __future__ import annotations

from kubesched.api.field_errors import invalid as invalid_field
from kubesched.embedded.apimachinery.failures import invalid
from kubesched.embedded.apimachinery.objects import JsonObject, encode, timestamp
from kubesched.embedded.auth.tokens import DEFAULT_S, LONGEST_S, SHORTEST_S, ServiceAccountTokens
from kubesched.embedded.handlers.exchange import ApiRequest, ApiResponse, decode_body
from kubesched.embedded.handlers.routes import Target
from kubesched.embedded.registry.rest_storage import RestStorage
from kubesched.errors import BadRequest


def issue_token(
    registry: RestStorage, request: ApiRequest, target: Target, tokens: ServiceAccountTokens
) -> ApiResponse:
    """Answer a TokenRequest."""
    account = registry.get(target.resource, target.namespace or "", target.name).obj
    body = decode_body(request)
    spec = body.get("spec") or {} if isinstance(body, dict) else None
    if not isinstance(spec, dict) or body.get("kind", "TokenRequest") != "TokenRequest":
        raise BadRequest("the body must be a TokenRequest object")
    seconds = spec.get("expirationSeconds") or DEFAULT_S
    if not isinstance(seconds, int) or not SHORTEST_S <= seconds <= LONGEST_S:
        detail = "may not specify a duration less than 10 minutes or larger than 2^32 seconds"
        problem = invalid_field("spec.expirationSeconds", seconds, detail)
        raise invalid(target.resource, target.name, [problem])
    audiences = [str(audience) for audience in spec.get("audiences") or ()]
    token, expires = tokens.issue(account, audiences, seconds)
    answer: JsonObject = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": target.name,
            "namespace": target.namespace,
            "creationTimestamp": timestamp(registry.clock.now()),
        },
        "spec": {**spec, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": timestamp(expires)},
    }
    return ApiResponse(201, encode(answer))
