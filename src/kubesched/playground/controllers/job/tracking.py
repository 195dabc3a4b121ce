"""Counting finished pods exactly once.

Every pod of a Job has a finalizer, so it cannot disappear before it is counted. Counting takes
three writes, each safe to repeat:

    1. add the pod's uid to `status.uncountedTerminatedPods`
    2. remove the pod's finalizer
    3. remove the uid from the list and increment the counter

After a crash between any two writes, the next sync continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    is_deleting,
    status_of,
    uid_of,
)
from kubesched.playground.apimachinery.pods import FAILED, SUCCEEDED, phase_of

FINALIZER = "batch.kubernetes.io/job-tracking"


@dataclass(slots=True)
class Tally:
    """The counters of one Job during a sync."""

    succeeded: int = 0
    failed: int = 0
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, job: JsonObject) -> Tally:
        status = status_of(job)
        uncounted = status.get("uncountedTerminatedPods") or {}
        return cls(
            succeeded=int(status.get("succeeded") or 0),
            failed=int(status.get("failed") or 0),
            uncounted_succeeded=list(uncounted.get("succeeded") or ()),
            uncounted_failed=list(uncounted.get("failed") or ()),
        )

    def note_finished(
        self,
        pods: Sequence[JsonObject],
        *,
        replaces_terminating: bool,
        is_ignored: Callable[[JsonObject], bool],
    ) -> bool:
        """Step 1: record finished pods that still have the finalizer; True if there were any."""
        known = {*self.uncounted_succeeded, *self.uncounted_failed}
        is_any_new = False
        for pod in pods:
            if uid_of(pod) in known or not has_finalizer(pod):
                continue
            if phase_of(pod) == SUCCEEDED:
                self.uncounted_succeeded.append(uid_of(pod))
                is_any_new = True
            elif is_failed(pod, replaces_terminating=replaces_terminating) and not is_ignored(pod):
                self.uncounted_failed.append(uid_of(pod))
                is_any_new = True
        return is_any_new

    def settle(self, pods_by_uid: Mapping[str, JsonObject]) -> None:
        """Step 3: count the pods whose finalizer was removed."""

        def is_settled(uid: str) -> bool:
            pod = pods_by_uid.get(uid)
            return pod is None or not has_finalizer(pod)

        for uncounted, counter in (
            (self.uncounted_succeeded, "succeeded"),
            (self.uncounted_failed, "failed"),
        ):
            settled = [uid for uid in uncounted if is_settled(uid)]
            setattr(self, counter, getattr(self, counter) + len(settled))
            uncounted[:] = [uid for uid in uncounted if uid not in settled]

    def uncounted(self) -> JsonObject:
        entries = {"succeeded": self.uncounted_succeeded, "failed": self.uncounted_failed}
        return {key: list(uids) for key, uids in entries.items() if uids}


def is_failed(pod: JsonObject, *, replaces_terminating: bool) -> bool:
    """Whether the pod failed; with `replaces_terminating`, terminating pods count as failed."""
    if phase_of(pod) == FAILED:
        return True
    return replaces_terminating and is_deleting(pod) and phase_of(pod) != SUCCEEDED


def has_finalizer(pod: JsonObject) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())
