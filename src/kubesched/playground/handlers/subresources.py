"""POSTs that are commands rather than objects: binding, eviction, tokens."""

from __future__ import annotations

from kubesched.api.field_errors import invalid as invalid_field
from kubesched.api.field_errors import not_supported, required
from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery.failures import invalid
from kubesched.playground.apimachinery.objects import JsonObject, encode, timestamp
from kubesched.playground.auth.tokens import DEFAULT_S, LONGEST_S, SHORTEST_S, ServiceAccountTokens
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse, decode_body
from kubesched.playground.handlers.routes import SIMULATED, Call, Target, not_allowed, simulated
from kubesched.playground.handlers.writing import parse_delete_options, write_options
from kubesched.playground.registry import binding, eviction

_SUCCESS = encode(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


def post(call: Call) -> ApiResponse:
    target = call.target
    if target.resource.plural == "bindings" or target.subresource == "binding":
        return _bind(call)
    if target.subresource == "eviction":
        return _evict(call)
    if target.subresource in SIMULATED:
        entry = call.registry.get(target.resource, call.namespace, target.name)
        raise simulated(entry.obj, target.subresource)
    raise not_allowed()


def _decode(request: ApiRequest, kind: str) -> JsonObject:
    body = decode_body(request)
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise BadRequest(f"the body must be a {kind} object")
    if body.get("kind", kind) != kind:
        raise BadRequest(f"{body['kind']} cannot be handled as a {kind}")
    return body


def _named(target: Target, metadata: JsonObject) -> str:
    stated = str(metadata.get("name", ""))
    if target.name and stated and stated != target.name:
        raise BadRequest("name in URL does not match name in Binding object")
    namespace = metadata.get("namespace")
    if namespace and namespace != target.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return target.name or stated


def _bind(call: Call) -> ApiResponse:
    body = _decode(call.request, "Binding")
    metadata = body.get("metadata", {})
    name = _named(call.target, metadata)
    goal = body.get("target")
    goal = goal if isinstance(goal, dict) else {}
    causes = []
    kind, node_name = goal.get("kind", ""), goal.get("name", "")
    if kind not in ("", "Node", "Minion"):
        causes.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not node_name or not isinstance(node_name, str):
        causes.append(required("target.name"))
    if not name:
        causes.append(required("metadata.name"))
    if causes:
        raise invalid(call.registry.catalog.get("bindings"), name, causes)
    binding.bind(
        call.registry,
        call.namespace,
        name,
        node_name,
        uid=metadata.get("uid"),
        resource_version=metadata.get("resourceVersion"),
        annotations=metadata.get("annotations"),
        labels=metadata.get("labels"),
        dry_run=write_options(call).dry_run,
    )
    return ApiResponse(201, _SUCCESS)


def _evict(call: Call) -> ApiResponse:
    body = _decode(call.request, "Eviction")
    name = _named(call.target, body.get("metadata", {}))
    stated = body.get("deleteOptions")
    options = parse_delete_options(stated if isinstance(stated, dict) else {}, call.query)
    eviction.evict(call.registry, call.namespace, name, options)
    return ApiResponse(201, _SUCCESS)


def issue_token(call: Call, tokens: ServiceAccountTokens) -> ApiResponse:
    """Answer a TokenRequest."""
    registry, target = call.registry, call.target
    account = registry.get(target.resource, call.namespace, target.name).obj
    body = decode_body(call.request)
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
