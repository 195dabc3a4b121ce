"""The served resources: the kinds of `kubesched.api.kinds`, and custom resources.

A resource's `key` is `plural` for the core group and `plural.group` otherwise; it names the
collection in the store. A resource that shares the collection of another group (events) names it
with `stored_as`. Custom resource definitions add rows at run time; built-in rows never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kubesched.api.kinds import KINDS, STANDARD_VERBS, Kind, kind_of
from kubesched.api.resource_v1beta2 import DeviceTaintRule
from kubesched.api.scheduling_v1alpha3 import CompositePodGroup
from kubesched.api.scheduling_v1beta1 import PodGroup, Workload
from kubesched.base.errors import NotFound
from kubesched.config.features import FeatureGates
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.releases import release_of

STORED_ONLY = frozenset(
    {
        "apiservices.apiregistration.k8s.io",
        "certificatesigningrequests.certificates.k8s.io",
        "endpoints",
        "endpointslices.discovery.k8s.io",
        "horizontalpodautoscalers.autoscaling",
        "ingressclasses.networking.k8s.io",
        "ingresses.networking.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "networkpolicies.networking.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "volumeattributesclasses.storage.k8s.io",
    }
)
"""Resources, as `plural.group`, that are served but that no controller acts on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceInfo:
    """One served resource of one group and version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = STANDARD_VERBS
    categories: tuple[str, ...] = ()
    stored_as: str = ""
    custom: bool = False
    schema: JsonObject | None = field(default=None, compare=False, repr=False)
    """The structural schema of a custom resource's version."""
    has_defaults: bool = False
    """Whether the schema has defaults, which stored objects get when they are read."""

    @property
    def key(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_key(self) -> str:
        return self.stored_as or self.key

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_stored_only(self) -> bool:
        """Whether no controller acts on the objects."""
        return self.key in STORED_ONLY

    @property
    def is_stored(self) -> bool:
        """Whether objects are stored; other resources are computed on request."""
        return "watch" in self.verbs


def built_in(kind: Kind[Any]) -> ResourceInfo:
    """The row of a built-in kind."""
    return ResourceInfo(
        group=kind.group,
        version=kind.version,
        kind=kind.kind,
        plural=kind.plural,
        singular=kind.kind.lower(),
        short_names=kind.short_names,
        namespaced=kind.namespaced,
        subresources=kind.subresources,
        verbs=kind.verbs,
        categories=kind.categories,
        stored_as=kind.stored_as,
    )


# Upstream: alpha versions are off unless the API server is told otherwise.
BUILT_IN: tuple[ResourceInfo, ...] = tuple(built_in(kind) for kind in KINDS if not kind.is_preview)
DEVICE_TAINT_RULES: ResourceInfo = built_in(kind_of(DeviceTaintRule))
POD_GROUPS: tuple[ResourceInfo, ...] = (built_in(kind_of(PodGroup)), built_in(kind_of(Workload)))
COMPOSITE_POD_GROUPS: ResourceInfo = built_in(kind_of(CompositePodGroup))


def served(gates: FeatureGates) -> tuple[ResourceInfo, ...]:
    """The built-in kinds of a cluster: those of its release, and previews that gates enable."""
    resources = list(BUILT_IN)
    if not release_of(gates).taint_rules_are_stable:
        resources = [other for other in resources if other.key != DEVICE_TAINT_RULES.key]
        if gates.DRADeviceTaintRules:
            resources.append(DEVICE_TAINT_RULES)
    if gates.CompositePodGroup:
        version = COMPOSITE_POD_GROUPS.version
        resources += [replace(resource, version=version) for resource in POD_GROUPS]
        resources.append(COMPOSITE_POD_GROUPS)
    if gates.GenericWorkload:
        resources += POD_GROUPS
    return tuple(resources)


class ResourceCatalog:
    """The resources currently served: built-in kinds and custom resources."""

    def __init__(self, resources: Iterable[ResourceInfo] = BUILT_IN) -> None:
        self._by_path: dict[tuple[str, str, str], ResourceInfo] = {}
        self._by_key: dict[str, ResourceInfo] = {}
        self._listeners: list[Callable[[], None]] = []
        for resource in resources:
            self._insert(resource)

    def __iter__(self) -> Iterator[ResourceInfo]:
        return iter(self._by_path.values())

    def find(self, group: str, version: str, plural: str) -> ResourceInfo | None:
        return self._by_path.get((group, version, plural))

    def find_kind(self, api_version: str, kind: str) -> ResourceInfo | None:
        for resource in self._by_path.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def get(self, resource: ResourceInfo | str) -> ResourceInfo:
        """The resource of a row or of `plural.group`; `NotFound` if it is not served."""
        if isinstance(resource, ResourceInfo):
            return resource
        info = self._by_key.get(resource)
        if info is None:
            raise NotFound("the server could not find the requested resource")
        return info

    def has_group_version(self, group: str, version: str) -> bool:
        return any(key[0] == group and key[1] == version for key in self._by_path)

    def add_custom(self, resources: Iterable[ResourceInfo]) -> None:
        for resource in resources:
            self._insert(resource)
        self._changed()

    def remove_custom(self, group: str, plural: str) -> None:
        for path, resource in list(self._by_path.items()):
            if resource.custom and resource.group == group and resource.plural == plural:
                del self._by_path[path]
                self._by_key.pop(resource.key, None)
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after rows are added or removed, to invalidate cached documents."""
        self._listeners.append(listener)

    def _insert(self, resource: ResourceInfo) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        if not resource.custom or resource.key not in self._by_key:
            self._by_key[resource.key] = resource  # the last built-in version is the stored one

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
