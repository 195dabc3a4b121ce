"""What a run consists of. Everything is drawn from the seed, unless the caller pins it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

FOCUSES = ("", "", "", "/binding", "/status", "/leases/kube-scheduler", "/pods", "/nodes")
MIXES = ("plain", "affinity", "spread", "ports", "priorities", "gates")
EXTRAS = {"volumes": 0.3, "budgets": 0.3, "extender": 0.25, "resizing": 0.4, "devices": 0.3}
"""What else a world may have, and how likely: storage with its controllers, disruption budgets, an HTTP extender, nodes
whose allocatable changes, devices with their claims."""
_DRAWN_LAST = ("devices",)
EXTENDER_TRAITS = ("filter", "prioritize", "preempt", "bind", "ignorable", "names")
"""The verbs an extender may take part in; whether it may be ignored; whether it is sent names instead of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Fault rates per call or per chunk of a watch; zero for never."""

    delay: float = 0.0
    refuse: float = 0.0
    """Answered with 409, 429, 500 or 503 without effect."""
    lose_request: float = 0.0
    """No effect, no answer."""
    lose_answer: float = 0.0
    """Took effect, but the answer is a 500, a broken connection or silence."""
    cut_watch: float = 0.0
    """The stream ends or breaks; what was on its way is dropped."""
    expire_watch: float = 0.0
    """410."""
    stall_watch: float = 0.0
    """Silence for many seconds, then the end."""
    repeat_watch: float = 0.0
    """Events delivered twice."""
    delay_watch: float = 0.0
    """Late on one watch and not on the others: order across watches changes."""


NO_FAULTS = Rates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run."""

    nodes: int
    pods: int
    mixes: tuple[str, ...]
    duration_s: float
    """How long faults last."""
    instances: int
    """1, or 2 with leader election."""
    rates: Rates
    focus: str
    """If not empty, only calls whose path has this suffix fail, but often."""
    crash_every_s: float
    """Mean time between crashes; 0 for never."""
    partition_every_s: float
    """Mean time between partitions from the lease; 0 for never."""
    jump_every_s: float
    """Mean time between wall clock jumps and freezes of the whole run; 0 for never."""
    change_every_s: float
    """Mean time between changes to nodes and deletions of pods; 0 for never."""
    mischief: float
    """How often a misbehaving plugin misbehaves; 0 leaves it out of the profile."""
    extras: tuple[str, ...] = ()
    """Of `EXTRAS`."""
    extender_traits: tuple[str, ...] = ()
    """Of `EXTENDER_TRAITS`; matters if there is an extender."""
    extender_trouble: float = 0.0
    """How often the extender is late, silent, dead or answers malformed JSON, per call."""

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def of_seed(seed: int, *, faults: bool, extras: Collection[str] = ()) -> Options:
    """What the seed draws, with these extras besides."""
    options = draw(Random(f"{seed}/options"), faults=faults)
    wanted = {*options.extras, *extras}
    return replace(options, extras=tuple(name for name in EXTRAS if name in wanted))


def draw(random: Random, *, faults: bool) -> Options:
    """A small world, different for every seed.

    Each kind of fault is absent from some runs, so that it cannot hide a bug in all of them.
    """

    def sometimes(probability: float, low: float, high: float) -> float:
        drawn, value = random.random(), random.uniform(low, high)
        return value if faults and drawn < probability else 0.0

    mixes = tuple(sorted(random.sample(MIXES, random.randint(1, 4))))
    drawn = Options(
        nodes=random.randint(1, 6),
        pods=random.randint(8, 36),
        mixes=mixes,
        duration_s=random.uniform(20.0, 80.0),
        instances=2 if sometimes(0.4, 1.0, 1.0) else 1,
        rates=Rates(
            delay=sometimes(0.7, 0.05, 0.5),
            refuse=sometimes(0.6, 0.02, 0.25),
            lose_request=sometimes(0.5, 0.01, 0.1),
            lose_answer=sometimes(0.5, 0.01, 0.1),
            cut_watch=sometimes(0.6, 0.01, 0.1),
            expire_watch=sometimes(0.4, 0.01, 0.05),
            stall_watch=sometimes(0.3, 0.005, 0.03),
            repeat_watch=sometimes(0.4, 0.05, 0.3),
            delay_watch=sometimes(0.6, 0.1, 0.6),
        ),
        focus=random.choice(FOCUSES),
        crash_every_s=sometimes(0.5, 8.0, 40.0),
        partition_every_s=sometimes(0.6, 10.0, 40.0),
        jump_every_s=sometimes(0.4, 5.0, 30.0),
        change_every_s=sometimes(0.8, 0.5, 6.0),
        mischief=sometimes(0.4, 0.02, 0.3),
    )
    # Drawn last, so that seeds without extras keep their runs.
    extras = [
        name
        for name, chance in EXTRAS.items()
        if name not in _DRAWN_LAST and random.random() < chance
    ]
    traits = tuple(trait for trait in EXTENDER_TRAITS if random.random() < 0.5)
    trouble = sometimes(0.8, 0.05, 0.5)
    extras += [name for name in _DRAWN_LAST if random.random() < EXTRAS[name]]
    return replace(drawn, extras=tuple(extras), extender_traits=traits, extender_trouble=trouble)
