"""What holds for every preemption, on random clusters: which pods it may evict, that it helps, and
that no eviction is unnecessary.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec import convert

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.storage_v1 import CSINode
from kubesched.framework.extenders import Victims
from kubesched.framework.node_statuses import NodeStatusColumns
from kubesched.framework.nodes.views import NodeColumns, WhatIfColumns
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.dry_run import DryRun
from kubesched.framework.preemption.victims import no_victim_on, select_victims
from kubesched.framework.runtime.nominated import filter_node_with_nominated
from kubesched.framework.runtime.pre_filter import run_add_pod, run_remove_pod
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import HOSTNAME, ZONE

SEEDS = st.integers(0, 2**32)


DRIVER = "csi.example.com"
EXCLUSIVE = ("exclusive-1", "exclusive-2")
CLAIMS = dict.fromkeys((f"c{number}" for number in range(4)), "ReadWriteOnce") | dict.fromkeys(
    EXCLUSIVE, "ReadWriteOncePod"
)
OWN = "own"
"""Of the preemptor alone."""


def store_volumes(world) -> None:
    """Bound claims of one driver."""
    for name, mode in {**CLAIMS, OWN: "ReadWriteOnce"}.items():
        claim = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": f"pv-{name}", "accessModes": [mode]},
            "status": {"phase": "Bound"},
        }
        volume = {
            "metadata": {"name": f"pv-{name}"},
            "spec": {"csi": {"driver": DRIVER, "volumeHandle": name}, "accessModes": [mode]},
        }
        world.listers.of(PersistentVolumeClaim).put(convert(claim, PersistentVolumeClaim))
        world.listers.of(PersistentVolume).put(convert(volume, PersistentVolume))


def limit_volumes(world, node_name: str, count: int) -> None:
    driver = {"name": DRIVER, "nodeID": node_name, "allocatable": {"count": count}}
    node = {"metadata": {"name": node_name}, "spec": {"drivers": [driver]}}
    world.listers.of(CSINode).put(convert(node, CSINode))


KINDS = ("affinity", "anti", "spread", "none")
ONLY_SHRINKING = ("anti", "none")
"""Without those to whom another pod can be of help.

A volume that is on the node already needs no more room there: a pod that has it is of help as well.
"""


def random_cluster(world_type, rng: Random, *, social: bool, kinds=KINDS):
    """Full nodes; with `social`, pods that care about each other, or about the same volumes."""
    world = world_type()
    with_volumes = social and rng.random() < 0.5
    if with_volumes:
        store_volumes(world)
    for number in range(rng.randint(1, 7)):
        name = f"n{number}"
        node = make_node(name).capacity(cpu="2", memory="8Gi", pods=rng.choice([4, 20]))
        world.add_node(node.zone(rng.choice("ab")))
        if with_volumes and rng.random() < 0.8:
            limit_volumes(world, name, rng.randint(0, 2))
        for each in range(rng.randrange(6)):
            pod = make_pod(f"v{number}-{each}").on(name).priority(rng.choice([0, 1, 5, 10, 20]))
            pod.cpu(rng.choice(["250m", "500m", "1"])).labels(app=rng.choice(["web", "db"]))
            pod.status(startTime=f"2026-01-01T{rng.randrange(5):02}:00:00Z")
            if social and rng.random() < 0.3:
                pod.pod_anti_affinity(rng.choice([HOSTNAME, ZONE]), app=rng.choice(["web", "p"]))
            if with_volumes and rng.random() < 0.6:
                pod.claim(rng.choice(list(CLAIMS)))
            if rng.random() < 0.3:
                # Several pods of a node may hold the port: other schedulers do such things.
                pod.host_port(80, ip=rng.choice(["", "10.0.0.1"]))
            world.add(pod)
        if rng.random() < 0.25:
            rival = make_pod(f"rival{number}").labels(app=rng.choice(["web", "db"]))
            if social and rng.random() < 0.5:
                rival.pod_anti_affinity(HOSTNAME, app="p")
            world.nominate(
                name, rival.json["metadata"]["name"], "500m", rng.choice([0, 10, 30]), rival
            )
    for app in ("web", "db"):
        if rng.random() < 0.5:
            world.budget(app, rng.randrange(3), app=app)
    pod = make_pod("p").cpu(rng.choice(["500m", "1", "2"])).priority(10).labels(app="p")
    if rng.random() < 0.4:
        pod.host_port(80, ip=rng.choice(["", "10.0.0.1", "10.0.0.2"]))
    if with_volumes:
        wanted = [*CLAIMS, OWN] if kinds is KINDS else [*EXCLUSIVE, OWN]
        for claim in rng.sample(wanted, rng.choice([1, 1, 2])):
            pod.claim(claim)
    if social:
        kind = rng.choice(kinds)
        if kind == "affinity":
            pod.pod_affinity(ZONE, app="web")
        elif kind == "anti":
            pod.pod_anti_affinity(rng.choice([HOSTNAME, ZONE]), app="web")
        elif kind == "spread":
            pod.spread(1, ZONE, selector={"matchLabels": {"app": "web"}})
    return world, world.preemptor(pod.build())


def shares_exclusive_claims(world) -> bool:
    """Do several pods have a claim that only one should have?"""
    users = Counter(
        volume.persistent_volume_claim.claim_name
        for row in rows_of(world).tolist()
        for pod in world.table.pods[row].values()
        for volume in pod.pod.spec.volumes or ()
        if volume.persistent_volume_claim is not None
    )
    return any(users[claim] > 1 for claim in EXCLUSIVE)


def rows_of(world):
    return world.table.order_rows.astype(np.intp)


class dry_run:  # noqa: N801  # called like a function
    """The outcome of a dry run: a shortlist, or None, and the verdicts on other rows."""

    def __init__(self, preemptor, rows, wanted, budgets, *, together=True) -> None:
        self._run, self._rows = DryRun(preemptor, budgets, together=together), rows
        found = self._run.find(rows, wanted)
        self.shortlist = None if isinstance(found, NodeStatusColumns) else found

    def statuses(self):
        run = self._run
        rows = self._rows[run._verdicts[self._rows] >= 0]
        return NodeStatusColumns(run._table, rows, run._verdicts[rows], run._statuses)


def run(world, preemptor, rng: Random):
    rows = rows_of(world)
    wanted = rng.choice([1, 2, len(rows)])
    budgets = world.plugin.evaluator.budgets.list()
    done = dry_run(preemptor, rows, wanted, budgets)
    return done, budgets


class Without:
    """A node without some pods, asked whether the preemptor fits."""

    def __init__(self, world, preemptor, node_name: str, gone) -> None:
        self._preemptor = preemptor
        self._state = preemptor.state.clone()
        row = world.table.row_of[node_name]
        self._pods = {pod.name: pod for pod in world.table.pods[row].values()}
        self._view = WhatIfColumns(world.table, np.array([row]), [[]], [[]])
        for pod in gone:
            self._view.take(0, self._pods[pod.metadata.name])
            self._tell(run_remove_pod, pod)

    def _tell(self, extension, pod) -> None:
        preemptor = self._preemptor
        info = self._pods[pod.metadata.name]
        extension(preemptor.framework, self._state, preemptor.pod.pod, info, self._view)

    def fits(self) -> bool:
        preemptor = self._preemptor
        return (
            filter_node_with_nominated(preemptor.framework, self._state, preemptor.pod, self._view)
            is None
        )

    def fits_with(self, pod) -> bool:
        self._tell(run_add_pod, pod)
        self._view.put(0, self._pods[pod.metadata.name])
        return self.fits()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=SEEDS)
@pytest.mark.parametrize("social", [False, True], ids=["by columns", "node by node"])
def test_victims_are_less_important_and_their_eviction_makes_room(
    world_type, social: bool, seed: int
) -> None:
    rng = Random(seed)
    world, preemptor = random_cluster(world_type, rng, social=social)
    done, _ = run(world, preemptor, rng)
    assume(done.shortlist is not None)
    for candidate in done.shortlist.candidates():
        victims = candidate.victims.pods
        assert victims, "a candidate without victims"
        assert all(victim.spec.priority < 10 for victim in victims)
        assert Without(world, preemptor, candidate.node_name, victims).fits()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=SEEDS)
@pytest.mark.parametrize("social", [False, True], ids=["by columns", "node by node"])
def test_every_victim_is_needed(world_type, social: bool, seed: int) -> None:
    """With any one of them back there would be no room. (Room here only shrinks as pods are
    added.)
    """
    rng = Random(seed)
    world, preemptor = random_cluster(world_type, rng, social=social, kinds=ONLY_SHRINKING)
    done, _ = run(world, preemptor, rng)
    assume(done.shortlist is not None)
    for candidate in done.shortlist.candidates():
        for victim in candidate.victims.pods:
            node = Without(world, preemptor, candidate.node_name, candidate.victims.pods)
            assert not node.fits_with(victim), f"{victim.metadata.name} was evicted unnecessarily"


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
@example(seed=939).via("a nominated pod's terms that are ignored once no other pod has any")
def test_what_was_thought_is_what_comes_of_real_evictions(world_type, seed: int) -> None:
    """Pods are taken away for real and everything is judged anew: no plugin needs `remove_pod`
    callbacks.
    """
    rng = Random(seed)
    world, preemptor = random_cluster(world_type, rng, social=True)
    rows = rows_of(world)
    budgets = world.plugin.evaluator.budgets.list()
    done = dry_run(preemptor, rows, len(rows), budgets)
    found = done.shortlist.candidates() if done.shortlist is not None else []
    victims = {each.node_name: each.victims.pods for each in found}
    row = int(rng.choice(rows))
    name = world.table.names[row]
    lower = [pod.pod for pod in world.table.pods[row].values() if pod.priority < 10]
    had_room = done.statuses().get(name).message == no_victim_on(name).message
    # Upstream: an exclusive claim that two pods have (others' doing) counts as free once one of
    # them has gone.
    assume(lower and not had_room and not shares_exclusive_claims(world))
    for pod in victims.get(name, lower):
        world.cache.remove_pod(pod)
    anew = world.preemptor(preemptor.pod.pod)
    # Upstream: with the last pod that has terms goes all interest in terms, those of nominated pods
    # included.
    assume(anew.state.skip_filter_plugins == preemptor.state.skip_filter_plugins)
    node = NodeColumns(world.table, np.array([row]))
    status = filter_node_with_nominated(anew.framework, anew.state, anew.pod, node)
    assert (status is None) == (name in victims), status


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=SEEDS)
def test_a_budget_is_violated_only_when_no_node_spares_it(world_type, seed: int) -> None:
    rng = Random(seed)
    world, preemptor = random_cluster(world_type, rng, social=rng.random() < 0.3)
    done, budgets = run(world, preemptor, rng)
    assume(done.shortlist is not None)
    best = world.plugin.evaluator._best(done.shortlist)
    if best.victims.pdb_violations:
        for row in rows_of(world).tolist():
            other = select_victims(preemptor, row, budgets)
            spares = isinstance(other, Victims) and other.pods and not other.pdb_violations
            assert not spares, f"{world.table.names[row]} would have done without"


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_what_is_done_together_is_what_is_done_node_by_node(world_type, seed: int) -> None:
    """Also for pods that care about others: nodes without any of those are judged by columns all
    the same.
    """
    rng = Random(seed)
    world, preemptor = random_cluster(world_type, rng, social=True)
    rows = rows_of(world)
    wanted = rng.choice([1, 2, len(rows)])
    budgets = world.plugin.evaluator.budgets.list()
    together = dry_run(preemptor, rows, wanted, budgets)
    alone = dry_run(preemptor, rows, wanted, budgets, together=False)
    found, expected = found_by(together), found_by(alone)
    assert found[0] == expected[0]
    if not expected[0]:
        assert found[1] == expected[1]


def test_a_pod_with_a_bound_claim_does_not_make_nodes_be_tried_one_by_one(
    world_type, monkeypatch
) -> None:
    world = world_type()
    store_volumes(world)
    for number in range(3):
        world.node(f"n{number}", cpu="1")
        limit_volumes(world, f"n{number}", 1)
        world.add(make_pod(f"v{number}").on(f"n{number}").cpu("1").priority(0).claim(f"c{number}"))
    monkeypatch.setattr("kubesched.framework.preemption.dry_run.select_victims", None)
    preemptor = world.preemptor(make_pod("p").cpu("1").priority(10).claim(OWN).build())
    done = dry_run(preemptor, rows_of(world), 3, Budgets(()))
    victims = {each.node_name: each.victims.pods for each in done.shortlist.candidates()}
    assert {name: pods[0].metadata.name for name, pods in victims.items()} == {
        "n0": "v0",
        "n1": "v1",
        "n2": "v2",
    }


def test_candidates_are_kept_in_the_order_of_the_visit(world_type) -> None:
    """Whether a node was tried together with others or alone plays no part in which candidates are
    enough.
    """
    world = world_type()
    for name, app, priority in (
        ("n0", "web", 50),  # the pod's anti-affinity, and no pod to evict for it
        ("n1", "db", 0),
        ("n2", "web", 0),  # tried alone: the pod cares about whom it may evict there
        ("n3", "db", 0),
    ):
        world.node(name, "2")
        world.on(name, f"keep-{name}", priority=priority, app=app if priority else "other")
        world.on(name, f"go-{name}", app=app)
    pod = make_pod("p").cpu("1").priority(10).pod_anti_affinity(HOSTNAME, app="web").build()
    rows = np.array([world.table.row_of[f"n{number}"] for number in range(4)])
    preemptor = world.preemptor(pod)
    for together in (True, False):
        done = dry_run(preemptor, rows, 2, Budgets(()), together=together)
        assert [c.node_name for c in done.shortlist.candidates()] == ["n1", "n2"]


def test_candidates_that_violate_no_budget_come_first(world_type) -> None:
    world = world_type()
    for name, app in (("n0", "guarded"), ("n1", "free"), ("n2", "guarded"), ("n3", "free")):
        world.node(name, "1")
        world.on(name, f"v-{name}", app=app)
    world.budget("b", 0, app="guarded")
    preemptor = world.preemptor(make_pod("p").cpu("1").priority(10).build())
    budgets = world.plugin.evaluator.budgets.list()
    for together in (True, False):
        done = dry_run(preemptor, rows_of(world), 4, budgets, together=together)
        found = [c.node_name for c in done.shortlist.candidates()]
        assert found == ["n1", "n3", "n0", "n2"]


def found_by(done):
    candidates = done.shortlist.candidates() if done.shortlist is not None else []
    return (
        [(c.node_name, [p.metadata.name for p in c.victims.pods]) for c in candidates],
        {name: (status.code, status.reasons) for name, status in done.statuses().explicit.items()},
    )
