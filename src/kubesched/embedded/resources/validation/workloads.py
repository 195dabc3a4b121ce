"""Rules for the kinds that make pods."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.api.field_errors import FieldError, forbidden, invalid, not_supported, required
from kubesched.embedded.apimachinery.object_meta import (
    label_problems,
    validate_annotations,
    validate_labels,
)
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.selectors import selector_matches
from kubesched.embedded.apimachinery.validation import (
    at_most_hundred_percent,
    label_selector,
    not_negative,
    one_of,
    positive_int_or_percent,
    unchanged,
)
from kubesched.embedded.resources.cron_schedule import parse_schedule, parse_zone
from kubesched.embedded.resources.validation.job_policies import job_policies
from kubesched.embedded.resources.validation.pods import pod_spec

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


def _counts(spec: JsonObject, *fields: str) -> list[FieldError]:
    problems: list[FieldError] = []
    for field in fields:
        problems += not_negative(spec.get(field, 0), f"spec.{field}")
    return problems


def _template(spec: JsonObject, restart_policies: tuple[str, ...]) -> list[FieldError]:
    template = spec.get("template")
    if not template:
        return [required("spec.template")]
    metadata = template.get("metadata") or {}
    problems = validate_labels(metadata.get("labels") or {}, "spec.template.metadata.labels")
    problems += validate_annotations(
        metadata.get("annotations") or {}, "spec.template.metadata.annotations"
    )
    claims = [
        (claim.get("metadata") or {}).get("name", "")
        for claim in spec.get("volumeClaimTemplates") or ()
    ]
    problems += pod_spec(template.get("spec") or {}, "spec.template.spec", claims)
    policy = (template.get("spec") or {}).get("restartPolicy", "Always")
    if policy not in restart_policies:
        problems.append(not_supported("spec.template.spec.restartPolicy", policy, restart_policies))
    return problems


def _selector(spec: JsonObject, kind: str) -> list[FieldError]:
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is None:
        return [
            required("spec.selector"),
            invalid("spec.template.metadata.labels", labels, _MISMATCH),
        ]
    problems = label_selector(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        problems.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    elif not problems and not selector_matches(selector, labels):
        problems.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    return problems


def validate_deployment(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    problems = _counts(
        spec, "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"
    )
    problems += _selector(spec, "deployment") + _template(spec, ("Always",))
    strategy = spec["strategy"]
    path = "spec.strategy"
    problems += one_of(strategy["type"], ("Recreate", "RollingUpdate"), f"{path}.type")
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate" and rolling is not None:
        detail = "may not be specified when strategy `type` is 'Recreate'"
        problems.append(forbidden(f"{path}.rollingUpdate", detail))
    elif strategy["type"] == "RollingUpdate":
        problems += _rolling(rolling or {}, f"{path}.rollingUpdate")
    if spec["progressDeadlineSeconds"] <= spec.get("minReadySeconds", 0):
        deadline = spec["progressDeadlineSeconds"]
        problems.append(
            invalid(
                "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
            )
        )
    return problems


def _rolling(rolling: JsonObject, path: str) -> list[FieldError]:
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


def validate_replica_set(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    return (
        _counts(spec, "replicas", "minReadySeconds")
        + _selector(spec, "replicaset")
        + _template(spec, ("Always",))
    )


def validate_replication_controller(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    problems = _counts(spec, "replicas", "minReadySeconds")
    selector = spec.get("selector")
    if not selector:
        problems.append(required("spec.selector"))
    problems += _template(spec, ("Always",))
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        problems.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
    return problems


def validate_stateful_set(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    problems = _counts(spec, "replicas", "minReadySeconds", "revisionHistoryLimit")
    problems += one_of(
        spec["podManagementPolicy"], ("OrderedReady", "Parallel"), "spec.podManagementPolicy"
    )
    problems += one_of(
        spec["updateStrategy"]["type"], ("OnDelete", "RollingUpdate"), "spec.updateStrategy.type"
    )
    service = spec.get("serviceName")
    if service:
        problems += [invalid("spec.serviceName", service, text) for text in label_problems(service)]
    return problems + _selector(spec, "statefulset") + _template(spec, ("Always",))


def validate_stateful_set_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    before = {key: value for key, value in old["spec"].items() if key not in _STATEFUL_SET_MUTABLE}
    after = {key: value for key, value in new["spec"].items() if key not in _STATEFUL_SET_MUTABLE}
    if before == after:
        return []
    names = "', '".join(_STATEFUL_SET_MUTABLE[:-1])
    detail = f"updates to statefulset spec for fields other than '{names}' and 'minReadySeconds' are forbidden"
    return [forbidden("spec", detail)]


def validate_daemon_set(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    problems = _counts(spec, "minReadySeconds", "revisionHistoryLimit")
    problems += one_of(
        spec["updateStrategy"]["type"], ("RollingUpdate", "OnDelete"), "spec.updateStrategy.type"
    )
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        problems += _rolling(
            spec["updateStrategy"].get("rollingUpdate") or {}, "spec.updateStrategy.rollingUpdate"
        )
    return problems + _selector(spec, "daemonset") + _template(spec, ("Always",))


def validate_selector_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """A workload's selector decides which pods are its own; it never changes."""
    return unchanged(new["spec"].get("selector"), old["spec"].get("selector"), "spec.selector")


def validate_job(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    problems = _counts(
        spec, "parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished"
    )
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        problems += not_negative(deadline, "spec.activeDeadlineSeconds")
    problems += one_of(spec["completionMode"], ("Indexed", "NonIndexed"), "spec.completionMode")
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        problems.append(required("spec.completions", "when completion mode is Indexed"))
    problems += _selector(spec, "job") + _template(spec, _ANY_RESTART) + job_policies(spec)
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        # Upstream: Always is what an unset policy became, so the message says that one is needed.
        problems.append(
            required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
        )
    return problems


def validate_job_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    before, after = old["spec"], new["spec"]
    problems = unchanged(after.get("selector"), before.get("selector"), "spec.selector")
    problems += unchanged(after["completionMode"], before["completionMode"], "spec.completionMode")
    if before["completionMode"] != "Indexed":
        problems += unchanged(
            after.get("completions"), before.get("completions"), "spec.completions"
        )
    if not before.get("suspend"):
        problems += unchanged(after.get("template"), before.get("template"), "spec.template")
    return problems


def _parses(path: str, text: str, parse: Callable[[str], object]) -> list[FieldError]:
    try:
        parse(text)
    except ValueError as error:
        return [invalid(path, text, str(error))]
    return []


def validate_cron_job(obj: JsonObject) -> list[FieldError]:
    spec = obj["spec"]
    problems: list[FieldError] = []
    if not spec.get("schedule"):
        problems.append(required("spec.schedule"))
    else:
        problems += _parses("spec.schedule", spec["schedule"], parse_schedule)
    if spec.get("timeZone") is not None:
        problems += _parses("spec.timeZone", spec["timeZone"], parse_zone)
    for field in (
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ):
        problems += not_negative(spec.get(field) or 0, f"spec.{field}")
    problems += one_of(
        spec["concurrencyPolicy"], ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy"
    )
    return problems


def validate_pod_disruption_budget(obj: JsonObject) -> list[FieldError]:
    spec = obj.get("spec") or {}
    problems = label_selector(spec.get("selector"), "spec.selector")
    both = [field for field in ("minAvailable", "maxUnavailable") if spec.get(field) is not None]
    if len(both) == 2:
        detail = "minAvailable and maxUnavailable cannot be both set"
        problems.append(invalid("spec", both, detail))
    for field in both:
        problems += positive_int_or_percent(spec[field], f"spec.{field}")
        problems += at_most_hundred_percent(spec[field], f"spec.{field}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None:
        problems += one_of(
            policy, ("AlwaysAllow", "IfHealthyBudget"), "spec.unhealthyPodEvictionPolicy"
        )
    return problems
