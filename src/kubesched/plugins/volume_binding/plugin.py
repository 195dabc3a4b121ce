"""The extension points of VolumeBinding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.pod_volumes import CLAIM, EPHEMERAL
from kubesched.api.storage_v1 import CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from kubesched.config.plugin_args import VolumeBindingArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin
from kubesched.framework.events import Action, ClusterEventWithHint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreBindPlugin,
    PreBindPreFlightResult,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import Ints
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, error_status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.args import checked_args
from kubesched.plugins.helper.lazy_parts import close_parts
from kubesched.plugins.helper.volumes.claims import uses_of, volumes_fragment
from kubesched.plugins.helper.volumes.hints import uses_claim
from kubesched.plugins.helper.volumes.wiring import listers_of
from kubesched.plugins.volume_binding.assume_cache import AssumeError
from kubesched.plugins.volume_binding.binding import (
    BindingError,
    Reservation,
    VolumeBinder,
    assume,
    chosen,
    revert,
)
from kubesched.plugins.volume_binding.hints import (
    after_capacity_change,
    after_class_change,
    after_csi_node_change,
    after_driver_update,
)
from kubesched.plugins.volume_binding.pod_claims import (
    ClaimsError,
    PodClaims,
    are_all_bound,
    claims_problem,
    classify,
)
from kubesched.plugins.volume_binding.scoring import CapacityScorer
from kubesched.plugins.volume_binding.search import Search
from kubesched.plugins.volume_binding.storage import Storage

STATE = "VolumeBinding"
UNBOUND_IMMEDIATE = unresolvable("pod has unbound immediate PersistentVolumeClaims")

_WORK_TO_DO: Final = PreBindPreFlightResult(allow_parallel=True)
_NOTHING_TO_DO: Final = PreBindPreFlightResult(allow_parallel=True, skip=True)


@dataclass(slots=True, eq=False)
class _PodVolumes:
    """Per-attempt state of the pod's claims. What-if evaluation does not change it: not cloned."""

    claims: PodClaims
    all_bound: bool = False
    search: Search | None = None
    """The filter's search over all nodes, until one is reserved."""
    reserved: dict[str, Reservation] = field(default_factory=dict)
    """Assumed reservations by node; at most one."""


_NO_VOLUMES: Final = _PodVolumes(PodClaims())
"""Shared, immutable state of pods without claims."""


class VolumeBinding(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    EnqueueExtensions,
    SignPlugin,
    InTreePlugin,
):
    """Filters nodes by reachable or provisionable volumes, and binds the claims on the chosen node.

    Results depend on claims, volumes, classes and capacities; none is cached between attempts.
    """

    name = "VolumeBinding"
    answers_by_spec = True
    lists = (
        PersistentVolumeClaim,
        PersistentVolume,
        StorageClass,
        CSINode,
        CSIDriver,
        CSIStorageCapacity,
    )
    args_type = VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        args = checked_args(args, VolumeBindingArgs, handle)
        super().__init__(args, handle)
        self._timeout_s = float(args.bind_timeout_seconds)
        self._scorer = (
            CapacityScorer(args.shape or ())
            if handle.feature_gates.StorageCapacityScoring
            else None
        )

    def close(self) -> None:
        close_parts(self, "_binder", "_storage")

    def is_idle(self) -> bool:
        storage: Storage | None = vars(self).get("_storage")
        return storage is None or (storage.claims.is_idle() and storage.volumes.is_idle())

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        if not uses_of(state, pod) & (CLAIM | EPHEMERAL):
            state.write(STATE, _NO_VOLUMES)
            return SKIP
        storage = self._storage
        problem = claims_problem(pod, storage)
        if problem is not None:
            return unresolvable(problem)
        try:
            claims = classify(pod, storage)
        except ClaimsError as error:
            return error_status(error)
        if claims.immediate:
            return UNBOUND_IMMEDIATE
        state.write(STATE, _PodVolumes(claims))
        return None

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        volumes: _PodVolumes | None = state.get(STATE)
        if volumes is None:
            return _not_found()
        search = Search(self._storage, volumes.claims, nodes)
        if search.has_errors:
            self._count_failure("predicate")
        if volumes.claims.delayed and search.covers(len(nodes) - 1):
            volumes.search = search
        return search.verdicts()

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        if not uses_of(state, pod) & (CLAIM | EPHEMERAL):
            return Rule(Scope.NODE)
        # Claims and volumes do not change during an attempt, but any binding in between may change
        # them.
        return Rule(Scope.NODE, premise=None)

    # -- score -------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        if self._scorer is None:
            return SKIP
        return None if state.get(STATE) is not None else _not_found()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Ints | int | Status:
        volumes: _PodVolumes | None = state.get(STATE)
        if volumes is None:
            return _not_found()
        if self._scorer is None or not volumes.claims.delayed:
            return 0
        search = volumes.search
        if search is not None and search.covers(int(nodes.row_indices().max(initial=0))):
            return self._scorer.score_nodes(search)[nodes.rows]
        return self._scorer.score_nodes(Search(self._storage, volumes.claims, nodes))

    def score_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """Without claims all nodes score the same."""
        is_same = self._scorer is None or state.get(STATE) is _NO_VOLUMES
        return Rule(Scope.NODE) if is_same else None

    # -- reserve -----------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        volumes: _PodVolumes | None = state.get(STATE)
        if volumes is None:
            return _not_found()
        if volumes is _NO_VOLUMES:
            return None
        search, volumes.search = volumes.search, None
        index = row = self.handle.table.row_of.get(node_name)
        if row is None or index is None or are_all_bound(pod, self._storage):
            volumes.all_bound = True
            return None
        if search is None or not search.covers(row):
            view = NodeColumns(self.handle.table, np.array([row]))
            search, index = Search(self._storage, volumes.claims, view), 0
        if not search.passes(index):
            return _nothing_reserved(node_name)
        try:
            volumes.reserved[node_name] = assume(self._storage, chosen(search, index), node_name)
        except AssumeError as error:
            self._count_failure("assume")
            return error_status(error)
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        volumes: _PodVolumes | None = state.get(STATE)
        reserved = None if volumes is None else volumes.reserved.get(node_name)
        if reserved is not None:
            revert(self._storage, reserved)

    # -- bind --------------------------------------------------------------------------------------

    def pre_bind_pre_flight(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> PreBindPreFlightResult | Status:
        volumes: _PodVolumes | None = state.get(STATE)
        if volumes is None:
            return _not_found()
        if volumes is _NO_VOLUMES or volumes.all_bound:
            return _NOTHING_TO_DO
        return _WORK_TO_DO if node_name in volumes.reserved else _nothing_reserved(node_name)

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        volumes: _PodVolumes | None = state.get(STATE)
        if volumes is None:
            return _not_found()
        if volumes is _NO_VOLUMES or volumes.all_bound:
            return None
        reserved = volumes.reserved.get(node_name)
        if reserved is None:
            return _nothing_reserved(node_name)
        try:
            await self._binder.bind(pod, node_name, reserved)
        except BindingError as error:
            self._count_failure("bind")
            return error_status(error)
        except Exception:  # write errors are passed on unchanged
            self._count_failure("bind")
            raise
        return None

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # Upstream: what Unreserve gives back unwritten is no event, though a pod may wait for that
        # volume.
        changed = Action.ADD | Action.UPDATE
        return (
            on_event(Resource.STORAGE_CLASS, changed, after_class_change),
            on_event(Resource.PERSISTENT_VOLUME_CLAIM, changed, uses_claim),
            on_event(Resource.PERSISTENT_VOLUME, changed),
            on_event(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            on_event(Resource.CSI_NODE, changed, after_csi_node_change),
            on_event(Resource.CSI_DRIVER, Action.UPDATE, after_driver_update),
            on_event(Resource.CSI_STORAGE_CAPACITY, changed, after_capacity_change),
        )

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return volumes_fragment(pod)

    # -- storage -----------------------------------------------------------------------------------

    @cached_property
    def _storage(self) -> Storage:
        """The storage state, built when the first pod needs it."""
        return Storage(self.handle)

    @cached_property
    def _binder(self) -> VolumeBinder:
        handle = self.handle
        assert handle.client is not None, "binding volumes needs a client"
        return VolumeBinder(
            self._storage, listers_of(handle), handle.client, handle.clock, self._timeout_s
        )

    def _count_failure(self, stage: str) -> None:
        if self.handle.metrics is not None:
            self.handle.metrics.volume_scheduling_stage_error_total.labels(stage).inc()


def _not_found() -> Status:
    return error_status("not found")


def _nothing_reserved(node_name: str) -> Status:
    return error_status(f'no pod volume found for node "{node_name}"')
