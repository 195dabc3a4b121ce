"""Rules for a Job's failure, success and per-index policies."""

from __future__ import annotations

from kubesched.api.field_errors import invalid, not_supported, required
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import Problems, one_of

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_NEEDS_INDEXED = "requires indexed completion mode"


def job_policies(spec: JsonObject) -> Problems:
    """Problems of everything that decides how a Job ends."""
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
