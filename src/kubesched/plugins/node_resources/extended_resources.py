"""Extended resources that device classes stand behind: those are left to dynamic resource allocation."""

from __future__ import annotations

from collections.abc import Hashable

from kubesched.api.resource_v1 import DEVICE_CLASS_RESOURCE_PREFIX
from kubesched.framework.handle import Handle
from kubesched.plugins.dynamic_resources.manager import manager_of

IMPLICIT_PREFIX = DEVICE_CLASS_RESOURCE_PREFIX
"""Followed by its name, this is a resource every device class offers unasked."""


class DeviceBackedResources:
    """Which extended resource names some device class maps."""

    __slots__ = ("_handle", "is_enabled")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.is_enabled = handle.feature_gates.DRAExtendedResource and handle.listers is not None

    def __contains__(self, name: object) -> bool:
        return self.is_enabled and name in manager_of(self._handle).extended_resources

    def current_version(self) -> Hashable:
        """Changes whenever the mapping may have changed."""
        return manager_of(self._handle).extended_resources.version if self.is_enabled else None
