"""Rules for a Job's failure, success and per-index policies."""

from __future__ import annotations

from kubesched.api.field_errors import FieldError, invalid, not_supported, required
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import one_of

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_NEEDS_INDEXED = "requires indexed completion mode"


def job_policies(spec: JsonObject) -> list[FieldError]:
    """Problems of everything that decides how a Job ends."""
    return _index_limits(spec) + _failure_policy(spec) + _success_policy(spec)


def _index_limits(spec: JsonObject) -> list[FieldError]:
    problems: list[FieldError] = []
    per_index, most = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    is_indexed = spec["completionMode"] == "Indexed"
    if most is not None and per_index is None:
        detail = "when maxFailedIndexes is specified"
        problems.append(required("spec.backoffLimitPerIndex", detail))
    for field, value in (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", most)):
        if value is not None and not is_indexed:
            problems.append(invalid(f"spec.{field}", value, _NEEDS_INDEXED))
    completions = spec.get("completions")
    if is_indexed and most is not None and completions is not None and most > completions:
        detail = "must be less than or equal to completions"
        problems.append(invalid("spec.maxFailedIndexes", most, detail))
    return problems


def _failure_policy(spec: JsonObject) -> list[FieldError]:
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return []
    problems: list[FieldError] = []
    restart = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if restart != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        problems.append(invalid("spec.template.spec.restartPolicy", restart, detail))
    if spec["podReplacementPolicy"] != "Failed":
        path = "spec.podReplacementPolicy"
        problems.append(not_supported(path, spec["podReplacementPolicy"], ("Failed",)))
    for index, rule in enumerate(policy.get("rules") or ()):
        problems += _failure_rule(rule, f"spec.podFailurePolicy.rules[{index}]", spec)
    return problems


def _failure_rule(rule: JsonObject, path: str, spec: JsonObject) -> list[FieldError]:
    action = rule.get("action", "")
    problems = one_of(action, _ACTIONS, f"{path}.action")
    if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        detail = "requires the backoffLimitPerIndex to be set"
        problems.append(invalid(f"{path}.action", action, detail))
    codes = rule.get("onExitCodes")
    if codes is not None:
        here = f"{path}.onExitCodes"
        problems += one_of(codes.get("operator", ""), ("In", "NotIn"), f"{here}.operator")
        values = codes.get("values") or []
        if not values:
            detail = "at least one value is required"
            problems.append(invalid(f"{here}.values", values, detail))
        if codes.get("operator") == "In" and 0 in values:
            where = f"{here}.values[{values.index(0)}]"
            problems.append(invalid(where, 0, "must not be 0 for the In operator"))
    if (codes is not None) == bool(rule.get("onPodConditions")):
        detail = "specifying one of OnExitCodes and OnPodConditions is required"
        if codes is not None:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        problems.append(invalid(path, "", detail))
    return problems


def _success_policy(spec: JsonObject) -> list[FieldError]:
    policy = spec.get("successPolicy")
    if policy is None:
        return []
    path = "spec.successPolicy"
    if spec["completionMode"] != "Indexed":
        return [invalid(path, policy, _NEEDS_INDEXED)]
    if not policy.get("rules"):
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [required(f"{path}.rules", detail)]
    problems: list[FieldError] = []
    for index, rule in enumerate(policy["rules"]):
        problems += _success_rule(rule, f"{path}.rules[{index}]", int(spec.get("completions") or 0))
    return problems


def _success_rule(rule: JsonObject, path: str, completions: int) -> list[FieldError]:
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
