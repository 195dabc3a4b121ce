"""Validation of workload kinds, and of Job policies."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.field_errors import FieldError, forbidden, invalid, not_supported, required
from kubesched.playground.apimachinery.object_meta import (
    label_problems,
    validate_annotations,
    validate_labels,
)
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.selectors import selector_matches
from kubesched.playground.apimachinery.validation import (
    Problems,
    at_most_hundred_percent,
    choice,
    label_selector,
    not_negative,
    one_of,
    positive_int_or_percent,
    refused,
    unchanged,
)
from kubesched.playground.resources.cron_schedule import parse_schedule, parse_zone
from kubesched.playground.resources.validation.pod_groups import job_scheduling
from kubesched.playground.resources.validation.pods import pod_spec

_ANY_RESTART = ("Always", "OnFailure", "Never")
_MISMATCH = "`selector` does not match template `labels`"
_STATEFUL_SET_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_NEEDS_INDEXED = "requires indexed completion mode"
MAX_INDEXES = 100_000  # of an Indexed Job, as a set; upstream keeps ranges, and allows 2^31


def _counts(spec: JsonObject, *fields: str) -> Problems:
    for field in fields:
        yield from not_negative(spec.get(field, 0), f"spec.{field}")


def _template(spec: JsonObject, restart_policies: tuple[str, ...]) -> Problems:
    template = spec.get("template")
    if not template:
        yield required("spec.template")
        return
    metadata = template.get("metadata") or {}
    yield from validate_labels(metadata.get("labels") or {}, "spec.template.metadata.labels")
    yield from validate_annotations(
        metadata.get("annotations") or {}, "spec.template.metadata.annotations"
    )
    claims = [
        (claim.get("metadata") or {}).get("name", "")
        for claim in spec.get("volumeClaimTemplates") or ()
    ]
    yield from pod_spec(template.get("spec") or {}, "spec.template.spec", claims)
    policy = (template.get("spec") or {}).get("restartPolicy", "Always")
    if policy not in restart_policies:
        yield not_supported("spec.template.spec.restartPolicy", policy, restart_policies)


def _selector(spec: JsonObject, kind: str) -> Problems:
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is None:
        return [
            required("spec.selector"),
            invalid("spec.template.metadata.labels", labels, _MISMATCH),
        ]
    problems = [*label_selector(selector, "spec.selector")]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        problems.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    elif not problems and not selector_matches(selector, labels):
        problems.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    return problems


def validate_deployment(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    yield from _counts(
        spec, "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"
    )
    yield from _selector(spec, "deployment")
    yield from _template(spec, ("Always",))
    strategy = spec["strategy"]
    path = "spec.strategy"
    yield from choice(obj, "spec.strategy.type", "Recreate", "RollingUpdate")
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate" and rolling is not None:
        detail = "may not be specified when strategy `type` is 'Recreate'"
        yield forbidden(f"{path}.rollingUpdate", detail)
    elif strategy["type"] == "RollingUpdate":
        yield from _rolling(rolling or {}, f"{path}.rollingUpdate")
    if spec["progressDeadlineSeconds"] <= spec.get("minReadySeconds", 0):
        deadline = spec["progressDeadlineSeconds"]
        yield invalid(
            "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
        )


def _rolling(rolling: JsonObject, path: str) -> Problems:
    problems: list[FieldError] = []
    for field in ("maxUnavailable", "maxSurge"):
        problems += positive_int_or_percent(rolling.get(field, 0), f"{path}.{field}")
    problems += at_most_hundred_percent(rolling.get("maxUnavailable"), f"{path}.maxUnavailable")
    if (
        not problems
        and _is_zero(rolling.get("maxUnavailable", 0))
        and _is_zero(rolling.get("maxSurge", 0))
    ):
        detail = "may not be 0 when `maxSurge` is 0"
        problems.append(invalid(f"{path}.maxUnavailable", rolling.get("maxUnavailable", 0), detail))
    return problems


def _is_zero(value: int | str) -> bool:
    return int(value.rstrip("%")) == 0 if isinstance(value, str) else value == 0


def validate_replica_set(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    yield from _counts(spec, "replicas", "minReadySeconds")
    yield from _selector(spec, "replicaset")
    yield from _template(spec, ("Always",))


def validate_replication_controller(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    yield from _counts(spec, "replicas", "minReadySeconds")
    selector = spec.get("selector")
    if not selector:
        yield required("spec.selector")
    yield from _template(spec, ("Always",))
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        yield invalid("spec.template.metadata.labels", labels, _MISMATCH)


def validate_stateful_set(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    yield from _counts(spec, "replicas", "minReadySeconds", "revisionHistoryLimit")
    yield from choice(obj, "spec.podManagementPolicy", "OrderedReady", "Parallel")
    yield from choice(obj, "spec.updateStrategy.type", "OnDelete", "RollingUpdate")
    service = spec.get("serviceName")
    if service:
        yield from refused("spec.serviceName", service, label_problems(service))
    yield from _selector(spec, "statefulset")
    yield from _template(spec, ("Always",))


def validate_stateful_set_update(new: JsonObject, old: JsonObject) -> Problems:
    before = {key: value for key, value in old["spec"].items() if key not in _STATEFUL_SET_MUTABLE}
    after = {key: value for key, value in new["spec"].items() if key not in _STATEFUL_SET_MUTABLE}
    if before == after:
        return []
    names = "', '".join(_STATEFUL_SET_MUTABLE[:-1])
    detail = (
        f"updates to statefulset spec for fields other than '{names}' and 'minReadySeconds' are"
        " forbidden"
    )
    return [forbidden("spec", detail)]


def validate_daemon_set(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    yield from _counts(spec, "minReadySeconds", "revisionHistoryLimit")
    yield from choice(obj, "spec.updateStrategy.type", "RollingUpdate", "OnDelete")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        yield from _rolling(
            spec["updateStrategy"].get("rollingUpdate") or {}, "spec.updateStrategy.rollingUpdate"
        )
    yield from _selector(spec, "daemonset")
    yield from _template(spec, ("Always",))


def validate_job(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    yield from _counts(
        spec, "parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished"
    )
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        yield from not_negative(deadline, "spec.activeDeadlineSeconds")
    yield from choice(obj, "spec.completionMode", "Indexed", "NonIndexed")
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        yield required("spec.completions", "when completion mode is Indexed")
    elif spec["completionMode"] == "Indexed" and spec["completions"] > MAX_INDEXES:
        detail = f"must be less than or equal to {MAX_INDEXES} when completion mode is Indexed"
        yield invalid("spec.completions", spec["completions"], detail)
    yield from _selector(spec, "job")
    yield from _template(spec, _ANY_RESTART)
    yield from job_policies(spec)
    if spec.get("scheduling") is not None:
        yield from job_scheduling(obj)
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        # Upstream: Always is what an unset policy became, so the message says that one is needed.
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def validate_job_update(new: JsonObject, old: JsonObject) -> Problems:
    before, after = old["spec"], new["spec"]
    yield from unchanged(after.get("selector"), before.get("selector"), "spec.selector")
    yield from unchanged(after["completionMode"], before["completionMode"], "spec.completionMode")
    if before["completionMode"] != "Indexed":
        yield from unchanged(
            after.get("completions"), before.get("completions"), "spec.completions"
        )
    if not before.get("suspend"):
        yield from unchanged(after.get("template"), before.get("template"), "spec.template")
    if after.get("scheduling") != before.get("scheduling"):
        yield from job_scheduling(new, old)


def _parses(path: str, text: str, parse: Callable[[str], object]) -> Problems:
    try:
        parse(text)
    except ValueError as error:
        return [invalid(path, text, str(error))]
    return []


def validate_cron_job(obj: JsonObject) -> Problems:
    spec = obj["spec"]
    if not spec.get("schedule"):
        yield required("spec.schedule")
    else:
        yield from _parses("spec.schedule", spec["schedule"], parse_schedule)
    if spec.get("timeZone") is not None:
        yield from _parses("spec.timeZone", spec["timeZone"], parse_zone)
    for field in (
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ):
        yield from not_negative(spec.get(field) or 0, f"spec.{field}")
    yield from choice(obj, "spec.concurrencyPolicy", "Allow", "Forbid", "Replace")


def validate_pod_disruption_budget(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    yield from label_selector(spec.get("selector"), "spec.selector")
    both = [field for field in ("minAvailable", "maxUnavailable") if spec.get(field) is not None]
    if len(both) == 2:
        detail = "minAvailable and maxUnavailable cannot be both set"
        yield invalid("spec", both, detail)
    for field in both:
        yield from positive_int_or_percent(spec[field], f"spec.{field}")
        yield from at_most_hundred_percent(spec[field], f"spec.{field}")
    yield from choice(obj, "spec.unhealthyPodEvictionPolicy", "AlwaysAllow", "IfHealthyBudget")


def job_policies(spec: JsonObject) -> Problems:
    """Problems of the fields that decide how a Job ends."""
    return (*_index_limits(spec), *_failure_policy(spec), *_success_policy(spec))


def _index_limits(spec: JsonObject) -> Problems:
    per_index, most = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    is_indexed = spec["completionMode"] == "Indexed"
    if most is not None and per_index is None:
        detail = "when maxFailedIndexes is specified"
        yield required("spec.backoffLimitPerIndex", detail)
    for field, value in (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", most)):
        if value is not None and not is_indexed:
            yield invalid(f"spec.{field}", value, _NEEDS_INDEXED)
    completions = spec.get("completions")
    if is_indexed and most is not None and completions is not None and most > completions:
        detail = "must be less than or equal to completions"
        yield invalid("spec.maxFailedIndexes", most, detail)


def _failure_policy(spec: JsonObject) -> Problems:
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return
    restart = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if restart != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid("spec.template.spec.restartPolicy", restart, detail)
    if spec["podReplacementPolicy"] != "Failed":
        path = "spec.podReplacementPolicy"
        yield not_supported(path, spec["podReplacementPolicy"], ("Failed",))
    for index, rule in enumerate(policy.get("rules") or ()):
        yield from _failure_rule(rule, f"spec.podFailurePolicy.rules[{index}]", spec)


def _failure_rule(rule: JsonObject, path: str, spec: JsonObject) -> Problems:
    action = rule.get("action", "")
    yield from one_of(action, _ACTIONS, f"{path}.action")
    if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        detail = "requires the backoffLimitPerIndex to be set"
        yield invalid(f"{path}.action", action, detail)
    codes = rule.get("onExitCodes")
    if codes is not None:
        here = f"{path}.onExitCodes"
        yield from one_of(codes.get("operator", ""), ("In", "NotIn"), f"{here}.operator")
        values = codes.get("values") or []
        if not values:
            detail = "at least one value is required"
            yield invalid(f"{here}.values", values, detail)
        if codes.get("operator") == "In" and 0 in values:
            where = f"{here}.values[{values.index(0)}]"
            yield invalid(where, 0, "must not be 0 for the In operator")
    if (codes is not None) == bool(rule.get("onPodConditions")):
        detail = "specifying one of OnExitCodes and OnPodConditions is required"
        if codes is not None:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        yield invalid(path, "", detail)


def _success_policy(spec: JsonObject) -> Problems:
    policy = spec.get("successPolicy")
    if policy is None:
        return
    path = "spec.successPolicy"
    if spec["completionMode"] != "Indexed":
        yield invalid(path, policy, _NEEDS_INDEXED)
        return
    if not policy.get("rules"):
        detail = "at least one rules must be specified when the successPolicy is specified"
        yield required(f"{path}.rules", detail)
        return
    for index, rule in enumerate(policy["rules"]):
        yield from _success_rule(rule, f"{path}.rules[{index}]", int(spec.get("completions") or 0))


def _success_rule(rule: JsonObject, path: str, completions: int) -> Problems:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        detail = "at least one of succeededCount or succeededIndexes must be specified"
        return [required(path, detail)]
    total = completions
    if indexes is not None:
        here = f"{path}.succeededIndexes"
        try:
            total = _count_indexes(indexes, completions)
        except ValueError as error:
            detail = f"error parsing succeededIndexes: {error}"
            return [invalid(here, indexes, detail)]
    if count is not None and count > total:
        detail = f"must be less than or equal to {total}"
        if indexes is not None:
            detail += " (the number of indexes in the specified succeededIndexes field)"
        return [invalid(f"{path}.succeededCount", count, detail)]
    return []


def _count_indexes(text: str, completions: int) -> int:
    total = 0
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        for bound in (first, last or first):
            if not bound.isdecimal():
                raise ValueError(f'cannot convert string to integer for index: "{bound}"')
            if int(bound) >= completions:
                raise ValueError(f'too large index: "{bound}"')
        total += int(last or first) - int(first) + 1
    return total
