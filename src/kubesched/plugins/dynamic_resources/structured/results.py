"""Builds the `AllocationResult` of a claim: devices, configuration and node selector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import structs

from kubesched.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kubesched.api.node_selectors import NODE_NAME_FIELD
from kubesched.api.quantity import Quantity
from kubesched.api.resource_v1 import (
    AllocationResult,
    Device,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceSliceSpec,
)
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.pools import PooledDevice
from kubesched.plugins.dynamic_resources.structured.requests import Request

FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"


class Pick(NamedTuple):
    """A device picked for a request."""

    request: Request
    pooled: PooledDevice
    consumed: dict[str, Quantity] | None
    """For a shareable device: what the share consumes."""


def allocation_result(
    claim: ResourceClaim,
    requests: Sequence[Request],
    picks: Sequence[Pick],
    node_name: str,
    features: Features,
    new_share_id: Callable[[], str],
) -> AllocationResult:
    """One claim's result; `requests` are the chosen ones, in order. Raises AllocationError."""
    is_deduplicated = features.reference.device_configuration_is_deduplicated
    config = [*_class_config(requests), *_claim_config(claim, requests, once=is_deduplicated)]
    if is_deduplicated:
        config = [_without_all_requests(entry, requests) for entry in config]
    results = [_device_result(pick, features, new_share_id) for pick in picks]
    return AllocationResult(
        devices=DeviceAllocationResult(results=results or None, config=config or None),
        node_selector=_node_selector(claim, picks, node_name),
    )


def _device_result(
    pick: Pick, features: Features, new_share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    request, device, consumed = pick.request, pick.pooled.device, pick.consumed
    has_conditions = features.binding_conditions
    return DeviceRequestAllocationResult(
        request=request.full_name,
        driver=pick.pooled.id.driver,
        pool=pick.pooled.id.pool,
        device=pick.pooled.id.device,
        admin_access=True if request.has_admin_access else None,
        tolerations=list(request.tolerations) or None,
        binding_conditions=device.binding_conditions or None if has_conditions else None,
        binding_failure_conditions=(
            device.binding_failure_conditions or None if has_conditions else None
        ),
        share_id=None if consumed is None else new_share_id(),
        consumed_capacity={name: str(amount) for name, amount in (consumed or {}).items()} or None,
    )


def _class_config(requests: Sequence[Request]) -> list[DeviceAllocationConfiguration]:
    """The configuration of the classes, each class once, for all its requests."""
    by_class: dict[str, list[Request]] = {}
    for request in requests:
        by_class.setdefault(request.device_class.metadata.name, []).append(request)
    return [
        DeviceAllocationConfiguration(
            source=FROM_CLASS,
            requests=[request.full_name for request in same_class],
            opaque=config.opaque,
        )
        for same_class in by_class.values()
        for config in same_class[0].device_class.spec.config or ()
    ]


def _claim_config(
    claim: ResourceClaim, requests: Sequence[Request], *, once: bool
) -> list[DeviceAllocationConfiguration]:
    """The configuration of the claim that applies.

    # Upstream: unless `once`, one that names several requests appears once for each of them.
    """
    configs = []
    for config in claim.spec.devices.config or ():
        named = config.requests or ()
        times = 1
        if named:
            times = sum(_is_named(request, named) for request in requests)
            times = min(times, 1) if once else times
        configs += times * [
            DeviceAllocationConfiguration(
                source=FROM_CLAIM, requests=config.requests or None, opaque=config.opaque
            )
        ]
    return configs


def _without_all_requests(
    config: DeviceAllocationConfiguration, requests: Sequence[Request]
) -> DeviceAllocationConfiguration:
    """The configuration without its requests if it names all of them: none means all."""
    named = config.requests
    if not named or not all(_is_named(request, named) for request in requests):
        return config
    return structs.replace(config, requests=None)


def _is_named(request: Request, named: Sequence[str]) -> bool:
    return request.base_name in named or request.full_name in named


def _node_selector(
    claim: ResourceClaim, picks: Sequence[Pick], node_name: str
) -> NodeSelector | None:
    """The node itself if a device is local to it, otherwise all devices' selectors combined."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for pick in picks:
        device, spec = pick.pooled.device, pick.pooled.slice.spec
        source: Device | ResourceSliceSpec = device if spec.per_device_node_selection else spec
        if source.node_name is not None or device.binds_to_node:
            this_node = NodeSelectorRequirement(
                key=NODE_NAME_FIELD, operator="In", values=[node_name]
            )
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[this_node])])
        for term in _terms(claim, source):
            _add_new(term.match_fields, fields)
            _add_new(term.match_expressions, expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=expressions or None, match_fields=fields or None)
    return NodeSelector(node_selector_terms=[term])


def check_node_selectors(claim: ResourceClaim, picks: Sequence[Pick]) -> None:
    """Raises AllocationError if the devices' node selectors cannot be combined."""
    _node_selector(claim, picks, "")


def _terms(claim: ResourceClaim, source: Device | ResourceSliceSpec) -> list[NodeSelectorTerm]:
    selector = source.node_selector
    terms = (None if selector is None else selector.node_selector_terms) or []
    if len(terms) > 1:
        raise AllocationError(
            f"create NodeSelector for claim {claim.metadata.name}: "
            f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
        )
    return terms


def _add_new(
    requirements: Sequence[NodeSelectorRequirement] | None, to: list[NodeSelectorRequirement]
) -> None:
    known = {_meaning(requirement) for requirement in to}
    for requirement in requirements or ():
        if _meaning(requirement) not in known:
            to.append(requirement)
            known.add(_meaning(requirement))


def _meaning(requirement: NodeSelectorRequirement) -> tuple[str, str, frozenset[str]]:
    return requirement.key, requirement.operator, frozenset(requirement.values or ())
