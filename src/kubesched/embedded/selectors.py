"""Label and field selectors of list and watch requests, compiled to predicates over JSON objects.

The grammar is that of query strings (`app=web,tier in (a,b),!legacy`), not the structured `LabelSelector` of specs.
Field selectors know only the fields Kubernetes indexes per kind; any other field is refused as there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from kubesched.embedded.objects import JsonObject
from kubesched.embedded.resources import ResourceInfo
from kubesched.errors import BadRequest

Predicate: TypeAlias = Callable[[JsonObject], bool]
_LabelTest: TypeAlias = Callable[[Mapping[str, str]], bool]

_NO_LABELS: dict[str, str] = {}
_LABEL_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_NAME = re.compile(_LABEL_PART)
_TOKEN = re.compile(r"\s*(notin\b|in\b|==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")


def is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (0 < len(prefix) <= 253 and _PREFIX.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    return value == "" or (len(value) <= 63 and _NAME.fullmatch(value) is not None)


def compile_label_selector(text: str) -> Predicate | None:
    """The test for a label selector; None when it selects everything."""
    if not text.strip():
        return None
    tests = _LabelParser(text).parse()
    if len(tests) == 1:
        only = tests[0]
        return lambda obj: only(obj["metadata"].get("labels") or _NO_LABELS)

    def matches(obj: JsonObject) -> bool:
        labels = obj["metadata"].get("labels") or _NO_LABELS
        return all(test(labels) for test in tests)

    return matches


class _LabelParser:
    """Recursive descent over the selector's tokens; every failure names the whole selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._next = 0

    def parse(self) -> list[_LabelTest]:
        tests = [self._requirement()]
        while self._peek():
            self._expect(",")
            tests.append(self._requirement())
        return tests

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._take()
        if found != token:
            raise self._error(f"found '{found}', expected: '{token}'")

    def _error(self, detail: str) -> BadRequest:
        return BadRequest(f'unable to parse requirement: {detail} in label selector "{self._text}"')

    def _requirement(self) -> _LabelTest:
        if self._peek() == "!":
            self._take()
            missing = self._key()
            return lambda labels: missing not in labels
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._take()
        if operator in ("=", "=="):
            value = self._value()
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self._value()
            return lambda labels: labels.get(key) != value
        if operator in ("in", "notin"):
            values = self._values()
            if operator == "in":
                return lambda labels: labels.get(key) in values
            return lambda labels: key not in labels or labels[key] not in values
        if operator in ("<", ">"):
            return self._comparison(key, operator)
        raise self._error(f"found '{operator}', expected: in, notin, =, ==, !=, >, <")

    def _comparison(self, key: str, operator: str) -> _LabelTest:
        text = self._value()
        try:
            bound = int(text)
        except ValueError:
            raise self._error(
                f"for '{operator}' operator, the value must be an integer, found '{text}'"
            ) from None

        def compare(labels: Mapping[str, str]) -> bool:
            try:
                value = int(labels.get(key, ""))
            except ValueError:
                return False
            return value > bound if operator == ">" else value < bound

        return compare

    def _key(self) -> str:
        key = self._take()
        if not is_label_key(key):
            raise self._error(f"invalid label key '{key}'")
        return key

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._take()
        if not is_label_value(value):
            raise self._error(f"invalid label value '{value}'")
        return value

    def _values(self) -> frozenset[str]:
        self._expect("(")
        values = {self._value() if self._peek() != ")" else ""}
        while self._peek() == ",":
            self._take()
            values.add(self._value() if self._peek() != ")" else "")
        self._expect(")")
        return frozenset(values)


def _path(*keys: str, default: str = "") -> Callable[[JsonObject], str]:
    def read(obj: JsonObject) -> str:
        value: object = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
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

# The fields of each kind that can be selected on, as the API server's strategies list them.
FIELDS: dict[str, dict[str, Callable[[JsonObject], str]]] = {
    "pods": {
        "spec.nodeName": _path("spec", "nodeName"),
        "spec.restartPolicy": _path("spec", "restartPolicy"),
        "spec.schedulerName": _path("spec", "schedulerName"),
        "spec.serviceAccountName": _path("spec", "serviceAccountName"),
        "spec.hostNetwork": _path("spec", "hostNetwork", default="false"),
        "status.phase": _path("status", "phase"),
        "status.podIP": _pod_ip,
        "status.nominatedNodeName": _path("status", "nominatedNodeName"),
    },
    "nodes": {"spec.unschedulable": _path("spec", "unschedulable", default="false")},
    "namespaces": {"status.phase": _path("status", "phase"), "name": _path("metadata", "name")},
    "persistentvolumes": {"name": _path("metadata", "name")},
    "persistentvolumeclaims": {"name": _path("metadata", "name")},
    "replicationcontrollers": {"status.replicas": _path("status", "replicas", default="0")},
    "replicasets.apps": {"status.replicas": _path("status", "replicas", default="0")},
    "secrets": {"type": _path("type")},
    "services": {"spec.clusterIP": _path("spec", "clusterIP"), "spec.type": _path("spec", "type")},
    "jobs.batch": {"status.successful": _path("status", "succeeded", default="0")},
    "resourceslices.resource.k8s.io": {
        "spec.nodeName": _path("spec", "nodeName"),
        "spec.driver": _path("spec", "driver"),
    },
    "events": {
        **{f"involvedObject.{each}": _path("involvedObject", each) for each in _INVOLVED},
        "reason": _path("reason"),
        "reportingComponent": _path("reportingComponent"),
        "source": _event_source,
        "type": _path("type"),
    },
}
FIELDS["events.events.k8s.io"] = {
    **FIELDS["events"],
    **{f"regarding.{each}": _path("involvedObject", each) for each in _INVOLVED},
    "reportingController": _path("reportingComponent"),
}


def compile_field_selector(resource: ResourceInfo, text: str) -> Predicate | None:
    """The test for a field selector of this resource (over its stored form); None when it selects everything."""
    if not text.strip():
        return None
    tests = []
    for term in text.split(","):
        if not term:
            continue
        field, operator, value = _split_field_term(term, text)
        read = _field_reader(resource, field)
        tests.append((read, value, operator == "!="))
    if len(tests) == 1:
        read, wanted, negated = tests[0]
        if negated:
            return lambda obj: read(obj) != wanted
        return lambda obj: read(obj) == wanted
    return lambda obj: all((read(obj) == wanted) is not negated for read, wanted, negated in tests)


def _split_field_term(term: str, whole: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        field, found, value = term.partition(operator)
        if found:
            return field.strip(), operator, value
    raise BadRequest(f"invalid selector: '{whole}'; can't understand '{term}'")


def _field_reader(resource: ResourceInfo, field: str) -> Callable[[JsonObject], str]:
    if field == "metadata.name":
        return _path("metadata", "name")
    if field == "metadata.namespace" and resource.namespaced:
        return _path("metadata", "namespace")
    found = FIELDS.get(resource.key, {}).get(field)
    if found is None:
        raise BadRequest(
            f"field label not supported: {field}"
            if resource.custom or resource.key not in FIELDS
            else f'field label "{field}" not supported for {resource.kind}'
        )
    return found


def combine(*predicates: Predicate | None) -> Predicate | None:
    """All of the given tests at once; None stands for a test that everything passes."""
    present = [each for each in predicates if each is not None]
    if not present:
        return None
    if len(present) == 1:
        return present[0]
    return lambda obj: all(each(obj) for each in present)
