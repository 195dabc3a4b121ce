"""Two plugins in the simulated profile: one that looks over the scheduler's shoulder, one that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from kubesched.api.core_v1 import Node, Pod
from kubesched.embedded.objects import JsonObject
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    ScorePlugin,
    Wait,
)
from kubesched.framework.status import Code, Status
from kubesched.simulation.rules import State, objection
from kubesched.snapshot.node_info import NodeInfo

AUDITOR: Final = "SimulationAuditor"
TROUBLEMAKER: Final = "SimulationTroublemaker"

Complain = Callable[[str, str], None]
"""(property, what happened)"""


def make_auditor(complain: Complain) -> type[Plugin]:
    """A Reserve plugin: it sees every decision at the moment it is made, with the state it was made from."""

    class Auditor(ReservePlugin):
        name = AUDITOR

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            del state
            why = objection(_json(pod), node_name, known_state(self.handle, without=pod))
            if why is not None:
                complain(
                    "rules hold at every decision",
                    f"pod {pod.metadata.namespace}/{pod.metadata.name} goes to {node_name}: {why}",
                )
            return None

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """Nothing was booked."""

    return Auditor


def known_state(handle: Handle, *, without: Pod) -> State:
    """What the scheduler knows, as plain objects."""
    assert handle.listers is not None, "a scheduler has listers"
    nodes = {node.metadata.name: _json(node) for node in handle.listers.of(Node).list()}
    placed = [
        (_json(info.pod), info.pod.spec.node_name)
        for _row, info in handle.table.all_pods()
        if info.uid != without.metadata.uid
    ]
    return State(nodes, tuple(placed))


def _json(obj: Any) -> JsonObject:  # noqa: ANN401  # any record
    plain: JsonObject = msgspec.to_builtins(obj)
    plain.setdefault("spec", {})
    return plain


class Mischief:
    """How often the troublemaker misbehaves; shared by all instances of a run."""

    def __init__(self, rate: float, random: Random, note: Callable[[str], None]) -> None:
        self.rate = rate
        self.random = random
        self.note = note

    def strikes(self) -> bool:
        return self.rate > 0 and self.random.random() < self.rate


def make_troublemaker(mischief: Mischief) -> type[Plugin]:
    """A plugin as a third party might write it on a bad day."""

    def misbehave(point: str) -> Any:  # noqa: ANN401  # garbage is the point
        if not mischief.strikes():
            return None
        how = mischief.random.choice(("raise", "garbage", "error"))
        mischief.note(f"{point} {how}")
        if how == "raise":
            raise RuntimeError(f"simulated failure at {point}")
        if how == "garbage":
            return mischief.random.choice((42, "yes", [], {"code": 1}))
        return Status(Code.ERROR, (f"simulated error at {point}",))

    class Troublemaker(
        FilterPlugin, ScorePlugin, ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin
    ):
        name = TROUBLEMAKER

        def filter(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status | None:
            answer: Status | None = misbehave("Filter")
            return answer

        def score(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> int | Status:
            answer: int | Status | None = misbehave("Score")
            return 0 if answer is None else answer

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            answer: Status | None = misbehave("Reserve")
            return answer

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            misbehave("Unreserve")

        def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
            if mischief.strikes():
                mischief.note("Permit wait")
                self._decide_later(pod)
                return Wait(mischief.random.uniform(0.1, 6.0))
            answer: Status | Wait | None = misbehave("Permit")
            return answer

        def _decide_later(self, pod: Pod) -> None:
            """Allow, reject, or let the time run out."""
            verdict = mischief.random.choice(("allow", "reject", "nothing"))
            uid = pod.metadata.uid

            def decide() -> None:
                pods = self.handle.waiting_pods
                waiting = pods.get(uid) if pods is not None else None
                if waiting is None or verdict == "nothing":
                    return
                if verdict == "allow":
                    waiting.allow(TROUBLEMAKER)
                else:
                    waiting.reject(TROUBLEMAKER, "simulated rejection")

            asyncio.get_running_loop().call_later(mischief.random.uniform(0.0, 5.0), decide)

        async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            answer: Status | None = misbehave("PreBind")
            return answer

        def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
            misbehave("PostBind")

    return Troublemaker
