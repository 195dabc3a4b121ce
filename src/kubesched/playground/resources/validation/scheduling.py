"""Validation of the scheduling fields of a pod spec."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubesched.api.names import label_key_problems, label_value_problems
from kubesched.playground.apimachinery.object_meta import label_problems
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import (
    Problems,
    label_selector,
    numbered,
    one_of,
    refused,
    selector_operator,
)

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


# Every pod shares these objects, so an identity check can skip validating them.
DEFAULT_TOLERATIONS: tuple[JsonObject, ...] = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)


def tolerations(items: Sequence[JsonObject], path: str) -> Problems:
    for index, toleration in enumerate(items):
        if any(toleration is default for default in DEFAULT_TOLERATIONS):
            continue
        here = f"{path}[{index}]"
        key, operator, value = (toleration.get(item, "") for item in ("key", "operator", "value"))
        if key:
            yield from refused(f"{here}.key", key, label_key_problems(key))
        elif operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all'
                ' keys"'
            )
            yield invalid(f"{here}.operator", operator, detail)
        if (
            toleration.get("tolerationSeconds") is not None
            and toleration.get("effect") != "NoExecute"
        ):
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{here}.effect", toleration.get("effect", ""), detail)
        if operator in ("Equal", ""):
            yield from refused(f"{here}.operator", value, label_value_problems(value))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{here}.operator", toleration.get("value"), detail)
        elif operator not in ("Lt", "Gt"):
            yield not_supported(f"{here}.operator", operator, ("Equal", "Exists"))
        effect = toleration.get("effect")
        if effect:
            yield from one_of(effect, _EFFECTS, f"{here}.effect")


def taints(items: Sequence[JsonObject], path: str) -> Problems:
    seen: set[tuple[str, str]] = set()
    for here, taint in numbered(items, path):
        key, value, effect = (taint.get(field, "") for field in ("key", "value", "effect"))
        yield from refused(f"{here}.key", key, label_key_problems(key))
        yield from refused(f"{here}.value", value, label_value_problems(value))
        if not effect:
            yield required(f"{here}.effect")
        else:
            yield from one_of(effect, _EFFECTS, f"{here}.effect")
        if (key, effect) in seen:
            problem = duplicate(here, taint)
            detail = "taints must be unique by key and effect pair"
            yield FieldError(problem.kind, here, taint, detail)
        seen.add((key, effect))


def affinity(spec: JsonObject, path: str) -> Problems:
    yield from node_affinity(spec.get("nodeAffinity") or {}, f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        group = spec.get(name) or {}
        here = f"{path}.{name}"
        for index, term in enumerate(group.get(_REQUIRED) or ()):
            yield from _pod_affinity_term(term, f"{here}.{_REQUIRED}[{index}]")
        for where, weighted in numbered(group.get(_PREFERRED), f"{here}.{_PREFERRED}"):
            yield from _weight(weighted, where)
            yield from _pod_affinity_term(
                weighted.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm"
            )


def _weight(term: JsonObject, path: str) -> Problems:
    weight = term.get("weight", 0)
    return (
        []
        if 1 <= weight <= 100
        else [invalid(f"{path}.weight", weight, "must be in the range 1-100")]
    )


def node_affinity(spec: JsonObject, path: str) -> Problems:
    wanted = spec.get(_REQUIRED)
    if wanted is not None:
        yield from node_selector(wanted, f"{path}.{_REQUIRED}")
    for here, term in numbered(spec.get(_PREFERRED), f"{path}.{_PREFERRED}"):
        yield from _weight(term, here)
        yield from _node_selector_term(term.get("preference") or {}, f"{here}.preference")


def node_selector(selector: JsonObject, path: str) -> Problems:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
        return
    for index, term in enumerate(terms):
        yield from _node_selector_term(term, f"{path}.nodeSelectorTerms[{index}]")


def _node_selector_term(term: JsonObject, path: str) -> Problems:
    for here, requirement in numbered(term.get("matchExpressions"), f"{path}.matchExpressions"):
        yield from _node_requirement(requirement, here)
        key = requirement.get("key", "")
        yield from refused(f"{here}.key", key, label_key_problems(key))
    for here, requirement in numbered(term.get("matchFields"), f"{path}.matchFields"):
        operator, values = requirement.get("operator", ""), requirement.get("values") or ()
        if operator not in ("In", "NotIn"):
            yield invalid(f"{here}.operator", operator, "not a valid selector operator")
        elif len(values) != 1:
            detail = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            yield required(f"{here}.values", detail)
        if requirement.get("key") != "metadata.name":
            yield invalid(
                f"{here}.key", requirement.get("key", ""), "not a valid field selector key"
            )


def _node_requirement(requirement: JsonObject, path: str) -> Problems:
    if requirement.get("operator") not in ("Gt", "Lt"):
        return selector_operator(requirement, path)
    if len(requirement.get("values") or ()) == 1:
        return ()
    detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
    return [required(f"{path}.values", detail)]


def _pod_affinity_term(term: JsonObject, path: str) -> Problems:
    yield from label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    yield from label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        yield from refused(f"{path}.namespace", namespace, label_problems(namespace))
    yield from _match_label_keys(term, path)
    key = term.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from refused(f"{path}.topologyKey", key, label_key_problems(key))


def _match_label_keys(term: JsonObject, path: str) -> Problems:
    match, mismatch = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and term.get("labelSelector") is None:
            yield forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
        for index, key in enumerate(keys):
            yield from refused(f"{path}.{name}[{index}]", key, label_key_problems(key))
    for index, key in enumerate(match):
        if key in mismatch:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{path}.matchLabelKeys[{index}]", key, detail)


def topology_spread(items: Sequence[JsonObject], path: str) -> Problems:
    pairs = [(item.get("topologyKey", ""), item.get("whenUnsatisfiable", "")) for item in items]
    for index, constraint in enumerate(items):
        here = f"{path}[{index}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            yield invalid(f"{here}.maxSkew", skew, "must be greater than zero")
        key, action = pairs[index]
        if not key:
            yield required(f"{here}.topologyKey", "can not be empty")
        else:
            yield from refused(f"{here}.topologyKey", key, label_key_problems(key))
        yield from one_of(action, ("DoNotSchedule", "ScheduleAnyway"), f"{here}.whenUnsatisfiable")
        if (key, action) in pairs[index + 1 :]:
            where = f"{here}.{{topologyKey, whenUnsatisfiable}}"
            yield duplicate(where, f"{{{key}, {action}}}")
        yield from _min_domains(constraint, action, here)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(name)
            if policy is not None:
                yield from one_of(policy, ("Honor", "Ignore"), f"{here}.{name}")
        yield from label_selector(constraint.get("labelSelector"), f"{here}.labelSelector")
        yield from _match_label_keys(constraint, here)


def _min_domains(constraint: JsonObject, action: str, path: str) -> Problems:
    domains = constraint.get("minDomains")
    if domains is None:
        return []
    if domains <= 0:
        return [invalid(f"{path}.minDomains", domains, "must be greater than zero")]
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        return [invalid(f"{path}.minDomains", domains, detail)]
    return []


def scheduling_gates(items: Sequence[JsonObject], path: str) -> Problems:
    seen = set()
    for index, gate in enumerate(items):
        name = gate.get("name", "")
        yield from refused(f"{path}[{index}]", name, label_key_problems(name))
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
