"""Slices, classes and claims as tests want to say them: by what matters, the rest as drivers and
API server would.
"""

from msgspec import convert, to_builtins

from kubesched.api.core_v1 import Node
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator
from kubesched.plugins.dynamic_resources.structured.features import Features
from kubesched.plugins.dynamic_resources.structured.node_pools import PoolIndex
from kubesched.plugins.dynamic_resources.structured.pools import Slices
from kubesched.plugins.dynamic_resources.structured.selectors import SelectorFailure

DRIVER = "gpu.example.com"


def allocated_by(allocator, node, claims, is_late=lambda: False):
    """One result per claim; None if the node's devices do not suffice."""
    solution = allocator.solve(node, claims, is_late)
    return None if solution is None else allocator.results(node, solution)


def node(name="n1", **labels):
    return convert({"metadata": {"name": name, "labels": labels}}, Node)


def device(name, **fields):
    """A device; attributes of Python types become attributes of theirs."""
    attributes = fields.pop("attributes", {})
    made = {"name": name, **fields}
    if attributes:
        made["attributes"] = {key: attribute(value) for key, value in attributes.items()}
    return made


def attribute(value):
    if isinstance(value, dict):
        return value
    kind = {bool: "bool", int: "int", str: "string"}[type(value)]
    return {kind: value}


def resource_slice(name, *devices, pool=None, count=1, generation=1, driver=DRIVER, **spec):
    """A slice of node `n1` unless the spec says otherwise."""
    where = {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"}
    if not where & set(spec):
        spec["nodeName"] = "n1"
    described = [each if isinstance(each, dict) else device(each) for each in devices]
    return convert(
        {
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "pool": {
                    "name": pool or name,
                    "generation": generation,
                    "resourceSliceCount": count,
                },
                "devices": described,
                **spec,
            },
        },
        ResourceSlice,
    )


def device_class(name="gpu", *expressions, **spec):
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"selectors": selectors, **spec},
        },
        DeviceClass,
    )


def exactly(name="r", count=1, class_name="gpu", **fields):
    selectors = [{"cel": {"expression": each}} for each in fields.pop("selectors", ())]
    mode = fields.pop("mode", "ExactCount")
    asked = {"deviceClassName": class_name, "allocationMode": mode, **fields}
    if mode == "ExactCount":
        asked["count"] = count
    if selectors:
        asked["selectors"] = selectors
    return {"name": name, "exactly": asked}


def first_available(name, *alternatives):
    """Alternatives are requests of their own, made by `exactly`."""
    subs = [{"name": each["name"], **each["exactly"]} for each in alternatives]
    return {"name": name, "firstAvailable": subs}


def claim(name, *requests, namespace="default", uid=None, status=None, meta=None, **devices):
    return convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"uid-{name}",
                "resourceVersion": "1",
                **(meta or {}),
            },
            "spec": {"devices": {"requests": list(requests or [exactly()]), **devices}},
            "status": status or {},
        },
        ResourceClaim,
    )


def allocation(*results, **fields):
    """`results` as request, pool, device, and further fields."""
    return {
        "devices": {
            "results": [
                {"driver": DRIVER, "request": request, "pool": pool, "device": name, **more}
                for request, pool, name, *rest in results
                for more in (rest or [{}])
            ]
        },
        **fields,
    }


class NamedSelectors:
    """Understands `all`, `none`, `broken`, `broken if odd` (an attribute) and attributes as
    `name=value`.
    """

    def matches(self, expression, content):
        if expression in ("all", "none"):
            return expression == "all"
        attributes = content.variable()["attributes"][DRIVER]
        if expression == "broken if odd" and "odd" not in attributes:
            return True
        if expression.startswith("broken"):
            raise SelectorFailure("CEL runtime error: broken", is_at_run_time=True)
        name, _, value = expression.partition("=")
        return str(attributes.get(name)) == value


def allocator(slices, classes=None, allocated=(), features=None):
    features = features or Features()
    state = AllocatedState()
    for each in allocated:
        state.add(each.status.allocation)
    known = {each.metadata.name: each for each in classes or [device_class()]}
    return Allocator(
        features,
        state,
        known.get,
        PoolIndex(Slices(slices, features.reference), state, features),
        NamedSelectors(),
        lambda: "share",
    )


def picked(results):
    """Device names by claim, or by request if there are several."""
    if results is None:
        return None
    return [[r.device for r in each.devices.results or ()] for each in results]


def plain(record):
    return to_builtins(record)
