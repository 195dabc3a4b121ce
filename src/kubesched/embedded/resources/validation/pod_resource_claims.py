"""Rules for the resource claims of pods and of their containers."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.field_errors import (
    ErrorType,
    FieldError,
    duplicate,
    invalid,
    required,
)
from kubesched.api.names import dns_1123_label_problems, dns_1123_subdomain_problems
from kubesched.embedded.apimachinery.objects import JsonObject
from kubesched.embedded.apimachinery.validation import Problems, refused

_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def resource_claims(spec: JsonObject, path: str) -> Problems:
    """Problems of a pod's claims, and of what its containers use of them."""
    entries = spec.get("resourceClaims") or ()
    names: set[str] = set()
    for index, entry in enumerate(entries):
        yield from _pod_claim(entry, names, f"{path}.resourceClaims[{index}]")
    known = {entry["name"] for entry in entries if entry.get("name")}
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            used = (container.get("resources") or {}).get("claims")
            if used:
                here = f"{path}.{field}[{index}].resources.claims"
                yield from _container_claims(used, known, here)


def _pod_claim(entry: JsonObject, names: set[str], path: str) -> Problems:
    name = entry.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif name in names:
        yield duplicate(f"{path}.name", name)
    else:
        yield from refused(f"{path}.name", name, dns_1123_label_problems(name))
        names.add(name)
    given = [field for field in _SOURCES if entry.get(field) is not None]
    if len(given) == len(_SOURCES):
        detail = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        )
        yield invalid(path, entry, detail)
    elif not given:
        detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        yield invalid(path, entry, detail)
    for field in given:
        value = entry[field]
        yield from refused(f"{path}.{field}", value, dns_1123_subdomain_problems(value))


def _container_claims(entries: Sequence[JsonObject], pod_claims: set[str], path: str) -> Problems:
    """A container uses all of a claim or some of its requests, each once."""
    used: set[str] = set()
    for index, entry in enumerate(entries):
        here = f"{path}[{index}]"
        name, request = entry.get("name", ""), entry.get("request", "")
        if not name:
            yield required(here)
            continue
        if name in used:
            yield duplicate(here, name)
        else:
            key = f"{name}/{request}" if request else name
            if request:
                yield from refused(f"{here}.request", request, dns_1123_label_problems(request))
            if key in used or any(other.partition("/")[0] == key for other in used):
                yield duplicate(here, key)
            used.add(key)
        if name not in pod_claims:
            listed = f": {', '.join(sorted(pod_claims))}" if pod_claims else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
            yield FieldError(ErrorType.NOT_FOUND, here, name, detail)
