"""A Job's arithmetic: how many pods to run, which, and whether enough have succeeded."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    labels_of,
    name_of,
    spec_of,
    status_of,
)
from kubesched.playground.apimachinery.pods import is_ready, phase_of
from kubesched.playground.controllers.job.policies import (
    COMPLETION_INDEX,
    FAILURE_COUNT,
    IGNORED_FAILURE_COUNT,
    IndexFailures,
    has_index_limit,
    parse_indexes,
)
from kubesched.playground.controllers.job.tracking import FINALIZER, Tally
from kubesched.playground.controllers.pods import pod_from_template


def is_indexed(job: JsonObject) -> bool:
    return bool(spec_of(job).get("completionMode") == "Indexed")


def replaces_terminating(job: JsonObject) -> bool:
    if spec_of(job).get("podFailurePolicy"):
        return False  # how a pod failed is known only after it has ended
    return bool(spec_of(job).get("podReplacementPolicy") != "Failed")


def is_satisfied(job: JsonObject, tally: Tally, active: list[JsonObject]) -> bool:
    completions = spec_of(job).get("completions")
    succeeded = tally.succeeded + len(tally.uncounted_succeeded)
    if completions is None:
        # Work queue: one success means that the queue is drained; the other pods may finish.
        return succeeded > 0 and not active
    return succeeded >= int(completions)


def wanted_active(job: JsonObject, tally: Tally, active: int) -> int:
    parallelism = int(spec_of(job).get("parallelism", 1))
    completions = spec_of(job).get("completions")
    if completions is None:
        return min(active, parallelism) if tally.succeeded > 0 else parallelism
    failed = len(parse_indexes(status_of(job).get("failedIndexes") or ""))
    return max(0, min(parallelism, int(completions) - tally.succeeded - failed))


def removal_order(active: list[JsonObject]) -> list[JsonObject]:
    """The pods in order of deletion, those with the least progress first."""
    progress = {"Pending": 0, "Unknown": 1, "Running": 2}
    return sorted(
        active, key=lambda pod: (progress.get(phase_of(pod), 0), is_ready(pod), name_of(pod))
    )


def build_pod(
    job: JsonObject, index: int | None, failures: IndexFailures | None = None
) -> JsonObject:
    pod = pod_from_template(spec_of(job).get("template") or {}, job)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["finalizers"] = [*metadata.get("finalizers", ()), FINALIZER]
    if not labels_of(pod):
        metadata["labels"] = dict((spec_of(job).get("selector") or {}).get("matchLabels") or {})
    if index is not None:
        metadata["generateName"] = f"{name_of(job)}-{index}-"
        metadata["annotations"] = {**metadata.get("annotations", {}), COMPLETION_INDEX: str(index)}
        metadata["labels"] = {**metadata.get("labels", {}), COMPLETION_INDEX: str(index)}
        if has_index_limit(job):
            counts = failures or IndexFailures()
            metadata["annotations"][FAILURE_COUNT] = str(counts.counted)
            if counts.ignored:
                metadata["annotations"][IGNORED_FAILURE_COUNT] = str(counts.ignored)
        spec["hostname"] = f"{name_of(job)}-{index}"[:63]
        _add_index_variable(spec)
    return pod


def _add_index_variable(spec: JsonObject) -> None:
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}},
    }
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            names = {entry["name"] for entry in container.get("env") or ()}
            if variable["name"] not in names:
                container["env"] = [*(container.get("env") or ()), variable]
