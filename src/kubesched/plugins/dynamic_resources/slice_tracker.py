"""ResourceSlices for the allocator, with the taints of DeviceTaintRules if enabled."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import structs

from kubesched.api import resource_v1beta2
from kubesched.api.resource_v1 import Device, DeviceTaintRule, ResourceSlice
from kubesched.config.features import FeatureGates
from kubesched.config.references import DEFAULT_REFERENCE, Reference
from kubesched.framework.handle import Lister
from kubesched.plugins.dynamic_resources.structured.pools import Slices


def taint_rule_kind(gates: FeatureGates) -> type[DeviceTaintRule] | None:
    """The version in which rules are read; None without the gate."""
    if not gates.DRADeviceTaintRules:
        return None
    is_stable = gates.reference.taint_rules_are_stable
    return DeviceTaintRule if is_stable else resource_v1beta2.DeviceTaintRule


class SliceTracker:
    """Tracks slices and rules."""

    def __init__(
        self,
        lister: Lister[ResourceSlice],
        rules: Lister[DeviceTaintRule] | None = None,
        reference: Reference = DEFAULT_REFERENCE,
    ) -> None:
        self._lister = lister
        self._rules = rules
        self._tainted: dict[str, ResourceSlice] = {}
        """Slices with taints from rules, by name."""
        self.slices = Slices(
            (self._with_taints(resource_slice) for resource_slice in lister.list()), reference
        )
        self._stops: list[Callable[[], None]] = [lister.subscribe(self._slice_changed)]
        if rules is not None:
            self._stops.append(rules.subscribe(self._rule_changed))

    def close(self) -> None:
        for stop in self._stops:
            stop()
        self._stops.clear()

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if old is not None:
            self.slices.remove(self._tainted.pop(old.metadata.name, old))
        if new is not None:
            self.slices.add(self._with_taints(new))

    def _rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        for resource_slice in self._lister.list():
            if any(rule is not None and applies_to(rule, resource_slice) for rule in (old, new)):
                self._slice_changed(resource_slice, resource_slice)

    def _with_taints(self, slice_: ResourceSlice) -> ResourceSlice:
        rules = () if self._rules is None else self._rules.list()
        tainted = with_rules(slice_, rules)
        if tainted is not slice_:
            self._tainted[slice_.metadata.name] = tainted
        return tainted


def applies_to(rule: DeviceTaintRule, slice_: ResourceSlice) -> bool:
    """Could the rule select a device of the slice?"""
    selector = rule.spec.device_selector
    return selector is None or (
        selector.driver in (None, slice_.spec.driver)
        and selector.pool in (None, slice_.spec.pool.name)
    )


def with_rules(slice_: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    """Add the taints of all rules that select its devices; the same object if none does."""
    devices = slice_.spec.devices or []
    for rule in rules:
        if applies_to(rule, slice_):
            selector = rule.spec.device_selector
            name = None if selector is None else selector.device
            devices = [
                _tainted(device, rule) if name in (None, device.name) else device
                for device in devices
            ]
    if all(
        after is before for after, before in zip(devices, slice_.spec.devices or (), strict=True)
    ):
        return slice_
    return structs.replace(slice_, spec=structs.replace(slice_.spec, devices=devices))


def _tainted(device: Device, rule: DeviceTaintRule) -> Device:
    return structs.replace(device, taints=[*(device.taints or ()), rule.spec.taint])
