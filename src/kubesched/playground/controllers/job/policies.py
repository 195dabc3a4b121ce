"""A Job's policies for failed pods, failed indexes and early success.

Failures are counted per index in annotations: a replacement pod records how often its index failed
before, so the count survives a controller restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    find_condition,
    name_of,
    namespace_of,
    parse_timestamp,
    spec_of,
    status_of,
)
from kubesched.playground.apimachinery.pods import FAILED, phase_of
from kubesched.playground.resources.validation.workloads import MAX_INDEXES

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"

Action = Literal["FailJob", "FailIndex", "Ignore", "Count"]


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure policy's verdict on a failed pod."""

    action: Action
    message: str = ""


_COUNTED = Failure("Count")


def judge_failure(job: JsonObject, pod: JsonObject) -> Failure:
    """Action of the first rule that matches a failed pod; without a match the failure counts."""
    policy = spec_of(job).get("podFailurePolicy")
    if not policy or phase_of(pod) != FAILED:
        return _COUNTED
    for index, rule in enumerate(policy.get("rules") or ()):
        action = rule.get("action", "Count")
        if action == "FailIndex" and not has_index_limit(job):
            continue  # Upstream: the rule is skipped where indexes cannot fail on their own.
        cause = _exit_code_cause(rule.get("onExitCodes"), pod) or _condition_cause(
            rule.get("onPodConditions"), pod
        )
        if cause:
            return Failure(action, f"{cause} matching {action} rule at index {index}")
    return _COUNTED


def _exit_code_cause(requirement: JsonObject | None, pod: JsonObject) -> str:
    if not requirement:
        return ""
    values = requirement.get("values") or ()
    for field in ("containerStatuses", "initContainerStatuses"):
        for container in status_of(pod).get(field) or ():
            ended = (container.get("state") or {}).get("terminated")
            wanted = requirement.get("containerName")
            if not ended or wanted not in (None, container.get("name")):
                continue
            code = ended.get("exitCode", 0)
            if code and (code in values) is (requirement.get("operator") == "In"):
                where = f"{namespace_of(pod)}/{name_of(pod)}"
                return f"Container {container['name']} for pod {where} failed with exit code {code}"
    return ""


def _condition_cause(patterns: list[JsonObject] | None, pod: JsonObject) -> str:
    for pattern in patterns or ():
        known = find_condition(status_of(pod).get("conditions"), pattern.get("type", ""))
        if known is not None and known.get("status") == pattern.get("status", "True"):
            return f"Pod {namespace_of(pod)}/{name_of(pod)} has condition {known['type']}"
    return ""


def fail_job_message(job: JsonObject, pods: list[JsonObject]) -> str:
    """Why the failure policy ends the Job; "" if it does not."""
    for pod in pods:
        failure = judge_failure(job, pod)
        if failure.action == "FailJob":
            return failure.message
    return ""


# -- indexes --------------------------------------------------------------------------------------


def has_index_limit(job: JsonObject) -> bool:
    return spec_of(job).get("backoffLimitPerIndex") is not None


@dataclass(slots=True)
class IndexFailures:
    """How often an index failed, and the time of the last failure."""

    counted: int = 0
    ignored: int = 0
    last: float = 0.0
    is_final: bool = False
    """A rule of the failure policy ended the index."""


def index_failures(job: JsonObject, pods: list[JsonObject]) -> dict[int, IndexFailures]:
    """Failures of every index, from the pods that still exist."""
    failures: dict[int, IndexFailures] = {}
    for pod in pods:
        index = index_of(pod)
        if index is None or phase_of(pod) != FAILED:
            continue
        entry = failures.setdefault(index, IndexFailures())
        action = judge_failure(job, pod).action
        is_ignored = action == "Ignore"
        counted = _number(pod, FAILURE_COUNT) + (not is_ignored)
        entry.counted = max(entry.counted, counted)
        entry.ignored = max(entry.ignored, _number(pod, IGNORED_FAILURE_COUNT) + is_ignored)
        entry.last = max(entry.last, _ended_at(pod))
        entry.is_final = entry.is_final or action == "FailIndex"
    return failures


def failed_indexes(job: JsonObject, failures: dict[int, IndexFailures]) -> set[int]:
    """Indexes that failed permanently, including those recorded earlier."""
    limit = int(spec_of(job)["backoffLimitPerIndex"])
    failed = parse_indexes(status_of(job).get("failedIndexes") or "")
    return failed | {
        index for index, entry in failures.items() if entry.is_final or entry.counted > limit
    }


def _number(pod: JsonObject, annotation: str) -> int:
    text = annotations_of(pod).get(annotation, "")
    return int(text) if text.isdecimal() else 0


def _ended_at(pod: JsonObject) -> float:
    moments = [
        parse_timestamp(ended["finishedAt"])
        for container in status_of(pod).get("containerStatuses") or ()
        if (ended := (container.get("state") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    return max(moments, default=parse_timestamp(pod["metadata"]["creationTimestamp"]))


# -- success --------------------------------------------------------------------------------------


def success_policy_message(job: JsonObject, succeeded: set[int]) -> str:
    """Which rule of the success policy is met; "" if none is."""
    policy = spec_of(job).get("successPolicy")
    if not policy:
        return ""
    for index, rule in enumerate(policy.get("rules") or ()):
        counted, wanted = succeeded, rule.get("succeededCount")
        if rule.get("succeededIndexes") is not None:
            named = parse_indexes(rule["succeededIndexes"])
            counted = succeeded & named
            wanted = len(named) if wanted is None else wanted
        if wanted is not None and len(counted) >= int(wanted):
            return f"Matched rules at index {index}"
    return ""


# -- sets of indexes, as text: `0-2,5` -------------------------------------------------------------


def parse_indexes(text: str) -> set[int]:
    """Parse an index list; invalid parts are ignored, as upstream does."""
    indexes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            indexes.update(range(int(first), min(int(last or first) + 1, MAX_INDEXES)))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """Shortest text for the indexes: two neighbours are listed, three or more become a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts: list[str] = []
    for run in runs:
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += [str(index) for index in run]
    return ",".join(parts)


def index_of(pod: JsonObject) -> int | None:
    text = annotations_of(pod).get(COMPLETION_INDEX, "")
    return int(text) if text.isdecimal() else None
