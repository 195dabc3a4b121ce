"""POSTs that are commands rather than objects: binding and eviction."""

from __future__ import annotations

from kubesched.api.field_errors import not_supported, required
from kubesched.embedded.apimachinery.failures import bad_request, invalid
from kubesched.embedded.apimachinery.objects import JsonObject, encode
from kubesched.embedded.handlers.exchange import ApiRequest, ApiResponse, Query, decode_body
from kubesched.embedded.handlers.routes import Target
from kubesched.embedded.handlers.simulated import SIMULATED, simulated
from kubesched.embedded.handlers.writing import parse_delete_options, write_options
from kubesched.embedded.registry import binding, eviction
from kubesched.embedded.registry.rest_storage import RestStorage
from kubesched.errors import MethodNotAllowed

_SUCCESS = encode(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


def post(registry: RestStorage, request: ApiRequest, target: Target, query: Query) -> ApiResponse:
    if target.resource.plural == "bindings" or target.subresource == "binding":
        return _bind(registry, request, target, query)
    if target.subresource == "eviction":
        return _evict(registry, request, target, query)
    if target.subresource in SIMULATED:
        entry = registry.get(target.resource, target.namespace or "", target.name)
        raise simulated(entry.obj, target.subresource)
    raise MethodNotAllowed("the server does not allow this method on the requested resource")


def _decode(request: ApiRequest, kind: str) -> JsonObject:
    body = decode_body(request)
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise bad_request(f"the body must be a {kind} object")
    if body.get("kind", kind) != kind:
        raise bad_request(f"{body['kind']} cannot be handled as a {kind}")
    return body


def _named(target: Target, metadata: JsonObject) -> str:
    stated = str(metadata.get("name", ""))
    if target.name and stated and stated != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    namespace = metadata.get("namespace")
    if namespace and namespace != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return target.name or stated


def _bind(registry: RestStorage, request: ApiRequest, target: Target, query: Query) -> ApiResponse:
    body = _decode(request, "Binding")
    metadata = body.get("metadata", {})
    name = _named(target, metadata)
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
        raise invalid(registry.catalog.get("bindings"), name, causes)
    binding.bind(
        registry,
        target.namespace or "",
        name,
        node_name,
        uid=metadata.get("uid"),
        resource_version=metadata.get("resourceVersion"),
        annotations=metadata.get("annotations"),
        labels=metadata.get("labels"),
        dry_run=write_options(request, query).dry_run,
    )
    return ApiResponse(201, _SUCCESS)


def _evict(registry: RestStorage, request: ApiRequest, target: Target, query: Query) -> ApiResponse:
    body = _decode(request, "Eviction")
    name = _named(target, body.get("metadata", {}))
    options = body.get("deleteOptions")
    eviction.evict(
        registry,
        target.namespace or "",
        name,
        parse_delete_options(options if isinstance(options, dict) else {}, query),
    )
    return ApiResponse(201, _SUCCESS)
