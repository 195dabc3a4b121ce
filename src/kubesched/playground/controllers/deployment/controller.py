"""The Deployment controller: one decision per sync, whose effect triggers the next sync.

Each sync claims the ReplicaSets and updates the status. In between it does the first of these that
applies: record a pause, scale to a new size, perform a rollout step, delete old revisions.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.base.errors import AlreadyExists, ApiError
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    find_condition,
    is_controlled_by,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import is_finished
from kubesched.playground.client.controller import ControllerContext
from kubesched.playground.controllers.controller_revisions import same_template
from kubesched.playground.controllers.deployment import progress, revisions, strategy
from kubesched.playground.controllers.deployment.strategy import Bounds, Size
from kubesched.playground.controllers.ownership import (
    Dependents,
    OwnerController,
    owner_key,
    selector_of,
)

REPLICA_SETS = "replicasets.apps"


class DeploymentController(OwnerController):
    """Moves every Deployment towards its template and size."""

    name = "deployment"
    resource = "deployments.apps"
    kind = "Deployment"
    component = "deployment-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, REPLICA_SETS)
        self._pods = Dependents(self.api, self.watch("pods", self._pod_changed))

    def sync(self, key: str) -> float | None:
        deployment = self.owners.get(key)
        if deployment is None:
            return None
        if not (spec_of(deployment).get("selector") or {}):
            self._refuse_empty_selector(deployment)
            return None
        owned = self.dependents.claim(deployment, selector_of(deployment))
        bounds = strategy.bounds_of(deployment)
        if is_deleting(deployment):
            return self._finish(deployment, owned, bounds, is_rollout=False)
        deployment = self._mark_paused(deployment)
        new = revisions.find_new(deployment, owned)
        old = [
            replica_set
            for replica_set in owned
            if new is None or uid_of(replica_set) != uid_of(new)
        ]
        is_paused = bool(spec_of(deployment).get("paused"))
        if is_paused or self._was_scaled(owned, bounds):
            self._follow_scale(deployment, new, old, bounds)
            if is_paused:
                self._clean_up(deployment, old)
            return self._finish(deployment, owned, bounds, is_rollout=False)
        if strategy.is_rolling(deployment):
            self._roll(deployment, new, old, bounds)
        else:
            self._recreate(deployment, new, old, bounds)
        return self._finish(deployment, owned, bounds, is_rollout=True)

    # -- rollout ---------------------------------------------------------------------------------

    def _roll(
        self, deployment: JsonObject, new: JsonObject | None, old: list[JsonObject], bounds: Bounds
    ) -> None:
        new = self._ensure_new(deployment, new, old, bounds)
        sizes = self._sizes(deployment, [*old, new])
        steps = strategy.rolling_step(bounds, sizes.pop(name_of(new)), list(sizes.values()))
        if steps:
            self._resize(deployment, [*old, new], steps, bounds)
        elif progress.is_complete(deployment, status_of(deployment)):
            self._clean_up(deployment, old)

    def _recreate(
        self, deployment: JsonObject, new: JsonObject | None, old: list[JsonObject], bounds: Bounds
    ) -> None:
        steps = {
            name_of(replica_set): 0 for replica_set in old if revisions.replicas_of(replica_set) > 0
        }
        if steps:
            self._resize(deployment, old, steps, bounds)
            return
        if any(not is_finished(pod) for each in old for pod in self._pods.of(each)):
            return
        new = self._ensure_new(deployment, new, old, bounds)
        if revisions.replicas_of(new) != bounds.wanted:
            self._resize(deployment, [new], {name_of(new): bounds.wanted}, bounds)
        elif progress.is_complete(deployment, status_of(deployment)):
            self._clean_up(deployment, old)

    def _ensure_new(
        self, deployment: JsonObject, new: JsonObject | None, old: list[JsonObject], bounds: Bounds
    ) -> JsonObject:
        """Return the ReplicaSet of the current template, created or updated as needed."""
        revision = revisions.next_revision(old)
        if new is None:
            new = self._create_new(deployment, old, revision, bounds)
        else:
            patch = revisions.renewal_patch(deployment, new, revision)
            if patch is not None:
                new = self.api.patch_object(REPLICA_SETS, new, patch)
            self._note_progress(
                deployment,
                "FoundNewReplicaSet",
                f'Found new replica set "{name_of(new)}"',
                only_if_unset=True,
            )
        number = annotations_of(new).get(revisions.REVISION, "")
        if annotations_of(deployment).get(revisions.REVISION) != number:
            patch = {"metadata": {"annotations": {revisions.REVISION: number}}}
            self.api.patch_object(self.resource, deployment, patch)
        return new

    def _create_new(
        self, deployment: JsonObject, old: list[JsonObject], revision: int, bounds: Bounds
    ) -> JsonObject:
        total = sum(revisions.replicas_of(replica_set) for replica_set in old)
        rolling = strategy.is_rolling(deployment)
        replicas = strategy.new_size(bounds, 0, total) if rolling else bounds.wanted
        wanted = revisions.build_replica_set(deployment, replicas, revision, bounds)
        name = name_of(wanted)
        try:
            new = self.api.create(REPLICA_SETS, wanted)
        except AlreadyExists:
            return self._resolve_collision(deployment, name)
        except ApiError as error:
            message = f'Failed to create new replica set "{name}": {error}'
            self._note_progress(deployment, "ReplicaSetCreateError", message, status="False")
            self.warning(deployment, "ReplicaSetCreateError", message)
            raise
        if replicas > 0:
            self._tell_scaling(deployment, name, 0, replicas)
        self._note_progress(deployment, "NewReplicaSetCreated", f'Created new replica set "{name}"')
        return new

    def _resolve_collision(self, deployment: JsonObject, name: str) -> JsonObject:
        existing = self.api.get(REPLICA_SETS, namespace_of(deployment), name)
        template = spec_of(deployment).get("template") or {}
        if is_controlled_by(existing, uid_of(deployment)) and same_template(
            spec_of(existing).get("template") or {}, template
        ):
            return existing
        # Another template has the same hash: the next attempt salts it with the collision count.
        current = self.api.get(self.resource, namespace_of(deployment), name_of(deployment))
        count = int(status_of(current).get("collisionCount") or 0) + 1
        self.api.write_status(
            self.resource, current, {**status_of(current), "collisionCount": count}
        )
        raise AlreadyExists(f'replica set "{name}" exists with another template')

    # -- scaling ---------------------------------------------------------------------------------

    @staticmethod
    def _was_scaled(owned: Sequence[JsonObject], bounds: Bounds) -> bool:
        """Whether the Deployment's size differs from the one recorded on active ReplicaSets."""
        return any(
            revisions.replicas_of(replica_set) > 0
            and revisions.desired_replicas(replica_set) not in (None, bounds.wanted)
            for replica_set in owned
        )

    def _follow_scale(
        self, deployment: JsonObject, new: JsonObject | None, old: list[JsonObject], bounds: Bounds
    ) -> None:
        everyone = [*old, *([new] if new is not None else [])]
        sizes = self._sizes(deployment, everyone)
        new_size = sizes.pop(name_of(new)) if new is not None else None
        steps = strategy.scaled_steps(
            bounds, new_size, list(sizes.values()), rolling=strategy.is_rolling(deployment)
        )
        self._resize(deployment, everyone, steps, bounds)

    @staticmethod
    def _sizes(deployment: JsonObject, replica_sets: Sequence[JsonObject]) -> dict[str, Size]:
        return {
            name_of(replica_set): revisions.size_of(replica_set, rank, deployment)
            for rank, replica_set in enumerate(revisions.by_age(replica_sets))
        }

    def _resize(
        self,
        deployment: JsonObject,
        replica_sets: Sequence[JsonObject],
        steps: dict[str, int],
        bounds: Bounds,
    ) -> None:
        annotations = revisions.size_annotations(bounds)
        for replica_set in replica_sets:
            replicas = steps.get(name_of(replica_set))
            if replicas is None:
                continue
            before = revisions.replicas_of(replica_set)
            if replicas == before and annotations.items() <= annotations_of(replica_set).items():
                continue
            patch = {"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}
            self.api.patch_object(REPLICA_SETS, replica_set, patch)
            if replicas != before:
                self._tell_scaling(deployment, name_of(replica_set), before, replicas)

    def _tell_scaling(self, deployment: JsonObject, name: str, before: int, after: int) -> None:
        direction = "up" if after > before else "down"
        message = f"Scaled {direction} replica set {name} from {before} to {after}"
        self.normal(deployment, "ScalingReplicaSet", message)

    # -- bookkeeping -----------------------------------------------------------------------------

    def _clean_up(self, deployment: JsonObject, old: list[JsonObject]) -> None:
        """Delete the oldest ReplicaSets beyond the history limit, except those that have pods."""
        limit = spec_of(deployment).get("revisionHistoryLimit")
        if limit is None:
            return
        alive = [
            replica_set
            for replica_set in revisions.by_revision(old)
            if not is_deleting(replica_set)
        ]
        for replica_set in alive[: max(0, len(alive) - int(limit))]:
            status = status_of(replica_set)
            is_settled = status.get("observedGeneration", 0) >= replica_set["metadata"].get(
                "generation", 0
            )
            if status.get("replicas", 0) or revisions.replicas_of(replica_set) or not is_settled:
                continue
            self.api.delete_object(REPLICA_SETS, replica_set)

    def _mark_paused(self, deployment: JsonObject) -> JsonObject:
        """Record pausing and resuming, so that paused time does not count towards the deadline."""
        if progress.progress_deadline_s(deployment) is None:
            return deployment
        known = find_condition(status_of(deployment).get("conditions"), progress.PROGRESSING)
        if known is not None and known.get("reason") == progress.TIMED_OUT:
            return deployment  # Upstream: a failed rollout is not reported as paused.
        is_paused = bool(spec_of(deployment).get("paused"))
        was_paused = known is not None and known.get("reason") == progress.PAUSED
        if is_paused and not was_paused:
            return self._note_progress(
                deployment, progress.PAUSED, "Deployment is paused", status="Unknown"
            )
        if was_paused and not is_paused:
            return self._note_progress(
                deployment, progress.RESUMED, "Deployment is resumed", status="Unknown"
            )
        return deployment

    def _note_progress(
        self,
        deployment: JsonObject,
        reason: str,
        message: str,
        *,
        status: str = "True",
        only_if_unset: bool = False,
    ) -> JsonObject:
        if progress.progress_deadline_s(deployment) is None:
            return deployment
        current = self.owners.get(key_of(deployment))
        if current is None:
            return deployment
        conditions: list[JsonObject] = status_of(current).get("conditions") or []
        if only_if_unset and find_condition(conditions, progress.PROGRESSING) is not None:
            return current
        conditions = progress.set_condition(
            conditions, progress.PROGRESSING, status, reason, message, self.clock.now()
        )
        renewed = {**status_of(current), "conditions": conditions}
        return self.api.write_status(self.resource, current, renewed)

    def _finish(
        self, deployment: JsonObject, owned: list[JsonObject], bounds: Bounds, *, is_rollout: bool
    ) -> float | None:
        """Write the current status; returns when to check for a stuck rollout."""
        now = self.clock.now()
        current = self.owners.get(key_of(deployment))
        if current is None or uid_of(current) != uid_of(deployment):
            return None
        if current["metadata"].get("generation") != deployment["metadata"].get("generation"):
            return 0.0  # changed during this sync: the status must not claim to have observed that
        replica_sets = self.dependents.of(deployment)
        new = revisions.find_new(current, replica_sets)
        status = progress.build_status(current, replica_sets, new, bounds, now)
        if is_rollout:
            status = progress.with_progress(current, status, replica_sets, new, now)
        self.api.write_status(self.resource, current, status)
        return progress.next_check_s(current, status, now) if is_rollout else None

    def _refuse_empty_selector(self, deployment: JsonObject) -> None:
        message = "This deployment is selecting all pods. A non-empty selector is required."
        self.warning(deployment, "SelectingAll", message)
        generation = deployment["metadata"].get("generation", 0)
        status = {**status_of(deployment), "observedGeneration": generation}
        self.api.write_status(self.resource, deployment, status)

    # -- events ----------------------------------------------------------------------------------

    def pause_s(self, obj: JsonObject) -> float:
        return 0.0

    def _pod_changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        """Queue Recreate rollouts, which wait until the old pods are gone."""
        if kind != "DELETED" and not (
            is_finished(pod) and old is not None and not is_finished(old)
        ):
            return
        owner = owner_key(pod, "ReplicaSet", "apps")
        replica_set = (
            self.informers.informer(REPLICA_SETS).get(owner) if owner is not None else None
        )
        deployment_key = (
            owner_key(replica_set, "Deployment", "apps") if replica_set is not None else None
        )
        deployment = self.owners.get(deployment_key) if deployment_key is not None else None
        if deployment is not None and not strategy.is_rolling(deployment):
            self.queue.add(key_of(deployment))
