"""Why a pod's resource claims cannot be allocated: request by request, and node by node.

What is in the way is found by asking the allocator (`device_trials`); devices are counted with its
own selectors and candidates. Nodes that the allocator does not tell apart are looked at once, and
nodes with the same story are listed together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kubesched.api import quantity
from kubesched.api.core_v1 import Node
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import DeviceSelector, ResourceClaim, ResourceSlice
from kubesched.framework.nodes.columns import Mask
from kubesched.framework.runtime import Framework
from kubesched.insight.explain.amounts import shown
from kubesched.insight.explain.device_trials import (
    CAPACITY,
    CONSTRAINTS,
    COUNTERS,
    IN_USE,
    OTHERS,
    TAINTS,
    DeviceTrials,
    requests_of,
)
from kubesched.insight.explain.evaluation import PASSES, Evaluation
from kubesched.insight.explain.model import DeviceHolder, DeviceNeed, DeviceNodes, SelectorMatches
from kubesched.plugins.dynamic_resources.filtering import UNAVAILABLE_CLAIM, NodeFilter
from kubesched.plugins.dynamic_resources.manager import manager_of
from kubesched.plugins.dynamic_resources.plugin import STATE, DynamicResources
from kubesched.plugins.dynamic_resources.state import DRAState
from kubesched.plugins.dynamic_resources.structured.allocated_state import DeviceID, device_of
from kubesched.plugins.dynamic_resources.structured.candidates import (
    Candidate,
    Candidates,
    is_repelled,
)
from kubesched.plugins.dynamic_resources.structured.constraints import lookup_attribute, value_of
from kubesched.plugins.dynamic_resources.structured.counters import AvailableCounters
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.pools import Pool, PooledDevice, node_matches
from kubesched.plugins.dynamic_resources.structured.requests import Checker, Request
from kubesched.plugins.dynamic_resources.structured.selectors import DeviceContent, SelectorFailure

NOT_WORKED_OUT = (
    "the search for what is in the way of devices takes long and was given up; "
    "nodes that are not listed with devices were not looked at"
)
MOST_HOLDERS: Final = 50
MOST_VALUES: Final = 8
NAMED: Final = 3
"""Objects named in a sentence; more are counted."""

_READ = re.compile(r'device\.(attributes|capacity)\["([^"]+)"\](?:\.(\w+)|\["([^"]+)"\])')


@dataclass(slots=True)
class DeviceStories:
    """What `Explanation.devices` lists, and what it means for each node."""

    needs: list[DeviceNeed] = field(default_factory=list)
    never: Mask | None = None
    """Rows whose devices could not serve the claims even if none were in use or tainted."""
    by_node: dict[str, str] = field(default_factory=dict)
    """What is in the way, by node name."""
    notes: list[str] = field(default_factory=list)

    @property
    def detail(self) -> str:
        """The first request in a few words, for the list of reasons."""
        return "".join(
            f"request {need.request} of claim {need.claim} wants {need.wants}; "
            f"{need.matching} of {need.devices} devices match, {need.in_use} of these are in use"
            for need in self.needs[:1]
        )


def device_stories(framework: Framework, evaluation: Evaluation) -> DeviceStories:
    """Explain the nodes that DynamicResources rejected, if it did."""
    state: DRAState | None = evaluation.state.get(STATE)
    rows = [row for row in evaluation.rows.tolist() if _is_rejected(evaluation, row)]
    if state is None or state.allocator is None or not rows:
        return DeviceStories()
    return _Teller(framework, evaluation, state).told(rows)


def _is_rejected(evaluation: Evaluation, row: int) -> bool:
    return any(
        rejections.plugin == DynamicResources.name
        and rejections.ids[row] != PASSES
        and rejections.statuses[rejections.ids[row]].reasons != UNAVAILABLE_CLAIM.reasons
        for rejections in evaluation.rejections
    )


ClaimsOn = Callable[[Node], list[ResourceClaim]]


def claims_on(framework: Framework, evaluation: Evaluation, state: DRAState) -> ClaimsOn:
    """The unallocated claims by node; the one for extended resources depends on the node."""
    claims = [info.claim for info in state.unallocated()]
    special, handle = state.special, framework.handle
    if special is None or special.is_allocated:
        return lambda _node: claims
    classes = manager_of(handle).extended_resources
    judging = NodeFilter(
        state, evaluation.pod.pod, classes, handle.clock, filter_timeout_s=0, binding_timeout_s=None
    )

    def on(node: Node) -> list[ResourceClaim]:
        answer = judging.special_claim_on(special, node)
        return [*claims[:-1], answer[0]] if isinstance(answer, tuple) else claims[:-1]

    return on


class _Teller:
    """Tells the story of one pod."""

    def __init__(self, framework: Framework, evaluation: Evaluation, state: DRAState) -> None:
        self._table = evaluation.table
        self._dra = manager_of(framework.handle)
        self._allocated = self._dra.claims.allocated
        self._claims_on = claims_on(framework, evaluation, state)
        self._trials = DeviceTrials(self._dra)
        listers = framework.handle.listers
        assert listers is not None, "claims are found by listers"
        self._devices = list(_published(listers.of(ResourceSlice).list()))
        self._holders = holders_of(listers.of(ResourceClaim).list())
        self._selected: dict[tuple[str, str], _Selected] = {}

    def told(self, rows: Sequence[int]) -> DeviceStories:
        stories = DeviceStories(never=np.zeros(self._table.high_water, dtype=np.bool_))
        merged: dict[object, DeviceNodes] = {}
        for same in self._alike(rows):
            node = self._node(same[0])
            claims = self._claims_on(node)
            blocked = self._trials.blocked(node, claims)
            if self._trials.is_late():
                stories.notes.append(NOT_WORKED_OUT)
                break
            if blocked is None:
                continue
            never = self._trials.finds(node, claims, (IN_USE, TAINTS)) is False
            if never and stories.never is not None:
                stories.never[same] = True
            names = [self._table.names[row] for row in same]
            for need, nodes in self._on(node, blocked):
                nodes.never = never
                told = [getattr(nodes, name) for name in nodes.__struct_fields__ if name != "pools"]
                key = (need.claim, need.request, str(told))
                if key not in merged:
                    need.nodes.append(merged.setdefault(key, nodes))
                merged[key].nodes += names
                for name in names:
                    said = f"request {need.request}: {'; '.join(nodes.obstacles)}"
                    stories.by_node.setdefault(name, said)
        stories.needs = [one.need for one in self._selected.values() if one.need.nodes]
        return stories

    def _alike(self, rows: Sequence[int]) -> Iterable[list[int]]:
        """Rows in groups of nodes that the allocator does not tell apart."""
        signatures = self._dra.signatures(self._table).sync()
        groups: dict[object, list[int]] = {}
        for row in rows:
            claims = [[r.name for r in requests_of(c)] for c in self._claims_on(self._node(row))]
            signature = int(signatures[row])
            key = (signature, str(claims), row if signature < 0 else -1)
            groups.setdefault(key, []).append(row)
        return groups.values()

    def _node(self, row: int) -> Node:
        node = self._table.nodes[row]
        assert node is not None, "the row of a node"
        return node

    # -- one node ----------------------------------------------------------------------------------

    def _on(
        self, node: Node, blocked: list[ResourceClaim]
    ) -> Iterator[tuple[DeviceNeed, DeviceNodes]]:
        """The request that fails on a node, with each of its alternatives."""
        dra = self._dra
        candidates = Candidates(dra.selectors, node, self._allocated, dra.features)
        try:
            known = dra.pools.of(node)
            checker = Checker(dra.features, dra.device_class, known.pools, candidates.for_all)
            requests = checker.check(blocked[-1]).requests[-1]
        except AllocationError:
            return  # the rejection's own reason tells
        reached = [pooled for pooled in known.devices if _is_reached(node, pooled)]
        for request in requests:
            selected = self._select(request)
            matching = [pooled for pooled in reached if pooled.id in selected.matching]
            offers = [
                candidate
                for pooled in matching
                if (candidate := _candidate(candidates, request, pooled)) is not None
            ]
            nodes = DeviceNodes(
                nodes=[],
                pools=[f"{pool}: {_state(pool)}" for pool in known.pools],
                devices=len(reached),
                of_class=sum(pooled.id in selected.of_class for pooled in reached),
                matching=len(matching),
                free=sum(map(self._is_free, offers)),
                obstacles=[],
                never=False,
            )
            nodes.obstacles += self._obstacles(node, blocked, request, nodes, offers, matching)
            broken = [f"pool {pool} {_state(pool)}" for pool in known.pools if not pool.is_usable]
            nodes.obstacles += broken
            yield selected.need, nodes

    def _is_free(self, candidate: Candidate) -> bool:
        is_in_use = candidate.pooled.id in self._allocated.exclusive
        return (
            (candidate.request.has_admin_access or not is_in_use)
            and not candidate.is_refused
            and candidate.has_room(None)
        )

    def _obstacles(
        self,
        node: Node,
        blocked: list[ResourceClaim],
        request: Request,
        nodes: DeviceNodes,
        offers: Sequence[Candidate],
        matching: Sequence[PooledDevice],
    ) -> Iterator[str]:
        wanted = 1 if request.wants_all else request.count
        if not nodes.devices:
            yield "no devices"
        elif not nodes.of_class:
            yield f"no device of class {request.device_class.metadata.name}"
        elif not matching:
            yield "no device of the class matches the selectors"
        elif len(matching) < wanted:
            yield f"{len(matching)} of {wanted} wanted devices match"
        else:
            found = self._trials.in_the_way(node, blocked)
            if not found:
                yield "no set of the matching devices serves all requests"
            for obstacle in found:
                if obstacle == IN_USE:
                    used = sum(self._allocated.is_allocated(pooled.id) for pooled in matching)
                    yield f"{used} of {len(matching)} matching devices in use"
                elif obstacle == TAINTS:
                    yield f"device taint {_taints(request, matching)}"
                elif obstacle == COUNTERS:
                    yield self._counters(matching)
                elif obstacle == CONSTRAINTS:
                    yield from _constraints(blocked[-1], request, matching)
                elif obstacle == CAPACITY:
                    yield _capacity(request, offers)
                elif obstacle == OTHERS:
                    *before, _ = [f"{c.metadata.name}/{r.name}" for c in blocked for r in requests_of(c)]  # noqa: E501  # fmt: skip
                    yield f"devices are left only without {listed(before)}"

    def _counters(self, matching: Sequence[PooledDevice]) -> str:
        available = AvailableCounters(self._allocated)
        short = {}
        for pooled in matching:
            left = available.of(pooled.pool)
            for key, amount in pooled.charges.items():
                if left.get(key, 0) < amount:
                    takes, has = _amount(amount), _amount(left.get(key, 0))
                    short[key] = f"counter {'/'.join(key)}: a device takes {takes}, {has} left"
        return listed(list(short.values())) or "counters that devices share do not suffice for all"

    # -- the whole cluster -------------------------------------------------------------------------

    def _select(self, request: Request) -> _Selected:
        key = (key_of(request.claim.metadata), request.full_name)
        if key not in self._selected:
            self._selected[key] = self._selected_by(request, *key)
        return self._selected[key]

    def _selected_by(self, request: Request, claim: str, name: str) -> _Selected:
        of = request.device_class
        of_class, by_class = self._narrowed(
            self._devices, of.spec.selectors, f"class {of.metadata.name}"
        )
        matching, by_request = self._narrowed(of_class, request.selectors, f"request {name}")
        used = [one.id for one in matching if self._allocated.is_allocated(one.id)]
        holders = [
            DeviceHolder(
                device=str(device),
                claim=key_of(held.metadata),
                pods=[
                    *users_of(held),
                    *(f"podgroup {name}" for name in users_of(held, "podgroups")),
                ],
            )
            for device in used[:MOST_HOLDERS]
            for held in self._holders.get(device, ())
        ]
        need = DeviceNeed(
            claim=claim,
            request=name,
            device_class=of.metadata.name,
            wants=_wants(request),
            devices=len(self._devices),
            of_class=len(of_class),
            matching=len(matching),
            in_use=len(used),
            selectors=[*by_class, *by_request],
            holders=holders,
            nodes=[],
        )
        return _Selected(need, {one.id for one in of_class}, {one.id for one in matching})

    def _narrowed(
        self, devices: list[_Published], selectors: Sequence[DeviceSelector] | None, source: str
    ) -> tuple[list[_Published], list[SelectorMatches]]:
        """The devices that all selectors match, and how many each of them does."""
        kept, told = set(range(len(devices))), []
        for selector in selectors or ():
            expression = "" if selector.cel is None else selector.cel.expression
            answers = [self._matches(expression, one.content) for one in devices]
            kept &= {at for at, answer in enumerate(answers) if answer is True}
            told.append(
                SelectorMatches(
                    expression=expression,
                    source=source,
                    matches=answers.count(True),
                    devices=len(devices),
                    values=_values(expression, devices),
                    error=next((answer for answer in answers if isinstance(answer, str)), ""),
                )
            )
        return [devices[at] for at in sorted(kept)], told

    def _matches(self, expression: str, content: DeviceContent) -> bool | str:
        """Whether a device is selected, or why that cannot be evaluated."""
        try:
            return self._dra.selectors.matches(expression, content)
        except SelectorFailure as failure:
            return str(failure)


@dataclass(slots=True)
class _Selected:
    """The devices of the cluster that a request selects."""

    need: DeviceNeed
    of_class: set[DeviceID]
    matching: set[DeviceID]


@dataclass(slots=True)
class _Published:
    """A device of a slice."""

    id: DeviceID
    held: dict[str, Mapping[str, object]]
    """Attributes and capacities."""
    content: DeviceContent


def _published(slices: Sequence[ResourceSlice]) -> Iterator[_Published]:
    """Every device in the newest generation of its pool."""
    newest: dict[tuple[str, str], int] = {}
    for one in slices:
        pool = (one.spec.driver, one.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), one.spec.pool.generation)
    for one in slices:
        pool = (one.spec.driver, one.spec.pool.name)
        for device in (one.spec.devices or ()) if one.spec.pool.generation == newest[pool] else ():
            held: dict[str, Mapping[str, object]] = {
                "attributes": device.attributes or {},
                "capacity": device.capacity or {},
            }
            yield _Published(DeviceID(*pool, device.name), held, DeviceContent(pool[0], device))


def _values(expression: str, devices: Sequence[_Published]) -> dict[str, list[str]]:
    """The values that devices have of what the expression reads, the most frequent first."""
    found: dict[str, list[str]] = {}
    for kind, domain, dotted, quoted in _READ.findall(expression):
        name = dotted or quoted
        values: Counter[str] = Counter()
        for one in devices:
            held = one.held[kind]
            value = held.get(f"{domain}/{name}")
            if value is None and domain == one.id.driver:
                value = held.get(name)
            if value is not None:
                values[_text(value)] += 1
        found[name] = [value for value, _ in values.most_common(MOST_VALUES)]
    return found


def _text(held: object) -> str:
    """The value of an attribute or a capacity."""
    for name in ("value", "string_value", "int_value", "bool_value", "version_value"):
        value = getattr(held, name, None)
        if value is not None:
            return str(value).lower() if isinstance(value, bool) else str(value)
    return "a list"


def holders_of(claims: Iterable[ResourceClaim]) -> dict[DeviceID, list[ResourceClaim]]:
    """The claims that hold each device; admin access does not."""
    holders: dict[DeviceID, list[ResourceClaim]] = {}
    for claim in claims:
        allocation = claim.status.allocation
        for result in (None if allocation is None else allocation.devices.results) or ():
            if not result.admin_access:
                holders.setdefault(device_of(result), []).append(claim)
    return holders


def users_of(claim: ResourceClaim, resource: str = "pods") -> list[str]:
    """The pods or pod groups that an allocated claim is reserved for."""
    users = claim.status.reserved_for or ()
    return [f"{claim.metadata.namespace}/{u.name}" for u in users if u.resource == resource]


def _candidate(candidates: Candidates, request: Request, pooled: PooledDevice) -> Candidate | None:
    try:
        return candidates.of(request, pooled)
    except AllocationError:
        return None


def _is_reached(node: Node, pooled: PooledDevice) -> bool:
    device = pooled.device
    try:
        return not pooled.slice.spec.per_device_node_selection or node_matches(
            node, device.node_name, device.all_nodes, device.node_selector
        )
    except AllocationError:
        return False


def _state(pool: Pool) -> str:
    if pool.is_incomplete:
        return "is incomplete: not all of its slices are published"
    return f"is invalid: {pool.invalid_reason}" if pool.invalid_reason else f"{len(pool.devices)}"


def _wants(request: Request) -> str:
    count = "all devices" if request.wants_all else f"{request.count} device{'s' * (request.count != 1)}"  # noqa: E501  # fmt: skip
    amounts = ", ".join(f"{amount} {name}" for name, amount in request.capacity.items())
    return f"{count} of class {request.device_class.metadata.name}{amounts and f' with {amounts}'}"


def _taints(request: Request, devices: Sequence[PooledDevice]) -> str:
    return _counted(
        f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}"
        for pooled in devices
        if is_repelled(pooled.device, request.tolerations)
        for taint in pooled.device.taints or ()
    )


def _constraints(
    claim: ResourceClaim, request: Request, devices: Sequence[PooledDevice]
) -> Iterator[str]:
    for constraint in claim.spec.devices.constraints or ():
        named = constraint.requests or (request.base_name,)
        if request.base_name in named or request.full_name in named:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            held = (lookup_attribute(pooled, attribute) for pooled in devices)
            values = (
                "no value" if one is None else str((value_of(one) or "??")[1]) for one in held
            )
            kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
            yield f"{kind} {attribute}: the devices have {_counted(values)}"


def _capacity(request: Request, offers: Sequence[Candidate]) -> str:
    told = []
    for name, wanted in request.capacity.items():
        most = max((candidate.room.get(name, 0) for candidate in offers), default=-1)
        if most < quantity.nanos(wanted):
            left = f"at most {_amount(most)} left" if most >= 0 else "which no device allows"
            told.append(f"capacity {name}: {wanted} wanted, {left}")
    return listed(told) or "what is left of capacities does not suffice for all"


def _amount(nanos: int) -> str:
    return shown("memory", nanos // 10**9)


def _counted(names: Iterable[str]) -> str:
    return listed([f"{name} (x{times})" for name, times in Counter(names).most_common()])


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
