"""Validation of resource claims, their templates and status, and device classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from uuid import UUID

from kubesched.api.field_errors import forbidden, invalid, required
from kubesched.api.names import dns_1123_subdomain_problems, label_key_problems
from kubesched.api.resource_v1 import (
    MAX_ALLOCATION_RESULTS,
    MAX_CONFIGS,
    MAX_CONSTRAINTS,
    MAX_FIRST_AVAILABLE,
    MAX_RESERVED_FOR,
)
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.apimachinery.validation import Problems, needed, one_of, unchanged
from kubesched.playground.resources.validation import devices
from kubesched.playground.resources.validation.devices import dns_label, fields, items
from kubesched.playground.resources.validation.scheduling import node_selector

_MODES = ("All", "ExactCount")
_ONE_REQUEST_TYPE = "exactly one of `exactly` or `firstAvailable` is required"
_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest"
    " separated by '/'"
)
# Upstream's message is the same if neither is set.
_ONE_CONSTRAINT = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are'
    " set"
)
_NORMALIZED_UID = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase"
    " hexadecimal characters"
)

RequestNames = Mapping[str, frozenset[str]]
"""Names of a request's alternatives by request name; empty if it has none."""


def validate_resource_claim(obj: JsonObject) -> Problems:
    return _claim_spec(obj.get("spec") or {}, "spec")


def validate_resource_claim_template(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    metadata = spec.get("metadata") or {}
    yield from (
        invalid("spec.metadata.annotations", key, text)
        for key in metadata.get("annotations") or ()
        for text in label_key_problems(key.lower())
    )
    yield from (
        invalid("spec.metadata.labels", key, text)
        for key in metadata.get("labels") or ()
        for text in label_key_problems(key)
    )
    yield from _claim_spec(spec.get("spec") or {}, "spec.spec")


def validate_device_class(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    configs = items(MAX_CONFIGS, devices.device_configuration)
    yield from fields(spec, "spec", selectors=devices.selectors, config=configs)
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended_resource(name):
        detail = "must be a valid extended resource name"
        yield invalid("spec.extendedResourceName", name, detail)


def _is_extended_resource(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not label_key_problems(f"requests.{domain}/{name[len(domain) + 1 :]}")


# -- the spec of claims ---------------------------------------------------------------------------


def _claim_spec(spec: JsonObject, path: str) -> Problems:
    names = _request_names(spec)
    return fields(
        spec.get("devices"),
        f"{path}.devices",
        requests=items(MAX_ALLOCATION_RESULTS, _request, _name),
        constraints=items(MAX_CONSTRAINTS, partial(_constraint, names)),
        config=items(MAX_CONFIGS, partial(_configuration, names)),
    )


def _request_names(spec: JsonObject) -> RequestNames:
    requests = (spec.get("devices") or {}).get("requests") or ()
    return {
        request.get("name", ""): frozenset(
            alternative.get("name", "") for alternative in request.get("firstAvailable") or ()
        )
        for request in requests
    }


def _name(entry: JsonObject) -> str:
    return str(entry.get("name", ""))


def _request(request: JsonObject, path: str) -> Problems:
    yield from fields(request, path, name=dns_label)
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is None and not alternatives:
        yield required(path, _ONE_REQUEST_TYPE)
    elif exactly is not None and alternatives:
        detail = f"{_ONE_REQUEST_TYPE}, but multiple fields are set"
        yield invalid(path, None, detail)
    elif exactly is not None:
        yield from _wanted_devices(exactly, f"{path}.exactly")
    else:
        listed = items(MAX_FIRST_AVAILABLE, _alternative, _name)
        yield from fields(request, path, firstAvailable=listed)


def _alternative(request: JsonObject, path: str) -> Problems:
    yield from fields(request, path, name=dns_label)
    yield from _wanted_devices(request, path)


def _wanted_devices(request: JsonObject, path: str) -> Problems:
    yield from fields(request, path, deviceClassName=_class_name, selectors=devices.selectors)
    mode, count = request.get("allocationMode", ""), request.get("count") or 0
    if mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        yield invalid(f"{path}.count", count, detail)
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{path}.count", count, "must be greater than zero")
    yield from one_of(mode, _MODES, f"{path}.allocationMode")
    yield from fields(request, path, tolerations=devices.device_tolerations)


def _class_name(value: str, path: str) -> Problems:
    return needed(path, value, dns_1123_subdomain_problems)


def _constraint(names: RequestNames, constraint: JsonObject, path: str) -> Problems:
    yield from fields(constraint, path, requests=_references(names))
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            yield from devices.fully_qualified_name(constraint[field], f"{path}.{field}")
            return
    yield required(path, _ONE_CONSTRAINT)


def _configuration(names: RequestNames, config: JsonObject, path: str) -> Problems:
    yield from fields(config, path, requests=_references(names))
    yield from devices.device_configuration(config, path)


def _references(names: RequestNames) -> devices.Rule[Sequence[str]]:
    return items(MAX_ALLOCATION_RESULTS, partial(_reference, names), str)


def _reference(names: RequestNames, reference: str, path: str) -> Problems:
    request, *alternatives = reference.split("/")
    if len(alternatives) > 1:
        yield invalid(path, reference, _NO_SUCH_REQUEST)
        return
    for name in (request, *alternatives):
        yield from dns_label(name, path)
    if request not in names or not names[request].issuperset(alternatives):
        yield invalid(path, reference, _NO_SUCH_REQUEST)


# -- the status of claims -------------------------------------------------------------------------


def validate_resource_claim_status(new: JsonObject, old: JsonObject) -> Problems:
    status, before = new.get("status") or {}, old.get("status") or {}
    consumers = status.get("reservedFor")
    allocation, allocated_before = status.get("allocation"), before.get("allocation")
    allocated = set(allocated_devices(allocation))
    yield from fields(
        status,
        "status",
        reservedFor=items(MAX_RESERVED_FOR, _consumer, lambda each: each.get("uid", "")),
        devices=items(10_000, partial(_device_status, allocated)),
    )
    if consumers and allocation is None:
        detail = "may not be specified when `allocated` is not set"
        yield forbidden("status.reservedFor", detail)
    elif consumers and new["metadata"].get("deletionTimestamp") is not None:
        known = before.get("reservedFor") or ()
        if any(consumer not in known for consumer in consumers):
            detail = (
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp`"
                " are set"
            )
            yield forbidden("status.reservedFor", detail)
    if allocation is not None:
        if allocated_before is not None:
            yield from unchanged(allocation, allocated_before, "status.allocation")
        else:
            names = _request_names(new.get("spec") or {})
            yield from _allocation(names, allocation, "status.allocation")


DeviceKey = tuple[str, str, str, str]


def allocated_devices(allocation: JsonObject | None) -> Iterator[DeviceKey]:
    """Driver, pool, name and share of every device in an allocation."""
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return map(device_key, results)


def device_key(entry: JsonObject) -> DeviceKey:
    """Key of the device in an allocation result or device status."""
    return (
        entry.get("driver", ""),
        entry.get("pool", ""),
        entry.get("device", ""),
        entry.get("shareID") or "",
    )


def _consumer(consumer: JsonObject, path: str) -> Problems:
    return [
        required(f"{path}.{field}")
        for field in ("resource", "name", "uid")
        if not consumer.get(field)
    ]


def _device_status(allocated: set[DeviceKey], status: JsonObject, path: str) -> Problems:
    yield from _device_identity(status, path)
    key = device_key(status)
    if key not in allocated:
        shown = "/".join(part for part in key if part)
        yield invalid(path, shown, "must be an allocated device in the claim")
    if status.get("data") is not None:
        yield from devices.raw_object(status["data"], f"{path}.data")


def _device_identity(entry: JsonObject, path: str) -> Problems:
    driver, pool = devices.driver_name, devices.pool_name
    yield from fields(entry, path, driver=driver, pool=pool, device=dns_label)
    share = entry.get("shareID")
    if share is not None and not _is_normalized_uid(share):
        yield invalid(f"{path}.shareID", share, _NORMALIZED_UID)


def _is_normalized_uid(value: str) -> bool:
    try:
        return str(UUID(value)) == value
    except ValueError:
        return False


def _allocation(names: RequestNames, allocation: JsonObject, path: str) -> Problems:
    yield from fields(
        allocation.get("devices"),
        f"{path}.devices",
        results=items(MAX_ALLOCATION_RESULTS, partial(_result, names)),
        # Those of the class and those of the claim.
        config=items(2 * MAX_CONFIGS, partial(_allocated_configuration, names)),
    )
    if allocation.get("nodeSelector") is not None:
        yield from node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")


def _result(names: RequestNames, result: JsonObject, path: str) -> Problems:
    yield from fields(result, path, request=partial(_reference, names))
    yield from _device_identity(result, path)
    yield from devices.binding_conditions(result, path)


def _allocated_configuration(names: RequestNames, config: JsonObject, path: str) -> Problems:
    yield from fields(config, path, source=devices.chosen("FromClaim", "FromClass"))
    yield from _configuration(names, config, path)
