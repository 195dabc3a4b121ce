"""A third look at simulated decisions: the scalar twins decide, too.

The second look of the simulation has the plugins of the same package, so it agrees with a rule that
is wrong. The twins in `scalar` share no code with the package. They know neither volumes, devices,
groups and extenders nor nominations: decisions in which these take part are left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from msgspec import to_builtins
from scalar.model import Model
from scalar.scheduler import answer

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.framework.runtime.maybe_async import then
from kubesched.framework.status import Code
from kubesched.lab.simulation import second_look
from kubesched.lab.simulation.second_look import Core, Decided

TWINS = "the scalar twins decide otherwise"
"""Stands in the broken promise, where the fresh scheduler's decision stands otherwise."""
CODES = {
    Code.UNSCHEDULABLE.name: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE.name: "UnschedulableAndUnresolvable",
}
ENDED = {"Succeeded", "Failed"}


@contextmanager
def scalar_look(every: int = 1) -> Iterator[list[str]]:
    """Compare one in so many decisions of the simulations inside; yields a list of their pods."""
    decide_again, compared, turn = second_look.decide_again, list[str](), count(1)

    def decide_thrice(core: Core, profile: str, pod: Pod) -> Decided | Awaitable[Decided]:
        if not _is_for_twins(core, pod) or next(turn) % every:
            return decide_again(core, profile, pod)
        told = answer(_model(core), to_builtins(pod))

        def compare(decided: Decided) -> Decided:
            compared.append(pod.metadata.name)
            why = _difference(decided, told)
            return decided._replace(counts=f"{TWINS}: {why}") if why else decided

        return then(decide_again(core, profile, pod), compare)

    second_look.decide_again = decide_thrice
    try:
        yield compared
    finally:
        second_look.decide_again = decide_again


def _is_for_twins(core: Core, pod: Pod) -> bool:
    handle = core.assembly.frameworks[second_look.DEFAULT].handle
    return not (
        handle.extenders
        or core.assembly.scheduler.queue.nominator.references()
        or pod.status.nominated_node_name
        or pod.spec.volumes
        or pod.spec.resource_claims
        or pod.spec.scheduling_group
    )


def _model(core: Core) -> Model:
    """The stores, and the pods that are assumed."""
    listers, handle = core.listers, core.assembly.frameworks[second_look.DEFAULT].handle
    namespaces = {it.metadata.name: to_builtins(it) for it in listers.of(Namespace).list()}
    model = Model(namespaces, handle.feature_gates)
    for node in listers.of(Node).list():
        model.set_node(to_builtins(node))
    assumed = {info.uid: info.pod for info in core.assembly.scheduler.cache.assumed_pods()}
    for known in listers.of(Pod).list():
        placed = assumed.get(known.metadata.uid, known)
        if placed.spec.node_name and placed.status.phase not in ENDED:
            model.add_pod(to_builtins(placed))
    model.refresh()
    return model


def _difference(decided: Decided, told: dict[str, Any]) -> str:
    if decided.node:
        if decided.counts[0] != len(told["feasible"]) or decided.node not in told["feasible"]:
            return f"{decided.counts[0]} feasible, {decided.node}; twins: {told['feasible']}"
        best = max(told["total"].values())
        behind = {name: best - own for name, own in told["total"].items()}
        if decided.behind is not None and decided.behind != behind:
            return f"behind: {decided.behind}, twins: {behind}"
        return ""
    if decided.rejected is None:
        return ""
    mine = {
        name: {"plugin": plugin, "code": CODES[code], "reasons": reasons}
        for name, (code, plugin, reasons) in decided.rejected[0].items()
    }
    return "" if mine == told["rejected"] else f"rejected: {mine}, twins: {told['rejected']}"
