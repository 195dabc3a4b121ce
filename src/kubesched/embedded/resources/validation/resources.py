"""Rules for requests and limits."""

from __future__ import annotations

from functools import lru_cache

from kubesched.api import quantity
from kubesched.api.field_errors import invalid, required
from kubesched.api.names import label_key_problems
from kubesched.embedded.apimachinery.objects import Json, JsonObject
from kubesched.embedded.apimachinery.validation import IS_NEGATIVE, Problems, refused

_STANDARD = ("cpu", "memory", "ephemeral-storage")
_MUST_BE_INTEGER = "must be an integer"
_NOT_STANDARD = "must be a standard resource for containers"


def container_resources(resources: JsonObject, path: str) -> Problems:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for name, amount in limits.items():
        yield from _amount(name, amount, f"{path}.limits[{name}]")
    for name, amount in requests.items():
        yield from _amount(name, amount, f"{path}.requests[{name}]")
        limit = limits.get(name)
        if limit is not None:
            yield from _within_limit(name, amount, limit, f"{path}.requests")
        elif not _may_overcommit(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")


def _amount(name: str, amount: Json, path: str) -> Problems:
    yield from refused(path, name, _name_problems(name))
    nanos = quantity.nanos(amount)
    if nanos < 0:
        yield invalid(path, amount, IS_NEGATIVE)
    elif nanos % 1_000_000_000 and is_integer_resource(name):
        yield invalid(path, amount, _MUST_BE_INTEGER)


def _within_limit(name: str, amount: Json, limit: Json, path: str) -> Problems:
    asked, allowed = quantity.nanos(amount), quantity.nanos(limit)
    if asked != allowed and not _may_overcommit(name):
        return [
            invalid(path, amount, f"must be equal to {name} limit of {quantity.canonical(limit)}")
        ]
    if asked > allowed:
        return [
            invalid(
                path,
                amount,
                f"must be less than or equal to {name} limit of {quantity.canonical(limit)}",
            )
        ]
    return []


@lru_cache(maxsize=1024)
def _name_problems(name: str) -> tuple[str, ...]:
    if name in _STANDARD or name.startswith("hugepages-"):
        return ()
    problems = label_key_problems(name)
    if not problems and "/" not in name:
        return ("must be a standard resource type or fully qualified", _NOT_STANDARD)
    return problems


@lru_cache(maxsize=1024)
def is_integer_resource(name: str) -> bool:
    """Extended resources and huge pages come in whole pieces only."""
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


@lru_cache(maxsize=1024)
def _may_overcommit(name: str) -> bool:
    """Whether a request may be smaller than its limit; not for devices and huge pages."""
    return not is_integer_resource(name) and not name.startswith("hugepages-")
