"""Plugins of the simulated profile: one that misbehaves, one that holds pods at Permit on cue."""

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
from kubesched.framework.nodes.node_info import NodeInfo
from kubesched.framework.status import Code, Status
from kubesched.lab.simulation.trace import SIMULATED, Trace

TROUBLEMAKER: Final = "SimulationTroublemaker"
DOORKEEPER: Final = "SimulationDoorkeeper"
HELD_S: Final = 4.0
WAYS: Final = {"raise": "raised", "garbage": "returned garbage", "error": "returned an error"}
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
        self.count = 0
        self._trace = trace

    def strikes(self) -> bool:
        return self.rate > 0 and self.random.random() < self.rate

    def note(self, what: str, kind: str) -> None:
        self.count += 1
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
            raise RuntimeError(f"{SIMULATED} at {point}")
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
                _decide_in(self, TROUBLEMAKER, HELD_S, pod.metadata.uid, "reject")
                return Wait(2 * HELD_S)
            if mischief.strikes():
                self._decide_later(pod)
                return Wait(mischief.random.uniform(0.1, 6.0))
            answer: Status | Wait | None = misbehave("Permit")
            return answer

        def _decide_later(self, pod: Pod) -> None:
            """Allow, reject, or time out."""
            verdict = mischief.random.choice(tuple(VERDICTS))
            mischief.note("Permit wait", VERDICTS[verdict])
            seconds = mischief.random.uniform(0.0, 5.0)
            _decide_in(self, TROUBLEMAKER, seconds, pod.metadata.uid, verdict)

        async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
            answer: Status | None = misbehave("PreBind")
            return answer

        def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
            misbehave("PostBind")

    return Troublemaker


class Door:
    """Which pods are held at Permit; shared by all instances of a run."""

    def __init__(self) -> None:
        self.plans: dict[str, tuple[float, str]] = {}
        """Pod name -> seconds to hold, and the verdict: `allow` or `reject`."""


def make_doorkeeper(door: Door) -> type[Plugin]:
    """A Permit plugin that holds only pods with a plan. Any event may undo its rejections."""

    class Doorkeeper(PermitPlugin):
        name = DOORKEEPER

        def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status | Wait | None:
            plan = door.plans.pop(pod.metadata.name, None)
            if plan is None:
                return None
            seconds, verdict = plan
            _decide_in(self, DOORKEEPER, seconds, pod.metadata.uid, verdict)
            return Wait(2 * seconds)

    return Doorkeeper


def _decide_in(plugin: Plugin, name: str, seconds: float, uid: str, verdict: str) -> None:
    def decide() -> None:
        pods = plugin.handle.waiting_pods
        waiting = pods.get(uid) if pods is not None else None
        if waiting is None or verdict == "nothing":
            return
        if verdict == "allow":
            waiting.allow(name)
        else:
            waiting.reject(name, "simulated rejection")

    asyncio.get_running_loop().call_later(seconds, decide)
