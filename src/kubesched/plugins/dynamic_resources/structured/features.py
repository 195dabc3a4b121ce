"""Optional parts of the allocator, by feature gate, and the release whose rules it follows."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.config.features import FeatureGates
from kubesched.config.references import DEFAULT_REFERENCE, Reference


@dataclass(frozen=True, slots=True)
class Features:
    """Which optional parts of claims and slices are enabled."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = False
    reference: Reference = DEFAULT_REFERENCE

    @classmethod
    def of(cls, gates: FeatureGates) -> Features:
        return cls(
            admin_access=gates.DRAAdminAccess,
            prioritized_list=gates.DRAPrioritizedList,
            partitionable_devices=gates.DRAPartitionableDevices,
            device_taints=gates.DRADeviceTaints,
            binding_conditions=(
                gates.DRADeviceBindingConditions and gates.DRAResourceClaimDeviceStatus
            ),
            consumable_capacity=gates.DRAConsumableCapacity,
            fractional_capacity_range=gates.DRAFractionalCapacityRange,
            reference=gates.reference,
        )
