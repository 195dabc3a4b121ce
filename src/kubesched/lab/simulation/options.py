"""Options of a run, drawn from the seed unless the caller sets them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES

FOCUSES = ("", "", "", "/binding", "/status", "/leases/kube-scheduler", "/pods", "/nodes")
MIXES = ("plain", "affinity", "spread", "ports", "priorities", "gates")
EXTRAS = {"volumes": 0.3, "budgets": 0.3, "extender": 0.25, "resizing": 0.4, "devices": 0.3}
"""Optional parts of a world, and their probability.

Storage with its controllers, disruption budgets, an HTTP extender, nodes whose allocatable changes,
devices with their claims.
"""
_DRAWN_LAST = ("devices",)
MORE_EXTRAS = {"resizes": 0.35, "odd objects": 0.2, "tight": 0.35}
"""Pods are resized and relabelled; objects are huge or multilingual; more pods than fit."""
GROUPS: Final = 0.5
"""Share of worlds with groups of pods, of those that may have them."""
GROUP_GATES = ("TopologyAwareWorkloadScheduling", "PodGroupPreemptionPolicy")
"""Gates beside GenericWorkload, each in half of the worlds with groups.

Half of those with the first have CompositePodGroup, too, and most of those with devices
GROUP_CLAIMS.
"""
GROUP_CLAIMS = "DRAWorkloadResourceClaims"
EPISODES = {
    "rejected at Permit": "",
    "event in flight": "",
    "scaled down": "",
    "taint removed": "",
    "toleration added": "",
    "deleted at Permit": "",
    "deleted while bound": "",
    "recreated at Permit": "",
    "eviction refused": "",
    "preemptor deleted": "",
    "nomination withdrawn": "",
    "binding answer lost": "one scheduler",
    "late renewal": "two schedulers",
    "restore": "one scheduler without controllers",
    "disk given back": "volumes",
    "other node for volume": "volumes",
    "allocation answer lost": "devices",
    "reservation given back": "devices",
    "extender's answer lost": "one scheduler with a binding extender",
}
"""Situations staged at the end of a run (`episodes`), and the options they need."""
REPLICAS: Final = 0.35
"""Share of worlds with sets of equal pods."""
FURTHER_EPISODES = {
    "budget in the way": "budgets",
    "deallocation refused": "devices",
    "restore and changes": "one scheduler without controllers or budgets",
    "started later": "",
}
"""Further situations, staged in some of the runs that have what they need."""
FURTHER: Final = 0.3
EXTENDER_TRAITS = ("filter", "prioritize", "preempt", "bind", "ignorable", "names")
"""An extender's verbs; whether it is ignorable; whether it receives names instead of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Fault rates per call or watch chunk; zero for never."""

    delay: float = 0.0
    refuse: float = 0.0
    """Answered with 409, 429, 500 or 503 without effect."""
    lose_request: float = 0.0
    """No effect, no answer."""
    lose_answer: float = 0.0
    """Took effect, but the answer is a 500, a broken connection or silence."""
    cut_watch: float = 0.0
    """The stream ends or breaks; events in flight are dropped."""
    expire_watch: float = 0.0
    """410 Gone."""
    stall_watch: float = 0.0
    """Silence for many seconds, then the end."""
    repeat_watch: float = 0.0
    """Events delivered twice."""
    delay_watch: float = 0.0
    """Late on one watch and not on the others: order across watches changes."""
    split_watch: float = 0.0
    """Split at arbitrary bytes, even within a character."""
    refuse_oddly: float = 0.0
    """Answered with 401, 403, 404 or 422, or with any Retry-After, without effect."""
    hold: float = 0.0
    """Delayed, in either direction, until the caller has given up or is about to."""


NO_FAULTS = Rates()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskOptions:
    """Recordings of a run, and fault rates of their disks; zero for never."""

    segment_bytes: int
    total_bytes: int
    flush_at: int
    """Limit of records waiting to be written."""
    short: float = 0.0
    """Writes that accept only a part of the data."""
    fail: float = 0.0
    """Writes that fail after a partial write, and files that cannot be created."""
    fill: float = 0.0
    """Writes and creations that find the disk full, which lasts for a while."""
    fail_sync: float = 0.0
    fail_delete: float = 0.0
    crash: float = 0.0
    """Writes during which the process crashes."""


OLDER_REFERENCE: Final = 0.25
"""Share of runs with the behaviour of the oldest release."""
RECORDED: Final = 0.12
"""Share of runs that are recorded, on disks with faults."""
ONE_SEGMENT_BYTES: Final = 1 << 24
"""Size of a segment that never fills up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run."""

    nodes: int
    pods: int
    mixes: tuple[str, ...]
    duration_s: float
    """Duration of the fault phase."""
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
    """Subset of `EXTRAS`."""
    extender_traits: tuple[str, ...] = ()
    """Subset of `EXTENDER_TRAITS`; only relevant with an extender."""
    extender_trouble: float = 0.0
    """How often the extender is late, silent, dead or answers malformed JSON, per call."""
    freeze_every_s: float = 0.0
    """Mean time between freezes of one process; 0 for never."""
    drift: float = 0.0
    """Maximum clock drift of machines, in seconds per second."""
    restore_every_s: float = 0.0
    """Mean time between restores of the cluster to an older revision; 0 for never."""
    probes: int = 0
    """Number of single changes in a quiet cluster, each of which must wake the pods it helps."""
    episode: str = ""
    """One of `EPISODES`; played after everything else."""
    further_episode: str = ""
    """One of `FURTHER_EPISODES`."""
    disk: DiskOptions | None = None
    """If set, all schedulers are recorded."""
    reference: str = DEFAULT_REFERENCE.version
    """The release of kube-scheduler whose behaviour all schedulers have."""
    gates: tuple[str, ...] = ()
    """Feature gates that are on beside the release's; with GenericWorkload there are groups."""


def of_seed(seed: int, *, faults: bool, extras: Collection[str] = ()) -> Options:
    """Draw options from the seed, and add these extras."""
    options = draw(Random(f"{seed}/options"), faults=faults)
    wanted = {*options.extras, *extras}
    options = replace(options, extras=tuple(name for name in EXTRAS if name in wanted))
    options = extend(options, Random(f"{seed}/more"), faults)
    if Random(f"{seed}/reference").random() < OLDER_REFERENCE:
        options = replace(options, reference=next(iter(REFERENCES)))
    disk = Random(f"{seed}/disk")
    is_recorded = faults and (disk.random() < RECORDED or "disk" in extras)
    groups = Random(f"{seed}/groups")
    if (groups.random() < GROUPS and may_have_groups(options, is_recorded)) or "groups" in extras:
        options, is_recorded = with_groups(options, groups), False
    if faults:
        # From separate generators, so that earlier events do not depend on the number of draws.
        options = replace(
            options,
            episode=_draw_episode(Random(f"{seed}/episode"), options),
            further_episode=_draw_further_episode(Random(f"{seed}/further"), options),
        )
    if Random(f"{seed}/replicas").random() < REPLICAS:
        options = replace(options, extras=(*options.extras, "replicas"))
    if seed % LARGE_EVERY == LARGE_EVERY // 2:
        return _large(options, seed)
    return recorded(options, draw_disk(disk)) if is_recorded else options


def may_have_groups(options: Options, is_recorded: bool) -> bool:
    return options.reference == DEFAULT_REFERENCE.version and not is_recorded


def with_groups(options: Options, random: Random) -> Options:
    """The same run with groups of pods; runs on disks have none."""
    gates = tuple(gate for gate in GROUP_GATES if random.random() < 0.5)
    if GROUP_GATES[0] in gates and random.random() < 0.5:
        gates += ("CompositePodGroup",)
    extras = options.extras
    if "tight" not in extras and random.random() < 0.7:  # groups that preempt are rare otherwise
        extras = (*extras, "tight")
    if "devices" in extras and random.random() < 0.8:
        gates += (GROUP_CLAIMS,)
    reference = DEFAULT_REFERENCE.version
    gates = ("GenericWorkload", *gates)
    return replace(options, reference=reference, gates=gates, extras=extras)


def recorded(options: Options, disk: DiskOptions | None) -> Options:
    """The same run in recordable form: logs do not contain what simulation plugins do."""
    return replace(options, mischief=0.0, episode="", further_episode="", disk=disk)


@dataclass(frozen=True, slots=True)
class _Sometimes:
    """Draws a rate that is zero in some runs; takes as many draws either way."""

    random: Random
    faults: bool = True

    def __call__(self, probability: float, low: float, high: float) -> float:
        hit, value = self.random.random() < probability, self.random.uniform(low, high)
        return value if self.faults and hit else 0.0


def draw_disk(random: Random) -> DiskOptions:
    """Disks on which many of the recordings end early."""
    sometimes = _Sometimes(random)
    return DiskOptions(
        segment_bytes=random.choice((2_000, 2_000, ONE_SEGMENT_BYTES)),
        total_bytes=random.choice((3_000, 3_000, 1 << 30)),
        flush_at=random.choice((4, 16, 64)),
        short=sometimes(0.7, 0.05, 0.5),
        fail=sometimes(0.4, 0.02, 0.15),
        fill=sometimes(0.3, 0.02, 0.1),
        fail_sync=sometimes(0.3, 0.02, 0.1),
        crash=sometimes(0.5, 0.02, 0.1),
        fail_delete=sometimes(0.8, 0.4, 1.0),
    )


def _draw_episode(random: Random, options: Options) -> str:
    """Every other time an episode that needs this run's options."""
    names = playable(options)
    special = [name for name in names if EPISODES[name]]
    if special and random.random() < 0.5:
        names = special
    return random.choice(names) if names else ""


def _draw_further_episode(random: Random, options: Options) -> str:
    # Preemption cannot be judged with a misbehaving plugin.
    if "extender" in options.extras or options.mischief or random.random() >= FURTHER:
        return ""
    has = {"", *options.extras}
    if options.instances == 1 and not {"volumes", "devices", "budgets"} & has:
        has.add("one scheduler without controllers or budgets")
    names = [name for name, needed in FURTHER_EPISODES.items() if needed in has]
    return random.choice(names) if names else ""


def playable(options: Options) -> list[str]:
    """The episodes that these options allow."""
    if "extender" in options.extras:  # may reject any node
        binds = "bind" in options.extender_traits and "ignorable" not in options.extender_traits
        return ["extender's answer lost"] if binds and options.instances == 1 else []
    has = {"", *options.extras}
    if options.instances == 2:
        has.add("two schedulers")
    else:
        has.add("one scheduler")
        if not {"volumes", "devices"} & has:
            has.add("one scheduler without controllers")
    return [name for name, needed in EPISODES.items() if needed in has]


def draw(random: Random, *, faults: bool) -> Options:
    """A small random world.

    Each kind of fault is absent from some runs, so that it cannot hide a bug in all of them.
    """
    sometimes = _Sometimes(random, faults)
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


SMALL: Final = 0.85
"""Share of small worlds, in which bugs are found much sooner."""
LARGE_EVERY: Final = 1_000
"""One in this many seeds, starting at half of it, has up to 200 nodes and 1,000 pods."""


def extend(drawn: Options, random: Random, faults: bool) -> Options:
    """Add later kinds of faults, from a separate generator that leaves `draw` unchanged."""
    sometimes = _Sometimes(random, faults)
    has_controllers = bool({"volumes", "devices"} & set(drawn.extras))
    may_restore = drawn.instances == 1 and not has_controllers
    # Late writes of a replaced process are indistinguishable from its successor's.
    may_hold = not drawn.crash_every_s and drawn.instances == 1
    split, odd = sometimes(0.3, 0.05, 0.5), sometimes(0.3, 0.01, 0.1)
    hold = sometimes(0.3, 0.01, 0.05)
    restore_every_s = sometimes(0.3, 10.0, 30.0)
    extras = tuple(name for name, chance in MORE_EXTRAS.items() if random.random() < chance)
    return replace(
        _sized(drawn, random),
        rates=replace(
            drawn.rates,
            split_watch=split,
            refuse_oddly=odd,
            hold=hold if may_hold or drawn.instances == 2 else 0.0,
        ),
        freeze_every_s=sometimes(0.35, 8.0, 30.0),
        drift=sometimes(0.4, 0.0001, 0.01),
        restore_every_s=restore_every_s if may_restore else 0.0,
        probes=random.choice((0, 2, 4)),
        extras=drawn.extras + extras,
    )


def _sized(drawn: Options, random: Random) -> Options:
    size, nodes, pods = random.random(), random.randint(1, 4), random.randint(4, 12)
    short_s = random.uniform(8.0, 25.0)
    if size < SMALL:
        return replace(drawn, nodes=nodes, pods=pods, duration_s=short_s)
    return drawn


def _large(drawn: Options, seed: int) -> Options:
    random = Random(f"{seed}/large")
    return replace(
        drawn,
        nodes=random.randint(50, 200),
        pods=random.randint(200, 1_000),
        duration_s=random.uniform(8.0, 25.0),
    )
