"""Which device class backs an extended resource.

A class serves the resource it names in `spec.extendedResourceName` and, implicitly,
`deviceclass.resource.kubernetes.io/<class>`. Of two classes with the same explicit name the newer
one wins, then the smaller name.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.resource_v1 import DEVICE_CLASS_RESOURCE_PREFIX, DeviceClass
from kubesched.api.times import TimeError, parse_time
from kubesched.framework.handle import Lister


class ExtendedResourceCache:
    """Processes device class events in order, because upstream's result depends on the order.

    # Upstream: a class that loses when it is added gets no mapping at all, not even its implicit
    # one; a class that is displaced later keeps its implicit one.
    """

    def __init__(self, lister: Lister[DeviceClass]) -> None:
        self.by_resource: dict[str, DeviceClass] = {}
        """Resource name -> the class that backs it. Read-only."""
        self.version = 0
        """Changes whenever a mapping may have changed."""
        for device_class in lister.list():
            self._changed(None, device_class)
        self._stop: Callable[[], None] | None = lister.subscribe(self._changed)

    def close(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def _changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        self.version += 1
        if new is None:
            self._remove(old)
            return
        explicit = new.spec.extended_resource_name
        rival = None if explicit is None else self.by_resource.get(explicit)
        if rival is not None and not _wins(new, rival):
            return
        self._remove(old)
        if explicit is not None:
            self.by_resource[explicit] = new
        self.by_resource[DEVICE_CLASS_RESOURCE_PREFIX + new.metadata.name] = new

    def _remove(self, device_class: DeviceClass | None) -> None:
        if device_class is None:
            return
        self.by_resource.pop(DEVICE_CLASS_RESOURCE_PREFIX + device_class.metadata.name, None)
        if device_class.spec.extended_resource_name is not None:
            self.by_resource.pop(device_class.spec.extended_resource_name, None)


def _wins(new: DeviceClass, rival: DeviceClass) -> bool:
    mine, theirs = _created(new), _created(rival)
    # Upstream: a class that changes without changing its name loses against its own earlier version
    # here, which then keeps the resource.
    return mine > theirs or (mine == theirs and new.metadata.name < rival.metadata.name)


def _created(device_class: DeviceClass) -> float:
    try:
        return parse_time(device_class.metadata.creation_timestamp or "")
    except TimeError:
        return float("-inf")
