"""Device taints: `NoSchedule` and `NoExecute` block requests that do not tolerate them."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.resource_v1 import Device, DeviceTaint, DeviceToleration

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


def is_repelled(device: Device, tolerations: Sequence[DeviceToleration]) -> bool:
    """Does the device have an untolerated blocking taint? Unknown effects never block."""
    return any(
        taint.effect in _BLOCKING
        and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in device.taints or ()
    )


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and (toleration.value or "") == (taint.value or "")
