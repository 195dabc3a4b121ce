"""Escalation check: users can grant only permissions that they hold.

Upstream's rule: a role may be written by users whose own rules cover all of its rules, or who may
`escalate` it; a binding by users whose rules cover those of the referenced role, or who may `bind`
that role. Writes of the process itself have no user and are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.failures import forbidden, not_found
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.auth.rbac import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLE_BINDINGS,
    ROLES,
    Attributes,
    RbacAuthorizer,
    includes,
    path_matches,
)
from kubesched.playground.registry.rest_storage import AdmissionRequest, RestStorage
from kubesched.playground.registry.users import MASTERS, User

_EVERYTHING: list[JsonObject] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
_NEEDS_EVERYTHING = "must have cluster-admin privileges to use the aggregationRule"


class EscalationCheck:
    """An `AdmissionCheck` for roles and bindings."""

    def __init__(self, authorizer: RbacAuthorizer) -> None:
        self._authorizer = authorizer

    def __call__(self, request: AdmissionRequest) -> None:
        registry, resource, obj, old, _, options = request
        user = options.user
        if user is None or resource.group != GROUP or MASTERS in user.groups:
            return
        if resource.key in (ROLES, CLUSTER_ROLES):
            self._check_role(resource, user, obj, old)
        elif resource.key in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            self._check_binding(registry, resource, user, obj)

    def _check_role(
        self, resource: ResourceInfo, user: User, role: JsonObject, old: JsonObject | None
    ) -> None:
        metadata = role["metadata"]
        namespace = metadata.get("namespace", "")
        wanted = Attributes(
            verb="escalate",
            group=GROUP,
            resource=resource.plural,
            name=metadata["name"] if old is not None else "",
            namespace=namespace,
        )
        if self._authorizer.allows(user, wanted) is not None:
            return
        self._require(resource, metadata["name"], user, namespace, role.get("rules") or [])
        aggregates = role.get("aggregationRule") or (old is not None and old.get("aggregationRule"))
        if aggregates and self._missing(user, namespace, _EVERYTHING):
            raise forbidden(resource, metadata["name"], _NEEDS_EVERYTHING)

    def _check_binding(
        self, registry: RestStorage, resource: ResourceInfo, user: User, binding: JsonObject
    ) -> None:
        metadata = binding["metadata"]
        namespace = metadata.get("namespace", "")
        reference = binding.get("roleRef") or {}
        is_cluster_role = reference.get("kind") == "ClusterRole"
        role_resource = registry.catalog.get(CLUSTER_ROLES if is_cluster_role else ROLES)
        name = reference.get("name", "")
        wanted = Attributes(
            verb="bind",
            group=GROUP,
            resource=role_resource.plural,
            name=name,
            namespace=namespace,
        )
        if self._authorizer.allows(user, wanted) is not None:
            return
        role = registry.store.get(
            role_resource.storage_key, "" if is_cluster_role else namespace, name
        )
        if role is None:
            raise not_found(role_resource, name)
        rules = role.obj.get("rules") or []
        self._require(resource, metadata["name"], user, namespace, rules)

    def _require(
        self,
        resource: ResourceInfo,
        name: str,
        user: User,
        namespace: str,
        rules: Iterable[JsonObject],
    ) -> None:
        missing = self._missing(user, namespace, rules)
        if missing:
            lines = "\n".join(sorted({_described(rule) for rule in _compacted(missing)}))
            why = (
                f'user "{user.name}" (groups={_quoted(user.groups)}) is attempting to grant RBAC'
                f" permissions not currently held:\n{lines}"
            )
            raise forbidden(resource, name, why)

    def _missing(self, user: User, namespace: str, rules: Iterable[JsonObject]) -> list[JsonObject]:
        held = [rule for _, rule in self._authorizer.rules(user, namespace)]
        return [
            simple
            for rule in rules
            for simple in _simple_rules(rule)
            if not any(_is_covered(simple, own) for own in held)
        ]


def _simple_rules(rule: JsonObject) -> Iterator[JsonObject]:
    """Split a rule into simple rules: one verb on one resource, object or path."""
    verbs = rule.get("verbs") or ()
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    for group, resource, verb in product(groups, resources, verbs):
        simple = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        names = rule.get("resourceNames")
        if not names:
            yield simple
        for name in names or ():
            yield {**simple, "resourceNames": [name]}
    for path, verb in product(rule.get("nonResourceURLs") or (), verbs):
        yield {"nonResourceURLs": [path], "verbs": [verb]}


def _is_covered(simple: JsonObject, own: JsonObject) -> bool:
    """Whether the held rule `own` covers a simple rule."""
    if not includes(own.get("verbs"), simple["verbs"][0]):
        return False
    if "nonResourceURLs" in simple:
        [path] = simple["nonResourceURLs"]
        return any(path_matches(held, path) for held in own.get("nonResourceURLs") or ())
    [group], [resource] = simple["apiGroups"], simple["resources"]
    resources = own.get("resources") or ()
    is_resource_held = includes(resources, resource) or (
        "/" in resource and f"*/{resource.partition('/')[2]}" in resources
    )
    if not is_resource_held or not includes(own.get("apiGroups"), group):
        return False
    names = own.get("resourceNames")
    return not names or ("resourceNames" in simple and simple["resourceNames"][0] in names)


def _compacted(rules: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Merge simple rules about the same objects into one rule with all their verbs."""
    merged: dict[tuple[object, ...], JsonObject] = {}
    for rule in rules:
        if "nonResourceURLs" in rule:
            yield rule
            continue
        key = (*rule["apiGroups"], *rule["resources"], *rule.get("resourceNames", ()))
        known = merged.setdefault(key, {**rule, "verbs": []})
        if rule["verbs"][0] not in known["verbs"]:
            known["verbs"].append(rule["verbs"][0])
    yield from merged.values()


def _described(rule: JsonObject) -> str:
    fields = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("ResourceNames", "resourceNames"),
        ("Verbs", "verbs"),
    )
    parts = [f"{label}:{_quoted(rule[field])}" for label, field in fields if rule.get(field)]
    return "{" + ", ".join(parts) + "}"


def _quoted(values: Iterable[str]) -> str:
    return "[" + " ".join(f'"{value}"' for value in values) + "]"
