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

_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def resource_claims(spec: JsonObject, path: str) -> list[FieldError]:
    """Problems of a pod's claims, and of what its containers use of them."""
    entries = spec.get("resourceClaims") or ()
    names: set[str] = set()
    problems: list[FieldError] = []
    for index, entry in enumerate(entries):
        problems += _pod_claim(entry, names, f"{path}.resourceClaims[{index}]")
    known = {entry["name"] for entry in entries if entry.get("name")}
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            used = (container.get("resources") or {}).get("claims")
            if used:
                here = f"{path}.{field}[{index}].resources.claims"
                problems += _container_claims(used, known, here)
    return problems


def _pod_claim(entry: JsonObject, names: set[str], path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    name = entry.get("name", "")
    if not name:
        problems.append(required(f"{path}.name"))
    elif name in names:
        problems.append(duplicate(f"{path}.name", name))
    else:
        problems += [invalid(f"{path}.name", name, text) for text in dns_1123_label_problems(name)]
        names.add(name)
    given = [field for field in _SOURCES if entry.get(field) is not None]
    if len(given) == len(_SOURCES):
        detail = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        )
        problems.append(invalid(path, entry, detail))
    elif not given:
        detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        problems.append(invalid(path, entry, detail))
    for field in given:
        value = entry[field]
        problems += [
            invalid(f"{path}.{field}", value, text) for text in dns_1123_subdomain_problems(value)
        ]
    return problems


def _container_claims(
    entries: Sequence[JsonObject], pod_claims: set[str], path: str
) -> list[FieldError]:
    """A container uses all of a claim or some of its requests, each once."""
    problems: list[FieldError] = []
    used: set[str] = set()
    for index, entry in enumerate(entries):
        here = f"{path}[{index}]"
        name, request = entry.get("name", ""), entry.get("request", "")
        if not name:
            problems.append(required(here))
            continue
        if name in used:
            problems.append(duplicate(here, name))
        else:
            key = f"{name}/{request}" if request else name
            if request:
                problems += [
                    invalid(f"{here}.request", request, text)
                    for text in dns_1123_label_problems(request)
                ]
            if key in used or any(other.partition("/")[0] == key for other in used):
                problems.append(duplicate(here, key))
            used.add(key)
        if name not in pod_claims:
            listed = f": {', '.join(sorted(pod_claims))}" if pod_claims else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
            problems.append(FieldError(ErrorType.NOT_FOUND, here, name, detail))
    return problems
