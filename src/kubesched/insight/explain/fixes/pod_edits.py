"""Pod edits that undo single rejections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kubesched.api.core_v1 import (
    Container,
    NodeSelectorRequirement,
    Pod,
    ResourceRequirements,
    Taint,
)
from kubesched.api.host_ports import HostPort
from kubesched.api.quantity import milli_value, value
from kubesched.api.resources import pod_requests
from kubesched.insight.explain import amounts
from kubesched.insight.explain.details import requirement_text, taint_text
from kubesched.insight.explain.fixes.changes import (
    GateRemoval,
    Operation,
    PodEdit,
    RequestEdit,
    SkewEdit,
    pod_edit,
)

_MIB = 2**20
_OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")
"""Resources whose limit may be above the request."""
SOFT = "ScheduleAnyway"


def _escaped(word: str) -> str:
    return word.replace("~", "~0").replace("/", "~1")


# -- requests --------------------------------------------------------------------------------------


def lower_request(pod: Pod, resource: str, target: int) -> RequestEdit | None:
    """Lower the pod's requests of a resource to at most `target`; None if no positive request fits.

    Containers are scaled down in proportion; init containers that request more are capped.
    """
    before = pod_requests(pod).get(resource)
    overhead = _amount(resource, (pod.spec.overhead or {}).get(resource, 0))
    target -= overhead
    if amounts.is_in_bytes(resource) and target >= 16 * _MIB:
        target -= target % _MIB
    if target <= 0:
        return None
    spec = pod.spec
    level = spec.resources.requests if spec.resources is not None else None
    operations = list(_container_operations(pod, resource, target))
    if spec.resources is not None and level and resource in level:
        operations += _set_request("/spec", spec.resources, resource, target)
    if not operations:
        return None
    wanted, was = amounts.exact(resource, target + overhead), amounts.shown(resource, before)
    text = f"request {resource} {wanted} instead of {was}"
    cut = (before - target - overhead) / before if before else 0.0
    return RequestEdit("LowerRequest", text, 2.0 + 4.0 * cut, _dumped(operations), False, resource)


def _dumped(operations: Iterable[Operation]) -> tuple[str, ...]:
    return tuple(json.dumps(operation) for operation in operations)


def _container_operations(pod: Pod, resource: str, target: int) -> Iterator[Operation]:
    spec = pod.spec
    sidecars = [
        (f"/spec/initContainers/{at}", container)
        for at, container in enumerate(spec.init_containers or ())
        if container.is_restartable_init()
    ]
    running = [
        *sidecars,
        *(
            (f"/spec/containers/{at}", container)
            for at, container in enumerate(spec.containers or ())
        ),
    ]
    kept = {path: _request(container, resource) for path, container in running}
    total = sum(kept.values())
    if total > target:
        for path, container in running:
            if kept[path]:
                kept[path] = kept[path] * target // total
                yield from _set_request(path, container.resources, resource, kept[path])
    beside = sum(kept[path] for path, _ in sidecars)
    for at, container in enumerate(spec.init_containers or ()):
        room = target - beside
        if (
            not container.is_restartable_init()
            and room > 0
            and _request(container, resource) > room
        ):
            path = f"/spec/initContainers/{at}"
            yield from _set_request(path, container.resources, resource, room)


def _set_request(
    path: str, now: ResourceRequirements, resource: str, amount: int
) -> Iterator[Operation]:
    """Also the limit of a resource that cannot be overcommitted: both have to be equal."""
    sides = ["requests"]
    if resource not in _OVERCOMMITTED and resource in (now.limits or {}):
        sides.append("limits")
    for side in sides:
        place = f"{path}/resources/{side}/{_escaped(resource)}"
        yield {"op": "replace", "path": place, "value": amounts.exact(resource, amount)}


def _request(container: Container, resource: str) -> int:
    return _amount(resource, (container.resources.requests or {}).get(resource, 0))


def _amount(resource: str, quantity: Any) -> int:  # noqa: ANN401  # a quantity as written
    return milli_value(quantity) if resource == "cpu" else value(quantity)


# -- tolerations, selectors, affinity --------------------------------------------------------------


def add_toleration(pod: Pod, taint: Taint) -> PodEdit:
    """Tolerate exactly this taint; writes the whole list, since a template may have none."""
    toleration: dict[str, Any] = {"key": taint.key, "operator": "Equal", "value": taint.value}
    if not taint.value:
        toleration = {"key": taint.key, "operator": "Exists"}
    toleration["effect"] = taint.effect
    listed = [*msgspec.to_builtins(pod.spec.tolerations or []), toleration]
    operation = {"op": "add", "path": "/spec/tolerations", "value": listed}
    return pod_edit(
        "AddToleration", f"tolerate {taint_text(taint)}", 2.0, [operation], in_place=True
    )


def drop_selector(key: str, wanted: str) -> PodEdit:
    operation = {"op": "remove", "path": f"/spec/nodeSelector/{_escaped(key)}"}
    return pod_edit("DropNodeSelector", f"drop the selector {key}={wanted}", 3.4, [operation])


_NODE_TERMS = (
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
)


def drop_expression(index: int, requirement: NodeSelectorRequirement) -> PodEdit:
    """Drop an expression of the only required node affinity term."""
    operation = {"op": "remove", "path": f"{_NODE_TERMS}/0/matchExpressions/{index}"}
    text = f"drop the node affinity {requirement_text(requirement)}"
    return pod_edit("DropNodeAffinity", text, 3.4, [operation])


def drop_node_affinity() -> PodEdit:
    operation = {"op": "remove", "path": _NODE_TERMS.removesuffix("/nodeSelectorTerms")}
    return pod_edit("DropNodeAffinity", "drop the required node affinity", 3.5, [operation])


def drop_pod_term(kind: str, index: int, topology_key: str) -> PodEdit:
    """`kind` is podAffinity or podAntiAffinity."""
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    operation = {"op": "remove", "path": f"/spec/affinity/{kind}/{field}/{index}"}
    name = "affinity" if kind == "podAffinity" else "anti-affinity"
    text = f"drop the pod {name} over {topology_key} (term {index + 1})"
    return pod_edit(f"Drop{kind[0].upper()}{kind[1:]}", text, 4.0, [operation])


def raise_skew(index: int, topology_key: str, skew: int) -> SkewEdit:
    path = f"/spec/topologySpreadConstraints/{index}/maxSkew"
    operations = _dumped([{"op": "replace", "path": path, "value": skew}])
    text = f"maxSkew {skew} over {topology_key}"
    return SkewEdit("RaiseMaxSkew", text, 2.5, operations, False, index, topology_key, skew)


def soften_spread(pod: Pod, index: int) -> PodEdit:
    """Spread with ScheduleAnyway, without the constraint if there is a second one that does so."""
    constraints = pod.spec.topology_spread_constraints or []
    key, path = constraints[index].topology_key, f"/spec/topologySpreadConstraints/{index}"
    soft = {other.topology_key for other in constraints if other.when_unsatisfiable == SOFT}
    if key in soft:
        text, operations = f"drop the hard constraint over {key}", [{"op": "remove", "path": path}]
    else:
        text = f"spread over {key} with {SOFT}"
        operations = [{"op": "replace", "path": f"{path}/whenUnsatisfiable", "value": SOFT}]
        if constraints[index].min_domains is not None:  # for hard constraints only
            operations.append({"op": "remove", "path": f"{path}/minDomains"})
    return pod_edit("SoftenSpread", text, 3.0, operations)


def drop_host_ports(pod: Pod, taken: list[HostPort]) -> PodEdit:
    numbers = {(port.protocol, port.port) for port in taken}
    operations: list[Operation] = []
    for field, containers in (
        ("containers", pod.spec.containers),
        ("initContainers", pod.spec.init_containers),
    ):
        for at, container in enumerate(containers or ()):
            for number, port in enumerate(container.ports or ()):
                if (port.protocol or "TCP", port.host_port) in numbers:
                    path = f"/spec/{field}/{at}/ports/{number}/hostPort"
                    operations.append({"op": "remove", "path": path})
    listed = ", ".join(f"{port}/{protocol}" for protocol, port in sorted(numbers))
    return pod_edit("DropHostPort", f"drop host port {listed}", 4.0, operations)


def set_scheduler(pod: Pod, name: str) -> PodEdit:
    operation = {"op": "replace", "path": "/spec/schedulerName", "value": name}
    text = f"schedulerName {name} instead of {pod.spec.scheduler_name}"
    return pod_edit("SetSchedulerName", text, 1.5, [operation])


def gate_removals(pod: Pod) -> list[GateRemoval]:
    return [
        GateRemoval(
            "RemoveSchedulingGate",
            f"remove the scheduling gate {gate.name}",
            1.0,
            _dumped([{"op": "remove", "path": f"/spec/schedulingGates/{at}"}]),
            gate=gate.name,
        )
        for at, gate in enumerate(pod.spec.scheduling_gates or ())
    ]
