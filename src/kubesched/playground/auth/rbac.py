"""Role-based access control: a request needs a matching rule in a role bound to its user.

Cluster role bindings apply everywhere, role bindings in their namespace. Members of
`system:masters` may do everything. Writers of roles and bindings may grant what they do not hold,
unlike upstream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.registry.rest_storage import RestStorage
from kubesched.playground.registry.users import MASTERS, User

GROUP = "rbac.authorization.k8s.io"
CLUSTER_ROLES = f"clusterroles.{GROUP}"
CLUSTER_ROLE_BINDINGS = f"clusterrolebindings.{GROUP}"
ROLES = f"roles.{GROUP}"
ROLE_BINDINGS = f"rolebindings.{GROUP}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The requested action: a verb on a resource or on a non-resource path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def what(self) -> str:
        """The resource, with its subresource if any."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def refusal(self, user: str) -> str:
        """Upstream's message for a forbidden request."""
        if self.path:
            return f'forbidden: User "{user}" cannot {self.verb} path "{self.path}"'
        subject = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f' "{self.name}"' if self.name else ""
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return (
            f'{subject}{named} is forbidden: User "{user}" cannot {self.verb} resource'
            f' "{self.what}" in API group "{self.group}" {where}'
        )


class RbacAuthorizer:
    """Evaluates the roles and bindings in the store."""

    def __init__(self, registry: RestStorage) -> None:
        self._registry = registry

    def allows(self, user: User, attributes: Attributes) -> str | None:
        """The reason the request is allowed; None if it is not."""
        if MASTERS in user.groups:
            return ""
        for reason, rule in self.rules(user, attributes.namespace):
            if _covers(rule, attributes):
                return reason
        return None

    def rules(self, user: User, namespace: str) -> Iterator[tuple[str, JsonObject]]:
        """Rules that apply to the user in a namespace ("": the cluster), with reasons."""
        for binding in self._objects(CLUSTER_ROLE_BINDINGS):
            yield from self._bound(user, binding, "ClusterRoleBinding")
        if namespace:
            for binding in self._objects(ROLE_BINDINGS, namespace):
                yield from self._bound(user, binding, "RoleBinding")

    def _bound(
        self, user: User, binding: JsonObject, kind: str
    ) -> Iterator[tuple[str, JsonObject]]:
        namespace = binding["metadata"].get("namespace", "")
        subject = next(
            (item for item in binding.get("subjects") or () if _is_subject(item, user, namespace)),
            None,
        )
        if subject is None:
            return
        reference = binding.get("roleRef") or {}
        is_cluster_role = reference.get("kind") == "ClusterRole"
        role = self._registry.store.get(
            CLUSTER_ROLES if is_cluster_role else ROLES,
            "" if is_cluster_role else namespace,
            reference.get("name", ""),
        )
        name = binding["metadata"]["name"]
        where = f"{name}/{namespace}" if namespace else name
        reason = (
            f'RBAC: allowed by {kind} "{where}" of {reference.get("kind")}'
            f' "{reference.get("name")}" to {subject.get("kind")} "{_subject_name(subject)}"'
        )
        for rule in (role.obj.get("rules") or ()) if role is not None else ():
            yield reason, rule

    def _objects(self, resource: str, namespace: str | None = None) -> Iterator[JsonObject]:
        return (entry.obj for entry in self._registry.store.collection(resource).entries(namespace))


def _is_subject(subject: JsonObject, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    if kind == "ServiceAccount":
        home = subject.get("namespace") or namespace
        return user.name == f"system:serviceaccount:{home}:{name}"
    return False


def _subject_name(subject: JsonObject) -> str:
    name, namespace = subject.get("name", ""), subject.get("namespace")
    return f"{name}/{namespace}" if namespace else str(name)


def _covers(rule: JsonObject, attributes: Attributes) -> bool:
    if not includes(rule.get("verbs"), attributes.verb):
        return False
    if attributes.path:
        return any(
            path_matches(path, attributes.path) for path in rule.get("nonResourceURLs") or ()
        )
    if not includes(rule.get("apiGroups"), attributes.group):
        return False
    resources = rule.get("resources") or ()
    is_named = includes(resources, attributes.what) or (
        bool(attributes.subresource) and f"*/{attributes.subresource}" in resources
    )
    names = rule.get("resourceNames")
    return is_named and (not names or attributes.name in names)


def includes(values: Collection[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def path_matches(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))
