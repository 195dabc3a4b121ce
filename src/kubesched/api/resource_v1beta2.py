"""resource.k8s.io/v1beta2: device taint rules before they became stable."""

from __future__ import annotations

from kubesched.api import resource_v1
from kubesched.api.meta import constant


class DeviceTaintRule(resource_v1.DeviceTaintRule):
    """Adds a taint to every device it selects."""

    api_version: str = constant("resource.k8s.io/v1beta2")
