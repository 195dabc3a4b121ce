"""VolumeZone: rejects nodes outside the zone and region in the labels of the pod's bound volumes.

Mirrors upstream's `volumezone/volume_zone.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.pod_volumes import CLAIM
from kubesched.api.storage_v1 import StorageClass
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import ABSENT, Mask
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, unresolvable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.node_selector_columns import has_value
from kubesched.plugins.helper.volumes.claims import (
    WAIT_FOR_FIRST_CONSUMER,
    class_of_claim,
    direct_claims,
    not_found,
    uses_of,
    volumes_fragment,
)
from kubesched.plugins.helper.volumes.csi_migration import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    ZONE_SEPARATOR,
)
from kubesched.plugins.helper.volumes.hints import uses_claim_directly
from kubesched.plugins.helper.volumes.wiring import listers_of

WRONG_ZONE = unresolvable("node(s) had no available volume zone")
PRE_FILTER_STATE = "PreFilterVolumeZone"

LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GENERAL: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class Topology(NamedTuple):
    """A node must have one of these values for this label."""

    key: str
    values: frozenset[str]


class VolumeZone(PreFilterPlugin, FilterPlugin, EnqueueExtensions, SignPlugin, InTreePlugin):
    """Compares zone and region labels of volumes with those of nodes.

    Ignores claims of ephemeral volumes. Results depend on claims and volumes; none is cached.
    """

    name = "VolumeZone"
    answers_by_spec = True
    lists = (PersistentVolumeClaim, PersistentVolume, StorageClass)

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        if not uses_of(state, pod) & CLAIM:
            return SKIP
        topologies = self._topologies(pod)
        if isinstance(topologies, Status):
            return topologies
        if not topologies:
            return SKIP
        state.write(PRE_FILTER_STATE, topologies)
        return None

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        if not pod.spec.volumes:
            return None
        topologies = state.get(PRE_FILTER_STATE) or self._topologies(pod)
        if isinstance(topologies, Status):
            return topologies
        if not topologies:
            return None
        return Verdicts.reject(conflicts(nodes, topologies), WRONG_ZONE)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        if not uses_of(state, pod) & CLAIM:
            return Rule(Scope.NODE)
        # Claims and volumes do not change during an attempt, but any binding in between may change
        # them.
        return Rule(Scope.NODE, premise=None)

    def _topologies(self, pod: Pod) -> tuple[Topology, ...] | Status:
        """The requirements in the labels of all bound volumes, or why the pod must wait."""
        listers = listers_of(self.handle)
        claims, volumes = listers.of(PersistentVolumeClaim), listers.of(PersistentVolume)
        topologies: list[Topology] = []
        for name in direct_claims(pod):
            if not name:
                return unresolvable("PersistentVolumeClaim had no name")
            claim: PersistentVolumeClaim | None = claims.get(pod.metadata.namespace, name)
            if claim is None:
                return unresolvable(not_found("persistentvolumeclaim", name))
            if not claim.spec.volume_name:
                problem = self._unbound_problem(claim)
                if problem is not None:
                    return unresolvable(problem)
                continue
            volume = volumes.get("", claim.spec.volume_name)
            if volume is None:
                return unresolvable(not_found("persistentvolume", claim.spec.volume_name))
            topologies.extend(topologies_of(volume))
        return tuple(topologies)

    def _unbound_problem(self, claim: PersistentVolumeClaim) -> str | None:
        """Why an unbound claim makes the pod unschedulable; None if it is to be bound later."""
        class_name = class_of_claim(claim)
        if not class_name:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class: StorageClass | None = (
            listers_of(self.handle).of(StorageClass).get("", class_name)
        )
        if storage_class is None:
            return not_found("storageclass.storage.k8s.io", class_name)
        if storage_class.volume_binding_mode is None:
            return f'VolumeBindingMode not set for StorageClass "{class_name}"'
        if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
            return None
        return "PersistentVolume had no name"

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changed, claim = Action.ADD | Action.UPDATE, Resource.PERSISTENT_VOLUME_CLAIM
        volume = Resource.PERSISTENT_VOLUME
        return (
            on_event(Resource.STORAGE_CLASS, Action.ADD, self.after_class_added),
            on_event(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            on_event(claim, changed, uses_claim_directly),
            on_event(volume, changed, self.after_volume_change),
        )

    @reads("class")
    def after_class_added(self, pod: Pod, old: StorageClass | None, new: StorageClass) -> Hint:
        waits = new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        return Hint.QUEUE if waits else Hint.SKIP

    @reads("class")
    def after_volume_change(
        self, pod: Pod, old: PersistentVolume | None, new: PersistentVolume
    ) -> Hint:
        if old is None or topologies_of(old) != topologies_of(new):
            return Hint.QUEUE
        return Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return volumes_fragment(pod)


def topologies_of(volume: PersistentVolume) -> tuple[Topology, ...]:
    """The requirements in a volume's labels; a label with an empty part is ignored."""
    labels = volume.metadata.labels
    if not labels:
        return ()
    topologies = []
    for key in LABELS:
        if key in labels:
            values = [part.strip() for part in labels[key].split(ZONE_SEPARATOR)]
            if all(values):
                topologies.append(Topology(key, frozenset(values)))
    return tuple(topologies)


def conflicts(nodes: NodeColumns, topologies: Sequence[Topology]) -> Mask:
    """Where a node's labels do not match. Nodes without any of the labels always match."""
    is_somewhere = np.zeros(len(nodes), dtype=np.bool_)
    for key in LABELS:
        is_somewhere |= nodes.label_ids(key) != ABSENT
    fits = np.ones(len(nodes), dtype=np.bool_)
    for topology in topologies:
        fits &= _fits(nodes, topology)
    return is_somewhere & ~fits


def _fits(nodes: NodeColumns, topology: Topology) -> Mask:
    """Where the node has one of the values; a missing beta key falls back to its successor."""
    fits = has_value(nodes, topology.key, topology.values)
    general = _GENERAL.get(topology.key)
    if general is not None:
        lacks_key = nodes.label_ids(topology.key) == ABSENT
        fits |= lacks_key & has_value(nodes, general, topology.values)
    return fits
