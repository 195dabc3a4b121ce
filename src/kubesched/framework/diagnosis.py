"""Diagnosis: why a pod fits on no node, and the message that reports it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.status import NodeToStatus, Status

NO_NODES_AVAILABLE = "no nodes available to schedule pods"


class NoNodesAvailable(Exception):
    """The cluster has no nodes at all."""

    def __init__(self) -> None:
        super().__init__(NO_NODES_AVAILABLE)


@dataclass(slots=True)
class Diagnosis:
    """The filters' findings about a pod that fits on no node."""

    node_to_status: NodeToStatus = field(default_factory=NodeToStatus)
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    pre_filter_msg: str = ""
    post_filter_msg: str = ""
    is_post_filter_unfinished: bool = False
    """True if an API request of PostFilter was rejected or timed out, so a retry may succeed."""

    def copy(self) -> Diagnosis:
        """A copy for another pod. Shares the verdicts; all other fields may be changed."""
        return Diagnosis(
            self.node_to_status,
            set(self.unschedulable_plugins),
            set(self.pending_plugins),
            self.pre_filter_msg,
            self.post_filter_msg,
        )

    def add_plugin_of(self, status: Status) -> None:
        if not status.plugin:
            return
        if status.is_rejected:
            self.unschedulable_plugins.add(status.plugin)
        if status.code.upstream_name == "Pending":
            self.pending_plugins.add(status.plugin)


@dataclass(slots=True, eq=False)
class Failed:
    """An attempt that ended without a node."""

    status: Status
    nomination: NominatingInfo


class FitError(Exception):
    """No node fits. A status carries it; its text is the message of the condition and the event."""

    def __init__(self, pod_key: str, node_count: int, diagnosis: Diagnosis) -> None:
        super().__init__()
        self.pod_key = pod_key
        self.node_count = node_count
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        diagnosis = self.diagnosis
        text = f"0/{self.node_count} nodes are available:"
        if diagnosis.pre_filter_msg:
            text += f" {diagnosis.pre_filter_msg}."
        elif reasons := diagnosis.node_to_status.histogram(self.node_count):
            text += f" {', '.join(reasons)}."
        if diagnosis.post_filter_msg:
            text += f" {diagnosis.post_filter_msg}"
        return text
