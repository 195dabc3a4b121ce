"""Dynamic resource state shared by all profiles: claims, slices, classes, selector results."""

from __future__ import annotations

from functools import cached_property

from kubesched.api.core_v1 import Pod
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.config.features import FeatureGates
from kubesched.framework.handle import Handle, Lister, Listers
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.plugins.dynamic_resources.claim_lookup import EntryAndClaim, pod_claims
from kubesched.plugins.dynamic_resources.claim_tracker import ClaimTracker
from kubesched.plugins.dynamic_resources.extended_resource_cache import ExtendedResourceCache
from kubesched.plugins.dynamic_resources.signature_column import SignatureColumn
from kubesched.plugins.dynamic_resources.slice_tracker import SliceTracker, taint_rule_kind
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.node_pools import PoolIndex
from kubesched.plugins.dynamic_resources.structured.selectors import DeviceSelectors
from kubesched.plugins.helper.lazy_parts import close_parts


class DRAManager:
    """Builds its parts on first use: most clusters have no devices."""

    def __init__(self, listers: Listers, gates: FeatureGates) -> None:
        self._listers = listers
        self._taint_rule = taint_rule_kind(gates)
        self._signatures: SignatureColumn | None = None
        self.of_groups = gates.DRAWorkloadResourceClaims
        self.features = Features.of(gates)
        self.selectors = DeviceSelectors(
            consumable_capacity=self.features.consumable_capacity,
            dynamic_attributes=gates.reference.device_attributes_are_dynamic,
        )

    @cached_property
    def claims(self) -> ClaimTracker:
        return ClaimTracker(
            self._listers.of(ResourceClaim), consumable_capacity=self.features.consumable_capacity
        )

    def pod_claims(self, pod: Pod) -> list[EntryAndClaim]:
        """The pod's claims; raises ClaimProblem."""
        return pod_claims(pod, self.claims.get, of_groups=self.of_groups)

    @cached_property
    def slices(self) -> SliceTracker:
        kind = self._taint_rule
        rules = None if kind is None else self._listers.of(kind)
        return SliceTracker(self._listers.of(ResourceSlice), rules, self.features.reference)

    @cached_property
    def pools(self) -> PoolIndex:
        return PoolIndex(self.slices.slices, self.claims.allocated, self.features)

    def signatures(self, table: NodeTable) -> SignatureColumn:
        """The signature column of the scheduler's node table, which all profiles share."""
        if self._signatures is None:
            self._signatures = SignatureColumn(
                table, self.pools, self.slices.slices, self.claims.allocated
            )
        return self._signatures

    @cached_property
    def extended_resources(self) -> ExtendedResourceCache:
        return ExtendedResourceCache(self._classes)

    @property
    def _classes(self) -> Lister[DeviceClass]:
        return self._listers.of(DeviceClass)

    def device_class(self, name: str) -> DeviceClass | None:
        return self._classes.get("", name)

    def is_idle(self) -> bool:
        """True if the watch has shown every counted allocation."""
        claims: ClaimTracker | None = vars(self).get("claims")
        return claims is None or claims.is_idle()

    def close(self) -> None:
        """Stop following changes; the parts are rebuilt on next use."""
        close_parts(self, "claims", "slices", "extended_resources")
        vars(self).pop("pools", None)
        self._signatures = None


def manager_of(handle: Handle) -> DRAManager:
    """The manager shared by all profiles of the scheduler."""
    manager: DRAManager | None = handle.dra_manager
    if manager is None:
        assert handle.listers is not None, "dynamic resources need listers"
        manager = handle.dra_manager = DRAManager(handle.listers, handle.feature_gates)
    return manager
