"""DynamicResources: filters by devices that are or can be allocated for the pod's claims.

An allocated claim restricts the pod to the nodes that can use its devices. Claims without an
allocation are allocated together, node by node, by the structured allocator; Reserve takes the
chosen node's devices and PreBind writes them. Mirrors upstream's plugin `dynamicresources`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Coroutine, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.resource_v1 import (
    MAX_FIRST_AVAILABLE,
    AllocationResult,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from kubesched.api.resources import RequestOptions, pod_requests
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.config.features import FeatureGates
from kubesched.config.plugin_args import DynamicResourcesArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.groups.states import group_of, key_of_group
from kubesched.framework.groups.tree import GroupCycle, GroupNode, Nominations, PlaceGroup
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PodGroupPostFilterPlugin,
    PostFilterAnswer,
    PostFilterPlugin,
    PreBindPlugin,
    PreBindPreFlightResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    SignPlugin,
    default_normalize,
)
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import (
    SKIP,
    NodeToStatus,
    Status,
    error_status,
    unresolvable,
    unschedulable,
)
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.dynamic_resources import extended_resources, hints
from kubesched.plugins.dynamic_resources.binding import ClaimBinder, ClaimBindingError
from kubesched.plugins.dynamic_resources.claim_lookup import (
    ClaimProblem,
    consumer_of,
    group_claim_name,
    is_reserved_for,
    pod_consumer,
)
from kubesched.plugins.dynamic_resources.extended_resource_cache import ExtendedResourceCache
from kubesched.plugins.dynamic_resources.filtering import NodeFilter
from kubesched.plugins.dynamic_resources.manager import DRAManager, manager_of
from kubesched.plugins.dynamic_resources.slice_tracker import taint_rule_kind
from kubesched.plugins.dynamic_resources.state import (
    NO_CLAIMS,
    ClaimInfo,
    DRAState,
)
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator, Solution
from kubesched.plugins.helper.args import checked_args

STATE: Final = "PreFilterDynamicResources"

NOT_SIGNABLE = unschedulable("pods with dra resource claims are not signable")
NOTHING_TO_DEALLOCATE = unschedulable("no new claims to deallocate")
DEALLOCATED = unschedulable("deallocation of ResourceClaim completed")
DELETED = unschedulable("deletion of ResourceClaim completed")
STILL_NOT_SCHEDULABLE = unschedulable("still not schedulable")
GROUP_CLAIM_DEALLOCATED = unschedulable("deallocation of PodGroup ResourceClaim completed")
GROUP_CLAIM_UNRESERVED = unresolvable("ResourceClaim unreserved for PodGroup")
GROUP_DEALLOCATED = unschedulable("deallocation and deletion of ResourceClaims completed")
NO_REASON = unschedulable()

_POD_REQUESTS: Final = RequestOptions()
_NOTHING_TO_FILTER: Final[Rule] = Rule(Scope.NODE)
_NOTHING_TO_SCORE: Final[Rule] = Rule(Scope.NODE)
_WORK_TO_DO: Final = PreBindPreFlightResult(allow_parallel=True)
_NOTHING_TO_DO: Final = PreBindPreFlightResult(allow_parallel=True, skip=True)


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    PodGroupPostFilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    EnqueueExtensions,
    SignPlugin,
    InTreePlugin,
):
    """Every rejection is unresolvable: evicting pods frees no devices."""

    name = "DynamicResources"
    answers_by_spec = True
    answers_per_class = True  # pods with claims have no class
    lists = (ResourceClaim, ResourceSlice, DeviceClass)
    args_type = DynamicResourcesArgs

    @classmethod
    def kinds_to_list(cls, gates: FeatureGates) -> Sequence[type[Record]]:
        rules = taint_rule_kind(gates)
        return cls.lists if rules is None else (*cls.lists, rules)

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        args = checked_args(args, DynamicResourcesArgs, handle)
        super().__init__(args, handle)
        gates = self._gates = handle.feature_gates
        timeout = args.filter_timeout_s if gates.DRASchedulerFilterTimeout else None
        self._filter_timeout_s = timeout or 0.0
        self._binding_timeout_s = args.binding_timeout_s or 600.0
        self._has_binding_conditions = (
            gates.DRADeviceBindingConditions and gates.DRAResourceClaimDeviceStatus
        )
        self._frees_deleted_claims = gates.reference.deleted_claims_wake
        self._checks_node_operations = gates.reference.alpha_device_fields_are_refused
        self._keeps_pending = gates.reference.pending_allocations_kept_until_bound
        self._has_extended_resources = gates.DRAExtendedResource and handle.listers is not None
        self._classes: ExtendedResourceCache | None = None
        has_text = gates.reference.deallocation_has_text
        self._nothing_to_deallocate = NOTHING_TO_DEALLOCATE if has_text else NO_REASON
        self._still_not_schedulable = STILL_NOT_SCHEDULABLE if has_text else NO_REASON

    def is_idle(self) -> bool:
        manager, binder = self.handle.dra_manager, vars(self).get("_binder")
        return (manager is None or manager.is_idle()) and (binder is None or binder.is_idle())

    def close(self) -> None:
        if self.handle.dra_manager is not None:
            self.handle.dra_manager.close()
        self._classes = None
        vars(self).pop("_binder", None)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if not pod.spec.resource_claims:
            return None
        try:
            self._dra.pod_claims(pod)
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        return None

    # -- PreFilter and Filter ----------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        state.write(STATE, NO_CLAIMS)
        backed = self._backed_requests(pod)
        if not pod.spec.resource_claims and backed is None:
            return SKIP
        try:
            group = self._group_of(pod)
            infos = [
                ClaimInfo(claim, consumer_of(pod, entry, group))
                for entry, claim in self._dra.pod_claims(pod)
            ]
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        dra_state = DRAState(infos)
        if backed is not None:
            infos.append(self._special_claim(pod))
            dra_state.special_uid = infos[-1].claim.metadata.uid
            dra_state.extended_resources = backed
        if not infos:
            return SKIP
        for info in infos:
            status = _check_claim(info, self._dra, self._gates, state.group_trial)
            if status is not None:
                return status
        if any(True for _ in dra_state.unallocated()):
            dra_state.allocator = self._new_allocator()
        state.write(STATE, dra_state)
        return None

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        """Skips nodes rejected by earlier plugins, so that claim errors there have no effect."""
        dra_state: DRAState = state.read(STATE)
        if not dra_state.claims:
            return None
        has_work = dra_state.allocator is not None
        column = self._dra.signatures(nodes.table) if has_work else None
        return self._node_filter(dra_state, pod).filter(nodes, column)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """Pods without claims share a rule, unless a device class backs one of their resources."""
        if state.get(STATE) is not NO_CLAIMS or pod.spec.resource_claims:
            return None
        if not self._has_extended_resources or not pod_requests(pod, _POD_REQUESTS).scalars:
            return _NOTHING_TO_FILTER
        classes = self._dra.extended_resources
        return Rule(Scope.NODE, premise=lambda: classes.version)

    def _backed_requests(self, pod: Pod) -> dict[str, int] | None:
        """The pod's scalar requests if a device class backs one of them, otherwise None."""
        classes = self._classes
        if classes is None:
            if not self._has_extended_resources:
                return None
            classes = self._classes = self._dra.extended_resources
        if not classes.by_resource:
            return None
        scalars = pod_requests(pod, _POD_REQUESTS).scalars
        backed = (
            name in classes.by_resource and extended_resources.may_be_backed(name)
            for name, amount in scalars.items()
            if amount
        )
        return scalars if any(backed) else None

    def _special_claim(self, pod: Pod) -> ClaimInfo:
        """The claim for the pod's extended resources: an earlier attempt's claim or a new one."""
        claim = self._dra.claims.special_claim_of(pod.metadata.uid, pod.metadata.name)
        if claim is None:
            claim = extended_resources.special_claim(pod, self._new_uid())
        return ClaimInfo(claim, pod_consumer(pod), is_special=True)

    def _group_of(self, pod: Pod) -> PodGroup | None:
        """The pod's group if it may have claims."""
        key = group_of(pod) if self._gates.DRAWorkloadResourceClaims else None
        groups = self.handle.groups
        group = None if key is None or groups is None else groups.find(key)
        return group if isinstance(group, PodGroup) else None

    def _new_allocator(self) -> Allocator:
        dra = self._dra
        return Allocator(
            dra.features,
            dra.claims.allocated,
            dra.device_class,
            dra.pools,
            dra.selectors,
            self._new_uid,
        )

    def _new_uid(self) -> str:
        return str(uuid.UUID(int=self.handle.random.getrandbits(128), version=4))

    def _node_filter(self, dra_state: DRAState, pod: Pod) -> NodeFilter:
        return NodeFilter(
            dra_state,
            pod,
            None if dra_state.special is None else self._dra.extended_resources,
            self.handle.clock,
            filter_timeout_s=self._filter_timeout_s,
            binding_timeout_s=self._binding_timeout_s if self._has_binding_conditions else None,
            checks_node_operations=self._checks_node_operations,
        )

    # -- PostFilter --------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
        dra_state: DRAState | None = state.get(STATE)
        if dra_state is None and self.name in state.skip_filter_plugins:
            return None, unschedulable()  # a deferred resize: the pod keeps its claims
        if dra_state is None:
            # Upstream: a PreFilter rejection before this plugin's own PreFilter surfaces as this
            # error's text.
            return None, error_status("not found")
        if not dra_state.claims:
            return None, self._nothing_to_deallocate
        return self._free_one(dra_state, pod) or (None, self._still_not_schedulable)

    def _free_one(
        self, dra_state: DRAState, pod: Pod
    ) -> Coroutine[Any, Any, PostFilterAnswer] | None:
        """Deallocate a claim that only this pod holds, or delete its special claim."""
        stale = dra_state.special
        is_stale = stale is not None and not stale.is_in_memory
        candidates = sorted(dra_state.unavailable)
        self.handle.random.shuffle(candidates)
        for index in candidates:
            info = dra_state.claims[index]
            if info.is_special:
                if is_stale:
                    break
                continue
            users = info.claim.status.reserved_for or ()
            if not users or (len(users) == 1 and users[0].uid == pod.metadata.uid):
                return self._deallocate(info.claim)
        if stale is not None and is_stale:
            return self._delete(stale.claim)
        return None

    def pod_group_post_filter(
        self, cycle: GroupCycle, group: GroupNode, place: PlaceGroup
    ) -> tuple[Nominations | None, Status]:
        """Free claims of members that no node could use; the next plugin runs in any case."""
        is_placed = self._gates.TopologyAwareWorkloadScheduling and (
            group.group.spec.scheduling_constraints is not None
        )
        if group.key.is_composite or is_placed:
            return None, NO_REASON
        reached = [
            (info.pod_info.pod, state)
            for info in group.all_members()
            if (member := cycle.member_states.get(info.pod_info.uid)) is not None
            and (state := member.get(STATE)) is not None
        ]
        if not reached:
            # Upstream: as for a single pod, the missing state's text.
            return None, error_status("not found")
        freed = [self._free_one(state, pod) for pod, state in reached]
        for (pod, _), answer in zip(reached, freed, strict=True):
            if answer is not None:
                self._spawn(answer, f"deallocation for pod {key_of(pod.metadata)}")
        status = None
        if not all(freed) and self._gates.DRAWorkloadResourceClaims:
            assert isinstance(group.group, PodGroup), "composites were answered above"
            status = self._free_claim_of_group(group.group, reached)
        return None, status or GROUP_DEALLOCATED

    def _free_claim_of_group(
        self, group: PodGroup, reached: Sequence[tuple[Pod, DRAState]]
    ) -> Status | None:
        """Deallocate a claim that only the group holds, or else remove its reservation."""
        states = self.handle.groups
        known = None if states is None else states.state(key_of_group(group))
        if known is None or known.scheduled_count:
            return None
        what = f"deallocation for pod group {key_of(group.metadata)}"
        unusable = [
            state.claims[index].claim for _, state in reached for index in sorted(state.unavailable)
        ]
        self.handle.random.shuffle(unusable)
        for claim in unusable:
            users = claim.status.reserved_for or ()
            if not users or (len(users) == 1 and users[0].uid == group.metadata.uid):
                self._spawn(self._binder.deallocate(claim), what)
                return GROUP_CLAIM_DEALLOCATED
        pod, _ = reached[0]
        for entry in group.spec.resource_claims or ():
            try:
                name = group_claim_name(group, entry)
            except ClaimProblem as problem:
                return error_status(problem)
            if name is None:
                continue
            found = self._dra.claims.get(group.metadata.namespace, name)
            if found is None:
                key = f"{group.metadata.namespace}/{name}"
                return error_status(f'could not find ResourceClaim "{key}"')
            owner = found.metadata.controller()
            is_generated = entry.resource_claim_name is None
            if is_generated and (owner is None or owner.uid != group.metadata.uid):
                continue
            if found.status.allocation is not None and is_reserved_for(found, pod, of_groups=True):
                if self.handle.rehearsed is None:
                    self._binder.remove_reservation(found, group.metadata)
                return GROUP_CLAIM_UNRESERVED
        return None

    def _spawn(self, work: Coroutine[Any, Any, object], what: str) -> None:
        if self.handle.rehearsed is not None:
            work.close()
            return
        assert self.handle.spawn is not None, "deallocation needs `spawn` for its API calls"
        self.handle.spawn(work, what)

    async def _deallocate(self, claim: ResourceClaim) -> PostFilterAnswer:
        await self._binder.deallocate(claim)
        return None, DEALLOCATED

    async def _delete(self, claim: ResourceClaim) -> PostFilterAnswer:
        await self._binder.delete(claim)
        return None, DELETED

    # -- Score -------------------------------------------------------------------------------------

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | int:
        dra_state: DRAState = state.read(STATE)
        if not self._gates.DRAPrioritizedList or not dra_state.has_alternatives:
            return 0
        scores = np.zeros(len(nodes), dtype=np.int64)
        known: dict[int, int] = {}
        for index in range(len(nodes)):
            allocation = dra_state.allocation_on(nodes.name_at(index))
            if allocation is not None:
                solution = allocation.solution
                score = known.get(id(solution))
                if score is None:
                    score = known[id(solution)] = _score(dra_state, solution)
                scores[index] = score
        return scores

    def normalize_scores(
        self, state: CycleState, pod: Pod, scores: Ints, nodes: NodeColumns
    ) -> Ints:
        return scores if state.get(STATE) is NO_CLAIMS else default_normalize(scores)

    def score_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        return _NOTHING_TO_SCORE if state.get(STATE) is NO_CLAIMS else None

    # -- Reserve -----------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        dra_state: DRAState = state.read(STATE)
        if dra_state is NO_CLAIMS:
            return None
        chosen = [(info, info.shared) for info in dra_state.claims if info.shared is not None]
        open_claims = list(dra_state.unallocated())
        if open_claims:
            found = dra_state.allocation_on(node_name)
            if found is not None and found.results:
                chosen += zip(open_claims, found.results, strict=True)
            elif not all(info.is_special for info in open_claims):  # device plugins serve these
                return error_status("claim allocation not found for node")
        for info, allocation in chosen:
            info.allocation = allocation
            problem = self._hold(info, allocation, pod, state.group_trial)
            if problem:
                return error_status(
                    "internal error, couldn't signal allocation for claim "
                    f"{info.claim.metadata.name}: {problem}"
                )
        return None

    def _hold(
        self,
        info: ClaimInfo,
        allocation: AllocationResult,
        pod: Pod,
        group_trial: object | None,
    ) -> str:
        """Count the devices as taken until they are written; returns why that is not possible."""
        claims, meta = self._dra.claims, info.claim.metadata
        if self._keeps_pending and not info.is_special:
            known = claims.get(meta.namespace, meta.name)
            if known is None:
                key = key_of(meta)
                return (
                    f"look up assumed claim {key}, UID={meta.uid}: "
                    f'could not find ResourceClaim "{key}"'
                )
            if known.metadata.uid == meta.uid and known.status.allocation is not None:
                return ""  # allocated since PreFilter; PreBind will notice
        claims.add_in_flight(meta.uid, allocation, pod.metadata.uid, group_trial)
        return ""

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        dra_state: DRAState | None = state.get(STATE)
        if dra_state is not None and dra_state.claims:
            self._binder.unreserve(dra_state, pod)

    # -- PreBind -----------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> PreBindPreFlightResult:
        dra_state: DRAState = state.read(STATE)
        return _WORK_TO_DO if dra_state.claims else _NOTHING_TO_DO

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        dra_state: DRAState = state.read(STATE)
        try:
            await self._binder.bind(dra_state, pod, node_name)
        except ClaimBindingError as error:
            return error_status(error)
        return None

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node_actions = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        changed = Action.ADD | Action.UPDATE
        events = [
            on_event(Resource.NODE, node_actions),
            on_event(
                Resource.RESOURCE_CLAIM,
                changed,
                self.after_claim_change,
                narrow=hints.pods_of_claim,
            ),
            on_event(
                Resource.TARGET_POD,
                Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
                self.after_pod_change,
            ),
            on_event(Resource.DEVICE_CLASS, changed),
            on_event(Resource.RESOURCE_SLICE, changed),
        ]
        if self._has_extended_resources or self._frees_deleted_claims:
            events.append(
                on_event(
                    Resource.RESOURCE_CLAIM,
                    Action.DELETE,
                    self.after_claim_deletion,
                    narrow=hints.pods_of_claim,
                )
            )
        return events

    def after_claim_change(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim) -> Hint:
        return hints.after_claim_change(pod, old, new, self._dra.pod_claims)

    def after_claim_deletion(self, pod: Pod, old: ResourceClaim | None, new: None) -> Hint:
        del new
        return hints.after_claim_deletion(pod, old, frees_devices=self._frees_deleted_claims)

    def after_pod_change(self, pod: Pod, old: Pod | None, new: Pod) -> Hint:
        return hints.after_pod_change(new, self._dra.pod_claims)

    def sign_pod(self, pod: Pod) -> dict[str, Any] | Status:
        return NOT_SIGNABLE if pod.spec.resource_claims else {}

    # -- drivers -----------------------------------------------------------------------------------

    @property
    def _dra(self) -> DRAManager:
        return manager_of(self.handle)

    @cached_property
    def _binder(self) -> ClaimBinder:
        assert self.handle.client is not None, "claims are to be written, but there is no client"
        return ClaimBinder(
            self.handle,
            self.handle.client,
            self._dra.claims,
            of_groups=self._dra.of_groups,
            binding_timeout_s=self._binding_timeout_s,
            has_binding_conditions=self._has_binding_conditions,
            keeps_pending=self._keeps_pending,
            ignores_missing=self._gates.reference.deleted_special_claims_are_fine,
        )


def _check_claim(
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


def _score(dra_state: DRAState, solution: Solution) -> int:
    """Score of the chosen alternatives: 8 for a first choice, 7 for a second, and so on."""
    picks = iter(solution.picks)
    score = 0
    for info in dra_state.claims:
        allocation = info.claim.status.allocation
        if allocation is not None:
            taken = {result.request for result in allocation.devices.results or ()}
        else:
            taken = {pick.request.full_name for _, pick in next(picks)}
        for request in info.claim.spec.devices.requests or ():
            score += sum(MAX_FIRST_AVAILABLE - at for at in _taken_alternatives(request, taken))
    return score


def _taken_alternatives(request: DeviceRequest, taken: set[str]) -> list[int]:
    return [
        position
        for position, sub in enumerate(request.first_available or ())
        if f"{request.name}/{sub.name}" in taken
    ]
