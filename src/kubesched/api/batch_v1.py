"""batch/v1: pods that run to completion. The template stays plain JSON, as in apps_v1."""

from __future__ import annotations

from typing import Any

from kubesched.api.meta import LabelSelector, ObjectMeta, Record, constant


class JobSpec(Record):
    """How many completions are wanted and how many pods may try at once."""

    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    selector: LabelSelector | None = None
    manual_selector: bool | None = None
    template: dict[str, Any] | None = None
    ttl_seconds_after_finished: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None


class JobCondition(Record):
    """Complete, Failed, Suspended and their like."""

    type: str = ""
    status: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class UncountedTerminatedPods(Record):
    """Finished pods that the counters do not include yet."""

    succeeded: list[str] | None = None
    failed: list[str] | None = None


class JobStatus(Record):
    """How the job is doing."""

    conditions: list[JobCondition] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    ready: int | None = None


class Job(Record):
    """Pods that run until enough of them have succeeded."""

    kind: str = constant("Job")
    api_version: str = constant("batch/v1")
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
