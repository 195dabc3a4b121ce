"""Validation of pod groups, composite pod groups and workloads.

`TYPES` has the rules that upstream declares beside its types, in its words: on an update a value
that did not change is not checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kubesched.api.field_errors import duplicate, forbidden, invalid, required, too_many
from kubesched.api.names import label_key_problems
from kubesched.playground.apimachinery.object_meta import (
    label_problems,
    path_segment_problems,
    subdomain_problems,
)
from kubesched.playground.apimachinery.objects import Json, JsonObject, value_at
from kubesched.playground.apimachinery.validation import (
    IS_IMMUTABLE,
    Problems,
    numbered,
    one_of,
    refused,
)

_MAX_DEPTH = 4
_NOTHING = (None, "", 0)
_JOB_POLICY = ("scheduling", "schedulingPolicy")
_FIXED_VARIANT = (
    "the basic/gang policy variant is immutable after creation;"
    " only schedulingPolicy.gang.minCount may be updated"
)


def _text(problems: Callable[[str], tuple[str, ...]]) -> Callable[[Json, str], Problems]:
    return lambda value, path: refused(path, value, problems(value))


def _optional_name(value: str, path: str) -> Problems:
    return refused(path, value, subdomain_problems(value)) if value else ()


def _at_least_one(value: int, path: str) -> Problems:
    return [] if value >= 1 else [invalid(path, value, "must be greater than or equal to 1")]


def _user_priority(value: int, path: str) -> Problems:
    limit = 1_000_000_000
    detail = f"must be less than or equal to {limit}"
    return [] if value <= limit else [invalid(path, value, detail)]


def _policy(value: str, path: str) -> Problems:
    return one_of(value, ("Never", "PreemptLowerPriority"), path)


def _condition_status(value: str, path: str) -> Problems:
    return one_of(value, ("False", "True", "Unknown"), path)


_LABEL, _SUBDOMAIN = _text(label_problems), _text(subdomain_problems)
_SEGMENT, _LABEL_KEY = _text(path_segment_problems), _text(label_key_problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Rules of a field: those of its value are a function, or those of a type of `TYPES`."""

    rule: Callable[[Json, str], Problems] | None = None
    type: str = ""
    is_required: bool = False
    is_immutable: bool = False
    has_fixed_presence: bool = False
    """Can neither be set nor cleared by an update."""
    is_embedded: bool = False
    """Always there; a missing object is an empty one."""
    limit: int = 0
    """The field is a list of at most this many."""
    has_fixed_items: bool = False
    """Items, which are known by their names, can neither be added nor removed."""


@dataclass(frozen=True, slots=True)
class Type:
    """Rules of an object; of the fields in `union` exactly one is set."""

    fields: dict[str, Field]
    union: tuple[str, ...] = ()


_FIXED = {
    "priorityClassName": Field(rule=_optional_name, is_immutable=True),
    "priority": Field(rule=_user_priority, is_immutable=True),
    "preemptionPolicy": Field(rule=_policy, is_immutable=True),
}
_CONSTRAINTS = Field(type="Constraints", is_immutable=True)
_TEMPLATES = {
    "podGroupTemplates": Field(type="PodGroupTemplate", limit=8, has_fixed_items=True),
    "compositePodGroupTemplates": Field(
        type="CompositePodGroupTemplate", limit=8, has_fixed_items=True
    ),
}
_CLAIMS = Field(type="ResourceClaim", limit=4, is_immutable=True)
_CLAIM_STATUSES = Field(type="ResourceClaimStatus", limit=4)
_PARENT = Field(rule=_SUBDOMAIN, is_immutable=True)
_NAME = Field(rule=_LABEL, is_required=True)
TYPES = {
    "PodGroup": Type(
        {
            "parentCompositePodGroupName": _PARENT,
            "workloadRef": Field(type="WorkloadReference", is_immutable=True),
            "schedulingPolicy": Field(type="Policy", is_embedded=True),
            "schedulingConstraints": _CONSTRAINTS,
            "resourceClaims": _CLAIMS,
            "disruptionMode": Field(type="DisruptionMode", is_required=True, is_immutable=True),
            **_FIXED,
        }
    ),
    "CompositePodGroup": Type(
        {
            "parentCompositePodGroupName": _PARENT,
            "workloadRef": Field(type="WorkloadReference", is_required=True, is_immutable=True),
            "schedulingPolicy": Field(type="CompositePolicy", is_embedded=True, is_immutable=True),
            "schedulingConstraints": _CONSTRAINTS,
            "disruptionMode": Field(type="DisruptionMode", is_required=True, is_immutable=True),
            **_FIXED,
        }
    ),
    "Workload": Type(
        {"controllerRef": Field(type="ControllerReference", is_immutable=True), **_TEMPLATES},
        union=("podGroupTemplates", "compositePodGroupTemplates"),
    ),
    "PodGroupTemplate": Type(
        {
            "name": _NAME,
            "schedulingPolicy": Field(type="Policy", is_embedded=True),
            "schedulingConstraints": _CONSTRAINTS,
            "resourceClaims": _CLAIMS,
            "disruptionMode": Field(type="DisruptionMode", is_immutable=True),
            **_FIXED,
        }
    ),
    "CompositePodGroupTemplate": Type(
        {
            "name": _NAME,
            "schedulingPolicy": Field(type="CompositePolicy", is_embedded=True),
            "schedulingConstraints": _CONSTRAINTS,
            "disruptionMode": Field(type="DisruptionMode", is_immutable=True),
            **_FIXED,
            **_TEMPLATES,
        }
    ),
    "Policy": Type(
        {
            "basic": Field(is_immutable=True),
            "gang": Field(type="Gang", has_fixed_presence=True),
        },
        union=("basic", "gang"),
    ),
    "Gang": Type({"minCount": Field(rule=_at_least_one, is_required=True)}),
    "CompositePolicy": Type(
        {
            "basic": Field(is_immutable=True),
            "gang": Field(type="CompositeGang", has_fixed_presence=True),
        },
        union=("basic", "gang"),
    ),
    "CompositeGang": Type({"minGroupCount": Field(rule=_at_least_one, is_required=True)}),
    "Condition": Type(
        {
            "type": Field(rule=_LABEL_KEY, is_required=True),
            "status": Field(rule=_condition_status, is_required=True),
            "lastTransitionTime": Field(is_required=True),
            "reason": Field(is_required=True),
        }
    ),
    "Job": Type({"scheduling": Field(type="JobScheduling", has_fixed_presence=True)}),
    "JobScheduling": Type(
        {
            "schedulingPolicy": Field(type="JobPolicy", has_fixed_presence=True),
            "schedulingConstraints": _CONSTRAINTS,
            "disruptionMode": Field(type="DisruptionMode", is_immutable=True),
            "resourceClaims": _CLAIMS,
        }
    ),
    "JobPolicy": Type(
        {"gang": Field(type="JobGang")},
        union=("basic", "gang"),
    ),
    "JobGang": Type({"minCount": Field(rule=_at_least_one)}),
    "DisruptionMode": Type({}, union=("single", "all")),
    "Constraints": Type({"topology": Field(type="TopologyConstraint", limit=1)}),
    "TopologyConstraint": Type({"key": Field(rule=_LABEL_KEY, is_required=True)}),
    "ResourceClaim": Type(
        {
            "name": _NAME,
            "resourceClaimName": Field(rule=_SUBDOMAIN),
            "resourceClaimTemplateName": Field(rule=_SUBDOMAIN),
        },
        union=("resourceClaimName", "resourceClaimTemplateName"),
    ),
    "ResourceClaimStatus": Type(
        {"name": Field(), "resourceClaimName": Field(rule=_SUBDOMAIN)},
    ),
    "WorkloadReference": Type(
        {
            "workloadName": Field(rule=_SUBDOMAIN, is_required=True),
            "templateName": Field(rule=_LABEL, is_required=True),
        }
    ),
    "ControllerReference": Type(
        {
            "apiGroup": Field(rule=_optional_name),
            "kind": Field(rule=_SEGMENT, is_required=True),
            "name": Field(rule=_SEGMENT, is_required=True),
        }
    ),
}


def validate_group(new: JsonObject, old: JsonObject | None = None) -> Problems:
    """Problems of a PodGroup or CompositePodGroup; without `old`, of a new one."""
    spec, before = new["spec"], old["spec"] if old is not None else None
    yield from _object(TYPES[new["kind"]], spec, before, "spec")
    if before is None and new["kind"] == "PodGroup":
        has_parent = spec.get("parentCompositePodGroupName") is not None
        if has_parent and spec.get("workloadRef") is None:
            detail = "must be set when parentCompositePodGroupName is set"
            yield required("spec.workloadRef", detail)


def validate_group_status(obj: JsonObject) -> Problems:
    status = obj.get("status") or {}
    for here, condition in numbered(status.get("conditions"), "status.conditions"):
        yield from _object(TYPES["Condition"], condition, None, here)
    claims, path = status.get("resourceClaimStatuses"), "status.resourceClaimStatuses"
    known = _names(obj["spec"].get("resourceClaims"))
    for here, name in numbered(_names(claims), path):
        if name not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(f"{here}.name", name, detail)
    yield from _field(_CLAIM_STATUSES, claims, None, path, is_update=False)


def validate_workload(new: JsonObject, old: JsonObject | None = None) -> Problems:
    spec = new["spec"]
    path = "spec.compositePodGroupTemplates"
    yield from _distinct_names(spec, "spec", set(_names(spec.get("podGroupTemplates"))))
    composites = list(numbered(spec.get("compositePodGroupTemplates"), path))
    for here, template in composites:
        if _depth(template) >= _MAX_DEPTH:
            children = template.get("compositePodGroupTemplates")
            detail = f"maximum template hierarchy depth is {_MAX_DEPTH}"
            yield invalid(here, children, detail)
    yield from _one_priority(spec)
    for here, template in composites:
        yield from _has_children(template, here)
    yield from _object(TYPES["Workload"], spec, old["spec"] if old is not None else None, "spec")


def job_scheduling(new: JsonObject, old: JsonObject | None = None) -> Problems:
    """Problems of a Job's `spec.scheduling`."""
    spec, before = new["spec"], old["spec"] if old is not None else None
    policies = [value_at(each, _JOB_POLICY) for each in (spec, before or {})]
    least, most = value_at(policies[0], ("gang", "minCount")), spec.get("parallelism", 1)
    if least is not None and least > most:
        path = "spec.scheduling.schedulingPolicy.gang.minCount"
        yield invalid(path, least, f"must not be greater than parallelism ({most})")
    if all(policies) and ("basic" in policies[0]) != ("basic" in policies[1]):
        yield invalid("spec.scheduling.schedulingPolicy", None, _FIXED_VARIANT)
    yield from _object(TYPES["Job"], spec, before, "spec")


# -- rules of a workload's templates as a whole ---------------------------------------------------


def _names(templates: list[JsonObject] | None) -> list[str]:
    return [template.get("name", "") for template in templates or ()]


def _distinct_names(parent: JsonObject, path: str, taken: set[str]) -> Problems:
    """Names of nested templates are not used elsewhere; `TYPES` covers those of one list."""
    children = list(numbered(parent.get("compositePodGroupTemplates"), _composites(path)))
    for here, template in children:
        if template.get("name", "") in taken:
            yield duplicate(f"{here}.name", template.get("name", ""))
    taken.update(_names(parent.get("compositePodGroupTemplates")))
    for here, template in children:
        groups = template.get("podGroupTemplates")
        for place, group in numbered(groups, f"{here}.podGroupTemplates"):
            if group.get("name", "") in taken:
                yield duplicate(f"{place}.name", group.get("name", ""))
        taken.update(_names(groups))
        yield from _distinct_names(template, here, taken)


def _composites(parent: str) -> str:
    return f"{parent}.compositePodGroupTemplates"


def _depth(template: JsonObject) -> int:
    children = template.get("compositePodGroupTemplates") or ()
    return 1 + max((_depth(child) for child in children), default=0)


def _one_priority(spec: JsonObject) -> Problems:
    first = set(map(_priority, spec.get("podGroupTemplates") or ()))
    if len(first) > 1:
        yield invalid("spec", None, "detected multiple priority configurations")
    elif len(first | set(map(_priority, _below(spec)))) > 1:
        detail = (
            "all priority and priorityClassName values must be identical, detected multiple values"
        )
        yield invalid("spec", None, detail)


def _priority(template: JsonObject) -> tuple[str, int | None]:
    return template.get("priorityClassName", ""), template.get("priority")


def _below(parent: JsonObject) -> Iterator[JsonObject]:
    for template in parent.get("compositePodGroupTemplates") or ():
        yield template
        yield from template.get("podGroupTemplates") or ()
        yield from _below(template)


def _has_children(template: JsonObject, path: str) -> Problems:
    children = template.get("compositePodGroupTemplates")
    if not children and not template.get("podGroupTemplates"):
        detail = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
        yield invalid(path, template.get("name", ""), detail)
    for here, child in numbered(children, _composites(path)):
        yield from _has_children(child, here)


# -- what `TYPES` means ---------------------------------------------------------------------------


def _object(type_: Type, obj: JsonObject, old: JsonObject | None, path: str) -> Problems:
    if type_.union:
        given, before = _members(type_, obj), _members(type_, old) if old is not None else None
        listed = ", ".join(f"`{name}`" for name in type_.union)
        if given != before and not given:
            yield invalid(path, "", f"must specify one of: {listed}")
        elif given != before and len(given) > 1:
            both = f"{{{', '.join(given)}}}"
            yield invalid(path, both, f"must specify exactly one of: {listed}")
    for name, field in type_.fields.items():
        value, before_value = obj.get(name), old.get(name) if old is not None else None
        if old is None or _plain(value) != _plain(before_value):
            yield from _field(
                field, value, before_value, f"{path}.{name}", is_update=old is not None
            )


def _plain(value: Json) -> Json:
    """The value; an empty list or text is no other than none."""
    return None if value in ([], "") else value


def _members(type_: Type, obj: JsonObject) -> list[str]:
    return [name for name in type_.union if _plain(obj.get(name)) is not None]


def _field(field: Field, value: Json, old: Json, path: str, *, is_update: bool) -> Problems:
    if field.is_embedded:
        value, old = value or {}, (old or {}) if is_update else None
    problems = [*_update_problems(field, value, old, path)] if is_update else []
    if field.limit and len(value or ()) > field.limit:
        problems.append(too_many(path, len(value), field.limit))
    if field.is_required and value in _NOTHING:
        problems.append(required(path))
    if problems or value is None:
        return problems
    if field.limit:
        return _items(field, value, old if is_update else None, path)
    if field.type:
        return _object(TYPES[field.type], value, old, path)
    return field.rule(value, path) if field.rule is not None else []


def _update_problems(field: Field, value: Json, old: Json, path: str) -> Problems:
    if field.is_immutable:
        yield invalid(path, None, IS_IMMUTABLE)
    if field.has_fixed_presence and old is None:
        yield invalid(path, None, "field cannot be set once created")
    if field.has_fixed_presence and value is None:
        yield invalid(path, None, "field cannot be cleared once set")
    if field.has_fixed_items:
        names, before = _names(value), _names(old)
        for here, name in numbered(names, path):
            if name not in before:
                yield forbidden(here, "item may not be added")
        for name in before:
            if name not in names:
                yield forbidden(path, "item may not be removed")


def _items(
    field: Field, items: list[JsonObject], old: list[JsonObject] | None, path: str
) -> Problems:
    before = {item.get("name", ""): item for item in old or ()} if field.has_fixed_items else {}
    if "name" in TYPES[field.type].fields:
        seen: set[str] = set()
        for here, item in numbered(items, path):
            if item.get("name", "") in seen:
                yield duplicate(here, item)
            seen.add(item.get("name", ""))
    for here, item in numbered(items, path):
        known = before.get(item.get("name", ""))
        if known is None or known != item:
            yield from _object(TYPES[field.type], item, known, here)
