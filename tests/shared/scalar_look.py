"""A third look at simulated decisions: the scalar twins decide, too.

The second look of the simulation has the plugins of the same package, so it agrees with a rule that
is wrong. The twins in `scalar` share no code with the package. They know neither groups nor
extenders: decisions in which these take part are left out. Of pods with devices only these are
compared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from device_look import device_world, other_devices, wants_devices
from msgspec import to_builtins
from scalar import preemption
from scalar.model import Model
from scalar.scheduler import answer, volumes_for

from kubesched.api.core_v1 import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from kubesched.framework.nominating_info import CLEAR_NOMINATION, KEEP_NOMINATION, NominatingInfo
from kubesched.framework.runtime.maybe_async import then
from kubesched.framework.status import Code
from kubesched.lab.simulation import second_look
from kubesched.lab.simulation.second_look import DEFAULT, Core, Decided
from kubesched.plugins.volume_binding import VolumeBinding

TWINS = "the scalar twins decide otherwise"
"""Stands in the broken promise, where the fresh scheduler's decision stands otherwise."""
CODES = {
    Code.UNSCHEDULABLE.name: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE.name: "UnschedulableAndUnresolvable",
}
ENDED = {"Succeeded", "Failed"}
STORED = {
    "claims": PersistentVolumeClaim,
    "volumes": PersistentVolume,
    "classes": StorageClass,
    "csi_nodes": CSINode,
    "drivers": CSIDriver,
    "capacities": CSIStorageCapacity,
    "attachments": VolumeAttachment,
}
MANY_NODES = 12
"""In larger worlds the twins look for no victims, which takes them too long."""

Told = dict[str, Any]


@contextmanager
def scalar_look(every: int = 1) -> Iterator[list[str]]:
    """Compare one in so many decisions of the simulations inside; yields a list of their pods."""
    decide_again, compared, turn = second_look.decide_again, list[str](), count(1)

    def decide_thrice(core: Core, profile: str, pod: Pod) -> Decided | Awaitable[Decided]:
        has_devices = wants_devices(pod)
        is_known = _is_for_twins(core, pod) or has_devices
        if not is_known or next(turn) % every:
            return decide_again(core, profile, pod)
        judge = (_judge_devices if has_devices else _judge)(core, pod)

        def compare(decided: Decided) -> Decided:
            compared.append(pod.metadata.name)
            why = judge(decided)
            return decided._replace(counts=f"{TWINS}: {why}") if why else decided

        return then(decide_again(core, profile, pod), compare)

    second_look.decide_again = decide_thrice
    try:
        yield compared
    finally:
        second_look.decide_again = decide_again


def _is_for_twins(core: Core, pod: Pod) -> bool:
    handle = core.assembly.frameworks[DEFAULT].handle
    return not (handle.extenders or pod.spec.scheduling_group)


Judge = Callable[[Decided], str]
"""How the twins decide otherwise; empty if they do not."""


def _judge(core: Core, pod: Pod) -> Judge:
    model, plain = _model(core), to_builtins(pod)
    if held := core.assembly.scheduler.queue.nominator.node_of(pod.metadata.uid):
        plain["status"]["nominatedNodeName"] = held
    told = answer(model, plain)
    victims = _victims(core, model, plain, told)

    def judge(decided: Decided) -> str:
        why = _difference(decided, told, victims)
        if not why and decided.node and plain["spec"].get("volumes"):
            why = _other_volumes(decided, model, plain)
        return why

    return judge


def _judge_devices(core: Core, pod: Pod) -> Judge:
    world = device_world(core, pod)
    return lambda decided: "" if world is None else other_devices(world, core, decided)


def _model(core: Core) -> Model:
    """The stores, and what was promised since: assumed pods, volumes and claims, nominations."""
    listers, assembly = core.listers, core.assembly
    namespaces = {it.metadata.name: it.metadata.labels for it in listers.of(Namespace).list()}
    model = Model(namespaces, assembly.frameworks[DEFAULT].handle.feature_gates)
    for node in listers.of(Node).list():
        model.set_node(to_builtins(node))
    placed = {pod.metadata.uid: pod for pod in listers.of(Pod).list()}
    placed |= {info.uid: info.pod for info in assembly.scheduler.cache.assumed_pods()}
    order = {info.uid: rank for rank, (_row, info) in enumerate(assembly.table.all_pods())}
    for pod in sorted(placed.values(), key=lambda it: order.get(it.metadata.uid, len(order))):
        if pod.spec.node_name and pod.status.phase not in ENDED:
            model.add_pod(to_builtins(pod))
    model.refresh()
    nominator = assembly.scheduler.queue.nominator
    model.nominated = {
        name: [
            {"spec": {}} | to_builtins(info.pod)  # one that is tried right now has no spec
            for info in nominator.nominated_pods_for_node(name)
        ]
        for name in model.nodes
    }
    if listers.of(StorageClass).list():
        model.stored = _stored(core)
    return model


def _stored(core: Core) -> dict[str, dict[Any, Any]]:
    assumed = list[Any]()
    for plugin in core.assembly.frameworks[DEFAULT].plugins:
        if isinstance(plugin, VolumeBinding):
            for cache in (plugin._storage.volumes, plugin._storage.claims):
                assumed += cache._assumed.values()
    stored: dict[str, dict[Any, Any]] = {}
    for name, kind in STORED.items():
        stored[name] = {}
        for obj in (*core.listers.of(kind).list(), *(it for it in assumed if type(it) is kind)):
            plain = to_builtins(obj)
            key = plain["metadata"]["name"]
            if kind in (PersistentVolume, PersistentVolumeClaim):
                plain.setdefault("status", {}).setdefault("phase", obj.status.phase)
            if kind in (PersistentVolumeClaim, CSIStorageCapacity):
                key = (plain["metadata"]["namespace"], key)
            stored[name][key] = plain
    return stored


def _victims(core: Core, model: Model, pod: dict[str, Any], told: Told) -> Told | None:
    """The message and the candidates of preemption; None if the twins do not know."""
    handle = core.assembly.frameworks[DEFAULT].handle
    if (
        told["feasible"]
        or len(model.nodes) > MANY_NODES
        or not model.nodes
        or pod["spec"].get("topologySpreadConstraints")  # they count in several ways
        or handle.groups is not None
        or told.get("early")
    ):
        return None
    budgets = [to_builtins(it) for it in core.listers.of(PodDisruptionBudget).list()]
    now = handle.clock.now()
    message, candidates = preemption.preempt(model, pod, told["rejected"], budgets, now)
    return {"message": message, "candidates": candidates}


def _difference(decided: Decided, told: Told, victims: Told | None) -> str:
    if decided.node:
        if decided.counts[0] != len(told["feasible"]) or decided.node not in told["feasible"]:
            return f"{decided.counts[0]} feasible, {decided.node}; twins: {told['feasible']}"
        best = max(told["total"].values())
        behind = {name: best - own for name, own in told["total"].items()}
        if decided.behind is not None and decided.behind != behind:
            return f"behind: {decided.behind}, twins: {behind}"
        return ""
    if decided.rejected is None:
        return f"{decided.message}, twins: {told}" if decided.message else ""
    mine = {
        name: {"plugin": plugin, "code": CODES[code], "reasons": reasons}
        for name, (code, plugin, reasons) in decided.rejected[0].items()
    }
    if mine != told["rejected"]:
        return f"rejected: {mine}, twins: {told['rejected']}"
    if not decided.message.startswith(told["message"]):
        return f"message: {decided.message}, twins: {told['message']}"
    if victims is None or decided.nomination is None:
        return ""
    return _other_victims(decided, victims)


def _other_victims(decided: Decided, victims: Told) -> str:
    candidates = victims["candidates"]
    if not candidates:
        nomination = KEEP_NOMINATION if candidates is None else CLEAR_NOMINATION
        is_same = (decided.nomination, decided.victims) == (nomination, [])
        if is_same and decided.message.endswith(f"preemption: {victims['message']}"):
            return ""
    else:
        for name, (pods, violating) in candidates.items():
            nomination = NominatingInfo(override=True, node_name=name)
            if (decided.nomination, decided.victims) == (nomination, [(name, pods, violating)]):
                return ""
    mine = decided.nomination, decided.victims, decided.message
    return f"preemption: {mine}, twins: {victims}"


def _other_volumes(decided: Decided, model: Model, pod: dict[str, Any]) -> str:
    _devices, *volumes = decided.reserved
    mine = [sorted(part or ()) for part in volumes] if volumes != [None] else [[], []]
    theirs = list(volumes_for(model, pod, decided.node))
    return "" if mine == theirs else f"volumes: {mine}, twins: {theirs}"
