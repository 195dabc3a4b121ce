"""Default roles and bindings of a cluster with RBAC.

`admin`, `edit` and `view` cover the kinds served here. They are aggregated by upstream's labels, so
that roles for custom resources can be added to them.
"""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.auth.rbac import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.registry.users import AUTHENTICATED, MASTERS

_API = "rbac.authorization.k8s.io/v1"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_WORKLOADS = [
    ("", ["configmaps", "endpoints", "persistentvolumeclaims", "pods",
          "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services"]),
    ("apps", ["controllerrevisions", "daemonsets", "deployments", "deployments/scale",
              "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale"]),
    ("autoscaling", ["horizontalpodautoscalers"]),
    ("batch", ["cronjobs", "jobs"]),
    ("discovery.k8s.io", ["endpointslices"]),
    ("networking.k8s.io", ["ingresses", "networkpolicies"]),
    ("policy", ["poddisruptionbudgets"]),
    ("resource.k8s.io", ["resourceclaims", "resourceclaimtemplates"]),
]  # fmt: skip
_READ_ONLY = [
    ("", ["bindings", "events", "limitranges", "namespaces", "namespaces/status",
          "pods/log", "pods/status", "resourcequotas", "resourcequotas/status"]),
    ("metrics.k8s.io", ["nodes", "pods"]),
]  # fmt: skip
_COMMANDS = ["pods/attach", "pods/eviction", "pods/exec", "pods/portforward"]


def _rule(group: str, resources: list[str], verbs: list[str]) -> JsonObject:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


_VIEW = [_rule(group, resources, _READ) for group, resources in [*_WORKLOADS, *_READ_ONLY]]
_EDIT = [
    *_VIEW,
    *(_rule(group, resources, _WRITE) for group, resources in _WORKLOADS),
    _rule("", ["secrets"], [*_READ, *_WRITE]),
    _rule("", _COMMANDS, ["create", "get"]),
    _rule("", ["serviceaccounts"], ["impersonate"]),
    _rule("", ["serviceaccounts/token"], ["create"]),
]
_ADMIN = [
    *_EDIT,
    _rule("rbac.authorization.k8s.io", ["rolebindings", "roles"], [*_READ, *_WRITE]),
    _rule("authorization.k8s.io", ["localsubjectaccessreviews"], ["create"]),
]
_EVERYTHING = [
    _rule("*", ["*"], ["*"]),
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
_DISCOVERY = [
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi",
    "/openapi/*", "/readyz", "/version", "/version/",
]  # fmt: skip

ROLES: dict[str, list[JsonObject]] = {
    "cluster-admin": _EVERYTHING,
    "admin": _ADMIN,
    "edit": _EDIT,
    "view": _VIEW,
    "system:discovery": [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}],
    "system:basic-user": [
        _rule("authorization.k8s.io", ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
              ["create"]),
        _rule("authentication.k8s.io", ["selfsubjectreviews"], ["create"]),
    ],
}  # fmt: skip
_AGGREGATE_TO = "rbac.authorization.k8s.io/aggregate-to-"
_AGGREGATED = ("admin", "edit", "view")
_AGGREGATED_TO = {"edit": "admin", "view": "edit"}
_PLAIN_ROLE = {"apiVersion": _API, "kind": "ClusterRole"}
BINDINGS = {
    "cluster-admin": MASTERS,
    "system:discovery": AUTHENTICATED,
    "system:basic-user": AUTHENTICATED,
}


def create_roles(registry: RestStorage) -> None:
    """Create missing roles and bindings; existing ones are not changed."""
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    for name, rules in ROLES.items():
        role: JsonObject = {"apiVersion": _API, "kind": "ClusterRole", "rules": rules}
        target = _AGGREGATED_TO.get(name)
        own_labels = {**labels, f"{_AGGREGATE_TO}{target}": "true"} if target else labels
        role["metadata"] = {"name": name, "labels": own_labels}
        if name in _AGGREGATED:
            selector = {"matchLabels": {f"{_AGGREGATE_TO}{name}": "true"}}
            role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
            part = {
                "name": f"system:aggregate-to-{name}",
                "labels": {**labels, f"{_AGGREGATE_TO}{name}": "true"},
            }
            _ensure(registry, CLUSTER_ROLES, {**_PLAIN_ROLE, "metadata": part, "rules": rules})
        _ensure(registry, CLUSTER_ROLES, role)
    for name, group in BINDINGS.items():
        binding = {
            "apiVersion": _API,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        }
        _ensure(registry, CLUSTER_ROLE_BINDINGS, binding)


def _ensure(registry: RestStorage, resource: str, obj: JsonObject) -> None:
    info = registry.catalog.get(resource)
    if registry.store.get(info.storage_key, "", obj["metadata"]["name"]) is None:
        registry.create(info, "", obj, WriteOptions(manager="kube-apiserver"))
