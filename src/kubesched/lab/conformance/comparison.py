"""Compares a recorded answer with ours, aspect by aspect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from kubesched.lab.conformance.recordings import RecordedAnswer, Rejection
from kubesched.lab.conformance.sequences import Decision

_COMPLAINTS = re.compile(r"(?<=preemption: )\[(.*)\]")


class Aspect(Enum):
    """Aspects in which answers can differ; the value is the name in reports."""

    ERROR = "error"
    FEASIBLE = "feasible nodes and their order"
    REJECTING_PLUGIN = "rejecting plugin"
    REASONS = "code and reasons"
    SCORE = "score per plugin"
    TOTAL = "total score"
    MESSAGE = "message"
    PRE_ENQUEUE = "PreEnqueue"
    DEVICES = "devices per node and claim"
    MAPPINGS = "requests behind extended resources"
    POST_FILTER = "PostFilter of DynamicResources"
    PRE_BIND = "outcome of PreBind"
    WRITES = "API calls of PreBind"
    COMPILATION = "compilation of selectors"
    SELECTION = "selectors on devices"
    NODE = "node chosen"
    UNSCHEDULABLE = "unschedulable message"
    NOMINATED = "nominated node"
    VICTIMS = "victims"
    VOLUMES = "volumes bound"
    ASKED = "questions to extenders"
    PODS = "pods after a step"
    POD_GROUPS = "conditions of pod groups after a step"
    EVICTIONS = "pods evicted during a step"


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison; it agrees if both sides are equal."""

    aspect: Aspect
    expected: object
    got: object
    node: str = ""
    plugin: str = ""
    device: str = ""

    @property
    def agrees(self) -> bool:
        return self.expected == self.got


@dataclass(slots=True)
class Tally:
    """How often an aspect was compared, and how often both sides agreed."""

    compared: int = 0
    agreed: int = 0

    def count(self, finding: Finding) -> None:
        self.compared += 1
        self.agreed += finding.agrees

    @property
    def is_complete(self) -> bool:
        return self.compared == self.agreed


@dataclass(slots=True)
class Agreement:
    """The tallies of every aspect."""

    by_aspect: dict[Aspect, Tally] = field(
        default_factory=lambda: {aspect: Tally() for aspect in Aspect}
    )

    def count(self, finding: Finding) -> None:
        self.by_aspect[finding.aspect].count(finding)

    @property
    def is_complete(self) -> bool:
        return all(tally.is_complete for tally in self.by_aspect.values())


def compare(expected: RecordedAnswer, got: RecordedAnswer) -> Iterator[Finding]:
    """Every comparison between two answers. If either is an error, only the errors are compared."""
    yield Finding(Aspect.ERROR, expected.error, got.error)
    if expected.error or got.error:
        return
    yield _feasible(expected, got)
    yield from _rejections(expected, got)
    yield from _scores(expected, got)
    yield Finding(Aspect.MESSAGE, expected.message, got.message)


def compare_decisions(expected: Decision, got: Decision) -> Iterator[Finding]:
    """Every comparison between two decisions within a sequence."""
    yield Finding(Aspect.NODE, expected.node, got.node)
    yield Finding(
        Aspect.UNSCHEDULABLE, in_order(expected.unschedulable), in_order(got.unschedulable)
    )
    yield Finding(Aspect.NOMINATED, expected.nominated, got.nominated)
    yield Finding(Aspect.VICTIMS, expected.victims, got.victims)
    yield Finding(Aspect.VOLUMES, expected.volumes, got.volumes)
    if expected.devices or got.devices:
        yield Finding(Aspect.DEVICES, expected.devices, got.devices)
    if expected.asked or got.asked:
        yield Finding(Aspect.ASKED, expected.asked, got.asked)
    for aspect, part in ((Aspect.PODS, "pods"), (Aspect.POD_GROUPS, "podGroups")):
        theirs, ours = expected.seen.get(part, {}), got.seen.get(part, {})
        for name in sorted(theirs.keys() | ours.keys()):
            yield Finding(aspect, theirs.get(name), ours.get(name), name)


def in_order(message: str) -> str:
    """The message with complaints about several nodes sorted.

    # Upstream: preemption looks at nodes from a random one on, and lists in that order what went
    # wrong on each.
    """
    return _COMPLAINTS.sub(lambda match: f"[{', '.join(sorted(match[1].split(', ')))}]", message)


def _feasible(expected: RecordedAnswer, got: RecordedAnswer) -> Finding:
    theirs, ours = expected.feasible, got.feasible
    if any(not rejection.plugin for rejection in expected.rejected.values()):
        # Upstream: nodes left after narrowing are kept in a set, so that their order is random.
        theirs, ours = sorted(theirs), sorted(ours)
    return Finding(Aspect.FEASIBLE, theirs, ours)


def _rejections(expected: RecordedAnswer, got: RecordedAnswer) -> Iterator[Finding]:
    for node, theirs in expected.rejected.items():
        ours = got.rejected.get(node)
        if ours is None:
            continue  # feasible here: already reported
        yield Finding(Aspect.REJECTING_PLUGIN, theirs.plugin, ours.plugin, node)
        if theirs.plugin == ours.plugin:
            yield Finding(Aspect.REASONS, _words(theirs), _words(ours), node, theirs.plugin)


def _scores(expected: RecordedAnswer, got: RecordedAnswer) -> Iterator[Finding]:
    for node, theirs in expected.scores.items():
        ours = got.scores.get(node)
        if ours is None:
            continue  # rejected here: already reported
        for plugin in dict.fromkeys((*theirs, *ours)):
            yield Finding(Aspect.SCORE, theirs.get(plugin), ours.get(plugin), node, plugin)
        yield Finding(Aspect.TOTAL, expected.total.get(node), got.total.get(node), node)


def _words(rejection: Rejection) -> tuple[str, ...]:
    """Code and sorted reasons.

    # Upstream: NodeResourcesFit reports scalar resources, after all others, in random order.
    """
    reasons = list(rejection.reasons or ())
    if rejection.plugin == "NodeResourcesFit":
        reasons.sort(key=lambda reason: reason if _is_scalar(reason) else "")
    return (rejection.code, *reasons)


def _is_scalar(reason: str) -> bool:
    return reason not in (
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
    )
