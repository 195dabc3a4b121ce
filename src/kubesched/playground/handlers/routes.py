"""Parses resource paths: `/api/v1/...` and `/apis/<group>/<version>/...`."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.base.errors import BadRequest, MethodNotAllowed, NotFound
from kubesched.playground.apimachinery.catalog import ResourceCatalog, ResourceInfo
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.handlers.exchange import PLAIN, Accepted, ApiRequest, Query
from kubesched.playground.registry.rest_storage import RestStorage

SIMULATED = {
    "attach": "there is nothing to attach to",
    "exec": "no command can run in it",
    "portforward": "it listens on no port",
}
"""Subresources that need a real container, with the reason for the error."""


@dataclass(slots=True)
class Target:
    """The resource and object that a path names."""

    resource: ResourceInfo
    namespace: str | None
    """None means all namespaces, or a cluster-scoped resource."""
    name: str = ""
    subresource: str = ""
    is_watch_path: bool = False


@dataclass(slots=True)
class Call:
    """A parsed request for a resource."""

    registry: RestStorage
    request: ApiRequest
    target: Target
    query: Query
    accepted: Accepted = PLAIN

    @property
    def namespace(self) -> str:
        return self.target.namespace or ""

    @property
    def is_watch(self) -> bool:
        return self.target.is_watch_path or self.query.flag("watch")


def not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource")


def unknown_path() -> NotFound:
    return NotFound("the server could not find the requested resource", details={})


def parse_target(path: str, catalog: ResourceCatalog) -> Target:
    """Parse a resource path; `NotFound` if nothing is served there."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise unknown_path()
    is_watch_path = rest[0] == "watch" and len(rest) > 1
    if is_watch_path:
        rest = rest[1:]
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2:
        resource = catalog.find(group, version, rest[2])
        if resource is not None and resource.namespaced:
            namespace, rest = rest[1], rest[2:]
    resource = catalog.find(group, version, rest[0])
    if resource is None or len(rest) > 3 or "" in rest:
        raise unknown_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in resource.subresources:
        raise unknown_path()
    if name and resource.namespaced and namespace is None:
        raise unknown_path()
    return Target(resource, namespace, name, subresource, is_watch_path)


def simulated(pod: JsonObject, subresource: str) -> BadRequest:
    metadata = pod["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    return BadRequest(f"pod {name} is simulated: {SIMULATED[subresource]}")
