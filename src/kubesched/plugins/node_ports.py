"""NodePorts: a host port can be used once per node.

Mirrors upstream's `nodeports/node_ports.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.api.host_ports import HostPort, any_conflict, pod_host_ports
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, RowRule, reads
from kubesched.framework.events import Action, ClusterEventWithHint, Hint, Resource, on_event
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    SignPlugin,
)
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Rule
from kubesched.framework.status import SKIP, Status, error_status, unschedulable
from kubesched.framework.verdicts import Verdicts

PORTS_TAKEN = unschedulable("node(s) didn't have free ports for the requested pod ports")
PRE_FILTER_STATE = "PreFilterNodePorts"


class NodePorts(PreFilterPlugin, FilterPlugin, EnqueueExtensions, SignPlugin, InTreePlugin):
    """Rejects nodes on which a host port of the pod is in use.

    What-if views include the ports of added and removed pods, so `add_pod` and `remove_pod` are not
    needed.
    """

    name = "NodePorts"
    answers_by_spec = True

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        wanted = pod_host_ports(pod)
        if not wanted:
            return SKIP
        state.write(PRE_FILTER_STATE, wanted)
        return None

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Verdicts | Status:
        wanted: tuple[HostPort, ...] | None = state.get(PRE_FILTER_STATE)
        if wanted is None:
            return error_status(f'reading "{PRE_FILTER_STATE}" from cycleState: not found')
        return Verdicts.reject(nodes.port_conflicts(wanted), PORTS_TAKEN)

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule:
        wanted: tuple[HostPort, ...] = state.get(PRE_FILTER_STATE) or ()
        ports = self.handle.table.ports
        return RowRule(at=lambda row: not ports.any_taken(row, wanted))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # A pod's ports never change, so an update of another pod cannot help.
        return (
            on_event(Resource.ASSIGNED_POD, Action.DELETE, self.after_pod_deletion),
            on_event(Resource.NODE, Action.ADD),
        )

    @reads("spec")
    def after_pod_deletion(self, pod: Pod, old: Pod, new: Pod | None) -> Hint:
        if not old.spec.node_name and not old.status.nominated_node_name:
            return Hint.SKIP
        freed = any_conflict(pod_host_ports(pod), pod_host_ports(old))
        return Hint.QUEUE if freed else Hint.SKIP

    def sign_pod(self, pod: Pod) -> dict[str, Any]:
        """Port numbers only.

        # Upstream: addresses and protocols are left out, while ports of ordinary init containers,
        # which are never checked, are included.
        """
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        ports = {
            port.host_port
            for container in containers
            for port in container.ports or ()
            if port.host_port
        }
        return {"v1.Pod.Spec.HostPorts()": sorted(ports)}
