"""The simulation finds what it looks for: schedulers that were broken on purpose are caught, each by its property."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubesched.app.simulated import SimulatedProcess
from kubesched.plugins.node_resources_fit import NodeResourcesFit
from kubesched.simulation.options import Options, draw
from kubesched.simulation.run import Outcome, simulate

MAX_SEEDS = 40


class LosesFailedPods(SimulatedProcess):
    """A pod whose attempt failed is forgotten."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        queue = self.assembly.scheduler.queue

        def forget(info: Any) -> bool:
            queue.done(info.pod_info.uid)
            return True

        queue.add_unschedulable_if_not_present = forget  # type: ignore[method-assign]


class Generous(NodeResourcesFit):
    """Every pod fits everywhere."""

    def filter_nodes(self, *_arguments: Any) -> None:
        return None


class IgnoresRoom(SimulatedProcess):
    """Nodes never fill up."""

    def __init__(self, config: Any, gates: Any, registry: Any, **settings: Any) -> None:
        registry.unregister(Generous.name)
        registry.register(Generous.name, lambda: Generous)
        super().__init__(config, gates, registry, **settings)


class IsDeaf(SimulatedProcess):
    """Pods that did not fit are never told that something changed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.handlers._move = lambda *_arguments: None  # type: ignore[method-assign]


class LeadsAlways(SimulatedProcess):
    """Writes without asking whether it leads."""

    def may_write(self) -> bool:
        return True


class Dies(SimulatedProcess):
    """Falls over once it has something to do."""

    async def run(self) -> None:
        raise RuntimeError("fell over")


class NeverConfirms(SimulatedProcess):
    """What the watch says about bound pods is not heard."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.cache.add_pod = lambda _pod: None  # type: ignore[method-assign]


def _first_failure(process: type[SimulatedProcess], **pinned: Any) -> Outcome:
    for seed in range(1, MAX_SEEDS):
        options: Options = replace(draw(Random(f"{seed}/options"), faults=True), **pinned)
        outcome = simulate(seed, process, options=options)
        if not outcome.is_good:
            return outcome
    raise AssertionError(f"{process.__name__} passed {MAX_SEEDS - 1} seeds")


@pytest.mark.parametrize(
    ("broken", "pinned", "properties"),
    [
        (LosesFailedPods, {"instances": 1}, ("no pod is lost",)),
        (
            IgnoresRoom,
            {"instances": 1},
            ("rules hold at every decision",),
        ),
        (IsDeaf, {"instances": 1}, ("all that can be placed is placed once faults stop",)),
        (LeadsAlways, {"instances": 2}, ("no two schedulers lead at the same time",)),
        (Dies, {}, ("no scheduler dies by itself",)),
        (
            NeverConfirms,
            {"instances": 1},
            ("every bound pod is counted", "all that can be placed is placed once faults stop"),
        ),
    ],
    ids=lambda value: value.__doc__.strip() if isinstance(value, type) else "",
)
def test_a_broken_scheduler_is_caught(
    broken: type[SimulatedProcess], pinned: dict[str, Any], properties: tuple[str, ...]
) -> None:
    outcome = _first_failure(broken, **pinned)
    assert outcome.violation is not None
    assert outcome.violation.property in properties
