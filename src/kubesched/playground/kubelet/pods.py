"""Pods on fake nodes: admission, stages, termination.

    bound ── admission ──► stage, stage, … ──► Succeeded, Failed or simply running
               └ rejected ──► Failed (OutOfcpu, …)
    marked for deletion ──► the terminating stage, within the grace period ──► gone

One task handles all pods of all nodes. A pod's plan (the stage it waits for, and until when) is
only in memory: after a restart the wait starts again, nothing else is lost. The node's ledger
counts a pod's resources from its admission until it has ended.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    key_of,
    name_of,
    parse_timestamp,
    spec_of,
    status_of,
    timestamp,
    uid_of,
)
from kubesched.playground.apimachinery.pods import is_finished, node_name_of
from kubesched.playground.client.controller import Controller, ControllerContext
from kubesched.playground.client.informers import BY_NODE
from kubesched.playground.kubelet import transitions
from kubesched.playground.kubelet.admission import NodeLedger, Rejection
from kubesched.playground.kubelet.commands import with_effects
from kubesched.playground.kubelet.heartbeats import COMPONENT, is_stopped
from kubesched.playground.kubelet.node_templates import host_ip, pod_cidr
from kubesched.playground.kubelet.options import KubeletOptions
from kubesched.playground.kubelet.stages import (
    ContainerChange,
    Stage,
    StageEvent,
    Transition,
    first_match,
)

_FIRST_POD_ADDRESS = 2  # .0 is the network address, .1 the gateway
_LAST_ORDINAL = 0xFFFF  # nodes without their own range use the end of the address space


@dataclass(slots=True)
class _Plan:
    """The stage a pod waits for."""

    uid: str
    stage: Stage | None = None
    due: float = 0.0
    chosen_for: JsonObject | None = None
    """The version of the pod for which the stage was chosen."""
    is_removed: bool = False
    """The kubelet is done with the pod; only finalizers keep the object."""


@dataclass(slots=True)
class _Host:
    """A node as its kubelet sees it."""

    ordinal: int
    ledger: NodeLedger = field(default_factory=NodeLedger)
    addresses: dict[str, str] = field(default_factory=dict)  # address: pod uid
    next_address: int = _FIRST_POD_ADDRESS


_AFTER_PRE_STOP_S = 2.0
_KILLED = ContainerChange(state="terminated", reason="Error", exit_code=137)
_DEADLINE = Transition(
    phase="Failed",
    reason="DeadlineExceeded",
    message="Pod was active on the node longer than the specified deadline",
    sidecars=_KILLED,
    containers=_KILLED,
)

STAGES_PER_TURN = 8
"""Stages of one pod performed per sync, so that cyclic stages do not starve other pods."""

RESIZE_RETRY_S = 5.0
"""Delay before retrying a resize that did not fit."""


class PodPlayer(Controller[str]):
    """Simulates every pod that is bound to a simulated node."""

    name = "kubelet-pods"

    def __init__(self, context: ControllerContext, options: KubeletOptions) -> None:
        super().__init__(context)
        self._options = options
        self._rng = context.generator(self.name)
        self._plans: dict[str, _Plan] = {}
        self._hosts: dict[str, _Host] = {}
        self._host_count = 0
        self._written_key = ""  # the pod whose stage is being performed
        self._nodes = self.watch("nodes", self._node_changed)
        self._pods = self.watch("pods", self._pod_changed, BY_NODE)

    def sync(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None:
            return None
        node = self._nodes.get(node_name_of(pod))
        host = self._hosts.get(node_name_of(pod))
        if node is None or host is None or is_stopped(node):
            return None
        plan = self._plan_of(key, pod)
        if plan.is_removed:
            return None
        if is_finished(pod):
            self._release(host, uid_of(pod))
            if not is_deleting(pod):
                return None
        elif not self._is_admitted(pod, node, host):
            return None
        status = transitions.refreshed(pod, self.clock.now())
        if status is not None:
            pod = self.api.write_status("pods", pod, status)
        if transitions.is_behind(pod):
            pod = self._follow_spec(pod, host)
        left_s = self._deadline_in_s(pod)
        if left_s is not None and left_s <= 0:
            self._end(pod)
            return 0.0
        retry_s = RESIZE_RETRY_S if transitions.is_resize_pending(pod) else None
        waits = (self._play(pod, node, host, plan), left_s, retry_s)
        return min((wait for wait in waits if wait is not None), default=None)

    # -- stages ----------------------------------------------------------------------------------

    def _plan_of(self, key: str, pod: JsonObject) -> _Plan:
        plan = self._plans.get(key)
        if plan is None or plan.uid != uid_of(pod):
            plan = self._plans[key] = _Plan(uid_of(pod))
        return plan

    def _play(self, pod: JsonObject, node: JsonObject, host: _Host, plan: _Plan) -> float | None:
        """Perform the stages that are due; returns seconds until the next one."""
        now = self.clock.monotonic()
        for _ in range(STAGES_PER_TURN):
            self._choose(pod, plan, now)
            if plan.stage is None:
                return None
            if is_deleting(pod):
                plan.due = min(plan.due, now + self._grace_left_s(pod))
            if plan.due > now:
                return plan.due - now
            stage, plan.stage = plan.stage, None
            after = self._perform(stage, pod, node, host, plan)
            if after is None:
                return None
            if is_finished(after):
                break
            pod = after
        return 0.0

    def _choose(self, pod: JsonObject, plan: _Plan, now: float) -> None:
        """Choose the stage to wait for; keep the current one while it is the first match."""
        stages = self._options.stages
        if plan.stage is not None and plan.chosen_for is pod:
            return
        played = with_effects(pod)
        stage = first_match(stages, played)
        if plan.stage is not None and stage is plan.stage:
            return
        plan.stage = stage
        plan.chosen_for = pod
        if plan.stage is not None:
            plan.due = now + plan.stage.delay_s(played, self._rng)
            if is_deleting(pod) and not is_finished(pod):
                plan.due += transitions.pre_stop_s(pod)

    def _grace_left_s(self, pod: JsonObject) -> float:
        """Seconds until the containers are killed."""
        metadata = pod["metadata"]
        left = parse_timestamp(metadata["deletionTimestamp"]) - self.clock.now()
        # Upstream: a preStop hook that uses up the grace period leaves two seconds to stop.
        grace = metadata.get("deletionGracePeriodSeconds") or 0
        return left + _AFTER_PRE_STOP_S if 0 < grace <= transitions.pre_stop_s(pod) else left

    def _perform(
        self, stage: Stage, pod: JsonObject, node: JsonObject, host: _Host, plan: _Plan
    ) -> JsonObject | None:
        """Perform a stage; returns the new pod, or None if it is gone or unchanged."""
        transition = stage.next
        own_ip = _internal_ip(node) or host_ip(_LAST_ORDINAL - host.ordinal)
        pod_ip = status_of(pod).get("podIP") or ""
        if transition.has_ip and not pod_ip:
            pod_ip = own_ip if spec_of(pod).get("hostNetwork") else self._address(node, host, pod)
        place = transitions.Place(own_ip, pod_ip)
        for event in transition.events:
            self._tell(event, pod)
        after: JsonObject | None = None
        if not is_finished(pod):
            status = transitions.apply(with_effects(pod), transition, place, self.clock.now())
            # The caller continues with the new version: this write need not queue the pod.
            self._written_key = key_of(pod)
            try:
                after = self.api.write_status("pods", pod, status)
            finally:
                self._written_key = ""
        if transition.delete:
            plan.is_removed = True
            self._release(host, uid_of(pod))
            self.api.delete_object("pods", pod, grace_period_s=0)
            return None
        return after if after is not pod else None

    def _tell(self, event: StageEvent, pod: JsonObject) -> None:
        record = self.events.warning if event.type == "Warning" else self.events.normal
        node = node_name_of(pod)
        subjects = [None] if event.scope == "pod" else transitions.containers_in(pod, event.scope)
        for container in subjects:
            message = event.message.replace("{node}", node).replace("{pod}", name_of(pod))
            field_path = ""
            if container is not None:
                message = message.replace("{container}", container["name"])
                message = message.replace("{image}", container.get("image", ""))
                part = "containers" if event.scope == "containers" else "initContainers"
                field_path = f"spec.{part}{{{container['name']}}}"
            record(pod, COMPONENT, event.reason, message, host=node, field_path=field_path)

    # -- admission -------------------------------------------------------------------------------

    def _is_admitted(self, pod: JsonObject, node: JsonObject, host: _Host) -> bool:
        if uid_of(pod) in host.ledger:
            return True
        if status_of(pod).get("startTime"):
            host.ledger.enter(pod)  # already running: a restarted kubelet does not admit again
            return True
        rejection = host.ledger.admit(pod, node)
        if rejection is None:
            return True
        self._reject(pod, rejection)
        return False

    def _deadline_in_s(self, pod: JsonObject) -> float | None:
        """Seconds until the pod has been active for too long; None without a deadline."""
        deadline = spec_of(pod).get("activeDeadlineSeconds")
        started = status_of(pod).get("startTime")
        if deadline is None or not started or is_finished(pod):
            return None
        return parse_timestamp(started) + float(deadline) - self.clock.now()

    def _end(self, pod: JsonObject) -> None:
        self.events.normal(
            pod, COMPONENT, _DEADLINE.reason, _DEADLINE.message, host=node_name_of(pod)
        )
        place = transitions.Place("", "")
        status = transitions.apply(pod, _DEADLINE, place, self.clock.now())
        self.api.write_status("pods", pod, status)

    def _follow_spec(self, pod: JsonObject, host: _Host) -> JsonObject:
        """Apply spec changes of a running pod: resources and ephemeral containers."""
        now = self.clock.now()
        rejection = host.ledger.resize(pod)
        status = transitions.followed(pod, now, lacks=rejection.message if rejection else "")
        return self.api.write_status("pods", pod, status)

    def _reject(self, pod: JsonObject, rejection: Rejection) -> None:
        self.events.warning(
            pod, COMPONENT, rejection.reason, rejection.message, host=node_name_of(pod)
        )
        status = {
            **status_of(pod),
            "phase": "Failed",
            "reason": rejection.reason,
            "message": f"Pod was rejected: {rejection.message}",
            "startTime": timestamp(self.clock.now()),
        }
        self.api.write_status("pods", pod, status)

    def _release(self, host: _Host, uid: str) -> None:
        host.ledger.leave(uid)
        for address in [taken for taken, owner in host.addresses.items() if owner == uid]:
            del host.addresses[address]

    # -- addresses -------------------------------------------------------------------------------

    def _address(self, node: JsonObject, host: _Host, pod: JsonObject) -> str:
        """A free address of the node's range, the least recently used first."""
        network = ipaddress.ip_network(
            spec_of(node).get("podCIDR") or pod_cidr(_LAST_ORDINAL - host.ordinal)
        )
        size = network.num_addresses
        for _ in range(size):
            offset = host.next_address
            host.next_address = offset + 1 if offset + 2 < size else _FIRST_POD_ADDRESS
            address = str(network[min(offset, size - 1)])
            if address not in host.addresses:
                host.addresses[address] = uid_of(pod)
                return address
        return str(network[size - 1])  # more pods than addresses: they share the last one

    # -- events ----------------------------------------------------------------------------------

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        if not node_name_of(pod):
            return
        if kind == "DELETED":
            self._plans.pop(key_of(pod), None)
            host = self._hosts.get(node_name_of(pod))
            if host is not None:
                self._release(host, uid_of(pod))
            return
        key = key_of(pod)
        if key != self._written_key and node_name_of(pod) in self._hosts:
            self.queue.add(key)

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        name = name_of(node)
        if kind == "DELETED":
            self._hosts.pop(name, None)
            return
        host = self._hosts.get(name)
        is_new = host is None
        if host is None:
            host = self._hosts[name] = _Host(self._host_count)
            self._host_count += 1
        if is_new or old is None or _allocatable(old) != _allocatable(node):
            host.ledger.update(node)
        if is_new or (old is not None and is_stopped(old) and not is_stopped(node)):
            for pod in self._pods.find(BY_NODE, name):
                self.queue.add(key_of(pod))


def _allocatable(node: JsonObject) -> JsonObject:
    return status_of(node).get("allocatable") or {}


def _internal_ip(node: JsonObject) -> str:
    for address in status_of(node).get("addresses") or ():
        if address.get("type") == "InternalIP":
            return str(address.get("address", ""))
    return ""
