"""resource.k8s.io/v1beta2: device taints set by administrators (off by default upstream)."""

from __future__ import annotations

from kubesched.api.meta import Condition, ObjectMeta, Record, constant
from kubesched.api.resource_v1 import DeviceTaint


class DeviceTaintSelector(Record):
    """Selects devices; an absent field matches all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Record):
    """A taint and the devices it applies to."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(Record):
    """Progress of the eviction."""

    conditions: list[Condition] | None = None


class DeviceTaintRule(Record):
    """Adds a taint to every device it selects."""

    kind: str = constant("DeviceTaintRule")
    api_version: str = constant("resource.k8s.io/v1beta2")
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()
