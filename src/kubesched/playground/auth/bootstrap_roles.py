"""Default roles and bindings of a cluster with RBAC, from `roles.txt`.

`admin`, `edit` and `view` cover the kinds served here. Unlike upstream's they are not aggregated.
"""

from __future__ import annotations

import re
from importlib import resources

from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.auth.rbac import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.registry.steps import at_once

_API = "rbac.authorization.k8s.io/v1"
_SCHEDULING = "scheduling.k8s.io"
_VERBS = {
    "read": ["get", "list", "watch"],
    "write": ["create", "delete", "deletecollection", "patch", "update"],
}


def _parse(text: str) -> tuple[dict[str, list[JsonObject]], dict[str, tuple[str, str]]]:
    """The rules of each role, and kind and name of the subject that it is bound to."""
    parts: dict[str, list[list[str]]] = {}
    roles: dict[str, list[JsonObject]] = {}
    subjects: dict[str, tuple[str, str]] = {}
    part, role = "", ""
    for line in re.sub(r"\n  (?=\S)", " ", text).splitlines():
        if line.startswith("("):
            part, role = line, ""
        elif line.startswith("["):
            role, *subject = line[1:].replace("]", "").split()
            roles[role] = []
            if subject:
                subjects[role] = (subject[0], subject[1])
        elif line.startswith("+ "):
            roles[role] += roles[line[2:]]
        elif line and not line.startswith("#"):
            fields = re.split(r"\s{2,}", line)
            if not role:
                parts.setdefault(part, []).append(fields)
            elif fields[1].startswith("("):
                roles[role] += [_rule(fields[0], *row) for row in parts[fields[1]]]
            else:
                roles[role].append(_rule(*fields))
    return roles, subjects


def _rule(verbs: str, group: str, resources: str = "", only: str = "") -> JsonObject:
    every = [verb for word in verbs.split() for verb in _VERBS.get(word, [word])]
    if group.startswith("/"):  # paths; `/**` is everything
        return {"nonResourceURLs": group.replace("/**", "*").split(), "verbs": every}
    groups = ["" if group == "-" else group]
    rule: JsonObject = {"apiGroups": groups, "resources": resources.split(), "verbs": every}
    return {**rule, "resourceNames": [only.removeprefix("only=")]} if only else rule


ROLES, BINDINGS = _parse(
    resources.files(__package__).joinpath("roles.txt").read_text(encoding="utf-8")
)


def create_roles(registry: RestStorage) -> None:
    """Create missing roles and bindings; existing ones are not changed."""
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    is_served = {resource.key for resource in registry.catalog}.__contains__
    for name, every in ROLES.items():
        # Upstream: rules for kinds behind a feature gate are only there if it is on.
        rules = [
            rule
            for rule in every
            if rule.get("apiGroups") != [_SCHEDULING]
            or is_served(f"{rule['resources'][0].partition('/')[0]}.{_SCHEDULING}")
        ]
        role: JsonObject = {"apiVersion": _API, "kind": "ClusterRole", "rules": rules}
        role["metadata"] = {"name": name, "labels": labels}
        _ensure(registry, CLUSTER_ROLES, role)
    for name, (kind, subject) in BINDINGS.items():
        binding = {
            "apiVersion": _API,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
        }
        _ensure(registry, CLUSTER_ROLE_BINDINGS, binding)


def _ensure(registry: RestStorage, resource: str, obj: JsonObject) -> None:
    info = registry.catalog.get(resource)
    if registry.store.get(info.storage_key, "", obj["metadata"]["name"]) is None:
        at_once(registry.create(info, "", obj, WriteOptions(manager="kube-apiserver")))
