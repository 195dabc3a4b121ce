"""Discovery: versions, groups and resources (plain and aggregated), and OpenAPI's location."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from kubesched.playground.apimachinery.catalog import ResourceCatalog, ResourceInfo
from kubesched.playground.apimachinery.objects import JsonObject, encode
from kubesched.playground.apimachinery.releases import Release
from kubesched.playground.handlers.exchange import ApiRequest, ApiResponse
from kubesched.playground.handlers.routes import not_allowed, unknown_path

_AGGREGATED = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SUBRESOURCES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    # name: group, version and kind of its body, verbs; an empty kind means the resource's own
    "status": ("", "", "", ("get", "patch", "update")),
    "finalize": ("", "", "", ("update",)),
    "approval": ("", "", "", ("get", "patch", "update")),
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "log": ("", "v1", "Pod", ("get",)),
    "ephemeralcontainers": ("", "v1", "Pod", ("get", "patch", "update")),
    "resize": ("", "v1", "Pod", ("get", "patch", "update")),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "attach": ("", "v1", "PodAttachOptions", ("create", "get")),
    "exec": ("", "v1", "PodExecOptions", ("create", "get")),
    "portforward": ("", "v1", "PodPortForwardOptions", ("create", "get")),
}
# Groups in kubectl's order of preference; others follow by name.
_GROUP_ORDER = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
)


class Discovery:
    """Discovery documents, built on first request and again after the catalogue changes."""

    def __init__(self, catalog: ResourceCatalog, release: Release) -> None:
        self._catalog = catalog
        self._release = release
        self._cache: dict[str, bytes] = {}
        catalog.on_change(self._cache.clear)

    def is_discovery_path(self, path: str) -> bool:
        """Whether a path of three or more segments is a discovery document, not a resource."""
        parts = path.strip("/").split("/")
        return (parts[0] == "api" and len(parts) <= 2) or (parts[0] == "apis" and len(parts) <= 3)

    def answer(self, request: ApiRequest) -> ApiResponse:
        if request.method not in ("GET", "HEAD"):
            raise not_allowed()
        parts = [part for part in request.path.split("/") if part]
        if parts == ["version"]:
            return ApiResponse(200, encode(_version(self._release)))
        if not parts:
            return self._cached("/", self._paths)
        if parts[0] in ("api", "apis") and len(parts) == 1:
            return self._roots(parts[0], request.headers.get("accept", ""))
        if parts[0] == "api" and len(parts) == 2 and self._catalog.has_group_version("", parts[1]):
            return self._cached(request.path, lambda: self._resource_list("", parts[1]))
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in self._groups():
            return self._cached(request.path, lambda: self._group(parts[1]))
        if (
            parts[0] == "apis"
            and len(parts) == 3
            and self._catalog.has_group_version(parts[1], parts[2])
        ):
            return self._cached(request.path, lambda: self._resource_list(parts[1], parts[2]))
        raise unknown_path()

    def _cached(
        self, key: str, build: Callable[[], JsonObject], content_type: str = "application/json"
    ) -> ApiResponse:
        body = self._cache.get(key)
        if body is None:
            body = self._cache[key] = encode(build())
        return ApiResponse(200, body, content_type)

    def _roots(self, root: str, accept: str) -> ApiResponse:
        if _AGGREGATED in accept.replace(" ", ""):
            return self._cached(
                f"aggregated {root}",
                lambda: self._aggregated(root),
                f"application/json;{_AGGREGATED}",
            )
        if root == "api":
            versions = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            return ApiResponse(200, encode(versions))
        return self._cached(root, self._group_list)

    def _groups(self) -> dict[str, list[str]]:
        """Versions by group, preferred groups first."""
        groups: dict[str, list[str]] = {}
        for resource in self._catalog:
            versions = groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        groups.pop("", None)
        order = {name: rank for rank, name in enumerate(_GROUP_ORDER)}
        return {
            name: sort_versions(groups[name])
            for name in sorted(groups, key=lambda name: (order.get(name, 99), name))
        }

    def _paths(self) -> JsonObject:
        paths = [
            "/api",
            "/api/v1",
            "/apis",
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        for group, versions in self._groups().items():
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return {"paths": sorted(paths)}

    def _group(self, group: str) -> JsonObject:
        versions = [
            {"groupVersion": f"{group}/{other}", "version": other}
            for other in self._groups()[group]
        ]
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": group,
            "versions": versions,
            "preferredVersion": versions[0],
        }

    def _group_list(self) -> JsonObject:
        groups = []
        for name in self._groups():
            group = self._group(name)
            del group["kind"], group["apiVersion"]
            groups.append(group)
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _resources(self, group: str, version: str) -> list[ResourceInfo]:
        return [
            resource
            for resource in self._catalog
            if resource.group == group and resource.version == version
        ]

    def _resource_list(self, group: str, version: str) -> JsonObject:
        resources: list[JsonObject] = []
        for resource in self._resources(group, version):
            row: JsonObject = {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            if resource.is_stored:
                row["storageVersionHash"] = _storage_hash(self._catalog.get(resource.storage_key))
            resources.append({**row, **_nicknames(resource)})
            resources += [_subresource_row(resource, name) for name in resource.subresources]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": resources,
        }

    def _aggregated(self, root: str) -> JsonObject:
        groups = {"": ["v1"]} if root == "api" else self._groups()
        items = []
        for group, versions in groups.items():
            items.append(
                {
                    "metadata": {"name": group, "creationTimestamp": None}
                    if group
                    else {"creationTimestamp": None},
                    "versions": [
                        {
                            "version": version,
                            "resources": [
                                _aggregated_resource(resource)
                                for resource in self._resources(group, version)
                            ],
                            "freshness": "Current",
                        }
                        for version in versions
                    ],
                }
            )
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }


def _version(release: Release) -> JsonObject:
    major, _, minor = release.version.partition(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": release.git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _storage_hash(stored: ResourceInfo) -> str:
    """Changes if objects are stored in another version."""
    digest = hashlib.sha256(f"{stored.group}/{stored.version}/{stored.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _nicknames(resource: ResourceInfo) -> JsonObject:
    """Short names and categories of a resource, if any."""
    names = {"shortNames": resource.short_names, "categories": resource.categories}
    return {field: list(values) for field, values in names.items() if values}


def _subresource_row(resource: ResourceInfo, name: str) -> JsonObject:
    group, version, kind, verbs = _SUBRESOURCES[name]
    row: JsonObject = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind or resource.kind,
        "verbs": list(verbs),
    }
    if group:
        row["group"] = group
        row["version"] = version
    return row


def _aggregated_resource(resource: ResourceInfo) -> JsonObject:
    row: JsonObject = {
        "resource": resource.plural,
        "responseKind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_nicknames(resource),
    }
    if resource.subresources:
        row["subresources"] = [
            _aggregated_subresource(resource, name) for name in resource.subresources
        ]
    return row


def _aggregated_subresource(resource: ResourceInfo, name: str) -> JsonObject:
    group, version, kind, verbs = _SUBRESOURCES[name]
    response = {
        "group": group if kind else resource.group,
        "version": version or resource.version,
        "kind": kind or resource.kind,
    }
    return {"subresource": name, "responseKind": response, "verbs": list(verbs)}


def sort_versions(versions: list[str]) -> list[str]:
    """Stable versions first, then beta, then alpha, newest first within each."""

    def rank(version: str) -> tuple[int, int, int, str]:
        for stage, marker in enumerate(("alpha", "beta")):
            major, found, minor = version.removeprefix("v").partition(marker)
            if found and major.isdigit() and minor.isdigit():
                return 2 - stage, -int(major), -int(minor), version
        number = version.removeprefix("v")
        return (0, -int(number), 0, version) if number.isdigit() else (3, 0, 0, version)

    return sorted(versions, key=rank)
