"""NodeResourcesFit: rejects nodes without room for the pod, and scores by resulting usage.

The scoring strategies are in `strategies`. Mirrors upstream's `noderesources/fit.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.resource_v1 import DEVICE_CLASS_RESOURCE_PREFIX, DeviceClass
from kubesched.api.resources import (
    SCORED,
    NodeAllocatable,
    PodRequests,
    RequestOptions,
    filter_requests,
    is_resize_deferred,
    node_allocatable,
    pod_requests,
    request_amounts,
)
from kubesched.config.plugin_args import NodeResourcesFitArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, RowRule, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.groups.tree import GroupNode, PlacedPod, Placement
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PlacementScorePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope, always
from kubesched.framework.status import Code, Status, error_status, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.args import checked_args
from kubesched.plugins.helper.packed_verdicts import packed_verdicts
from kubesched.plugins.node_resources import int64
from kubesched.plugins.node_resources.extended_resources import DeviceBackedResources
from kubesched.plugins.node_resources.needs import (
    Need,
    beyond,
    fits_empty_node,
    has_grown,
    needs_of,
    requests_fragment,
)
from kubesched.plugins.node_resources.scored_resources import (
    RESOURCES_NOT_FOUND,
    ScoredResource,
    ScoredResources,
    nonzero_use,
)
from kubesched.plugins.node_resources.strategies import MostAllocated, make_strategy

TOO_MANY_PODS = "Too many pods"
PRE_FILTER_STATE = "PreFilterNodeResourcesFit"
PRE_SCORE_STATE = "PreScoreNodeResourcesFit"

_MOST_ALLOCATED: Final = MostAllocated()

SIGNATURE_REFUSED = unschedulable(
    "signature disabled when dra extended resources are used in the cluster"
)


class NodeResourcesFit(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    PlacementScorePlugin,
    EnqueueExtensions,
    SignPlugin,
    InTreePlugin,
):
    """Filters on actual requests; scores with defaults for containers without requests.

    What-if views include the sums of added and removed pods, so `add_pod` and `remove_pod` are not
    needed.
    """

    name = "NodeResourcesFit"
    answers_by_spec = True
    lists = (DeviceClass,)
    args_type = NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs | None, handle: Handle) -> None:
        args = checked_args(args, NodeResourcesFitArgs, handle)
        super().__init__(args, handle)
        gates = self._gates = handle.feature_gates
        self._tries_resizes = gates.InPlacePodVerticalScalingSchedulerPreemption
        self._filtered = RequestOptions(skip_pod_level=not gates.PodLevelResources)
        self._taken = RequestOptions(
            use_status=gates.InPlacePodVerticalScaling,
            by_container=not gates.reference.footprint_is_max_of_sums,
            pod_level_status=gates.InPlacePodLevelResourcesVerticalScaling,
        )
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._device_backed = DeviceBackedResources(handle)
        self._scored = ScoredResources(args.scoring_strategy.resources)
        self._strategy = make_strategy(args.scoring_strategy)
        self._offers: tuple[Node, NodeAllocatable] | None = None

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        requests = filter_requests(pod, self._filtered)
        needs = needs_of(requests, self._ignored, self._ignored_groups)
        if self._tries_resizes and pod.spec.node_name:
            needs = self._beyond_its_place(needs, pod)
        state.write(PRE_FILTER_STATE, needs)

    def _beyond_its_place(self, needs: tuple[Need, ...], pod: Pod) -> tuple[Need, ...]:
        """What a bound pod needs beyond what it is charged for on its node."""
        table = self.handle.table
        row = table.row_of.get(pod.spec.node_name)
        placed = None if row is None else table.pods[row].get(pod.metadata.uid)
        return needs if placed is None else beyond(needs, placed.requests)

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        needs: tuple[Need, ...] | None = state.get(PRE_FILTER_STATE)
        if needs is None:
            return error_status(f'error reading "{PRE_FILTER_STATE}" from cycleState: not found')
        slots = nodes.allowed_pods - nodes.pod_count
        full: Mask | None = slots < 1 if int64.least(slots) < 1 else None
        shortages = [self._shortage(need, nodes) for need in needs]
        if not any(mask is not None and mask.any() for mask in (full, *shortages)):
            return None
        return _verdicts(needs, nodes, full, shortages)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        """The verdict also depends on device classes, which may back some resources."""
        needs: tuple[Need, ...] = state.get(PRE_FILTER_STATE) or ()
        has_scalars = any(need.is_scalar for need in needs)
        premise = self._device_backed.current_version if has_scalars else always
        return RowRule(premise=premise, at=self._fits_row(needs))

    def _shortage(self, need: Need, nodes: NodeColumns) -> Mask | None:
        """Where a resource does not suffice; None if it suffices everywhere."""
        resource = nodes.table.resource_index.get(need.name)
        if resource is None:
            # No node offers it.
            is_left_to_devices = need.is_scalar and need.name in self._device_backed
            return None if is_left_to_devices else np.ones(len(nodes), dtype=np.bool_)
        left = nodes.allocatable(resource) - nodes.requested(resource)
        if int64.least(left) >= need.amount:
            return None
        short: Mask = left < need.amount
        if need.is_scalar and need.name in self._device_backed:
            short &= nodes.allocatable(resource) > 0
        return short

    def _fits_row(self, needs: Sequence[Need]) -> Callable[[int], bool]:
        """The verdict on one row: 29 instead of 116 µs per decision (benchmarks/decisions.py)."""
        table = self.handle.table
        pods, allowed = table.pod_count.cells, table.allowed_pods.cells
        compared = []
        for need in needs:
            resource = table.resource_index.get(need.name)
            is_backed = need.is_scalar and need.name in self._device_backed
            if resource is not None:
                offered, requested = (
                    table.allocatable[resource].cells,
                    table.requested[resource].cells,
                )
                compared.append((need.amount, offered, requested, is_backed))
            elif not is_backed:
                return lambda _row: False  # no node offers it

        def fits(row: int) -> bool:
            if pods[row] >= allowed[row]:
                return False
            for amount, offered, requested, is_backed in compared:
                left = offered[row] - requested[row]
                if not amount <= left <= int64.MAX and (
                    amount > int64.wrap(left) and not (is_backed and offered[row] <= 0)
                ):
                    return False
            return True

        return fits

    # -- score -------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> None:
        state.write(PRE_SCORE_STATE, self._resources(pod, nodes.table))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | Status:
        if self._scored.is_empty:
            return error_status(RESOURCES_NOT_FOUND)
        resources = state.get(PRE_SCORE_STATE)
        if resources is None:
            resources = self._resources(pod, nodes.table)
        if self._scored.extended and (backed := self._backed(resources)):
            nodes = self._device_backed.with_devices(nodes, backed)
        return self._strategy.score_nodes(resources, nodes)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """None if devices are counted: allocations change the count without a node change."""
        wanted: Sequence[ScoredResource] | None = state.get(PRE_SCORE_STATE)
        if self._scored.extended and wanted is not None and self._backed(wanted):
            return None
        table = self.handle.table
        if wanted is None:
            return Rule(Scope.ROW)
        return RowRule(at=self._strategy.row_scorer(wanted, table))

    def _resources(self, pod: Pod, table: NodeTable) -> Sequence[ScoredResource]:
        return self._scored.for_pod(pod_requests(pod, SCORED), table)

    def _backed(self, wanted: Sequence[ScoredResource]) -> dict[str, int]:
        return self._device_backed.scored(self._scored.extended, wanted)

    def score_placement(
        self, group: GroupNode, placement: Placement, placed: Sequence[PlacedPod]
    ) -> int:
        """How full the nodes of a placement are together, whatever strategy nodes are scored by."""
        table = self.handle.table
        nodes = NodeColumns(table, placement.rows)
        wanted: dict[int, list[int]] = {}
        for each in placed:
            # Members that are alike share what PreScore has found out, if it ran.
            known = each.state.get(PRE_SCORE_STATE)
            for resource, request, weight in known or self._resources(each.pod.pod, table):
                wanted.setdefault(resource, [weight, 0])[1] += request
        return _MOST_ALLOCATED.score_sums(
            [
                (
                    weight,
                    request + int(nonzero_use(nodes, resource).sum()),
                    int(nodes.allocatable(resource).sum()),
                )
                for resource, (weight, request) in wanted.items()
            ]
        )

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        pod_actions = Action.DELETE
        if self._gates.InPlacePodVerticalScaling:
            pod_actions |= Action.UPDATE_POD_SCALE_DOWN
        node_actions = Action.ADD | Action.UPDATE_NODE_ALLOCATABLE
        events = [
            on_event(Resource.ASSIGNED_POD, pod_actions, self.after_pod_event),
            on_event(Resource.NODE, node_actions, self.after_node_change),
        ]
        if self._gates.InPlacePodVerticalScaling:
            events.append(on_event(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN))
        if self._tries_resizes:
            events += [
                on_event(resource, Action.UPDATE_POD_SCALE_UP, self.after_scale_up)
                for resource in (Resource.ASSIGNED_POD, Resource.TARGET_POD)
            ]
        if self._gates.DRAExtendedResource:
            kind, changed = Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE
            events.append(on_event(kind, changed, self.after_device_class_event))
        return events

    @reads("spec")
    def after_pod_event(self, pod: Pod, old: Pod, new: Pod | None) -> Hint:
        """Another pod was deleted, or a pod was scaled down."""
        if self._tries_resizes and _is_resized_elsewhere(pod, (new or old).spec.node_name):
            return Hint.SKIP
        if new is None:
            was_placed = old.spec.node_name or old.status.nominated_node_name
            return Hint.QUEUE if was_placed else Hint.SKIP
        if not self._gates.InPlacePodVerticalScaling:
            return Hint.SKIP
        return Hint.QUEUE if self._frees_what_is_needed(pod, old, new) else Hint.SKIP

    @reads("class")
    def after_scale_up(self, pod: Pod, old: Pod, new: Pod) -> Hint:
        """A resize that fitted may need victims now: the pod, or one beside it, asks for more."""
        is_beside = is_resize_deferred(pod) and new.spec.node_name == pod.spec.node_name
        return Hint.QUEUE if is_beside else Hint.SKIP

    def _frees_what_is_needed(self, pod: Pod, old: Pod, new: Pod) -> bool:
        if not new.spec.node_name:
            return False
        before, after = pod_requests(old, self._taken), pod_requests(new, self._taken)
        return any(
            amount and max(before.get(name), 0) > max(after.get(name), 0)
            for name, amount in request_amounts(pod, self._taken).items()
        )

    @reads("spec")
    def after_node_change(self, pod: Pod, old: Node | None, new: Node) -> Hint:
        """A node that could fit the pod when empty was added, or its allocatable has grown.

        # Upstream: resources that the profile ignores are not ignored here.
        """
        if self._tries_resizes and _is_resized_elsewhere(pod, new.metadata.name):
            return Hint.SKIP
        if self._offers is None or self._offers[0] is not new:  # the same for every class of pods
            self._offers = new, node_allocatable(new)
        offers, needs = self._offers[1], needs_of(filter_requests(pod, self._filtered))
        if not fits_empty_node(needs, offers, self._device_backed):
            return Hint.SKIP
        if old is None or has_grown(needs, node_allocatable(old), offers, self._device_backed):
            return Hint.QUEUE
        return Hint.SKIP

    @reads("spec")
    def after_device_class_event(self, pod: Pod, old: DeviceClass | None, new: DeviceClass) -> Hint:
        """A device class now backs a resource the pod requests."""
        offered = new.spec.extended_resource_name
        if old is not None and (old.spec.extended_resource_name or "") == (offered or ""):
            return Hint.SKIP
        requested = request_amounts(pod)
        # Every device class implicitly offers a resource of its own name.
        is_implicit = old is None and DEVICE_CLASS_RESOURCE_PREFIX + new.metadata.name in requested
        return Hint.QUEUE if is_implicit or offered in requested else Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        return sign_requests(filter_requests(pod, self._filtered), self._device_backed)


def _is_resized_elsewhere(pod: Pod, node_name: str) -> bool:
    """True if the pod waits to be resized on another node than this."""
    return pod.spec.node_name != node_name and is_resize_deferred(pod)


def sign_requests(
    requests: PodRequests, device_backed: DeviceBackedResources
) -> dict[str, Any] | Status:
    """The request vector; an error if devices are involved, as equal requests may then differ."""
    if any(amount and name in device_backed for name, amount in requests.scalars.items()):
        return SIGNATURE_REFUSED
    return requests_fragment(requests)


def _rejection(needs: Sequence[Need], bits: int) -> Status:
    """Bit 0: too many pods; then one bit per need; top bit: a need exceeds the node's total."""
    reasons = [TOO_MANY_PODS, *(need.reason for need in needs)]
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if bits >> len(reasons) & 1 else Code.UNSCHEDULABLE
    return Status(code, [reason for at, reason in enumerate(reasons) if bits >> at & 1])


def _verdicts(
    needs: tuple[Need, ...],
    nodes: NodeColumns,
    full: Mask | None,
    shortages: list[Mask | None],
) -> Verdicts:
    """Verdicts with codes in the format of `_rejection`."""

    def describe(bits: int) -> Status:
        return _rejection(needs, bits)

    none = np.zeros(len(nodes), dtype=np.bool_)
    hopeless = [none]
    for need, short in zip(needs, shortages, strict=True):
        resource = nodes.table.resource_index.get(need.name)
        if short is not None and resource is not None:
            wanted = need.amount + need.charged
            hopeless.append(short & (nodes.allocatable(resource) < wanted))
        elif short is not None:
            hopeless.append(short)
    masks = [none if mask is None else mask for mask in (full, *shortages)]
    return packed_verdicts([*masks, np.logical_or.reduce(hopeless)], describe)
