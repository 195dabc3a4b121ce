"""The simulation finds what it looks for: schedulers that were broken on purpose are caught, each
by its property.

Every invariant has a broken scheduler that violates it, and none is missing from the reference.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from broken_recorders import BROKEN_RECORDERS
from broken_schedulers import (
    BindsBeforeVolumes,
    BindsPartsOfGangs,
    BindsWithoutDevices,
    ChoosesTheWorst,
    CountsTooMuch,
    Dies,
    EvictsItsEquals,
    EvictsTooMany,
    EvictsTwice,
    EvictsWithoutAWord,
    ForgetsWhatItGave,
    HasNoBackoffForGroups,
    HoldsRoomForTheGone,
    IgnoresBudgets,
    IgnoresRoom,
    IsDeaf,
    KeepsGhosts,
    KeepsNominationsToItself,
    KeepsPodsOut,
    KeepsReservations,
    KnowsBetter,
    LeadsAlways,
    LeaksSlots,
    LosesFailedPods,
    Miscounts,
    NeverConfirms,
    NominatesLater,
    PopsTheLeastImportantFirst,
    PreemptsInVain,
    QueuesOldVersions,
    RecordsNothing,
    SaysNothing,
    SleepsForEver,
    Spins,
    Stumbles,
    TellsGroupsNothing,
    blind_to,
)
from outside_look import (
    CONDITIONS,
    EVENTS,
    EVICTIONS,
    GAUGES,
    HELD,
    NOMINATIONS,
    PROMISES,
    QUEUED,
    TRIED,
    outside_look,
)
from scalar_look import TWINS, scalar_look

from kubesched.app.simulated import SimulatedProcess
from kubesched.framework.preemption import evaluator
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.runtime.nominated import NominatedPods
from kubesched.insight.state.virtual_loop import SENDER
from kubesched.lab.simulation import devices, second_look, storage, workloads
from kubesched.lab.simulation import run as simulation_run
from kubesched.lab.simulation.cluster import SimulatedCluster
from kubesched.lab.simulation.gangs import UNTRUE
from kubesched.lab.simulation.options import NO_FAULTS, Options, draw
from kubesched.lab.simulation.run import SimulationResult, simulate
from kubesched.lab.simulation.second_look import PROMISE
from kubesched.lab.simulation.trace import Pending
from kubesched.lab.simulation.world import World
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.plugins.node_resources.strategies import LeastAllocated, MostAllocated
from kubesched.plugins.volume_restrictions import VolumeRestrictions

MAX_SEEDS = 40


def _first_failure(process: type[SimulatedProcess], **pinned: Any) -> SimulationResult:
    for seed in range(1, MAX_SEEDS):
        options: Options = replace(draw(Random(f"{seed}/options"), faults=True), **pinned)
        outcome = simulate(seed, process, options=options)
        if not outcome.is_good:
            return outcome
    raise AssertionError(f"{process.__name__} passed {MAX_SEEDS - 1} seeds")


RULES: dict[str, dict[str, Any]] = {
    "NodeAffinity": {"mixes": ("plain",)},
    "TaintToleration": {"mixes": ("gates",), "change_every_s": 0.6},
    "NodeUnschedulable": {"mixes": ("gates",), "change_every_s": 0.6},
    "NodePorts": {"mixes": ("ports",)},
    "InterPodAffinity": {"mixes": ("affinity",)},
    "PodTopologySpread": {"mixes": ("spread",)},
    "VolumeRestrictions": {"mixes": ("gates",), "extras": ("volumes",)},
}
"""What a scheduler without each of the plugins is tried with."""

PREEMPTING: dict[str, Any] = {
    "instances": 1,
    "mischief": 0.0,
    "extras": (),
    "nodes": 3,
    "mixes": ("priorities",),
}

QUIET: dict[str, Any] = {
    "instances": 1,
    "rates": NO_FAULTS,
    "mixes": ("plain",),
    "extras": (),
    "mischief": 0.0,
    **dict.fromkeys(("crash_every_s", "partition_every_s", "jump_every_s", "change_every_s"), 0.0),
}
"""Nothing goes wrong before the episode."""

BROKEN_SCHEDULERS: list[tuple[type[SimulatedProcess], dict[str, Any], tuple[str, ...]]] = [
    *(
        (
            blind_to(name),
            {"instances": 1, "mischief": 0.0, **pinned},
            (PROMISE,),
        )
        for name, pinned in RULES.items()
    ),
    (LosesFailedPods, {"instances": 1}, ("no pod is lost",)),
    (IgnoresRoom, {"instances": 1}, (PROMISE,)),
    (IsDeaf, {"instances": 1}, ("all that can be placed is placed once faults stop",)),
    (LeadsAlways, {"instances": 2}, ("no two schedulers lead at the same time",)),
    (Dies, {}, ("no scheduler dies by itself",)),
    (Stumbles, {}, ("no exception is unexpected",)),
    (
        NeverConfirms,
        {"instances": 1},
        ("every bound pod is counted", "all that can be placed is placed once faults stop"),
    ),
    (
        Miscounts,
        {"instances": 1, "mischief": 0.0},
        ("queue and cache do not contradict themselves",),
    ),
    (
        PopsTheLeastImportantFirst,
        {"instances": 1, "mixes": ("priorities",)},
        ("the most important pod is tried first",),
    ),
    (SleepsForEver, {"instances": 1}, ("every unschedulable pod has a wake-up",)),
    (
        IgnoresBudgets,
        {
            "instances": 1,
            "mischief": 0.0,
            "extras": ("budgets",),
            "nodes": 5,
            "mixes": ("priorities",),
        },
        (PROMISE,),
    ),
    *(
        (broken, {**PREEMPTING, **pinned}, (promise,))
        for broken, pinned, promise in (
            (EvictsItsEquals, {}, PROMISE),
            (EvictsTooMany, {}, PROMISE),
            (EvictsTwice, {"pods": 30, "change_every_s": 0.5}, "no victim is evicted twice"),
        )
    ),
    (
        BindsBeforeVolumes,
        {"instances": 1, "mischief": 0.0, "extras": ("volumes",)},
        ("pods are bound after their claims",),
    ),
    (
        ForgetsWhatItGave,
        {"instances": 1, "mischief": 0.0, "extras": ("devices",), "mixes": ("devices",)},
        ("no device is allocated twice",),
    ),
    (
        BindsWithoutDevices,
        {"instances": 1, "mischief": 0.0, "extras": ("devices",), "mixes": ("devices",)},
        ("pods are bound with their devices",),
    ),
    (
        KnowsBetter,
        {
            "instances": 1,
            "extras": ("extender",),
            "extender_traits": ("filter", "names"),
            "extender_trouble": 0.0,
        },
        (PROMISE,),
    ),
    (
        KeepsGhosts,
        {"instances": 1, "mixes": ("plain",), "mischief": 0.0},
        ("the cache equals the store when all is quiet",),
    ),
    (
        PreemptsInVain,
        {
            "instances": 1,
            "mischief": 0.0,
            "extras": (),
            "nodes": 5,
            "mixes": ("plain", "priorities"),
        },
        (PROMISE,),
    ),
    (
        HoldsRoomForTheGone,
        {**QUIET, "episode": "deleted while bound"},
        ("no room is held for a pod that is gone",),
    ),
    (
        KeepsReservations,
        {**QUIET, "extras": ("devices",), "episode": "reservation given back"},
        ("no claim stays reserved for a pod that was not bound",),
    ),
    *(
        (broken, {**PREEMPTING, "gates": ("GenericWorkload",)}, (promise,))
        for broken, promise in (
            (BindsPartsOfGangs, "no gang is bound in part"),
            (BindsPartsOfGangs, PROMISE),
            (TellsGroupsNothing, "the condition of a group is true when all is quiet"),
            (HasNoBackoffForGroups, "the world goes on"),
        )
    ),
    (LeaksSlots, {"instances": 1}, ("what a scheduler takes comes back",)),
    (ChoosesTheWorst, {**PREEMPTING, "gates": ()}, (PROMISE,)),
    (Spins, {}, ("the world goes on",)),
    (SaysNothing, PREEMPTING, (CONDITIONS,)),
    (KeepsNominationsToItself, {**PREEMPTING, "rates": NO_FAULTS}, (NOMINATIONS,)),
    (RecordsNothing, PREEMPTING, (EVENTS,)),
    (EvictsWithoutAWord, PREEMPTING, (EVICTIONS,)),
    (KeepsPodsOut, {**QUIET, "nodes": 1, "probes": 0}, (TRIED,)),
    (NominatesLater, PREEMPTING, (HELD,)),
    (QueuesOldVersions, {**QUIET, "nodes": 1}, (QUEUED,)),
    (CountsTooMuch, QUIET, (GAUGES,)),
    *BROKEN_RECORDERS,
]
"""Who breaks what."""


@pytest.mark.parametrize(
    ("broken", "pinned", "properties"),
    BROKEN_SCHEDULERS,
    ids=lambda value: value.__doc__.strip() if isinstance(value, type) else "",
)
def test_a_broken_scheduler_is_caught(
    broken: type[SimulatedProcess],
    pinned: dict[str, Any],
    properties: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if PROMISE not in properties:  # the second look would often be the first to notice
        monkeypatch.setattr(second_look, "is_due", lambda *_counts: False)
    with outside_look() if set(properties) & set(PROMISES) else nullcontext():
        outcome = _first_failure(broken, **pinned)
    assert outcome.violation is not None
    assert outcome.violation.property in properties


# Writes to the store that no scheduler should make.


def _bind_again(cluster: SimulatedCluster) -> None:
    for pod in cluster.active_pods():
        if pod["spec"].get("nodeName"):
            _put(cluster, "pods", pod, {"nodeName": "elsewhere"})
            return


def _bind_to_nowhere(cluster: SimulatedCluster) -> None:
    _put(cluster, "pods", _waiting(cluster), {"nodeName": "nowhere"})


def _overcommit(cluster: SimulatedCluster) -> None:
    pod, node = _waiting(cluster), cluster.nodes()[0]["metadata"]["name"]
    containers = deepcopy(pod["spec"]["containers"])
    containers[0]["resources"] = {"requests": {"cpu": "1000"}}
    _put(cluster, "pods", pod, {"nodeName": node, "containers": containers})


def _call_unschedulable(cluster: SimulatedCluster) -> None:
    bound = next(pod for pod in cluster.active_pods() if pod["spec"].get("nodeName"))
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    status = {**bound.get("status", {}), "conditions": conditions}
    cluster.store.put("pods", deepcopy({**bound, "status": status}))


def _bind_undecided(cluster: SimulatedCluster) -> None:
    SENDER.set("s0.1")
    _put(cluster, "pods", _waiting(cluster), {"nodeName": cluster.nodes()[0]["metadata"]["name"]})


def _give_volume_away(cluster: SimulatedCluster) -> None:
    for volume in cluster.api.list(storage.VOLUMES)[0]:
        owner = volume["spec"].get("claimRef") or {}
        if owner.get("uid"):
            _put(cluster, storage.VOLUMES, volume, {"claimRef": {**owner, "uid": "another"}})
            return


def _bind_out_of_reach(cluster: SimulatedCluster) -> None:
    """The claim of a new pod is bound to a disk that is in no node."""
    cluster.api.create(storage.VOLUMES, storage.local_volume("far", "far-away"))
    cluster.api.create(storage.CLAIMS, storage.claim("far", storage.LOCAL))
    claim = cluster.api.get(storage.CLAIMS, "default", "far")
    claim = {
        **claim,
        "metadata": {
            **claim["metadata"],
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
    }
    _put(cluster, storage.CLAIMS, claim, {"volumeName": "far"})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "far"}}]
    cluster.add_node()
    pod = workloads.pod("far", ("plain",), Random(1))
    pod["spec"]["volumes"] = volumes
    made = cluster.api.create("pods", pod)
    _put(cluster, "pods", made, {"nodeName": f"n{len(cluster.nodes())}"})


def _leave_reservation(cluster: SimulatedCluster) -> None:
    """A claim is reserved for a pod that never was, and the claim controller is dead."""
    assert cluster.devices is not None
    cluster.devices.disconnect()
    claim = cluster.api.create(devices.CLAIMS, devices.claim("haunted"))
    result = {"request": "gpu", "driver": "d", "pool": "p", "device": "x"}
    ghost = {"resource": "pods", "name": "ghost", "uid": "ghost"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [ghost]}
    cluster.store.put(devices.CLAIMS, deepcopy({**claim, "status": status}))


def _break_down(_cluster: SimulatedCluster) -> None:
    raise RuntimeError("part of the world breaks")


def _waiting(cluster: SimulatedCluster) -> JsonObject:
    return next(pod for pod in cluster.active_pods() if not pod["spec"].get("nodeName"))


def _put(cluster: SimulatedCluster, resource: str, obj: JsonObject, spec: JsonObject) -> None:
    cluster.store.put(resource, deepcopy({**obj, "spec": {**obj["spec"], **spec}}))


BROKEN_CLUSTERS: list[tuple[Callable[[SimulatedCluster], None], str]] = [
    (_bind_again, "no pod is bound twice"),
    (_bind_to_nowhere, "no pod is bound to a node that is gone"),
    (_overcommit, "no node is over its allocatable"),
    (_call_unschedulable, "no bound pod is called unschedulable"),
    (_bind_undecided, "no pod is bound without a decision"),
    (_give_volume_away, "no volume is given to two claims"),
    (_bind_out_of_reach, "volumes are within reach"),
    (_leave_reservation, "no claim is left reserved for a pod that is gone"),
    (_break_down, "the world goes on"),
]


@pytest.mark.parametrize(
    ("sabotage", "broken"),
    BROKEN_CLUSTERS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_cluster_is_caught(
    sabotage: Callable[[SimulatedCluster], None], broken: str
) -> None:
    options = replace(
        draw(Random("1/options"), faults=False),
        nodes=3,
        pods=30,
        mixes=("plain",),
        extras=("volumes", "devices"),
    )

    def prepare(world: World) -> None:
        world._loop.call_later(25.0, sabotage, world.cluster)

    outcome = simulate(
        1, SimulatedProcess, options=replace(options, duration_s=40.0), prepare=prepare
    )
    assert outcome.violation is not None
    assert outcome.violation.property == broken


# Every check can fail.


def _promises() -> set[str]:
    """The first argument of everything that complains, the second of what is pending too long."""
    results = {*PROMISES, Pending("").promise}
    for path in Path(simulation_run.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            is_complaint = name in ("Violation", "complain", "_complain") or (
                name == "add" and "complaints" in ast.unparse(called)
            )
            if is_complaint and isinstance(node.args[0], ast.Constant):
                results.add(node.args[0].value)
            elif is_complaint and ast.unparse(node.args[0]) == "PROMISE":
                results.add(PROMISE)
            elif name == "Pending" and len(node.args) > 1:
                promise = node.args[1]
                results.add(promise.value if isinstance(promise, ast.Constant) else UNTRUE)
    return results


def test_every_invariant_has_a_scheduler_that_breaks_it() -> None:
    broken = {name for _process, _pinned, names in BROKEN_SCHEDULERS for name in names}
    broken |= {name for _sabotage, name in BROKEN_CLUSTERS}
    assert _promises() == broken


def test_every_promise_is_in_the_reference() -> None:
    reference = Path(__file__).parents[2] / "docs" / "reference" / "simulation.md"
    text = reference.read_text()
    assert [name for name in sorted(_promises()) if f"| {name} |" not in text] == []


def _most_important_victims(shortlist: Any) -> Candidate:
    return max(
        shortlist.candidates(), key=lambda it: [pod.spec.priority or 0 for pod in it.victims.pods]
    )


def _nothing(*_arguments: Any) -> None:
    """A rule that says nothing."""


WITH_VOLUMES = {**PREEMPTING, "extras": ("volumes",), "mixes": ("volumes",)}
WRONG_RULES = {
    "points": (LeastAllocated, {"_share": MostAllocated._share, "_shares": MostAllocated._shares}),
    "victims": (evaluator, {"best_of": _most_important_victims}),
    "nominations": (NominatedPods, {"rivals_of": _nothing}),
    "volumes": (VolumeRestrictions, {"filter_nodes": _nothing}),
}
"""Rules of the package that are replaced, in all schedulers alike."""
SHOWN: dict[str, tuple[int, dict[str, Any]]] = {
    "points": (2, {"mixes": ("plain",), "nodes": 4}),
    "victims": (2, {**PREEMPTING, "rates": NO_FAULTS}),
    "nominations": (1, {**PREEMPTING, "rates": NO_FAULTS}),
    "volumes": (1, {**WITH_VOLUMES, "rates": NO_FAULTS}),
}
"""A seed whose world needs the rule."""


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_rule_that_is_wrong_in_both_schedulers_is_caught_by_the_twins(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, parts = WRONG_RULES[name]
    for attribute, wrong in parts.items():
        monkeypatch.setattr(owner, attribute, wrong)
    seed, pinned = SHOWN[name]
    options = replace(draw(Random(f"{seed}/options"), faults=True), **pinned)
    if name == "points":
        assert simulate(seed, SimulatedProcess, options=options).is_good
    with scalar_look() as compared:
        outcome = simulate(seed, SimulatedProcess, options=options)
    assert compared
    assert outcome.violation is not None
    assert TWINS in outcome.violation.detail
