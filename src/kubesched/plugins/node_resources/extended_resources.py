"""Extended resources that device classes stand behind: those are left to dynamic resource allocation."""

from __future__ import annotations

from collections.abc import Hashable

from kubesched.api.resource_v1 import DeviceClass
from kubesched.framework.handle import Handle

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Followed by its name, this is a resource every device class offers unasked."""


class DeviceBackedResources:
    """Which extended resource names some device class maps."""

    __slots__ = ("_handle", "_names", "_version", "is_enabled")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.is_enabled = handle.feature_gates.DRAExtendedResource
        self._version: int | None = None
        self._names: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        self._refresh()
        return name in self._names

    def current_version(self) -> Hashable:
        """Changes whenever the mapping may have changed."""
        self._refresh()
        return self._version

    def _refresh(self) -> None:
        if not self.is_enabled or self._handle.listers is None:
            return
        lister = self._handle.listers.of(DeviceClass)
        if lister.version == self._version:
            return
        self._version = lister.version
        names: set[str] = set()
        for each in lister.list():
            names.add(IMPLICIT_PREFIX + each.metadata.name)
            if each.spec.extended_resource_name:
                names.add(each.spec.extended_resource_name)
        self._names = frozenset(names)
