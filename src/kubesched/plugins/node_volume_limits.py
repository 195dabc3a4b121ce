"""NodeVolumeLimits: limits the volumes of a CSI driver on a node to the count in its CSINode.

Volumes of pods and volumes that are only attached both count. Mirrors upstream's
`nodevolumelimits/csi.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.pod_volumes import MIGRATABLE, volume_uses
from kubesched.api.storage_v1 import CSIDriver, CSINode, StorageClass, VolumeAttachment
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    SignPlugin,
)
from kubesched.framework.nodes.columns import Ints, Mask
from kubesched.framework.nodes.views import NodeColumns, WhatIfColumns
from kubesched.framework.rules import Rule, Scope
from kubesched.framework.status import SKIP, Status, error_status, unresolvable, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.helper.lazy_parts import close_parts
from kubesched.plugins.helper.volumes.attached_volumes import ATTACHABLE, AttachedVolumes
from kubesched.plugins.helper.volumes.claims import (
    claim_use,
    not_found,
    ownership_problem,
    uses_of,
    volumes_fragment,
)
from kubesched.plugins.helper.volumes.csi_migration import inline_handle, plugin_of
from kubesched.plugins.helper.volumes.csi_nodes import CsiNodeColumns
from kubesched.plugins.helper.volumes.hints import uses_claim
from kubesched.plugins.helper.volumes.volume_names import (
    NO_NAME,
    CannotTell,
    CsiVolume,
    VolumeNames,
    of_inline,
)
from kubesched.plugins.helper.volumes.wiring import listers_of

TOO_MANY = unschedulable("node(s) exceed max volume count")

Wanted = Mapping[str, CsiVolume]
"""The volumes that a pod adds, by name."""


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin, EnqueueExtensions, SignPlugin, InTreePlugin):
    """Counts the volumes of each driver on a node, whether used by pods or only attached.

    Results depend on claims, volumes and attachments, so none is cached.
    """

    name = "NodeVolumeLimits"
    answers_by_spec = True
    lists = (
        PersistentVolumeClaim,
        PersistentVolume,
        StorageClass,
        CSINode,
        CSIDriver,
        VolumeAttachment,
    )

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # takes none
        super().__init__(args, handle)
        self._must_be_installed = handle.feature_gates.VolumeLimitScaling

    def close(self) -> None:
        close_parts(self, "_storage")

    # -- filter ------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        return None if uses_of(state, pod) & ATTACHABLE else SKIP

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        if not pod.spec.volumes:
            return None
        storage = self._storage
        wanted = elsewhere = storage.wanted(pod, has_csi_node=True)
        if uses_of(state, pod) & MIGRATABLE or _has_migrated(wanted):
            # Migrated volumes do not count on nodes without a CSINode, and cannot cause errors
            # there either.
            elsewhere = storage.wanted(pod, has_csi_node=False)
        elif isinstance(wanted, Status):
            return wanted
        if not wanted and not elsewhere:
            return None
        findings = _Findings(nodes)
        self._judge(findings, nodes, wanted, elsewhere)
        return findings.verdicts()

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        if not uses_of(state, pod) & ATTACHABLE:
            return Rule(Scope.NODE)
        # Claims and volumes do not change during an attempt, but any binding in between may change
        # them.
        return Rule(Scope.ROW, premise=None)

    def _judge(
        self,
        findings: _Findings,
        nodes: NodeColumns,
        wanted: Wanted | Status,
        elsewhere: Wanted | Status,
    ) -> None:
        storage = self._storage
        if self._must_be_installed or isinstance(wanted, Status) or isinstance(elsewhere, Status):
            has_csi_node = storage.csi_nodes.present(nodes)
            for volumes, where in ((wanted, has_csi_node), (elsewhere, ~has_csi_node)):
                if isinstance(volumes, Status):
                    findings.add(where, volumes)
                elif self._must_be_installed:
                    for driver in dict.fromkeys(volume.driver for volume in volumes.values()):
                        self._require_driver(findings, nodes, driver, where)
        if isinstance(wanted, Status) or not wanted:
            return
        if isinstance(nodes, WhatIfColumns):
            self._judge_one_by_one(findings, nodes, wanted)
            return
        storage.attached.sync()
        for row, problem in storage.attached.broken.items():
            here = storage.csi_nodes.limited(nodes) & (nodes.row_indices() == row)
            findings.add(here, error_status(problem))
        for driver, names in _by_driver(wanted).items():
            findings.add(self._too_many(nodes, driver, names), TOO_MANY)

    def _require_driver(
        self, findings: _Findings, nodes: NodeColumns, driver: str, where: Mask
    ) -> None:
        """Reject nodes without a driver that must be installed where its volumes are used."""
        known: CSIDriver | None = listers_of(self.handle).of(CSIDriver).get("", driver)
        if known is not None and known.spec.prevent_pod_scheduling_if_missing:
            missing = where & ~self._storage.csi_nodes.lists(nodes, driver)
            findings.add(
                missing, unschedulable(f"{driver} CSI driver is not installed on the node")
            )

    def _too_many(self, nodes: NodeColumns, driver: str, names: Sequence[str]) -> Mask:
        """Where the driver's limit does not allow these volumes besides the existing ones."""
        storage = self._storage
        room = (
            storage.csi_nodes.limits(nodes, driver)
            - storage.attached.counts(driver).array[nodes.rows]
        )
        in_use = self._in_use(nodes, names)
        if in_use is None:
            return room < len(names)
        # Volumes that pods there already use need no more room, even on a node over its limit.
        new = len(names) - in_use
        return (new > 0) & (room < new)

    def _in_use(self, nodes: NodeColumns, names: Sequence[str]) -> Ints | None:
        """How many of the volumes each node's pods use; None if no pod uses any."""
        rows = [row for name in names for row in self._storage.attached.rows_using(name)]
        if not rows:
            return None
        return np.bincount(rows, minlength=nodes.table.capacity)[nodes.rows]

    def _judge_one_by_one(self, findings: _Findings, nodes: WhatIfColumns, wanted: Wanted) -> None:
        """Counts what-if rows from their pods."""
        storage = self._storage
        storage.attached.sync()
        limited = storage.csi_nodes.limited(nodes)
        for index in np.flatnonzero(limited).tolist():
            here = np.zeros(len(nodes), dtype=np.bool_)
            here[index] = True
            try:
                used = storage.attached.used_by(nodes.pods_at(index))
            except CannotTell as problem:
                findings.add(here, error_status(str(problem)))
                continue
            attached = storage.attached.attached_at(nodes.row_at(index))
            held = {**{volume.name: volume for volume in attached}, **used}
            new = Counter(volume.driver for name, volume in wanted.items() if name not in used)
            old = Counter(volume.driver for volume in held.values())
            limits = {d: int(storage.csi_nodes.limits(nodes, d)[index]) for d in new}
            if any(old[driver] + count > limits[driver] for driver, count in new.items()):
                findings.add(here, TOO_MANY)

    # -- events and signature ----------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            on_event(Resource.CSI_NODE, Action.ADD),
            on_event(Resource.CSI_NODE, Action.UPDATE, self.after_csi_node_update),
            on_event(Resource.ASSIGNED_POD, Action.DELETE, self.after_pod_deletion),
            on_event(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, uses_claim),
            on_event(Resource.VOLUME_ATTACHMENT, Action.DELETE, self.after_detachment),
        )

    @reads("class")
    def after_csi_node_update(self, pod: Pod, old: CSINode, new: CSINode) -> Hint:
        """Some driver's limit has grown; a missing count is 0 on either side."""
        before = _counts(old)
        grew = any(count > before.get(driver, 0) for driver, count in _counts(new).items())
        return Hint.QUEUE if grew else Hint.SKIP

    @reads("class")
    def after_pod_deletion(self, pod: Pod, old: Pod, new: Pod | None) -> Hint:
        if not old.spec.node_name and not old.status.nominated_node_name:
            return Hint.SKIP
        return Hint.QUEUE if volume_uses(old.spec.volumes) & ATTACHABLE else Hint.SKIP

    @reads("class")
    def after_detachment(
        self, pod: Pod, old: VolumeAttachment | None, new: VolumeAttachment | None
    ) -> Hint:
        """Any claim may benefit; inline volumes only of the same driver, if that is known.

        Raises TranslationError.
        """
        if old is None:
            return Hint.QUEUE
        for volume in pod.spec.volumes or ():
            if volume.persistent_volume_claim is not None:
                return Hint.QUEUE
            plugin = plugin_of(volume)
            if plugin is not None:
                inline_handle(plugin, volume)
                if plugin.driver == old.spec.attacher:
                    return Hint.QUEUE
        return Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        return volumes_fragment(pod)

    # -- storage -----------------------------------------------------------------------------------

    @cached_property
    def _storage(self) -> _Storage:
        """The indexes, built when the first pod needs them."""
        return _Storage(self.handle)


class _Storage:
    """The plugin's view of the cluster's storage."""

    def __init__(self, handle: Handle) -> None:
        listers = listers_of(handle)
        # The prefix affects no decision and is drawn when the first pod needs it, so it does not
        # use the random numbers that decisions depend on.
        self._names = VolumeNames(listers, handle.jitter)
        self.csi_nodes = CsiNodeColumns(handle.table, listers.of(CSINode))
        self.attached = AttachedVolumes(handle.table, self._names, listers.of(VolumeAttachment))

    def close(self) -> None:
        self.csi_nodes.close()
        self.attached.close()

    def wanted(self, pod: Pod, *, has_csi_node: bool) -> dict[str, CsiVolume] | Status:
        """The volumes a pod adds to a node, or the first problem with them in the pod's order."""
        wanted: dict[str, CsiVolume] = {}
        namespace = pod.metadata.namespace
        for volume in pod.spec.volumes or ():
            use = claim_use(pod, volume)
            if use is None:
                try:
                    resolved = of_inline(volume) if has_csi_node else None
                except CannotTell as problem:
                    return error_status(problem)
            else:
                if not use.name:
                    return error_status(NO_NAME)
                claim: PersistentVolumeClaim | None = self._names.claims.get(namespace, use.name)
                if claim is None:
                    missing = not_found("persistentvolumeclaim", use.name)
                    return unresolvable(f"looking up PVC {namespace}/{use.name}: {missing}")
                if use.is_ephemeral and (stranger := ownership_problem(pod, claim)) is not None:
                    return error_status(stranger)
                resolved = self._names.of_claim(claim)
            if resolved is not None and (has_csi_node or not resolved.needs_csi_node):
                wanted[resolved.name] = resolved
        return wanted


class _Findings:
    """Problems by node; only the first of each node is kept."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._codes = np.zeros(len(nodes), dtype=np.uint16)
        self._statuses: list[Status] = []
        self._broken: Mask | None = None

    def add(self, where: Mask, status: Status) -> None:
        if not where.any():
            return
        here = where & (self._codes == 0)
        if not here.any():
            return
        self._statuses.append(status)
        self._codes[here] = len(self._statuses)
        if not status.is_rejected:
            self._broken = here if self._broken is None else self._broken | here

    def verdicts(self) -> Verdicts | None:
        if not self._statuses:
            return None
        return Verdicts.numbered(self._codes, self._statuses, self._broken)


def _by_driver(wanted: Wanted) -> dict[str, list[str]]:
    """Volume names by driver."""
    names: dict[str, list[str]] = {}
    for volume in wanted.values():
        names.setdefault(volume.driver, []).append(volume.name)
    return names


def _has_migrated(wanted: Wanted | Status) -> bool:
    return not isinstance(wanted, Status) and any(
        volume.needs_csi_node for volume in wanted.values()
    )


def _counts(node: CSINode) -> dict[str, int]:
    return {
        driver.name: (None if driver.allocatable is None else driver.allocatable.count) or 0
        for driver in node.spec.drivers or ()
    }
