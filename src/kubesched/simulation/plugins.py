"""A plugin of the simulated profile that misbehaves."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
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
from kubesched.simulation.trace import Trace
from kubesched.snapshot.node_info import NodeInfo

TROUBLEMAKER: Final = "SimulationTroublemaker"
HELD_S: Final = 4.0
WAYS: Final = {
    "raise": "raised",
    "garbage": "returned garbage",
    "error": "returned an error",
}
VERDICTS: Final = {
    "allow": "held and allowed",
    "reject": "held and rejected",
    "nothing": "held and forgot",
}


class Mischief:
    """How often the plugin misbehaves; shared by all instances of a run."""

    def __init__(self, rate: float, random: Random, trace: Trace) -> None:
        self.rate = rate
        self.is_in_ambush = False
        """Whether the next pod is held at Permit for `HELD_S` and then rejected."""
        self.random = random
        self._trace = trace

    def strikes(self) -> bool:
        return self.rate > 0 and self.random.random() < self.rate

    def note(self, what: str, kind: str) -> None:
        self._trace.add("mischief", what)
        self._trace.census.tally("plugins", kind)


def make_troublemaker(mischief: Mischief) -> type[Plugin]:
    """A third-party plugin that raises, stalls and returns wrong types."""

    def misbehave(point: str) -> Any:  # noqa: ANN401  # garbage is the point
        if not mischief.strikes():
            return None
        how = mischief.random.choice(tuple(WAYS))
        mischief.note(f"{point} {how}", WAYS[how])
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
            if mischief.is_in_ambush:
                mischief.is_in_ambush = False
                mischief.note("Permit ambush", VERDICTS["reject"])
                self._decide_in(HELD_S, pod.metadata.uid, "reject")
                return Wait(2 * HELD_S)
            if mischief.strikes():
                self._decide_later(pod)
                return Wait(mischief.random.uniform(0.1, 6.0))
            answer: Status | Wait | None = misbehave("Permit")
            return answer

        def _decide_later(self, pod: Pod) -> None:
            """Allow, reject, or let the time run out."""
            verdict = mischief.random.choice(tuple(VERDICTS))
            mischief.note("Permit wait", VERDICTS[verdict])
            self._decide_in(mischief.random.uniform(0.0, 5.0), pod.metadata.uid, verdict)

        def _decide_in(self, seconds: float, uid: str, verdict: str) -> None:
            def decide() -> None:
                pods = self.handle.waiting_pods
                waiting = pods.get(uid) if pods is not None else None
                if waiting is None or verdict == "nothing":
                    return
                if verdict == "allow":
                    waiting.allow(TROUBLEMAKER)
                else:
                    waiting.reject(TROUBLEMAKER, "simulated rejection")

            asyncio.get_running_loop().call_later(seconds, decide)

        async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            answer: Status | None = misbehave("PreBind")
            return answer

        def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
            misbehave("PostBind")

    return Troublemaker
