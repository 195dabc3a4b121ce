"""The documents: `/openapi/v3` (an index, one document per version) and `/openapi/v2`.

Clients use the paths to find the kind of a resource and whether a verb takes `fieldValidation`; the
documents describe operations only as far as that, and only in version 3. In version 2, clients of
the releases served here look up definitions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

from kubesched.base.errors import NotAcceptable
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import JsonObject, encode
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse
from kubesched.playground.handlers.openapi import protobuf
from kubesched.playground.handlers.openapi.custom_schemas import published_schema
from kubesched.playground.handlers.openapi.schemas import (
    collect,
    identity_of,
    model_name,
    top_level,
)
from kubesched.playground.handlers.routes import unknown_path
from kubesched.playground.registry.rest_storage import RestStorage

_V2 = "#/definitions/"
_V3 = "#/components/schemas/"
_READ_PARAMETERS = ("pretty",)
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "pretty")
_LIST_PARAMETERS = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC = "application/strategic-merge-patch+json"
_VERBS = {
    "get": ("get", _READ_PARAMETERS),
    "update": ("put", _WRITE_PARAMETERS),
    "patch": ("patch", (*_WRITE_PARAMETERS, "force")),
    "delete": ("delete", ("dryRun", "gracePeriodSeconds", "propagationPolicy")),
}


class OpenApi:
    """OpenAPI documents, cached until the resource catalogue changes."""

    def __init__(self, registry: RestStorage) -> None:
        self._registry = registry
        self._info = {"title": "Kubernetes", "version": registry.release.git_version}
        self._cache: dict[str, bytes] = {}
        registry.catalog.on_change(self._cache.clear)

    def answer(self, request: ApiRequest) -> ApiResponse:
        path = request.path.rstrip("/")
        if path == "/openapi/v2":
            return self._answer_version_2(request.headers.get("accept", ""))
        if path == "/openapi/v3":
            return self._cached(path, self._index)
        name = path.removeprefix("/openapi/v3/")
        for group, version in self._group_versions():
            if name == _document_name(group, version):
                return self._cached(path, partial(self._version_3, group, version))
        raise unknown_path()

    def _answer_version_2(self, accept: str) -> ApiResponse:
        if not accept or "json" in accept or "*/*" in accept:
            return self._cached("/openapi/v2", self._version_2)
        if protobuf.MEDIA_TYPE not in accept:
            raise NotAcceptable(
                "only the following media types are accepted: application/json,"
                f" {protobuf.MEDIA_TYPE}"
            )
        body = self._cache.get(protobuf.MEDIA_TYPE)
        if body is None:
            body = protobuf.encode_document(self._version_2())
            self._cache[protobuf.MEDIA_TYPE] = body
        return ApiResponse(200, body, protobuf.CONTENT_TYPE)

    def _cached(self, key: str, build: Callable[[], JsonObject]) -> ApiResponse:
        body = self._cache.get(key)
        if body is None:
            body = self._cache[key] = encode(build())
        return ApiResponse(200, body)

    def _group_versions(self) -> list[tuple[str, str]]:
        return sorted({(resource.group, resource.version) for resource in self._registry.catalog})

    def _index(self) -> JsonObject:
        paths = {}
        for group, version in self._group_versions():
            name = _document_name(group, version)
            # Clients cache a document by its hash forever, so the hash must change with the
            # document.
            document = self._cached(f"/openapi/v3/{name}", partial(self._version_3, group, version))
            digest = hashlib.sha256(document.body)
            paths[name] = {
                "serverRelativeURL": f"/openapi/v3/{name}?hash={digest.hexdigest().upper()}"
            }
        return {"paths": paths}

    def _version_3(self, group: str, version: str) -> JsonObject:
        schemas: JsonObject = {}
        paths: JsonObject = {}
        collect("meta.DeleteOptions", _V3, schemas)
        for resource in self._registry.catalog:
            if (resource.group, resource.version) == (group, version):
                name = self._describe(resource, _V3, schemas)
                paths.update(_paths(resource, _gvk(resource), _V3 + name))
        return {
            "openapi": "3.0.0",
            "info": self._info,
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _version_2(self) -> JsonObject:
        definitions: JsonObject = {}
        for resource in self._registry.catalog:
            self._describe(resource, _V2, definitions)
        return {"swagger": "2.0", "info": self._info, "paths": {}, "definitions": definitions}

    def _describe(self, resource: ResourceInfo, prefix: str, schemas: JsonObject) -> str:
        """Add the schema of a kind and those it refers to; returns its name."""
        gvk = _gvk(resource)
        identity = identity_of(resource.group, resource.kind)
        if identity is not None:
            collect(identity, prefix, schemas)
            name = model_name(identity)
        else:
            reverse = ".".join(reversed(resource.group.split(".")))
            name = f"{reverse}.{resource.version}.{resource.kind}"
            collect("meta.ObjectMeta", prefix, schemas)
            schemas[name] = self._custom_schema(resource, prefix)
        if identity is None and "properties" not in schemas[name]:
            # `top_level` would add apiVersion and kind; kubectl would take these as the only ones.
            schemas[name]["x-kubernetes-group-version-kind"] = [gvk]
        elif "x-kubernetes-group-version-kind" not in schemas[name]:
            top_level(schemas[name], [gvk])
        return name

    def _custom_schema(self, resource: ResourceInfo, prefix: str) -> JsonObject:
        """The schema of a custom kind from its definition, with the standard metadata."""
        metadata = {
            "allOf": [{"$ref": prefix + model_name("meta.ObjectMeta")}],
            "description": "Standard object's metadata: name, labels, owners.",
        }
        return published_schema(resource.schema, metadata, is_v3=prefix == _V3)


def _document_name(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _gvk(resource: ResourceInfo) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _paths(resource: ResourceInfo, gvk: JsonObject, reference: str) -> JsonObject:
    root = f"/{_document_name(resource.group, resource.version)}"
    base = (
        f"{root}/namespaces/{{namespace}}/{resource.plural}"
        if resource.namespaced
        else f"{root}/{resource.plural}"
    )
    collection: JsonObject = {}
    if resource.namespaced:
        collection["parameters"] = _path_parameters(resource, named=False)
    if "list" in resource.verbs:
        collection["get"] = _operation(gvk, _LIST_PARAMETERS, reference, action="list")
    if "create" in resource.verbs:
        collection["post"] = _operation(gvk, _WRITE_PARAMETERS, reference, action="post")
    paths: JsonObject = {base: collection}
    if resource.namespaced and "list" in resource.verbs:
        everywhere = _operation(gvk, _LIST_PARAMETERS, reference, action="list")
        paths[f"{root}/{resource.plural}"] = {"get": everywhere}
    single: JsonObject = {}
    for verb, (method, parameters) in _VERBS.items():
        if verb in resource.verbs:
            single[method] = _operation(
                gvk, parameters, reference, action=verb, custom=resource.custom
            )
    if single:
        single["parameters"] = _path_parameters(resource, named=True)
        paths[f"{base}/{{name}}"] = single
    return paths


def _path_parameters(resource: ResourceInfo, *, named: bool) -> list[JsonObject]:
    names = [*(["name"] if named else []), *(["namespace"] if resource.namespaced else [])]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _operation(
    gvk: JsonObject,
    parameters: tuple[str, ...],
    reference: str,
    *,
    action: str,
    custom: bool = False,
) -> JsonObject:
    schema = {"$ref": reference}
    answer: JsonObject = {"description": "OK"}
    if action != "list":
        answer["content"] = {"application/json": {"schema": schema}}
    operation: JsonObject = {
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters
        ],
        "responses": {"200": answer},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
    }
    if action in ("post", "update", "patch"):
        types: tuple[str, ...] = ("application/json",)
        if action == "patch":
            # kubectl selects its patch type from this list; custom resources have no strategic
            # merge.
            types = _PATCH_TYPES if custom else (*_PATCH_TYPES, _STRATEGIC)
        body = {"type": "object"} if action == "patch" else schema
        operation["requestBody"] = {
            "content": {media_type: {"schema": body} for media_type in types},
            "required": True,
        }
    return operation
