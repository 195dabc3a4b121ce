"""Validation of resource slices: pools, devices with attributes and capacities, shared counters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from kubesched.api import quantity
from kubesched.api.field_errors import forbidden, invalid, required, too_long, too_many
from kubesched.api.names import dns_1123_label_problems, dns_1123_subdomain_problems
from kubesched.playground.apimachinery.objects import Json, JsonObject
from kubesched.playground.apimachinery.validation import IS_NEGATIVE, Problems, needed, refused
from kubesched.playground.resources.validation import devices
from kubesched.playground.resources.validation.devices import dns_label, fields, items
from kubesched.playground.resources.validation.scheduling import node_selector

_MAX_DEVICES = 128
_MAX_ADVANCED_DEVICES = 64
"""Limit if any device has taints, counters or list attributes."""
_MAX_COUNTER_SETS = 8
_MAX_COUNTERS = 32
_MAX_COUNTER_CONSUMPTIONS = 2
_MAX_PROPERTIES = 32
_MAX_ATTRIBUTE_VALUES = 48
_MAX_VALUE = 64
_MAX_TAINTS = 16
_MAX_CONDITIONS = 8
_MAX_VALID_VALUES = 10
_MAX_INT64 = 2**63 - 1
_MAX_SHOWN_KEY = 63 + 1 + 32
_SCALARS = ("int", "bool", "string", "version")
_LISTS = ("ints", "bools", "strings", "versions")
_ONE_NODE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_ONE_DEVICE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when"
    " `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_NO_DEVICE_SELECTION = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set"
    " to true in the ResourceSlice spec"
)
_NUMBER = r"(0|[1-9]\d*)"
_PRE_RELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?",
    re.ASCII,
)


def validate_resource_slice(obj: JsonObject, *, checks_steps: bool = True) -> Problems:
    """`checks_steps` is the rule for the steps of valid ranges since 1.37."""
    spec = obj.get("spec") or {}
    yield from fields(spec, "spec", driver=devices.driver_name, pool=_pool)
    yield from _node_selection(spec, "spec")
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        detail = "only one of `sharedCounters` or `devices` is allowed"
        yield invalid("spec", "", detail)
    device = partial(_device, bool(spec.get("perDeviceNodeSelection")), checks_steps)
    counters = partial(_counters, "name")
    yield from fields(
        spec,
        "spec",
        devices=items(device_limit(spec), device, lambda each: each.get("name", "")),
        sharedCounters=items(_MAX_COUNTER_SETS, counters, lambda each: each.get("name", "")),
    )


def validate_device_taint_rule(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    selector = spec.get("deviceSelector") or {}
    rules = {"driver": devices.driver_name, "pool": devices.pool_name, "device": dns_label}
    given = {name: rule for name, rule in rules.items() if name in selector}
    yield from fields(selector, "spec.deviceSelector", **given)
    yield from devices.device_taint(spec.get("taint") or {}, "spec.taint")


def validate_device_taint_rule_status(obj: JsonObject) -> Problems:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many("status.conditions", len(conditions), _MAX_CONDITIONS)


def _pool(given: JsonObject | None, path: str) -> Problems:
    pool = given or {}
    yield from fields(pool, path, name=devices.pool_name)
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield invalid(f"{path}.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        detail = "must be greater than or equal to zero"
        yield invalid(f"{path}.generation", generation, detail)


def _node_selection(spec: JsonObject, path: str) -> Problems:
    given: list[str] = []
    unset = "must be either unset or set to a non-empty string"
    yield from _chosen_nodes(spec, path, given, unset)
    selector = spec.get("nodeSelector")
    terms = (selector or {}).get("nodeSelectorTerms")
    if selector is not None and len(terms or ()) != 1:
        detail = "must have exactly one node selector term"
        yield invalid(f"{path}.nodeSelector.nodeSelectorTerms", terms, detail)
    yield from _flags(spec, path, given, "allNodes", "perDeviceNodeSelection")
    if not given:
        yield required(path, _ONE_NODE_SELECTION)
    elif len(given) > 1:
        detail = f"{_ONE_NODE_SELECTION}, but multiple fields are set"
        yield invalid(path, f"{{{', '.join(given)}}}", detail)


def _chosen_nodes(entry: JsonObject, path: str, given: list[str], unset: str) -> Problems:
    """Problems of node name and node selector; adds those that are set to `given`."""
    name, selector = entry.get("nodeName"), entry.get("nodeSelector")
    if name:
        given.append("`nodeName`")
        yield from refused(f"{path}.nodeName", name, dns_1123_subdomain_problems(name))
    elif name is not None:
        yield invalid(f"{path}.nodeName", name, unset)
    if selector is not None:
        given.append("`nodeSelector`")
        yield from node_selector(selector, f"{path}.nodeSelector")


def _flags(entry: JsonObject, path: str, given: list[str], *fields: str) -> Problems:
    for field in fields:
        if entry.get(field):
            given.append(f"`{field}`")
        elif entry.get(field) is not None:
            yield invalid(f"{path}.{field}", False, "must be either unset or set to true")


def device_limit(spec: JsonObject) -> int:
    """Maximum number of devices in a slice."""
    for device in spec.get("devices") or ():
        if device.get("taints") or device.get("consumesCounters"):
            return _MAX_ADVANCED_DEVICES
        for attribute in (device.get("attributes") or {}).values():
            if any(attribute.get(field) is not None for field in _LISTS):
                return _MAX_ADVANCED_DEVICES
    return _MAX_DEVICES


# -- devices --------------------------------------------------------------------------------------


def _device(per_device: bool, checks_steps: bool, device: JsonObject, path: str) -> Problems:
    yield from fields(device, path, name=dns_label)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _MAX_PROPERTIES:
        detail = f"the total number of attributes and capacities must not exceed {_MAX_PROPERTIES}"
        yield invalid(path, len(attributes) + len(capacity), detail)
    values = sum(map(_value_count, attributes.values()))
    if values > _MAX_ATTRIBUTE_VALUES:
        detail = f"the total number of attribute values must not exceed {_MAX_ATTRIBUTE_VALUES}"
        yield invalid(path, values, detail)
    for name, attribute in attributes.items():
        yield from devices.qualified_name(name, f"{path}.attributes")
        yield from _attribute(attribute, f"{path}.attributes[{_shown_key(name)}]")
    is_shared = bool(device.get("allowMultipleAllocations"))
    for name, amount in capacity.items():
        yield from devices.qualified_name(name, f"{path}.capacity")
        here = f"{path}.capacity[{_shown_key(name)}]"
        yield from _capacity(amount, is_shared, here, checks_steps=checks_steps)
    used = partial(_counters, "counterSet")
    yield from fields(
        device,
        path,
        taints=items(_MAX_TAINTS, devices.device_taint),
        consumesCounters=items(
            _MAX_COUNTER_CONSUMPTIONS, used, lambda each: each.get("counterSet", "")
        ),
    )
    yield from _device_node_selection(per_device, device, path)
    yield from devices.binding_conditions(device, path)


def _shown_key(name: str) -> str:
    """The key, truncated in the middle if too long."""
    if len(name) <= _MAX_SHOWN_KEY:
        return name
    rest = _MAX_SHOWN_KEY - 3
    return f"{name[: (rest + 1) // 2]}...{name[-(rest // 2) :]}"


def _value_count(attribute: JsonObject) -> int:
    return sum(len(attribute.get(field) or ()) for field in _LISTS) or 1


def _device_node_selection(per_device: bool, device: JsonObject, path: str) -> Problems:
    fields = ("nodeName", "nodeSelector", "allNodes")
    if not per_device:
        if any(device.get(field) is not None for field in fields):
            yield invalid(path, None, _NO_DEVICE_SELECTION)
        return
    given: list[str] = []
    yield from _chosen_nodes(device, path, given, "must not be empty")
    yield from _flags(device, path, given, "allNodes")
    if not given:
        yield required(path, _ONE_DEVICE_SELECTION)
    elif len(given) > 1:
        yield invalid(path, f"{{{', '.join(given)}}}", _ONE_DEVICE_SELECTION)


def _attribute(attribute: JsonObject, path: str) -> Problems:
    given = [field for field in (*_SCALARS, *_LISTS) if attribute.get(field) is not None]
    for field in given:
        value = attribute[field]
        here = f"{path}.{field}"
        if field in _SCALARS:
            yield from _attribute_value(field, value, here)
        elif not value:
            yield invalid(here, value, "must not be empty if specified")
        else:
            for index, item in enumerate(value):
                yield from _attribute_value(field.removesuffix("s"), item, f"{here}[{index}]")
    if len(given) != 1:
        shown = attribute if given else ""
        yield invalid(path, shown, "exactly one value must be specified")


def _attribute_value(kind: str, value: Json, path: str) -> Problems:
    if kind == "version" and not _SEMVER.fullmatch(value):
        detail = "must be a string compatible with semver.org spec 2.0.0"
        yield invalid(path, value, detail)
    if kind in ("string", "version") and len(value.encode()) > _MAX_VALUE:
        yield too_long(path, _MAX_VALUE)


def _counters(name_field: str, entry: JsonObject, path: str) -> Problems:
    """Problems of a counter set, or of a device's consumption from one."""
    name: str = entry.get(name_field, "")
    yield from needed(f"{path}.{name_field}", name, dns_1123_label_problems)
    counters: Mapping[str, JsonObject] = entry.get("counters") or {}
    if not counters:
        yield required(f"{path}.counters")
        return
    if len(counters) > _MAX_COUNTERS:
        yield too_many(f"{path}.counters", len(counters), _MAX_COUNTERS)
        return
    for counter in counters:
        yield from dns_label(counter, f"{path}.counters")


# -- capacities -----------------------------------------------------------------------------------


def _capacity(capacity: JsonObject, is_shared: bool, path: str, *, checks_steps: bool) -> Problems:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    path = f"{path}.requestPolicy"
    if not is_shared:
        return [forbidden(path, "allowMultipleAllocations must be true")]
    values, bounds = policy.get("validValues"), policy.get("validRange")
    if values and bounds is not None:
        detail = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" at'
            " the same time"
        )
        return [forbidden(path, detail)]
    field = "validValues" if values else "validRange" if bounds is not None else ""
    if not field:
        return []
    if policy.get("default") is None:
        return [required(f"{path}.default", f"required when {field} is defined")]
    if values:
        return _valid_values(policy["default"], capacity["value"], values, f"{path}.{field}")
    valid_range = _valid_range if checks_steps else _loose_range
    return valid_range(policy["default"], capacity["value"], bounds, f"{path}.{field}")


def _valid_values(default: Json, total: Json, values: list[Json], path: str) -> Problems:
    amounts = [quantity.nanos(value) for value in values]
    yield from (
        invalid(
            f"{path}[{index}]",
            quantity.canonical(values[index]),
            "values must be sorted in ascending order",
        )
        for index in range(1, len(values))
        if amounts[index - 1] > amounts[index]
    )

    def option(value: Json, path: str) -> Problems:
        if quantity.nanos(value) <= quantity.nanos(total):
            return []
        detail = f"option is larger than capacity value: {quantity.canonical(total)}"
        return [invalid(path, quantity.canonical(value), detail)]

    listed = items(_MAX_VALID_VALUES, option, lambda value: str(quantity.value(value)))
    yield from listed(values, path)
    if quantity.nanos(default) not in amounts:
        detail = "default value is not valid according to the requestPolicy"
        yield invalid(path, quantity.canonical(default), detail)


def _valid_range(default: Json, total: Json, bounds: JsonObject, path: str) -> Problems:
    lowest, step = bounds.get("min"), bounds.get("step")
    yield from _bounds(default, total, bounds, path, f"{path}.default", f"{path}.default")
    if lowest is None or step is None:
        return
    if quantity.nanos(step) <= 0:
        yield invalid(f"{path}.step", quantity.canonical(step), "must be greater than zero")
        return
    yield from _first_step(total, lowest, step, f"{path}.step")
    # The server computes with 64-bit numbers.
    unsafe = [
        problem
        for name in ("default", "min", "max", "step")
        for problem in _in_64_bits({"default": default, **bounds}.get(name), f"{path}.{name}")
    ]
    yield from unsafe or _multiples(default, bounds, f"{path}.step")


def _loose_range(default: Json, total: Json, bounds: JsonObject, path: str) -> Problems:
    """The rule before 1.37."""
    yield from _bounds(default, total, bounds, path, f"{path}.min", f"{path}.max")
    if bounds.get("min") is not None and bounds.get("step") is not None:
        yield from _first_step(total, bounds["min"], bounds["step"], f"{path}.step")
        yield from _multiples(default, bounds, f"{path}.step")


def _bounds(
    default: Json, total: Json, bounds: JsonObject, path: str, at_min: str, at_max: str
) -> Problems:
    """Problems of the bounds; a default beyond one of them is reported at `at_min` or `at_max`."""
    lowest, highest = bounds.get("min"), bounds.get("max")
    if lowest is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    yield from _at_most(lowest, total, f"{path}.min", "min is larger than capacity value")
    if quantity.nanos(default) < quantity.nanos(lowest):
        detail = f"default is less than min: {quantity.canonical(lowest)}"
        yield invalid(at_min, quantity.canonical(default), detail)
    if highest is not None:
        yield from _at_most(lowest, highest, f"{path}.max", "min is larger than max")
        yield from _at_most(highest, total, f"{path}.max", "max is larger than capacity value")
        yield from _at_most(default, highest, at_max, "default is more than max")


def _in_64_bits(value: Json, path: str) -> Problems:
    if value is None:
        return []
    if quantity.nanos(value) < 0:
        return [invalid(path, quantity.canonical(value), IS_NEGATIVE)]
    if quantity.nanos(value) > _MAX_INT64 * 10**9:
        return [invalid(path, quantity.canonical(value), f"must not be larger than {_MAX_INT64}")]
    return []


def _at_most(value: Json, limit: Json, path: str, problem: str) -> Problems:
    if quantity.nanos(value) <= quantity.nanos(limit):
        return []
    return [invalid(path, quantity.canonical(value), f"{problem}: {quantity.canonical(limit)}")]


def _first_step(total: Json, lowest: Json, step: Json, path: str) -> Problems:
    first = quantity.parse(lowest) + quantity.parse(step)
    if first <= quantity.parse(total):
        return []
    detail = f"one step {first} is larger than capacity value: {quantity.canonical(total)}"
    return [invalid(path, quantity.canonical(step), detail)]


def _multiples(default: Json, bounds: JsonObject, path: str) -> Problems:
    lowest, step = bounds["min"], bounds["step"]
    size = quantity.value(step)
    for value in (default, bounds.get("max")):
        # A step of zero has no multiples; upstream's server fails on it before 1.37.
        if value is not None and (
            size == 0 or (quantity.value(value) - quantity.value(lowest)) % size
        ):
            detail = (
                f"value is not a multiple of a given step ({quantity.canonical(step)})"
                f" from ({quantity.canonical(lowest)})"
            )
            yield invalid(path, quantity.canonical(value), detail)
