"""A diagnosis that is brought up to date row by row is that of a full evaluation.

Random clusters in which pods of a few templates fit nowhere or hardly anywhere; between attempts
pods and nominations come and go and nodes change. A scheduler with classes and one without try
every pod in the same state: nodes, statuses per node, plugins and messages must be equal.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import msgspec
import pytest
from frameworks import default_framework

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.node_statuses import NodeStatusColumns, rows_with_code
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.status import Code
from kubesched.insight.state.memory import MemoryListers
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.classes.known_failure import KnownFailure
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.scheduler.scheduling_cycle import SchedulingCycle
from kubesched.testing import make_node, make_pod
from kubesched.testing.builders import ZONE

TEMPLATES = (
    lambda pod: pod.cpu("2"),
    lambda pod: pod.cpu("1").host_port(80),
    lambda pod: pod.cpu("1").memory("3Gi").node_selector(disk="ssd"),
    lambda pod: pod.cpu("1").labels(app="a").pod_anti_affinity(ZONE, app="a"),
)


class History:
    """One table; two algorithms, one of which keeps failures."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.table = NodeTable(4)
        self.listers = MemoryListers()
        self.queued: dict[str, PodInfo] = {}
        self.nominator = Nominator(self.listers.of(Pod), self.queued.get)
        handle = Handle(table=self.table, listers=self.listers, nominator=self.nominator)
        self.framework = default_framework(self.table, handle)
        parallelism = self.random.choice([1, 16])
        self.with_classes = SchedulingAlgorithm(
            self.table,
            Random(1),
            parallelism=parallelism,
            engine=ClassEngine(self.table),
        )
        self.plain = SchedulingAlgorithm(self.table, Random(1), parallelism=parallelism)
        self.running: list[tuple[PodInfo, str]] = []
        self.made = 0
        for number in range(12):
            self.set_node(number)
        for _ in range(20):
            self.start_pod()

    def set_node(self, number: int) -> None:
        node = make_node(f"n{number}").capacity(cpu="2", memory="4Gi").zone("abcd"[number % 4])
        if self.random.random() < 0.5:
            node.label("disk", "ssd")
        if self.random.random() < 0.2:
            node.taint("dedicated", "x")
        self.table.set_node(node.build())

    def start_pod(self) -> None:
        self.made += 1
        pod = make_pod(f"r{self.made}").cpu(self.random.choice(["500m", "1"]))
        if self.random.random() < 0.3:
            pod.host_port(80)
        if self.random.random() < 0.1:
            pod.labels(app="a")
        info, node = PodInfo(pod.build()), f"n{self.random.randrange(12)}"
        self.table.add_pod(info, node)
        self.running.append((info, node))

    def change(self) -> None:
        match self.random.randrange(14):
            case 0:
                self.set_node(self.random.randrange(12))
            case 12 if len(self.table.row_of) > 2:
                self.table.remove_node(self.random.choice([*self.table.row_of]))
            case 13 if self.queued:
                rival = self.random.choice([*self.queued.values()])
                if self.random.random() < 0.5:
                    del self.queued[rival.key]
                    self.nominator.delete_nominated_pod(rival.pod)
                else:
                    self.nominate(rival)
            case 1:
                self.made += 1
                rival = PodInfo(make_pod(f"x{self.made}").cpu("500m").priority(5).build())
                self.listers.of(Pod).put(rival.pod)
                self.queued[rival.key] = rival
                self.nominate(rival)
            case 2 | 3 | 4 if self.running:
                at = self.random.randrange(len(self.running))
                self.table.remove_pod(*self.running.pop(at))
            case _:
                self.start_pod()

    def nominate(self, rival: PodInfo) -> None:
        node = f"n{self.random.randrange(12)}"
        self.nominator.add_nominated_pod(rival, NominatingInfo(True, node))

    def decide(self) -> None:
        self.made += 1
        pod = self.random.choice(TEMPLATES)(make_pod(f"p{self.made}")).build()
        # As a profile that looks at a part of the nodes may have left it, when there were more of
        # them.
        self.with_classes.next_start = self.plain.next_start = self.random.randrange(12)
        outcome = self.with_classes.schedule(self.framework, CycleState(), PodInfo(pod))
        expected = self.plain.schedule(self.framework, CycleState(), PodInfo(pod))
        assert told(outcome) == told(expected)
        assert self.with_classes.next_start == self.plain.next_start


def told(outcome):
    if isinstance(outcome, ScheduleResult):
        return outcome
    diagnosis = outcome.error.diagnosis
    statuses = diagnosis.node_to_status
    if isinstance(statuses, NodeStatusColumns):
        assert len(statuses.statuses) <= len(statuses)
    return (
        str(outcome.error),
        diagnosis.unschedulable_plugins,
        diagnosis.pending_plugins,
        {n: (s.code, s.reasons, s.plugin) for n, s in statuses.explicit.items()},
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_failures_are_those_of_a_full_evaluation(seed: int) -> None:
    history = History(seed)
    for _ in range(50):
        for _ in range(history.random.choice([0, 1, 1, 2])):
            history.change()
        history.decide()


class EndingHistory(History):
    """Attempts up to their end, PostFilter included: pods of lower priority run, but evicting them
    would not do.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        queue = SimpleNamespace(nominator=self.nominator)
        self.cycles = [
            SchedulingCycle(algorithm, None, queue) for algorithm in (self.with_classes, self.plain)
        ]

    def decide(self) -> None:
        self.made += 1
        template = self.random.choice(
            [lambda pod: pod.cpu("9"), lambda pod: pod.cpu("9").priority(3), TEMPLATES[0]]
        )
        pod = template(make_pod(f"p{self.made}")).build()
        self.listers.of(Pod).put(pod)
        told, expected = [self.end(cycle, PodInfo(pod)) for cycle in self.cycles]
        assert told == expected

    def end(self, cycle: SchedulingCycle, pod: PodInfo):
        state = CycleState()
        outcome = cycle.algorithm.schedule(self.framework, state, pod)
        if isinstance(outcome, ScheduleResult):
            return "fits"
        failed = cycle._try_to_make_room(self.framework, state, pod, outcome, 0.0)
        return told(failed.status), failed.nomination


@pytest.mark.parametrize("seed", range(30))
def test_attempts_that_repeat_a_failure_end_as_those_that_do_not(seed: int) -> None:
    history = EndingHistory(seed)
    for _ in range(60):
        for _ in range(history.random.choice([0, 0, 1, 2])):
            history.change()
        history.decide()


@pytest.fixture
def made(monkeypatch) -> list:
    """Grows with every failure that is learnt from a full evaluation."""
    made: list = []
    make = KnownFailure.__init__

    def counting(self, *arguments):
        made.append(arguments)
        make(self, *arguments)

    monkeypatch.setattr(KnownFailure, "__init__", counting)
    return made


def test_rows_nodes_and_nominations_do_not_end_a_failure(made) -> None:
    history = History(1)
    history.with_classes.parallelism = 16
    for number in range(5):
        pod = PodInfo(make_pod(f"big{number}").cpu("2").memory("9Gi").build())
        outcome = history.with_classes.schedule(history.framework, CycleState(), pod)
        assert str(outcome.error).startswith(f"0/{len(history.table.row_of)} nodes are available")
        history.start_pod()
        history.table.remove_node(f"n{number}")
        history.set_node(12 + number // 2)
        rival = PodInfo(make_pod(f"x{number}").cpu("500m").priority(5).build())
        history.listers.of(Pod).put(rival.pod)
        history.queued[rival.key] = rival
        history.nominate(rival)
    assert len(made) == 1


def test_verdicts_are_about_current_nodes_though_none_has_changed(made) -> None:
    history = History(1)
    for number in range(3):
        pod = PodInfo(make_pod(f"big{number}").cpu("2").memory("9Gi").build())
        outcome = history.with_classes.schedule(history.framework, CycleState(), pod)
        statuses = outcome.error.diagnosis.node_to_status
        assert len(rows_with_code(statuses, history.table, Code.SUCCESS)) == 0
        node = history.table.nodes[0]
        labels = {**node.metadata.labels, "number": str(number)}
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        history.table.set_node(msgspec.structs.replace(node, metadata=metadata))
    assert len(made) == 1


def test_a_node_that_comes_can_be_the_one_that_fits(made) -> None:
    history = History(1)
    make = lambda name: PodInfo(make_pod(name).cpu("2").memory("9Gi").build())  # noqa: E731
    assert not isinstance(
        history.with_classes.schedule(history.framework, CycleState(), make("big0")), ScheduleResult
    )
    history.table.set_node(make_node("large").capacity(cpu="4", memory="16Gi").build())
    result = history.with_classes.schedule(history.framework, CycleState(), make("big1"))
    assert result.node_name == "large"


def test_a_change_elsewhere_counts_if_a_filter_looks_beyond_the_node() -> None:
    table = NodeTable(4)
    for name in ("full", "empty"):
        table.set_node(make_node(name).capacity(cpu="2").zone("a").build())
    blocking = PodInfo(make_pod("blocking").cpu("500m").labels(app="a").build())
    table.add_pod(blocking, "full")
    table.add_pod(PodInfo(make_pod("large").cpu("1500m").build()), "full")
    framework = default_framework(table, Handle(table=table, listers=MemoryListers()))
    algorithm = SchedulingAlgorithm(table, Random(1), engine=ClassEngine(table))

    def schedule(name: str):
        pod = make_pod(name).cpu("1").pod_anti_affinity(ZONE, app="a").build()
        return algorithm.schedule(framework, CycleState(), PodInfo(pod))

    assert not isinstance(schedule("p1"), ScheduleResult)
    table.remove_pod(blocking, "full")
    assert schedule("p2").node_name == "empty"
