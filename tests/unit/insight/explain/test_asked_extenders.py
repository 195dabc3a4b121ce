"""Extenders that are asked: nodes they rule out, points they give, and what they break."""

from __future__ import annotations

import asyncio

import pytest
from explaining import HEADER, state_of

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import KubeschedError
from kubesched.config.load import load
from kubesched.framework.extenders import ExtenderFilterResult
from kubesched.insight.explain import Explainer
from kubesched.insight.explain.model import Verdict
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.testing import make_node, make_pod

CONFIG = HEADER + "extenders:\n- urlPrefix: http://extender.example\n  filterVerb: filter\n"


class FakeExtender:
    """Rejects some nodes, with a reason, and gives points to others."""

    name = "http://extender.example"
    is_ignorable = False
    is_filter = is_prioritizer = True
    is_binder = supports_preemption = False

    def __init__(self, rejected: dict[str, str], points: dict[str, int]) -> None:
        self.rejected = rejected
        self.points = points
        self.broken = False

    def is_interested(self, pod: Pod) -> bool:
        return True

    async def filter(self, pod, nodes):
        if self.broken:
            raise KubeschedError("the extender is down")
        names = tuple(n.metadata.name for n in nodes if n.metadata.name not in self.rejected)
        return ExtenderFilterResult(names, {k: v for k, v in self.rejected.items() if v})

    async def prioritize(self, pod, nodes):
        return [(n.metadata.name, self.points.get(n.metadata.name, 0)) for n in nodes]


@pytest.fixture
def told():
    def explain(extender: FakeExtender):
        state = state_of(make_node("n1"), make_node("n2"), make_node("n3"), make_pod("a").cpu("1"))
        scheduler = in_memory_scheduler(
            state,
            load(CONFIG.encode()),
            extenders=lambda _configured, _table: [extender],
            classes=False,
        )
        with asyncio.Runner() as runner:
            explainer = Explainer(scheduler.assembly, run=runner.run)
            return explainer.explain(state.get(Pod, "default", "a"))

    return explain


def test_nodes_that_an_extender_rules_out_are_not_feasible(told):
    found = told(FakeExtender({"n1": "no licence", "n2": ""}, {}))
    assert (found.verdict, found.chosen.node) == (Verdict.FITS, "n3")
    failures = {
        row.node: [(f.plugin, f.code, f.reasons) for f in row.failures] for row in found.matrix
    }
    assert failures == {
        "n1": [("Extender", "RejectedByExtender", ["no licence"])],
        "n2": [
            (
                "Extender",
                "RejectedByExtender",
                ["an extender left the node out and gave no reason"],
            )
        ],
        "n3": [],
    }


def test_points_of_an_extender_are_part_of_the_total(told):
    found = told(FakeExtender({}, {"n2": 50}))
    assert (found.chosen.node, found.chosen.margin) == ("n2", 50)
    row = next(row for row in found.matrix if row.node == "n2")
    assert row.scores["http://extender.example"].weighted == 50
    assert row.total == sum(score.weighted for score in row.scores.values())


def test_a_pod_that_an_extender_wants_nowhere(told):
    found = told(FakeExtender(dict.fromkeys(("n1", "n2", "n3"), "no licence"), {}))
    assert found.verdict is Verdict.NOT_NOW
    assert found.message.startswith("0/3 nodes are available: 3 no licence.")
    assert [(r.code, r.nodes, r.only_reason) for r in found.reasons] == [
        ("RejectedByExtender", 3, 3)
    ]


def test_an_extender_that_fails_fails_the_attempt(told):
    extender = FakeExtender({}, {})
    extender.broken = True
    found = told(extender)
    assert (found.condition_reason, found.message) == ("SchedulerError", "the extender is down")
    assert found.nodes.feasible == 0
