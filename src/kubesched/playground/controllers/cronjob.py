"""The CronJob controller: one Job per scheduled time.

The Job's name contains the scheduled time, so a restarted controller cannot start it twice. Of
several missed times only the latest is made up for, and only within `startingDeadlineSeconds`.
"""

from __future__ import annotations

import datetime

from kubesched.base.errors import AlreadyExists
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    controller_reference,
    copy_json,
    is_condition_true,
    is_deleting,
    name_of,
    namespace_of,
    object_reference,
    parse_timestamp,
    spec_of,
    status_of,
    timestamp,
    uid_of,
)
from kubesched.playground.client.controller import ControllerContext
from kubesched.playground.controllers.job.controller import is_finished
from kubesched.playground.controllers.ownership import (
    OwnerController,
)
from kubesched.playground.resources.cron_schedule import Schedule, parse_schedule, parse_zone

JOBS = "jobs.batch"
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY_MISSED = 100
"""Above this many missed times the controller warns and skips ahead instead of iterating."""


class CronJobController(OwnerController):
    """Starts the due Jobs of every CronJob and removes old ones."""

    name = "cronjob"
    resource = "cronjobs.batch"
    kind = "CronJob"
    group = "batch"
    component = "cronjob-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, JOBS)

    def pause_s(self, obj: JsonObject) -> float:
        return 0.0

    def sync(self, key: str) -> float | None:
        cron_job = self.owners.get(key)
        if cron_job is None:
            return None
        jobs = self.dependents.of(cron_job)
        status = self._account(cron_job, jobs)
        self._remove_old(cron_job, jobs)
        again_s: float | None = None
        if not is_deleting(cron_job) and not spec_of(cron_job).get("suspend"):
            status, again_s = self._start_due(cron_job, status)
        current = self.owners.get(key)
        if current is not None:
            self.api.write_status(self.resource, current, status)
        return again_s

    # -- accounting ------------------------------------------------------------------------------

    def _account(self, cron_job: JsonObject, jobs: list[JsonObject]) -> JsonObject:
        """The status with its active Jobs and last success updated from the Jobs."""
        status = dict(status_of(cron_job))
        was_active = {entry.get("uid") for entry in status.get("active") or ()}
        active = []
        for job in jobs:
            if not is_finished(job):
                active.append(object_reference(job))
            elif uid_of(job) in was_active:
                ended = "Complete" if is_condition_true(job, "Complete") else "Failed"
                message = f"Saw completed job: {name_of(job)}, condition: {ended}"
                self.normal(cron_job, "SawCompletedJob", message)
            ended_at = status_of(job).get("completionTime", "")
            if is_condition_true(job, "Complete") and ended_at > status.get(
                "lastSuccessfulTime", ""
            ):
                status["lastSuccessfulTime"] = ended_at
        known = {entry.get("uid") for entry in active}
        for gone in was_active - known - {uid_of(job) for job in jobs}:
            name = next(entry["name"] for entry in status["active"] if entry.get("uid") == gone)
            message = f"Active job went missing: {name}"
            self.normal(cron_job, "MissingJob", message)
        if active:
            status["active"] = active
        else:
            status.pop("active", None)
        return status

    def _remove_old(self, cron_job: JsonObject, jobs: list[JsonObject]) -> None:
        for ended, field in (
            ("Complete", "successfulJobsHistoryLimit"),
            ("Failed", "failedJobsHistoryLimit"),
        ):
            limit = spec_of(cron_job).get(field)
            if limit is None:
                continue
            finished = sorted(
                (job for job in jobs if is_condition_true(job, ended)),
                key=lambda job: (status_of(job).get("startTime", ""), name_of(job)),
            )
            for job in finished[: max(0, len(finished) - int(limit))]:
                self._delete(cron_job, job)

    def _delete(self, cron_job: JsonObject, job: JsonObject) -> None:
        if self.api.delete_object(JOBS, job, propagation="Background"):
            self.normal(cron_job, "SuccessfulDelete", f"Deleted job {name_of(job)}")

    # -- starting --------------------------------------------------------------------------------

    def _start_due(
        self, cron_job: JsonObject, status: JsonObject
    ) -> tuple[JsonObject, float | None]:
        """Start the due Job, if any; returns the status and the seconds until the next one."""
        spec = spec_of(cron_job)
        try:
            zone = parse_zone(spec.get("timeZone") or "")
            schedule = parse_schedule(spec.get("schedule", ""), zone)
        except ValueError as error:
            message = f"unparseable schedule: {spec.get('schedule')!r} : {error}"
            self.warning(cron_job, "UnparseableSchedule", message)
            return status, None
        now = self.clock.now()
        due = self._latest_due(cron_job, status, schedule, now)
        if due is not None and self._may_start(cron_job, status, due, now):
            status = self._start(cron_job, status, due, zone)
        after = schedule.next_after(now)
        return status, None if after is None else after - now

    def _latest_due(
        self, cron_job: JsonObject, status: JsonObject, schedule: Schedule, now: float
    ) -> float | None:
        """The latest scheduled time that has passed and has no Job yet."""
        since = status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"]
        moment = schedule.next_after(parse_timestamp(since))
        if moment is None or moment > now:
            return None
        following = schedule.next_after(moment)
        if following is None or following > now:
            return moment
        missed = int((now - moment) // (following - moment)) + 1
        if missed > MANY_MISSED:
            message = (
                f"too many missed start times: {missed}. Set or decrease"
                " .spec.startingDeadlineSeconds or check clock skew"
            )
            self.warning(cron_job, "TooManyMissedTimes", message)
            moment += (missed - 2) * (following - moment)
        while (following := schedule.next_after(moment)) is not None and following <= now:
            moment = following
        return moment

    def _may_start(self, cron_job: JsonObject, status: JsonObject, due: float, now: float) -> bool:
        spec = spec_of(cron_job)
        deadline_s = spec.get("startingDeadlineSeconds")
        if deadline_s is not None and due + float(deadline_s) < now:
            moment = datetime.datetime.fromtimestamp(due, datetime.UTC)
            message = f"Missed scheduled time to start a job: {moment:%a, %d %b %Y %H:%M:%S +0000}"
            self.warning(cron_job, "MissSchedule", message)
            return False
        active = status.get("active") or []
        if active and spec.get("concurrencyPolicy") == "Forbid":
            message = (
                "Not starting job because prior execution is running and concurrency policy is"
                " Forbid"
            )
            self.normal(cron_job, "JobAlreadyActive", message)
            return False
        if active and spec.get("concurrencyPolicy") == "Replace":
            for job in self.dependents.of(cron_job):
                if not is_finished(job):
                    self._delete(cron_job, job)
            status.pop("active", None)
        return True

    def _start(
        self, cron_job: JsonObject, status: JsonObject, due: float, zone: datetime.tzinfo
    ) -> JsonObject:
        job = _build_job(cron_job, due, zone)
        try:
            created = self.api.create(JOBS, job, namespace_of(cron_job))
        except AlreadyExists:
            # The controller crashed between creating the Job and writing the status.
            created = self.api.get(JOBS, namespace_of(cron_job), job["metadata"]["name"])
        else:
            message = f"Created job {name_of(created)}"
            self.normal(cron_job, "SuccessfulCreate", message)
        active = [entry for entry in status.get("active") or () if entry["uid"] != uid_of(created)]
        return {
            **status,
            "active": [*active, object_reference(created)],
            "lastScheduleTime": timestamp(due),
        }


def _build_job(cron_job: JsonObject, due: float, zone: datetime.tzinfo) -> JsonObject:
    template = spec_of(cron_job).get("jobTemplate") or {}
    metadata = template.get("metadata") or {}
    moment = datetime.datetime.fromtimestamp(due, zone)
    text = moment.isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{name_of(cron_job)}-{int(due) // 60}",
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), SCHEDULED_AT: text},
            "ownerReferences": [controller_reference(cron_job)],
        },
        "spec": copy_json(template.get("spec") or {}),
    }
