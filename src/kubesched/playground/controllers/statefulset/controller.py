"""The StatefulSet controller: creates pods in order; deletes and updates them in reverse order.

With `podManagementPolicy: OrderedReady` a pod is handled only after all its predecessors run and
are available; with `Parallel` pods are created and deleted all at once. Updates start only when
every ordinal has a healthy pod, and never touch ordinals below the partition.
"""

from __future__ import annotations

from kubesched.base.errors import ApiError
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    name_of,
    scaled_value,
    spec_of,
    status_of,
    uid_of,
    without_zeros,
)
from kubesched.playground.apimachinery.pods import is_finished, is_ready, phase_of
from kubesched.playground.client.controller import ControllerContext
from kubesched.playground.controllers.controller_revisions import RevisionHistory, template_of
from kubesched.playground.controllers.ownership import (
    OwnerController,
    selector_of,
)
from kubesched.playground.controllers.pods import is_available, min_ready_s_of, next_availability_s
from kubesched.playground.controllers.replicaset import BURST_REPLICAS
from kubesched.playground.controllers.statefulset.claims import COMPONENT, ClaimControl
from kubesched.playground.controllers.statefulset.identity import (
    build_pod,
    first_ordinal,
    identity_labels,
    is_member,
    ordinal_of,
    ordinals,
    revision_name_of,
)


class StatefulSetController(OwnerController):
    """Maintains the pods of every StatefulSet."""

    name = "statefulset"
    resource = "statefulsets.apps"
    kind = "StatefulSet"
    component = COMPONENT

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.claims = ClaimControl(context)
        self._history = RevisionHistory(self.api, self.informers, "controller.kubernetes.io/hash")

    def sync(self, key: str) -> float | None:
        stateful_set = self.owners.get(key)
        if stateful_set is None:
            return None
        self.dependents.claim(
            stateful_set, selector_of(stateful_set), lambda pod: is_member(stateful_set, pod)
        )
        revisions = self._history.revisions_of(stateful_set)
        update = self._history.ensure_current(stateful_set, revisions)
        known = status_of(stateful_set).get("currentRevision")
        current = next((revision for revision in revisions if name_of(revision) == known), update)
        try:
            if not is_deleting(stateful_set):
                _Round(self, stateful_set, current, update).play()
        finally:
            self._write_status(key, stateful_set, current, update)
        pods = self.pods_of(stateful_set)
        live = {name_of(current), name_of(update), *(revision_name_of(pod) for pod in pods)}
        self._history.truncate(stateful_set, revisions, live)
        return next_availability_s(pods, min_ready_s_of(stateful_set), self.clock.now())

    def pods_of(self, stateful_set: JsonObject) -> list[JsonObject]:
        """The set's pods, by ordinal."""
        owned = self.dependents.of(stateful_set)
        return sorted((pod for pod in owned if is_member(stateful_set, pod)), key=ordinal_of)

    def create(self, stateful_set: JsonObject, pod: JsonObject) -> bool:
        """Create a pod's claims, then the pod; False if it must wait for an old claim."""
        name = pod["metadata"]["name"]
        if not self.claims.ensure(stateful_set, name):
            return False
        subject = f"Pod {name} in StatefulSet {name_of(stateful_set)}"
        try:
            self.api.create("pods", pod)
        except ApiError as error:
            self.warning(stateful_set, "FailedCreate", f"create {subject} failed error: {error}")
            raise
        self.normal(stateful_set, "SuccessfulCreate", f"create {subject} successful")
        return True

    def delete(self, stateful_set: JsonObject, pod: JsonObject) -> None:
        subject = f"Pod {name_of(pod)} in StatefulSet {name_of(stateful_set)}"
        try:
            is_deleted = self.api.delete_object("pods", pod)
        except ApiError as error:
            self.warning(stateful_set, "FailedDelete", f"delete {subject} failed error: {error}")
            raise
        if is_deleted:
            self.normal(stateful_set, "SuccessfulDelete", f"delete {subject} successful")

    def restore_identity(self, stateful_set: JsonObject, pod: JsonObject) -> None:
        """Restore the pod's identity labels and the owners of its claims."""
        labels = identity_labels(stateful_set, pod)
        if labels is not None:
            self.api.patch_object("pods", pod, {"metadata": {"labels": labels}})
        if phase_of(pod) == "Pending":
            self.claims.ensure(stateful_set, name_of(pod))
        self.claims.keep_owners(stateful_set, pod)

    def _write_status(
        self, key: str, seen: JsonObject, current: JsonObject, update: JsonObject
    ) -> None:
        stateful_set = self.owners.get(key)
        if stateful_set is None or uid_of(stateful_set) != uid_of(seen):
            return
        now = self.clock.now()
        pods = self.pods_of(stateful_set)
        staying = [pod for pod in pods if not is_deleting(pod)]
        running = [pod for pod in pods if phase_of(pod) == "Running" and is_ready(pod)]
        min_ready = min_ready_s_of(stateful_set)
        status = {
            "replicas": len(pods),
            "readyReplicas": len(running),
            "availableReplicas": sum(is_available(pod, min_ready, now) for pod in running),
            "currentReplicas": _of_revision(staying, current),
            "updatedReplicas": _of_revision(staying, update),
            "currentRevision": name_of(current),
            "updateRevision": name_of(update),
            # The generation this sync acted on: a concurrent change gets its own sync.
            "observedGeneration": seen["metadata"].get("generation", 0),
            "conditions": status_of(stateful_set).get("conditions"),
        }
        wanted = int(spec_of(seen).get("replicas", 1))
        if status["updatedReplicas"] == status["readyReplicas"] == status["replicas"] == wanted:
            status["currentReplicas"] = status["updatedReplicas"]
            status["currentRevision"] = status["updateRevision"]
        status = without_zeros(status, "replicas", "availableReplicas")
        status["collisionCount"] = int(status_of(stateful_set).get("collisionCount") or 0)
        self.api.write_status(self.resource, stateful_set, status)


class _Round:
    """One sync of one StatefulSet: which pods to create, delete or replace now."""

    def __init__(
        self,
        controller: StatefulSetController,
        stateful_set: JsonObject,
        current: JsonObject,
        update: JsonObject,
    ) -> None:
        self._controller = controller
        self._set = stateful_set
        self._current = current
        self._update = update
        self._now = controller.clock.now()
        self._in_order = spec_of(stateful_set).get("podManagementPolicy") != "Parallel"
        members = controller.pods_of(stateful_set)
        wanted = ordinals(stateful_set)
        self._replicas = {ordinal_of(pod): pod for pod in members if ordinal_of(pod) in wanted}
        self._condemned = [pod for pod in reversed(members) if ordinal_of(pod) not in wanted]

    def play(self) -> None:
        if self._fill() and self._shrink():
            self._roll()

    def _fill(self) -> bool:
        """Create missing pods; False if the remaining steps must wait for one of them."""
        created = 0
        for ordinal in ordinals(self._set):
            pod = self._replicas.get(ordinal)
            if pod is None:
                self._create(ordinal)
                created += 1
            is_settled = pod is not None and self._settle(pod)
            if created == BURST_REPLICAS or (self._in_order and not is_settled):
                return False  # events of the new pods bring the next sync
        return True

    def _create(self, ordinal: int) -> None:
        revision = self._current if self._is_below_partition(ordinal) else self._update
        pod = build_pod(self._set, template_of(revision), name_of(revision), ordinal)
        self._controller.create(self._set, pod)

    def _settle(self, pod: JsonObject) -> bool:
        """Whether a pod is healthy enough to continue with its successors."""
        if is_finished(pod):
            # A finished pod is recreated under its own name by the next sync.
            if not is_deleting(pod):
                self._controller.delete(self._set, pod)
            return False
        if is_deleting(pod):
            return False
        self._controller.restore_identity(self._set, pod)
        return not self._is_unavailable(pod)

    def _shrink(self) -> bool:
        """Delete pods beyond the desired ordinals, highest first; True if none is left."""
        for pod in self._condemned:
            self._controller.claims.keep_owners(self._set, pod)
        first_unwell = self._first_unavailable()
        for pod in self._condemned:
            if is_deleting(pod):
                if self._in_order:
                    return False
                continue
            if self._in_order and self._is_unavailable(pod) and pod is not first_unwell:
                return False
            self._controller.delete(self._set, pod)
            if self._in_order:
                return False
        return not (self._in_order and self._condemned)

    def _first_unavailable(self) -> JsonObject | None:
        everyone = [
            *(self._replicas[key] for key in sorted(self._replicas)),
            *reversed(self._condemned),
        ]
        return next((pod for pod in everyone if self._is_unavailable(pod)), None)

    def _roll(self) -> None:
        """Replace pods of older revisions, from the last ordinal down to the partition."""
        strategy = spec_of(self._set).get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        missing = len(ordinals(self._set)) - len(self._replicas)
        unavailable = missing + sum(map(self._is_unavailable, self._replicas.values()))
        budget = self._max_unavailable() - unavailable
        for ordinal, pod in sorted(self._replicas.items(), reverse=True):
            if self._is_below_partition(ordinal) or is_deleting(pod):
                continue
            if revision_name_of(pod) == name_of(self._update):
                continue
            # Replacing an unavailable pod costs nothing, unless order matters.
            costs = 0 if not self._in_order and self._is_unavailable(pod) else 1
            if costs > budget:
                if self._in_order:
                    return
                continue
            budget -= costs
            self._controller.delete(self._set, pod)

    def _max_unavailable(self) -> int:
        rolling = (spec_of(self._set).get("updateStrategy") or {}).get("rollingUpdate") or {}
        value = rolling.get("maxUnavailable", 1)
        return max(1, scaled_value(value, len(ordinals(self._set)), round_up=False))

    def _is_below_partition(self, ordinal: int) -> bool:
        rolling = (spec_of(self._set).get("updateStrategy") or {}).get("rollingUpdate") or {}
        return ordinal < first_ordinal(self._set) + int(rolling.get("partition") or 0)

    def _is_unavailable(self, pod: JsonObject) -> bool:
        is_running = phase_of(pod) == "Running" and not is_deleting(pod)
        return not (is_running and is_available(pod, min_ready_s_of(self._set), self._now))


def _of_revision(pods: list[JsonObject], revision: JsonObject) -> int:
    return sum(revision_name_of(pod) == name_of(revision) for pod in pods)
