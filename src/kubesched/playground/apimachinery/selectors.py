"""Selectors over JSON objects: label and field selectors, and the `LabelSelector` of specs.

Field selectors support only the fields that Kubernetes offers for a kind, and reject others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from kubesched.api import field_selectors
from kubesched.api import selectors as label_selectors
from kubesched.api.selectors import API_OPERATORS, Requirement, SelectorError
from kubesched.base.errors import BadRequest
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import Json, JsonObject, value_at

Predicate: TypeAlias = Callable[[JsonObject], bool]
FieldReader: TypeAlias = Callable[[JsonObject], str]


MAX_PARTS = 200
"""Requirements and values of a selector: each object of a list may be compared with all of them."""
P = TypeVar("P")


def compile_label_selector(text: str) -> Predicate | None:
    """The predicate of a label selector; None if it selects everything."""
    if not text.strip():
        return None
    matches = _parsed(label_selectors.parse, text).matches
    return lambda obj: matches(obj["metadata"].get("labels"))


def compile_field_selector(resource: ResourceInfo, text: str) -> Predicate | None:
    """The predicate of a field selector, over stored objects; None if it selects everything."""
    if not text.strip():
        return None
    tests = [
        (_field_reader(resource, requirement.field), requirement.value, requirement.is_equal)
        for requirement in _parsed(field_selectors.parse, text).requirements
    ]
    return lambda obj: all((read(obj) == wanted) is is_equal for read, wanted, is_equal in tests)


def _parsed(parse: Callable[[str], P], text: str) -> P:
    if text.count(",") >= MAX_PARTS:
        raise BadRequest(f"the selector has more than {MAX_PARTS} requirements and values")
    try:
        return parse(text)
    except SelectorError as error:
        raise BadRequest(str(error)) from None


def combine(*predicates: Predicate | None) -> Predicate | None:
    """The conjunction of the predicates; None accepts everything."""
    present = [predicate for predicate in predicates if predicate is not None]
    if not present:
        return None
    if len(present) == 1:
        return present[0]
    return lambda obj: all(predicate(obj) for predicate in present)


def selector_matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches the labels; None matches nothing, an empty one everything."""
    if not isinstance(selector, dict):
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions") or ():
        operator = API_OPERATORS.get(each.get("operator"))
        requirement = operator and Requirement(
            each.get("key", ""), operator, each.get("values") or ()
        )
        if requirement is None or not requirement.matches(labels):
            return False
    return True


def _field_reader(resource: ResourceInfo, field: str) -> FieldReader:
    if field == "metadata.name":
        return _path("metadata", "name")
    if field == "metadata.namespace" and resource.namespaced:
        return _path("metadata", "namespace")
    reader = FIELDS.get(resource.key, {}).get(field)
    if reader is None:
        raise BadRequest(
            f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            if resource.key not in FIELDS
            else f"field label not supported: {field}"
        )
    return reader


def _path(*keys: str, default: str = "") -> FieldReader:
    def read(obj: JsonObject) -> str:
        value = value_at(obj, keys)
        if value is None:
            return default
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    return read


def _pod_ip(obj: JsonObject) -> str:
    status = obj.get("status") or {}
    pod_ips = status.get("podIPs") or ()
    ip: str = pod_ips[0].get("ip", "") if pod_ips else status.get("podIP", "")
    return ip


def _event_source(obj: JsonObject) -> str:
    source: str = (obj.get("source") or {}).get("component") or obj.get("reportingComponent", "")
    return source


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

_PLAIN = {
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName"
    " spec.hostNetwork=false status.phase status.nominatedNodeName",
    "certificatesigningrequests.certificates.k8s.io": "spec.signerName",
    "nodes": "spec.unschedulable=false",
    "namespaces": "status.phase",
    "persistentvolumes": "",
    "persistentvolumeclaims": "",
    "replicationcontrollers": "status.replicas=0",
    "replicasets.apps": "status.replicas=0",
    "secrets": "type",
    "services": "spec.clusterIP spec.type",
    "jobs.batch": "",
    "resourceslices.resource.k8s.io": "spec.nodeName spec.driver spec.pool.name",
    "events": "reason reportingComponent type",
}
"""Fields that are read where their name says; `=` gives the value of a missing one."""


def _plain(text: str) -> dict[str, FieldReader]:
    pairs = [field.partition("=") for field in text.split()]
    return {field: _path(*field.split("."), default=default) for field, _, default in pairs}


FIELDS: dict[str, dict[str, FieldReader]] = {key: _plain(text) for key, text in _PLAIN.items()}
FIELDS["pods"]["status.podIP"] = _pod_ip
for _key in ("namespaces", "persistentvolumes", "persistentvolumeclaims"):
    FIELDS[_key]["name"] = _path("metadata", "name")
FIELDS["jobs.batch"]["status.successful"] = _path("status", "succeeded", default="0")
FIELDS["events"]["source"] = _event_source
FIELDS["events"] |= {f"involvedObject.{name}": _path("involvedObject", name) for name in _INVOLVED}
FIELDS["events.events.k8s.io"] = {
    **FIELDS["events"],
    **{f"regarding.{name}": _path("involvedObject", name) for name in _INVOLVED},
    "reportingController": _path("reportingComponent"),
}
