"""Devices of simulated decisions, searched once more by the scalar twin of the allocator.

Claims, slices and what is held are those of the core's stores, and what its scheduler promised
since. Left out are pods of groups, whose claims belong to several pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import to_builtins
from scalar.devices import Refused, Search

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.resource_v1 import ResourceClaim, ResourceSlice
from kubesched.lab.simulation import devices
from kubesched.lab.simulation.second_look import DEFAULT, Core, Decided
from kubesched.lab.simulation.workloads import EXTENDED_RESOURCE

PLUGIN = "DynamicResources"
LARGE = devices.claim_spec("either")["devices"]["requests"][0]["firstAvailable"][0]["selectors"]

Plain = dict[str, Any]


class DeviceWorld(NamedTuple):
    """What a pod's claims ask for, and the devices of each node."""

    claims: list[Plain]
    """Those that have no devices yet."""
    allocated: list[Plain]
    offers: dict[str, list[Plain]]
    held: list[Plain]
    """Results of allocations."""
    reference: Any

    def picks_on(self, node: str) -> list[list[str]] | None:
        """The devices of each claim; None if there are too few."""
        if any(held["pool"] != node for it in self.allocated for held in _results(it)):
            return None
        offered = self.offers.get(node, [])
        numbers = {device["name"]: number for number, device in enumerate(offered)}
        held = [
            (numbers[it["device"]], _share(it))
            for it in self.held
            if it["pool"] == node and it["device"] in numbers
        ]
        search = Search(
            list(map(_device, offered)), 0, self.claims, held, self.reference, pool=node
        )
        if not search.run():
            return None
        return [
            [offered[n]["name"] for c, _, _, n in search.picks if c == number]
            for number in range(len(self.claims))
        ]


def wants_devices(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims or _extended(pod))


def device_world(core: Core, pod: Pod) -> DeviceWorld | None:
    """Call before the core decides; None if such a pod is left out, or its claims change."""
    handle = core.assembly.frameworks[DEFAULT].handle
    if handle.extenders or pod.spec.scheduling_group:
        return None
    tracker = handle.dra_manager.claims
    claims = {it.metadata.name: it for it in core.listers.of(ResourceClaim).list()}
    for it in tracker._assumed.values():
        listed = claims.get(it.metadata.name)
        if listed is not None and it.metadata.is_newer_than(listed.metadata):
            claims[it.metadata.name] = it
    asked = []
    for name in _names(pod):
        claim = claims.get(name)
        if (
            claim is None
            or claim.metadata.deletion_timestamp is not None
            or tracker.is_in_flight(claim.metadata.uid)
        ):
            return None
        asked.append(to_builtins(claim))
    if amount := _extended(pod):
        if any(_owner(it) == pod.metadata.uid for it in claims.values()):
            return None  # perhaps of an earlier attempt
        asked.append(_special(amount))
    plain = [to_builtins(it) for it in claims.values()]
    held = [result for it in plain for result in _results(it)]
    known = {(it.metadata.uid, str(it.status.allocation)) for it in claims.values()}
    for uid, flying in tracker._in_flight.items():
        if (uid, str(flying.allocation)) not in known:
            held += _results({"status": {"allocation": to_builtins(flying.allocation)}})
    offers = {
        it["spec"]["nodeName"]: it["spec"].get("devices", [])
        for it in map(to_builtins, core.listers.of(ResourceSlice).list())
    }
    return DeviceWorld(
        [_translated(it) for it in asked if not _results(it)],
        [it for it in asked if _results(it)],
        offers,
        held,
        handle.feature_gates.reference,
    )


def other_devices(world: DeviceWorld, core: Core, decided: Decided) -> str:
    """How the decision differs from the twin's; empty if it does not."""
    try:
        picks = {it.metadata.name: world.picks_on(it.metadata.name) for it in _nodes(core)}
    except Refused:
        return ""
    fitting = {decided.node, *(decided.behind or {})} - {""}
    if lacking := [name for name in fitting if picks[name] is None]:
        return f"devices of {lacking}; twin: {picks}"
    for name, (_code, plugin, reasons) in (decided.rejected or ({},))[0].items():
        if plugin == PLUGIN and picks[name] is not None:
            return f"{name}: {reasons}; twin: {picks}"
    is_alone = decided.rejected is not None and decided.rejected[1] == [PLUGIN]
    if is_alone and picks and None not in picks.values():
        return f"{decided.message}; twin: {picks}"
    if PLUGIN in decided.message and decided.rejected is None:
        return f"{decided.message}; twin: {picks}"
    taken = _taken(decided)
    if decided.node and taken != picks[decided.node]:
        return f"{taken} on {decided.node}; twin: {picks}"
    return ""


def _nodes(core: Core) -> list[Node]:
    nodes: list[Node] = core.listers.of(Node).list()
    return nodes


def _taken(decided: Decided) -> list[list[str]]:
    allocations = decided.reserved[0].values() if decided.reserved else ()
    return [
        [result.device for result in it.devices.results or ()]
        for it in allocations
        if it is not None
    ]


def _names(pod: Pod) -> Iterator[str]:
    made = {it.name: it.resource_claim_name for it in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        yield entry.resource_claim_name or made.get(entry.name) or ""


def _extended(pod: Pod) -> int:
    limits = [container.resources.limits or {} for container in pod.spec.containers]
    return sum(int(str(it.get(EXTENDED_RESOURCE, 0))) for it in limits)


def _special(amount: int) -> Plain:
    exactly = {"allocationMode": "ExactCount", "count": amount}
    requests = [{"name": "request", "exactly": exactly}]
    return {"metadata": {"name": "special"}, "spec": {"devices": {"requests": requests}}}


def _owner(claim: ResourceClaim) -> str:
    owner = claim.metadata.controller()
    return "" if owner is None or "/" not in str(claim.metadata.annotations) else owner.uid


def _results(claim: Plain) -> list[Plain]:
    allocation = claim.get("status", {}).get("allocation") or {}
    results: list[Plain] = allocation.get("devices", {}).get("results", [])
    return results


# -- in the words of the twin ----------------------------------------------------------------------


def _share(result: Plain) -> Plain:
    if "shareID" not in result:
        return {}
    consumed = {"mem": _gibibytes(result["consumedCapacity"]["memory"])}
    return {"shareID": result["shareID"], "consumedCapacity": consumed}


def _gibibytes(text: object) -> int:
    return int(str(text).removesuffix("Gi"))


def _device(device: Plain) -> Plain:
    is_large = device["attributes"]["large"]["bool"]
    memory = {"value": _gibibytes(device["capacity"]["memory"]["value"])}
    attributes = {"numa": is_large} | ({"big": True} if is_large else {})
    return {**device, "attributes": attributes, "capacity": {"mem": memory}}


def _translated(claim: Plain) -> Plain:
    asked = claim["spec"]["devices"]
    requests = [_request(it) for it in asked["requests"]]
    return {**claim, "spec": {"devices": {**asked, "requests": requests}}}


def _request(request: Plain) -> Plain:
    if "exactly" in request:
        return {**request, "exactly": _wanted(request["exactly"])}
    return {**request, "firstAvailable": list(map(_wanted, request["firstAvailable"]))}


def _wanted(asked: Plain) -> Plain:
    made = dict(asked)
    if "selectors" in made:
        assert made["selectors"] == LARGE, "the only selector of simulated claims"
        made["selectors"] = [{"cel": {"expression": "big=True"}}]
    if "capacity" in made:
        made["capacity"] = {"requests": {"mem": _gibibytes(made["capacity"]["requests"]["memory"])}}
    return made
