"""`metrics.k8s.io`: resource usage of nodes and pods, for `kubectl top`.

A simulated container uses what the pod annotations `kubelet.kubesched.io/cpu-usage` and
`/memory-usage` say (per container), else what it requests. A node's usage is the sum of its running
pods'.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api import quantity
from kubesched.api.quantity import Quantity, QuantityError
from kubesched.playground.apimachinery.failures import not_found
from kubesched.playground.apimachinery.objects import JsonObject, encode, timestamp
from kubesched.playground.apimachinery.pods import phase_of
from kubesched.playground.apimachinery.selectors import compile_label_selector
from kubesched.playground.handlers.exchange import ApiResponse
from kubesched.playground.handlers.routes import Call, Target
from kubesched.playground.registry.rest_storage import RestStorage

GROUP = "metrics.k8s.io"
WINDOW = "15s"
_USAGE = {
    "cpu": "kubelet.kubesched.io/cpu-usage",
    "memory": "kubelet.kubesched.io/memory-usage",
}
_ZERO = quantity.parse(0)


def read_metrics(call: Call) -> ApiResponse:
    """One NodeMetrics or PodMetrics, or a list of them."""
    registry, target = call.registry, call.target
    is_node = target.resource.plural == "nodes"
    namespace = None if is_node else target.namespace
    subjects: Iterable[JsonObject] = (
        entry.obj for entry in registry.store.collection(target.resource.plural).entries(namespace)
    )
    selector = compile_label_selector(call.query.get("labelSelector") or "")
    if target.name:
        subjects = (obj for obj in subjects if obj["metadata"]["name"] == target.name)
    elif selector is not None:
        subjects = (obj for obj in subjects if selector(obj))
    if is_node:
        used = _usage_by_node(registry)
        items = [_node(registry, target, node, used) for node in subjects]
    else:
        items = [_pod(registry, target, pod) for pod in subjects if phase_of(pod) == "Running"]
    if not target.name:
        kind = {"kind": target.resource.list_kind, "apiVersion": target.resource.api_version}
        return ApiResponse(200, encode({**kind, "metadata": {}, "items": items}))
    if not items:
        raise not_found(target.resource, target.name)
    return ApiResponse(200, encode(items[0]))


def _metrics(registry: RestStorage, target: Target, subject: JsonObject) -> JsonObject:
    known = subject["metadata"]
    metadata = {
        key: known[key] for key in ("name", "namespace", "labels") if known.get(key) is not None
    }
    now = timestamp(registry.clock.now())
    return {
        "kind": target.resource.kind,
        "apiVersion": target.resource.api_version,
        "metadata": {**metadata, "creationTimestamp": now},
        "timestamp": now,
        "window": WINDOW,
    }


def _node(
    registry: RestStorage, target: Target, node: JsonObject, used: dict[str, dict[str, Quantity]]
) -> JsonObject:
    usage = used.get(node["metadata"]["name"], {"cpu": _ZERO, "memory": _ZERO})
    return {**_metrics(registry, target, node), "usage": _shown(usage)}


def _pod(registry: RestStorage, target: Target, pod: JsonObject) -> JsonObject:
    containers = [
        {"name": container["name"], "usage": _shown(_container_usage(pod, container))}
        for container in pod["spec"].get("containers") or ()
    ]
    return {**_metrics(registry, target, pod), "containers": containers}


def _usage_by_node(registry: RestStorage) -> dict[str, dict[str, Quantity]]:
    used: dict[str, dict[str, Quantity]] = {}
    for entry in registry.store.collection("pods").entries():
        pod = entry.obj
        if phase_of(pod) != "Running":
            continue
        total = used.setdefault(pod["spec"].get("nodeName", ""), {"cpu": _ZERO, "memory": _ZERO})
        for container in pod["spec"].get("containers") or ():
            for name, amount in _container_usage(pod, container).items():
                total[name] += amount
    return used


def _container_usage(pod: JsonObject, container: JsonObject) -> dict[str, Quantity]:
    annotations = pod["metadata"].get("annotations") or {}
    requests = (container.get("resources") or {}).get("requests") or {}
    return {
        name: _parsed(annotations.get(annotation)) or _parsed(requests.get(name)) or _ZERO
        for name, annotation in _USAGE.items()
    }


def _parsed(text: str | None) -> Quantity | None:
    try:
        return quantity.parse(text) if text is not None else None
    except QuantityError:
        return None


def _shown(usage: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in usage.items()}
