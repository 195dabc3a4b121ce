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
_SCHEDULING = "scheduling.k8s.io"
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
    (_SCHEDULING, ["podgroups", "workloads"]),
    (_SCHEDULING, ["compositepodgroups"]),
]  # fmt: skip
_READ_ONLY = [
    ("", ["bindings", "events", "limitranges", "namespaces", "namespaces/status",
          "pods/log", "pods/status", "resourcequotas", "resourcequotas/status"]),
    (_SCHEDULING, ["podgroups/status"]),
    (_SCHEDULING, ["compositepodgroups/status"]),
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
_UPDATE = ["patch", "update"]
_SCHEDULER = [
    _rule("", ["namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods",
               "replicationcontrollers", "services"], _READ),
    _rule("apps", ["replicasets", "statefulsets"], _READ),
    _rule("policy", ["poddisruptionbudgets"], _READ),
    _rule("storage.k8s.io", ["csidrivers", "csinodes", "csistoragecapacities",
                             "volumeattachments"], _READ),
    _rule("resource.k8s.io", ["deviceclasses", "devicetaintrules", "resourceclaims",
                              "resourceclaims/status", "resourceslices"], _READ),
    _rule("", ["pods"], ["delete"]),
    _rule("", ["bindings", "pods/binding"], ["create"]),
    _rule("", ["pods/finalizers"], ["update"]),
    _rule("", ["pods/status"], _UPDATE),
    _rule("resource.k8s.io", ["resourceclaims"], ["create", "delete", *_UPDATE]),
    _rule("resource.k8s.io", ["resourceclaims/binding", "resourceclaims/status"], _UPDATE),
    _rule(_SCHEDULING, ["podgroups"], _READ),
    _rule(_SCHEDULING, ["podgroups/status"], _UPDATE),
    _rule(_SCHEDULING, ["compositepodgroups"], _READ),
    _rule(_SCHEDULING, ["compositepodgroups/status"], _UPDATE),
    _rule("", ["events"], ["create", *_UPDATE]),
    _rule("events.k8s.io", ["events"], ["create", *_UPDATE]),
    _rule("coordination.k8s.io", ["leases"], ["create"]),
    {**_rule("coordination.k8s.io", ["leases"], [*_READ, "update"]),
     "resourceNames": ["kube-scheduler"]},
    _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
    _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
]  # fmt: skip
_VOLUME_SCHEDULER = [
    _rule("", ["persistentvolumes"], [*_READ, *_UPDATE]),
    _rule("storage.k8s.io", ["storageclasses"], _READ),
    _rule("", ["persistentvolumeclaims"], [*_READ, *_UPDATE]),
]

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
    "system:kube-scheduler": _SCHEDULER,
    "system:volume-scheduler": _VOLUME_SCHEDULER,
}  # fmt: skip
_AGGREGATE_TO = "rbac.authorization.k8s.io/aggregate-to-"
_AGGREGATED = ("admin", "edit", "view")
_AGGREGATED_TO = {"edit": "admin", "view": "edit"}
_PLAIN_ROLE = {"apiVersion": _API, "kind": "ClusterRole"}
BINDINGS = {
    "cluster-admin": ("Group", MASTERS),
    "system:discovery": ("Group", AUTHENTICATED),
    "system:basic-user": ("Group", AUTHENTICATED),
    "system:kube-scheduler": ("User", "system:kube-scheduler"),
    "system:volume-scheduler": ("User", "system:kube-scheduler"),
}
"""Kind and name of the subject of each role."""


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
        registry.create(info, "", obj, WriteOptions(manager="kube-apiserver"))
