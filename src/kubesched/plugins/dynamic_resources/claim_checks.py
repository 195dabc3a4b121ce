"""PreFilter: checks of the pod's claims that need no node."""

from __future__ import annotations

from kubesched.api.names import key_of
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.config.features import FeatureGates
from kubesched.framework.status import Status, error_status, unresolvable
from kubesched.plugins.dynamic_resources.manager import DRAManager
from kubesched.plugins.dynamic_resources.state import ClaimInfo


def check_claim(
    info: ClaimInfo, dra: DRAManager, gates: FeatureGates, group_trial: object | None
) -> Status | None:
    """Why the claim makes the pod unschedulable on every node, or None.

    Sets `available_on`, and `shared` if an earlier member of the group has allocated the claim.
    """
    claim = info.claim
    allocation = claim.status.allocation
    if allocation is None:
        allocation = info.shared = dra.claims.shared_by(group_trial, claim.metadata.uid)
    if allocation is not None:
        if allocation.node_selector is not None:
            selector = ParsedNodeSelector(allocation.node_selector)
            if selector.error is not None:
                return error_status(selector.error)
            info.available_on = selector
        return None
    if dra.claims.is_in_flight(claim.metadata.uid):
        return unresolvable(
            f"resource claim {key_of(claim.metadata)} is in the process of being allocated"
        )
    return None if info.is_special else _check_classes(claim, dra, gates)


def _check_classes(claim: ResourceClaim, dra: DRAManager, gates: FeatureGates) -> Status | None:
    for request in claim.spec.devices.requests or ():
        if request.exactly is not None:
            asked = [(request.name, request.exactly.device_class_name)]
        elif request.first_available:
            if not gates.DRAPrioritizedList:
                return unresolvable(
                    f"resource claim {key_of(claim.metadata)}, request {request.name}: "
                    "has subrequests, but the DRAPrioritizedList feature is disabled"
                )
            asked = [
                (f"{request.name}/{sub.name}", sub.device_class_name)
                for sub in request.first_available
            ]
        else:
            return unresolvable(
                f"resource claim {key_of(claim.metadata)}, request {request.name}: "
                "unknown request type"
            )
        for name, class_name in asked:
            if not class_name:
                return error_status(f"request {name}: unsupported request type")
            if dra.device_class(class_name) is None:
                return unresolvable(f"request {name}: device class {class_name} does not exist")
    return None
