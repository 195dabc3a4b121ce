"""The DaemonSet controller: runs one pod on each eligible node and deletes all others.

Each sync visits every node, so its cost grows with the cluster, not with the change. Node events
therefore only queue the DaemonSets whose verdict for that node changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    scaled_value,
    spec_of,
    status_of,
    uid_of,
    without_zeros,
)
from kubesched.playground.apimachinery.pods import (
    FAILED,
    SUCCEEDED,
    is_ready,
    node_name_of,
    phase_of,
)
from kubesched.playground.client.controller import ControllerContext, settling_s
from kubesched.playground.client.workqueue import BackOff
from kubesched.playground.controllers.controller_revisions import (
    CONTROLLER_REVISION_HASH,
    RevisionHistory,
    hash_of,
    with_label,
)
from kubesched.playground.controllers.daemonset.eligibility import (
    Eligibility,
    pinned_to,
    target_node,
    tolerations_for,
)
from kubesched.playground.controllers.ownership import (
    OwnerController,
    selector_of,
)
from kubesched.playground.controllers.pods import (
    PodControl,
    is_available,
    min_ready_s_of,
    next_availability_s,
    pod_from_template,
)

BURST_REPLICAS = 100
"""Pods created or deleted per sync, about 20 ms of work. The rest is requeued immediately."""

FAILED_POD_BACK_OFF = BackOff(initial_s=1.0, limit_s=15 * 60.0)
"""Delay between replacements of failed pods on one node, so a crashing daemon does not loop."""


Verdicts = dict[str, tuple[bool, bool]]
"""For each node: whether a pod should start there, and whether an existing one may stay."""


@dataclass(slots=True)
class _Plan:
    """Pods to create and delete in one sync."""

    create_on: list[str] = field(default_factory=list)
    delete: list[JsonObject] = field(default_factory=list)
    again_s: float | None = None

    def look_again_in(self, delay_s: float) -> None:
        self.again_s = delay_s if self.again_s is None else min(self.again_s, delay_s)


class DaemonSetController(OwnerController):
    """Keeps one pod of every DaemonSet on every eligible node."""

    name = "daemonset"
    resource = "daemonsets.apps"
    kind = "DaemonSet"
    component = "daemonset-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._nodes = self.watch("nodes", self._node_changed)
        self._pod_control = PodControl(self)
        self._history = RevisionHistory(self.api, self.informers, CONTROLLER_REVISION_HASH)
        self._failed: dict[tuple[str, str], tuple[int, float]] = {}  # (uid, node): count, last time

    def sync(self, key: str) -> float | None:
        daemon_set = self.owners.get(key)
        if daemon_set is None or is_deleting(daemon_set):
            return None
        if not spec_of(daemon_set).get("selector"):
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self.warning(daemon_set, "SelectingAll", message)
            return None
        self.dependents.claim(daemon_set, selector_of(daemon_set))
        revisions = self._history.revisions_of(daemon_set)
        current = self._history.ensure_current(daemon_set, revisions)
        revision_hash = hash_of(current)
        eligibility = Eligibility(daemon_set)
        verdicts = {name_of(node): eligibility.of(node) for node in self._nodes}
        plan = self._plan_placement(daemon_set, verdicts, revision_hash)
        if not plan.create_on and not plan.delete:
            update = self._plan_update(daemon_set, verdicts, revision_hash)
            plan.create_on, plan.delete = update.create_on, update.delete
        try:
            self._carry_out(daemon_set, plan, revision_hash)
        finally:
            self._write_status(key, daemon_set, verdicts, revision_hash)
        pods = self.dependents.of(daemon_set)
        hashes = {labels_of(pod).get(CONTROLLER_REVISION_HASH, "") for pod in pods}
        live = [name_of(revision) for revision in revisions if hash_of(revision) in hashes]
        self._history.truncate(daemon_set, revisions, [name_of(current), *live])
        available_s = next_availability_s(pods, min_ready_s_of(daemon_set), self.clock.now())
        if available_s is not None:
            plan.look_again_in(available_s)
        return plan.again_s

    # -- placing ---------------------------------------------------------------------------------

    def _plan_placement(
        self, daemon_set: JsonObject, verdicts: Verdicts, revision_hash: str
    ) -> _Plan:
        plan = _Plan()
        by_node = self._pods_by_node(daemon_set)
        for node, (starts, stays) in verdicts.items():
            pods = by_node.pop(node, [])
            if not stays:
                plan.delete += [pod for pod in pods if not is_deleting(pod)]
            elif not pods:
                if starts:
                    plan.create_on.append(node)
            else:
                self._tidy(daemon_set, node, pods, starts, revision_hash, plan)
        for pods in by_node.values():
            # The node is gone: pods that were assigned to it but not bound will never run.
            plan.delete += [pod for pod in pods if not node_name_of(pod) and not is_deleting(pod)]
        return plan

    def _tidy(
        self,
        daemon_set: JsonObject,
        node: str,
        pods: list[JsonObject],
        starts: bool,
        revision_hash: str,
        plan: _Plan,
    ) -> None:
        """Delete finished and duplicate pods; at most one pod per revision stays on the node."""
        running: list[JsonObject] = []
        for pod in pods:
            if is_deleting(pod):
                continue
            if phase_of(pod) == FAILED:
                self._replace_failed(daemon_set, node, pod, plan)
            elif phase_of(pod) == SUCCEEDED:
                message = (
                    f"Found succeeded daemon pod {key_of(pod)} on node {node}, will try to delete"
                    " it"
                )
                self.normal(daemon_set, "SucceededDaemonPod", message)
                plan.delete.append(pod)
            else:
                running.append(pod)
        running.sort(key=_age_and_phase)
        if _surge(daemon_set, 1) == 0:
            plan.delete += running[1:]
            return
        if not running and starts:
            plan.create_on.append(node)
        new = [
            pod for pod in running if labels_of(pod).get(CONTROLLER_REVISION_HASH) == revision_hash
        ]
        old = [pod for pod in running if pod not in new]
        plan.delete += [*new[1:], *old[1:]]
        if new and old and (not is_ready(old[0]) or self._is_available(daemon_set, new[0])):
            plan.delete.append(old[0])

    def _replace_failed(
        self, daemon_set: JsonObject, node: str, pod: JsonObject, plan: _Plan
    ) -> None:
        key = (uid_of(daemon_set), node)
        now = self.clock.monotonic()
        count, since = self._failed.get(key, (0, now))
        rest_s = since + FAILED_POD_BACK_OFF.delay_s(count) - now if count else 0.0
        if rest_s > 0:
            plan.look_again_in(rest_s)
            return
        self._failed[key] = (count + 1, now)
        message = f"Found failed daemon pod {key_of(pod)} on node {node}, will try to kill it"
        self.warning(daemon_set, "FailedDaemonPod", message)
        plan.delete.append(pod)

    # -- updating --------------------------------------------------------------------------------

    def _plan_update(self, daemon_set: JsonObject, verdicts: Verdicts, revision_hash: str) -> _Plan:
        """Replace outdated pods within maxUnavailable, or surge beside them within maxSurge."""
        pods = self.dependents.of(daemon_set)
        if all(labels_of(pod).get(CONTROLLER_REVISION_HASH) == revision_hash for pod in pods):
            return _Plan()
        strategy = spec_of(daemon_set).get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return _Plan()
        eligible = [node for node, (starts, _) in verdicts.items() if starts]
        by_node = self._pods_by_node(daemon_set)
        surge = _surge(daemon_set, len(eligible))
        value = _rolling(daemon_set).get("maxUnavailable", 1)
        unavailable = scaled_value(value, len(eligible), round_up=True)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        pairs = [(node, *_new_and_old(by_node.get(node, []), revision_hash)) for node in eligible]
        if surge == 0:
            return self._plan_replacement(daemon_set, pairs, unavailable)
        return self._plan_surge(daemon_set, pairs, surge)

    def _plan_replacement(
        self,
        daemon_set: JsonObject,
        pairs: list[tuple[str, JsonObject | None, JsonObject | None]],
        max_unavailable: int,
    ) -> _Plan:
        plan = _Plan()
        candidates: list[JsonObject] = []
        unavailable = 0
        for _, new, old in pairs:
            serving = new if old is None else old
            if serving is None or (new is not None and old is not None):
                unavailable += 1
            elif not self._is_available(daemon_set, serving):
                unavailable += 1
                if old is not None:
                    plan.delete.append(old)  # not available: replacing it costs nothing
            elif old is not None:
                candidates.append(old)
        plan.delete += candidates[: max(0, max_unavailable - unavailable)]
        return plan

    def _plan_surge(
        self,
        daemon_set: JsonObject,
        pairs: list[tuple[str, JsonObject | None, JsonObject | None]],
        max_surge: int,
    ) -> _Plan:
        plan = _Plan()
        candidates: list[str] = []
        surge = 0
        for node, new, old in pairs:
            if old is None:
                continue
            if new is not None:
                if self._is_available(daemon_set, new):
                    plan.delete.append(old)
                else:
                    surge += 1
            elif self._is_available(daemon_set, old):
                candidates.append(node)
            else:
                plan.create_on.append(node)
        plan.create_on += candidates[: max(0, max_surge - surge)]
        return plan

    # -- writing ---------------------------------------------------------------------------------

    def _carry_out(self, daemon_set: JsonObject, plan: _Plan, revision_hash: str) -> None:
        for node in plan.create_on[:BURST_REPLICAS]:
            self._pod_control.create(self._build_pod(daemon_set, node, revision_hash), daemon_set)
        for pod in plan.delete[:BURST_REPLICAS]:
            self._pod_control.delete(pod, daemon_set)
        if max(len(plan.create_on), len(plan.delete)) > BURST_REPLICAS:
            plan.look_again_in(0.0)

    @staticmethod
    def _build_pod(daemon_set: JsonObject, node: str, revision_hash: str) -> JsonObject:
        template = spec_of(daemon_set).get("template") or {}
        pod = pod_from_template(
            with_label(template, CONTROLLER_REVISION_HASH, revision_hash), daemon_set
        )
        pod["spec"]["affinity"] = pinned_to(pod["spec"].get("affinity"), node)
        pod["spec"]["tolerations"] = tolerations_for(pod["spec"])
        return pod

    def _write_status(
        self, key: str, seen: JsonObject, verdicts: Verdicts, revision_hash: str
    ) -> None:
        daemon_set = self.owners.get(key)
        if daemon_set is None or uid_of(daemon_set) != uid_of(seen):
            return
        by_node = self._pods_by_node(daemon_set)
        desired = scheduled = misscheduled = ready = updated = available = 0
        for node, (starts, _) in verdicts.items():
            pods = sorted(by_node.get(node, ()), key=_age_and_phase)
            if not starts:
                misscheduled += bool(pods)
                continue
            desired += 1
            if not pods:
                continue
            scheduled += 1
            ready += is_ready(pods[0])
            available += self._is_available(seen, pods[0])
            updated += labels_of(pods[0]).get(CONTROLLER_REVISION_HASH) == revision_hash
        status = {
            "currentNumberScheduled": scheduled,
            "numberMisscheduled": misscheduled,
            "desiredNumberScheduled": desired,
            "numberReady": ready,
            "observedGeneration": seen["metadata"].get("generation", 0),
            "updatedNumberScheduled": updated,
            "numberAvailable": available,
            "numberUnavailable": desired - available,
            "collisionCount": status_of(daemon_set).get("collisionCount"),
            "conditions": status_of(daemon_set).get("conditions"),
        }
        always = (
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
        )
        self.api.write_status(self.resource, daemon_set, without_zeros(status, *always))

    # -- reading ---------------------------------------------------------------------------------

    def _pods_by_node(self, daemon_set: JsonObject) -> dict[str, list[JsonObject]]:
        by_node: dict[str, list[JsonObject]] = {}
        for pod in self.dependents.of(daemon_set):
            by_node.setdefault(target_node(pod), []).append(pod)
        return by_node

    def _is_available(self, daemon_set: JsonObject, pod: JsonObject) -> bool:
        return is_available(pod, min_ready_s_of(daemon_set), self.clock.now())

    def owner_changed(self, kind: str, owner: JsonObject, old: JsonObject | None) -> None:
        super().owner_changed(kind, owner, old)
        if kind == "DELETED":
            for known in [failure for failure in self._failed if failure[0] == uid_of(owner)]:
                del self._failed[known]

    def pause_s(self, obj: JsonObject) -> float:
        return settling_s(len(self._nodes))

    def _node_changed(self, kind: str, node: JsonObject, old: JsonObject | None) -> None:
        """Queue the DaemonSets whose verdict on this node changed; heartbeats change none."""
        is_same_place = (
            kind == "MODIFIED"
            and old is not None
            and spec_of(old) == spec_of(node)
            and labels_of(old) == labels_of(node)
        )
        if is_same_place:
            return
        if kind == "DELETED":
            for known in [failure for failure in self._failed if failure[1] == name_of(node)]:
                del self._failed[known]
        for daemon_set in self.owners:
            eligibility = Eligibility(daemon_set)
            before = eligibility.of(old) if old is not None else (False, False)
            after = eligibility.of(node) if kind != "DELETED" else (False, False)
            if before != after:
                self.queue.add(key_of(daemon_set))


def _rolling(daemon_set: JsonObject) -> JsonObject:
    return (spec_of(daemon_set).get("updateStrategy") or {}).get("rollingUpdate") or {}


def _surge(daemon_set: JsonObject, desired: int) -> int:
    return scaled_value(_rolling(daemon_set).get("maxSurge", 0), desired, round_up=True)


def _new_and_old(
    pods: list[JsonObject], revision_hash: str
) -> tuple[JsonObject | None, JsonObject | None]:
    new = old = None
    for pod in pods:
        if is_deleting(pod):
            continue
        if labels_of(pod).get(CONTROLLER_REVISION_HASH) == revision_hash:
            new = pod
        else:
            old = pod
    return new, old


def _age_and_phase(pod: JsonObject) -> tuple[bool, str, str]:
    """Sort key: bound pods before unbound ones, then the oldest first."""
    return not node_name_of(pod), pod["metadata"].get("creationTimestamp", ""), name_of(pod)
