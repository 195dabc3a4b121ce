"""The Job controller: runs pods until enough succeeded, too many failed, or the deadline passed.

    running ── enough succeeded ──► SuccessCriteriaMet ── all pods ended ──► Complete
       │ ───── too many failed, ──► FailureTarget ─────── all pods ended ──► Failed
       │       deadline passed
       └ ───── suspended ─────────► pods deleted, until resumed

The Job's `policies` may redefine what counts as too many failures or enough successes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, repeat

from kubesched.base.errors import NotFound
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    find_condition,
    is_condition_true,
    is_controlled_by,
    is_deleting,
    key_of,
    name_of,
    parse_timestamp,
    spec_of,
    status_of,
    timestamp,
    uid_of,
    with_condition,
    without_zeros,
)
from kubesched.playground.apimachinery.pods import (
    SUCCEEDED,
    is_active,
    is_ready,
    is_terminating,
    phase_of,
)
from kubesched.playground.client.controller import ControllerContext
from kubesched.playground.client.workqueue import BackOff
from kubesched.playground.controllers.job.planning import (
    build_pod,
    is_indexed,
    is_satisfied,
    removal_order,
    replaces_terminating,
    wanted_active,
)
from kubesched.playground.controllers.job.pod_groups import JobPodGroups
from kubesched.playground.controllers.job.policies import (
    IndexFailures,
    fail_job_message,
    failed_indexes,
    format_indexes,
    has_index_limit,
    index_failures,
    index_of,
    judge_failure,
    parse_indexes,
    success_policy_message,
)
from kubesched.playground.controllers.job.tracking import FINALIZER, Tally, has_finalizer
from kubesched.playground.controllers.ownership import (
    OwnerController,
    owner_key,
    selector_of,
)
from kubesched.playground.controllers.pods import PodControl

MAX_PODS_PER_LOOK = 100

FAILURE_BACK_OFF = BackOff(initial_s=10.0, limit_s=600.0)
"""Delay before a failed pod is replaced: 10 s, doubled with each consecutive failure."""

Key = tuple[str, str]
"""("job", key), or ("pod", key) for a pod whose Job is gone."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Outcome of a Job that has finished or is about to."""

    condition: str
    reason: str
    message: str


class JobController(OwnerController):
    """Runs every Job to its end and deletes it once its TTL has expired."""

    name = "job"
    resource = "jobs.batch"
    kind = "Job"
    group = "batch"
    component = "job-controller"

    def __init__(self, context: ControllerContext, makes_pod_groups: bool = False) -> None:
        super().__init__(context)
        self._groups = JobPodGroups(self) if makes_pod_groups else None
        self._group: JsonObject | None = None
        """The pod group of the Job that is being synced."""
        self._all_pods = self.watch("pods", self._free_stray_pod)
        self._pod_control = PodControl(self)
        self._failures: dict[
            str, tuple[int, float]
        ] = {}  # job uid: consecutive failures, the last one

    def sync(self, key: Key) -> float | None:
        kind, name = key
        if kind == "pod":
            self._release_abandoned(name)
            return None
        job = self.owners.get(name)
        if job is None or spec_of(job).get("managedBy") not in (
            None,
            "",
            "kubernetes.io/job-controller",
        ):
            return None
        pods = self.dependents.claim(job, selector_of(job))
        if is_finished(job):
            for pod in pods:
                if has_finalizer(pod):
                    self.api.remove_finalizer("pods", pod, FINALIZER)
            return self._expire(job)
        if self._groups is not None:
            self._group = self._groups.group_of(job, pods)
        job, tally = self._count(job, pods)
        if is_deleting(job):
            return None
        return self._run(job, tally)

    # -- counting --------------------------------------------------------------------------------

    def _count(self, job: JsonObject, pods: list[JsonObject]) -> tuple[JsonObject, Tally]:
        """Add finished pods to the counters; returns the Job as written."""
        tally = Tally.of(job)
        before = (tally.succeeded, tally.failed)
        tally.settle({uid_of(pod): pod for pod in pods})

        def is_ignored(pod: JsonObject) -> bool:
            return judge_failure(job, pod).action == "Ignore"

        if tally.note_finished(
            pods, replaces_terminating=replaces_terminating(job), is_ignored=is_ignored
        ):
            job = self._write_counts(job, tally, pods)
        ended = {*tally.uncounted_succeeded, *tally.uncounted_failed}
        ended |= {uid_of(pod) for pod in pods if is_ignored(pod)}
        for pod in pods:
            if uid_of(pod) in ended and has_finalizer(pod):
                self.api.remove_finalizer("pods", pod, FINALIZER)
        tally.settle({uid_of(pod): pod for pod in self.dependents.of(job)})
        job = self._write_counts(job, tally, pods)
        self._remember_failures(job, before, tally)
        return job, tally

    def _write_counts(self, job: JsonObject, tally: Tally, pods: list[JsonObject]) -> JsonObject:
        status = dict(status_of(job))
        if is_indexed(job):
            done = parse_indexes(status.get("completedIndexes", ""))
            done |= {
                index
                for pod in pods
                if phase_of(pod) == SUCCEEDED and (index := index_of(pod)) is not None
            }
            completions = int(spec_of(job).get("completions") or 0)
            done = {index for index in done if index < completions}
            status["completedIndexes"] = format_indexes(done)
            tally.succeeded = len(done)
            if has_index_limit(job):
                failed = failed_indexes(job, index_failures(job, pods)) - done
                status["failedIndexes"] = format_indexes(failed)
        status.update(
            succeeded=tally.succeeded,
            failed=tally.failed,
            uncountedTerminatedPods=tally.uncounted(),
        )
        return self._write(job, status)

    def _remember_failures(self, job: JsonObject, before: tuple[int, int], tally: Tally) -> None:
        succeeded, failed = tally.succeeded - before[0], tally.failed - before[1]
        if failed > 0:
            count = self._failures.get(uid_of(job), (0, 0.0))[0]
            self._failures[uid_of(job)] = (count + failed, self.clock.monotonic())
        elif succeeded > 0:
            self._failures.pop(uid_of(job), None)

    # -- deciding --------------------------------------------------------------------------------

    def _run(self, job: JsonObject, tally: Tally) -> float | None:
        pods = self.dependents.of(job)
        active = [pod for pod in pods if is_active(pod)]
        verdict = self._verdict(job, tally, active)
        if verdict is not None:
            self._conclude(job, verdict, active)
            self._write_progress(key_of(job), verdict)
            return None
        again_s: float | None = None
        if spec_of(job).get("suspend"):
            self._delete_all(job, active)
        # Create no pods before the resumption is recorded, so that startTime precedes them.
        elif not is_condition_true(job, "Suspended"):
            again_s = self._scale(job, tally, active)
        self._write_progress(key_of(job), None)
        return _sooner(again_s, self._deadline_in_s(job))

    def _verdict(self, job: JsonObject, tally: Tally, active: list[JsonObject]) -> _Verdict | None:
        """The Job's outcome, or None if it is open; a recorded outcome is final."""
        for target, final in (("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")):
            known = find_condition(status_of(job).get("conditions"), target)
            if known is not None and known.get("status") == "True":
                return _Verdict(final, known.get("reason", ""), known.get("message", ""))
        message = fail_job_message(job, self.dependents.of(job))
        if message:
            return _Verdict("Failed", "PodFailurePolicy", message)
        limit = int(spec_of(job).get("backoffLimit", 6))
        if tally.failed > limit or self._restarts_exceed(job, active, limit):
            return _Verdict(
                "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
        deadline_s = self._deadline_in_s(job)
        if deadline_s is not None and deadline_s <= 0:
            return _Verdict(
                "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            )
        if is_indexed(job):
            verdict = self._index_verdict(job)
            if verdict is not None:
                return verdict
        if is_satisfied(job, tally, active):
            return _Verdict(
                "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
            )
        return None

    @staticmethod
    def _index_verdict(job: JsonObject) -> _Verdict | None:
        """The outcome decided by failed or succeeded indexes, if any."""
        done = parse_indexes(status_of(job).get("completedIndexes", ""))
        failed = parse_indexes(status_of(job).get("failedIndexes") or "")
        most = spec_of(job).get("maxFailedIndexes")
        if most is not None and len(failed) > int(most):
            message = "Job has exceeded the specified maximal number of failed indexes"
            return _Verdict("Failed", "MaxFailedIndexesExceeded", message)
        if failed and len(done) + len(failed) >= int(spec_of(job).get("completions") or 0):
            return _Verdict("Failed", "FailedIndexes", "Job has failed indexes")
        message = success_policy_message(job, done)
        return _Verdict("Complete", "SuccessPolicy", message) if message else None

    @staticmethod
    def _restarts_exceed(job: JsonObject, active: list[JsonObject], limit: int) -> bool:
        template_spec = (spec_of(job).get("template") or {}).get("spec") or {}
        if template_spec.get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(
            int(item.get("restartCount", 0))
            for pod in active
            for field in ("initContainerStatuses", "containerStatuses")
            for item in status_of(pod).get(field) or ()
        )
        return restarts > 0 if limit == 0 else restarts >= limit

    def _conclude(self, job: JsonObject, verdict: _Verdict, active: list[JsonObject]) -> None:
        """Record the outcome, delete running pods, and finish once all pods have ended."""
        self._delete_all(job, active)
        target = "SuccessCriteriaMet" if verdict.condition == "Complete" else "FailureTarget"
        status = dict(status_of(job))
        now = self.clock.now()
        status["conditions"] = _with_job_condition(
            status.get("conditions"), target, "True", now, verdict.reason, verdict.message
        )
        leftovers = [
            pod for pod in self.dependents.of(job) if is_active(pod) or is_terminating(pod)
        ]
        if leftovers or Tally.of(job).uncounted():
            self._write(job, status)
            return
        status["conditions"] = _with_job_condition(
            status["conditions"], verdict.condition, "True", now, verdict.reason, verdict.message
        )
        if verdict.condition == "Complete":
            status["completionTime"] = timestamp(now)
            self.normal(job, "Completed", "Job completed")
        else:
            self.warning(job, verdict.reason, verdict.message)
        for field in ("active", "ready", "terminating"):
            status[field] = 0
        self._write(job, status)
        self._failures.pop(uid_of(job), None)

    # -- scaling ---------------------------------------------------------------------------------

    def _scale(self, job: JsonObject, tally: Tally, active: list[JsonObject]) -> float | None:
        wanted = wanted_active(job, tally, len(active))
        if len(active) > wanted:
            for pod in removal_order(active)[: len(active) - wanted]:
                self._delete(job, pod)
            return None
        missing = wanted - len(active)
        if not replaces_terminating(job):
            missing -= sum(is_terminating(pod) for pod in self.dependents.of(job))
        if missing <= 0:
            return None
        if has_index_limit(job):
            return self._create_indexes(job, active, missing)
        rest_s = self._rest_after_failure_s(job)
        if rest_s > 0:
            return rest_s
        free = self._free_indexes(job, active) if is_indexed(job) else repeat(None)
        for index in islice(free, min(missing, MAX_PODS_PER_LOOK)):
            self._create(job, index)
        return 0.0 if missing > MAX_PODS_PER_LOOK else None

    def _create_indexes(
        self, job: JsonObject, active: list[JsonObject], missing: int
    ) -> float | None:
        """Create pods for free indexes after their backoff; returns the next backoff expiry."""
        failures = index_failures(job, self.dependents.of(job))
        again_s: float | None = None
        created = 0
        for index in self._free_indexes(job, active):
            if created == min(missing, MAX_PODS_PER_LOOK):
                return again_s if created == missing else 0.0
            known = failures.get(index)
            rest_s = 0.0
            if known is not None:
                rest_s = known.last + FAILURE_BACK_OFF.delay_s(known.counted) - self.clock.now()
            if known is not None and known.counted and rest_s > 0:
                again_s = _sooner(again_s, rest_s)
                continue
            self._create(job, index, known)
            created += 1
        return again_s

    def _create(
        self, job: JsonObject, index: int | None, failures: IndexFailures | None = None
    ) -> None:
        pod = build_pod(job, index, failures)
        if self._group is not None:
            # Upstream: the group owns the pod, too. As it waits for its pods with a finalizer, the
            # garbage collector would then keep both after the Job is deleted.
            pod["spec"]["schedulingGroup"] = {"podGroupName": name_of(self._group)}
        self._pod_control.create(pod, job)

    def _rest_after_failure_s(self, job: JsonObject) -> float:
        count, last = self._failures.get(uid_of(job), (0, 0.0))
        if count == 0:
            return 0.0
        return last + FAILURE_BACK_OFF.delay_s(count) - self.clock.monotonic()

    @staticmethod
    def _free_indexes(job: JsonObject, active: list[JsonObject]) -> Iterator[int]:
        taken = parse_indexes(status_of(job).get("completedIndexes", ""))
        taken |= parse_indexes(status_of(job).get("failedIndexes") or "")
        taken |= {index for pod in active if (index := index_of(pod)) is not None}
        completions = int(spec_of(job).get("completions") or 0)
        return (number for number in range(completions) if number not in taken)

    def _delete_all(self, job: JsonObject, active: list[JsonObject]) -> None:
        for pod in active:
            self._delete(job, pod)

    def _delete(self, job: JsonObject, pod: JsonObject) -> None:
        """Delete a pod without counting it as a failure: the finalizer is removed first."""
        if has_finalizer(pod):
            self.api.remove_finalizer("pods", pod, FINALIZER)
        self._pod_control.delete(pod, job)

    # -- status ----------------------------------------------------------------------------------

    def _write_progress(self, key: str, verdict: _Verdict | None) -> None:
        job = self.owners.get(key)
        if job is None or is_finished(job):
            return
        pods = self.dependents.of(job)
        active = [pod for pod in pods if is_active(pod)]
        status = dict(status_of(job))
        suspended = bool(spec_of(job).get("suspend"))
        if verdict is None:
            status = self._with_suspension(job, status, suspended)
        if not status.get("startTime") and not suspended:
            status["startTime"] = timestamp(self.clock.now())
        status.update(
            active=len(active),
            ready=sum(is_ready(pod) for pod in active),
            terminating=sum(is_terminating(pod) for pod in pods),
        )
        self._write(job, status)

    def _with_suspension(self, job: JsonObject, status: JsonObject, suspended: bool) -> JsonObject:
        was_suspended = is_condition_true(job, "Suspended")
        if suspended == was_suspended:
            return status
        reason, message = (
            ("JobSuspended", "Job suspended") if suspended else ("JobResumed", "Job resumed")
        )
        status["conditions"] = _with_job_condition(
            status.get("conditions"),
            "Suspended",
            "True" if suspended else "False",
            self.clock.now(),
            reason,
            message,
        )
        self.normal(job, "Suspended" if suspended else "Resumed", message)
        if suspended:
            status.pop("startTime", None)
        else:
            status["startTime"] = timestamp(self.clock.now())
        return status

    def _write(self, job: JsonObject, status: JsonObject) -> JsonObject:
        current = self.owners.get(key_of(job))
        if current is None:
            raise NotFound(f"job {key_of(job)} is gone")
        uncounted = status.get("uncountedTerminatedPods")
        kept = without_zeros(status)
        # Upstream writes these even if they are empty.
        kept["ready"] = status.get("ready", 0)
        kept["terminating"] = status.get("terminating", 0)
        kept["uncountedTerminatedPods"] = uncounted or {}
        if "failedIndexes" in status:
            kept["failedIndexes"] = status["failedIndexes"]
        return self.api.write_status(self.resource, current, kept)

    def _deadline_in_s(self, job: JsonObject) -> float | None:
        deadline_s = spec_of(job).get("activeDeadlineSeconds")
        start = status_of(job).get("startTime")
        if deadline_s is None or start is None or spec_of(job).get("suspend"):
            return None
        return parse_timestamp(start) + float(deadline_s) - self.clock.now()

    # -- the end ---------------------------------------------------------------------------------

    def _expire(self, job: JsonObject) -> float | None:
        """Delete a finished Job once its TTL has expired; returns the seconds until then."""
        ttl_s = spec_of(job).get("ttlSecondsAfterFinished")
        if ttl_s is None or is_deleting(job):
            return None
        finished = next(
            condition
            for condition in status_of(job)["conditions"]
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
        )
        left_s = parse_timestamp(finished["lastTransitionTime"]) + float(ttl_s) - self.clock.now()
        if left_s > 0:
            return left_s
        self.api.delete_object(self.resource, job, propagation="Foreground")
        return None

    def _release_abandoned(self, key: str) -> None:
        """Remove the finalizer of a pod whose Job no longer exists."""
        pod = self._all_pods.get(key)
        if pod is None or not has_finalizer(pod):
            return
        owner = owner_key(pod, "Job", "batch")
        job = self.owners.get(owner) if owner is not None else None
        if job is None or not is_controlled_by(pod, uid_of(job)):
            self.api.remove_finalizer("pods", pod, FINALIZER)

    # -- events ----------------------------------------------------------------------------------

    def look_at(self, owner: str, pause_s: float = 0.0) -> None:
        self.queue.add_after(("job", owner), pause_s)

    def owner_changed(self, kind: str, owner: JsonObject, old: JsonObject | None) -> None:
        super().owner_changed(kind, owner, old)
        if kind == "DELETED":
            self._failures.pop(uid_of(owner), None)
            for pod in self.dependents.of(owner):
                self.queue.add(("pod", key_of(pod)))

    def _free_stray_pod(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        """Queue pods that have no Job any more, to remove their finalizers."""
        if kind != "DELETED" and has_finalizer(pod):
            owner = owner_key(pod, "Job", "batch")
            if owner is None or self.owners.get(owner) is None:
                self.queue.add(("pod", key_of(pod)))


def is_finished(job: JsonObject) -> bool:
    return is_condition_true(job, "Complete") or is_condition_true(job, "Failed")


def _with_job_condition(
    conditions: list[JsonObject] | None,
    condition_type: str,
    status: str,
    now: float,
    reason: str,
    message: str,
) -> list[JsonObject]:
    known = find_condition(conditions, condition_type)
    if known is not None and known.get("status") == status:
        return list(conditions or ())
    return with_condition(
        conditions,
        condition_type,
        status,
        now,
        reason=reason,
        message=message,
        extra={"lastProbeTime": timestamp(now)},
    )


def _sooner(first: float | None, second: float | None) -> float | None:
    known = [item for item in (first, second) if item is not None]
    return max(0.0, min(known)) if known else None
