"""Filters that cannot judge single nodes: the attempt fails where such a node is still in the
running, and only there.
"""

from random import Random

import numpy as np
import pytest

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import FilterPlugin, ScorePlugin
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Code, error_status, unschedulable
from kubesched.framework.verdicts import Verdicts
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.testing import make_node, make_pod


class Choosy(FilterPlugin):
    """Rejects the nodes of its set."""

    name = "Choosy"
    rejected: frozenset[str] = frozenset()

    def filter_nodes(self, state, pod, nodes):
        codes = [nodes.name_at(at) in self.rejected for at in range(len(nodes))]
        return Verdicts.reject(np.array(codes), unschedulable("no"))


class Broken(FilterPlugin, ScorePlugin):
    """Cannot judge the nodes of its set."""

    name = "Broken"
    broken: frozenset[str] = frozenset()

    def filter_nodes(self, state, pod, nodes):
        broken = np.array([nodes.name_at(at) in self.broken for at in range(len(nodes))])
        return Verdicts(
            broken.astype(np.uint8), lambda code: error_status("it broke"), broken=broken
        )

    def score_nodes(self, state, pod, nodes):
        return np.zeros(len(nodes), dtype=np.int64)


def world(rejected, broken, parallelism=1):
    table = NodeTable()
    for name in ("n0", "n1", "n2", "n3"):
        table.set_node(make_node(name).build())
    handle = Handle(table)
    choosy, breaking = Choosy(None, handle), Broken(None, handle)
    choosy.rejected, breaking.broken = frozenset(rejected), frozenset(broken)
    framework = Framework(
        handle, {"filter": [choosy, breaking], "score": [breaking]}, {"Broken": 1}
    )
    return framework, SchedulingAlgorithm(table, Random(1), parallelism=parallelism)


def schedule(framework, algorithm):
    return algorithm.schedule(framework, CycleState(), PodInfo(make_pod("p").build()))


@pytest.mark.parametrize("parallelism", [1, 16])
def test_a_node_that_cannot_be_judged_ends_the_attempt(parallelism):
    answer = schedule(*world((), {"n2"}, parallelism))
    assert answer.code is Code.ERROR
    assert answer.message == 'running "Broken" filter plugin: it broke'


def test_a_nominated_node_that_cannot_be_judged_is_told_and_all_are_searched(caplog):
    framework, algorithm = world((), {"n2"}, parallelism=1)
    pod = PodInfo(make_pod("p").nominated("n2").build())
    answer = algorithm.schedule(framework, CycleState(), pod)
    assert answer.code is Code.ERROR
    (record,) = [r for r in caplog.records if r.message == "Evaluation failed on nominated node"]
    assert record.values["node"] == "n2"
    assert str(record.values["err"]) == 'running "Broken" filter plugin: it broke'


@pytest.mark.parametrize("parallelism", [1, 16])
def test_a_node_that_is_out_already_need_not_be_judged(parallelism):
    answer = schedule(*world({"n2"}, {"n2"}, parallelism))
    assert isinstance(answer, ScheduleResult)
    assert answer.feasible_nodes == 3


def test_the_next_walk_begins_behind_the_nodes_that_were_looked_at():
    framework, algorithm = world({"n0"}, {"n2", "n3"})
    assert schedule(framework, algorithm).code is Code.ERROR
    assert algorithm.next_start == 2
    assert schedule(framework, algorithm).code is Code.ERROR
    assert algorithm.next_start == 2


class SaysWhere(Broken):
    """Stops at the first node that it cannot judge, and names it."""

    def filter_nodes(self, state, pod, nodes):
        names = [nodes.name_at(at) for at in range(len(nodes))]
        at = next(at for at, name in enumerate(names) if name in self.broken)
        codes = np.zeros(len(nodes), dtype=np.int32)
        codes[at] = 1
        return Verdicts(codes, lambda code: error_status(f"{names[at]} broke"), codes == 1)


def test_the_node_that_is_named_is_the_first_one_of_the_walk():
    framework, algorithm = world((), ())
    breaking = SaysWhere(None, framework.handle)
    breaking.broken = frozenset({"n1", "n3"})
    framework = Framework(
        framework.handle, {"filter": [breaking], "score": [breaking]}, {"Broken": 1}
    )
    assert schedule(framework, algorithm).message.endswith("n1 broke")
    assert algorithm.next_start == 1
    algorithm.next_start = 2
    assert schedule(framework, algorithm).message.endswith("n3 broke")
    assert algorithm.next_start == 3
