"""Plays generated sequences to kube-scheduler and to this scheduler, on separate control planes.

A sequence with a difference is played again. A difference counts only if kube-scheduler decides
the same both times; if either scheduler decides differently the second time, the sequence is
reported as *unsteady*. From where members of a group have raced for a claim in kube-scheduler, what
becomes of them is chance: such a sequence counts up to its first difference, as *raced*.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kubesched.base.errors import KubeschedError
from kubesched.config.references import REFERENCES
from kubesched.lab.conformance.comparison import (
    Agreement,
    Aspect,
    Finding,
    Tally,
    compare_decisions,
)
from kubesched.lab.conformance.generate_groups import group_sequence
from kubesched.lab.conformance.generate_sequence import sequence
from kubesched.lab.conformance.play import ProcessPlayer, play, wipe
from kubesched.lab.conformance.play_groups import GroupPlayer
from kubesched.lab.conformance.player import PlayResult
from kubesched.lab.conformance.sequences import Decision, Sequence
from kubesched.lab.contestants import Contestant
from kubesched.testing.control_plane import SERVES_GROUPS, Assets, ControlPlane, control_plane

_WORD = re.compile(r"\w+")

ATTEMPTS = 3
"""Plays of a sequence if the control plane or a scheduler fails."""


@dataclass(frozen=True, slots=True)
class ConformanceSettings:
    """The sequences to compare."""

    assets: Assets
    folder: Path
    """For the control planes."""
    sequences: int = 10
    pods: int = 150
    seed: int = 1
    first: int = 0
    """Number of the first sequence, so that a long run can be split."""
    groups: bool = False
    """Sequences of pod groups instead of single pods."""

    def scenarios(self) -> Iterator[Sequence]:
        for number in range(self.first, self.first + self.sequences):
            seed = f"{self.seed}/{number}"
            yield group_sequence(seed) if self.groups else sequence(seed, self.pods)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision of a sequence in which the two schedulers differ."""

    seed: str
    at: int
    what: str
    """The pod, or another compared object."""
    findings: tuple[Finding, ...]
    after_race: bool = False
    """Whether members of kube-scheduler's have raced for a claim by then."""


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A sequence with a different outcome when played again."""

    seed: str
    who: str
    difference: Difference


@dataclass(slots=True)
class RunReport:
    """The result of a run."""

    kube_scheduler: str = ""
    """kube-scheduler's version."""
    reference_version: str = ""
    """The release whose behaviour this scheduler showed."""
    sequences: int = 0
    sequences_in_agreement: int = 0
    decisions: Tally = field(default_factory=Tally)
    agreement: Agreement = field(default_factory=Agreement)
    placed: int = 0
    unschedulable: int = 0
    preempting: int = 0
    volumes_bound: int = 0
    refused: int = 0
    """Steps rejected by both API servers, mostly for pods that an earlier step removed."""
    differences: list[Difference] = field(default_factory=list)
    unsteady: list[Unsteady] = field(default_factory=list)
    raced: list[Difference] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        own = [sequence for sequence in self.unsteady if sequence.who != "kube-scheduler"]
        return self.sequences > 0 and not self.differences and not own


@dataclass(frozen=True, slots=True)
class Played:
    """Both outcomes of a sequence, and their difference."""

    scenario: Sequence
    theirs: PlayResult
    ours: PlayResult
    difference: Difference | None


class Stages:
    """The two control planes with their schedulers."""

    def __init__(
        self, assets: Assets, theirs: ControlPlane, ours: ControlPlane, reference_version: str
    ) -> None:
        self._theirs, self._ours = theirs, ours
        self._kube_scheduler = Contestant.kube_scheduler(assets, REFERENCES[reference_version])
        self._kubesched = Contestant.kubesched(REFERENCES[reference_version])

    async def play(self, scenario: Sequence) -> Played:
        """Play on both at the same time, with new schedulers."""
        for attempt in range(ATTEMPTS):
            if attempt:
                await wipe(self._theirs.client, scenario)
                await wipe(self._ours.client, scenario)
            try:
                async with asyncio.TaskGroup() as group:
                    theirs = group.create_task(
                        _play_on(self._theirs, self._kube_scheduler, scenario)
                    )
                    ours = group.create_task(_play_on(self._ours, self._kubesched, scenario))
                break
            except* KubeschedError as errors:
                if attempt == ATTEMPTS - 1:
                    raise errors.exceptions[0] from None
        difference = first_difference(scenario, theirs.result(), ours.result())
        return Played(scenario, theirs.result(), ours.result(), difference)


async def _play_on(plane: ControlPlane, contestant: Contestant, scenario: Sequence) -> PlayResult:
    return await play(plane, contestant, scenario, GroupPlayer if scenario.gates else ProcessPlayer)


async def version_of(assets: Assets) -> str:
    """The version that kube-scheduler reports, e.g. `v1.36.4`."""
    asked = await asyncio.create_subprocess_exec(
        assets.kube_scheduler, "--version", stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await asked.communicate()
    return answer.decode(errors="replace").strip().rpartition(" ")[2]


def reference_of(version: str) -> str:
    """The release to compare a kube-scheduler of this version with, e.g. `1.36` for `v1.36.4`.

    Raises:
        KubeschedError: its behaviour is not known here.
    """
    minor = ".".join(version.removeprefix("v").split(".")[:2])
    if minor not in REFERENCES:
        known = " and ".join(REFERENCES)
        raise KubeschedError(
            f"kube-scheduler {version or 'without a version'} is not one of {known}; "
            "--reference-version names the one to compare it with"
        )
    return minor


@contextlib.asynccontextmanager
async def stages(
    assets: Assets, folder: Path, reference_version: str, *, with_groups: bool = False
) -> AsyncIterator[Stages]:
    """Two fresh control planes, and the release whose behaviour this scheduler shows."""
    flags = SERVES_GROUPS if with_groups else ()
    async with (
        control_plane(assets, folder / "kube-scheduler", api_server_flags=flags) as theirs,
        control_plane(assets, folder / "kubesched", api_server_flags=flags) as ours,
    ):
        yield Stages(assets, theirs, ours, reference_version)


async def run(
    settings: ConformanceSettings,
    on_stage: Stages,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[RunReport], None] = lambda _report: None,
    record: Callable[[Sequence], None] = lambda _sequence: None,
) -> RunReport:
    """Play all sequences, or until `stop` is set."""
    report = RunReport()
    for scenario in settings.scenarios():
        if stop is not None and stop.is_set():
            break
        played = await on_stage.play(scenario)
        if played.difference is not None and not played.difference.after_race:
            played = await _again(on_stage, played, report)
        _count(played, report)
        record(recorded(played))
        if played.difference is not None:
            is_chance = played.difference.after_race
            (report.raced if is_chance else report.differences).append(played.difference)
        progress(report)
    return report


async def _again(on_stage: Stages, first: Played, report: RunReport) -> Played:
    second = await on_stage.play(first.scenario)
    assert first.difference is not None, "only what differs is played again"
    changed = [
        name
        for name, before, after in (
            ("kube-scheduler", first.theirs, second.theirs),
            ("kubesched", first.ours, second.ours),
        )
        if before.decisions != after.decisions
    ]
    if changed:
        seed = str(first.scenario.seed)
        report.unsteady.append(Unsteady(seed, " and ".join(changed), first.difference))
    return second


def first_difference(scenario: Sequence, theirs: PlayResult, ours: PlayResult) -> Difference | None:
    """The first difference; later ones have other causes."""
    seed, after_race = str(scenario.seed), False
    for at, step in enumerate(scenario.steps):
        refusals = theirs.refused.get(at, ""), ours.refused.get(at, "")
        # An API server reports problems with several fields in any order.
        if sorted(_WORD.findall(refusals[0])) != sorted(_WORD.findall(refusals[1])):
            return Difference(seed, at, step.key, (Finding(Aspect.ERROR, *refusals),))
        if at in theirs.decisions:
            after_race |= "raced" in theirs.decisions[at].seen
            findings = tuple(compare_decisions(theirs.decisions[at], ours.decisions[at]))
            if not all(finding.agrees for finding in findings):
                what = f"{step.kind} {step.key}" if scenario.gates else f"pod {step.key}"
                return Difference(seed, at, what, findings, after_race)
    if theirs.final != ours.final:
        pods = sorted(set(theirs.final.items()) ^ set(ours.final.items()))
        finding = Finding(Aspect.NODE, theirs.final.get(pods[0][0]), ours.final.get(pods[0][0]))
        what = f"final state of pod {pods[0][0]}"
        return Difference(seed, len(scenario.steps), what, (finding,), after_race)
    return None


def _count(played: Played, report: RunReport) -> None:
    report.sequences += 1
    report.sequences_in_agreement += played.difference is None
    report.refused += len(played.theirs.refused)
    end, found = len(played.scenario.steps), played.difference
    if found is not None:
        end = found.at - found.after_race
    for at, decision in played.theirs.decisions.items():
        if at > end:
            continue
        findings = list(compare_decisions(decision, played.ours.decisions[at]))
        agrees = all(finding.agrees for finding in findings)
        for finding in findings:
            report.agreement.count(finding)
        report.decisions.compared += 1
        report.decisions.agreed += agrees
        _count_kind(decision, report)


def _count_kind(decision: Decision, report: RunReport) -> None:
    if decision.seen:
        pods = decision.seen["pods"].values()
        report.placed += sum("node" in told[-1] and len(told) > 1 for told in pods)
        report.unschedulable += sum("message" in told[-1] for told in pods)
    else:
        report.placed += bool(decision.node)
        report.unschedulable += not decision.node
    report.preempting += bool(decision.victims)
    report.volumes_bound += len(decision.volumes)


def recorded(played: Played) -> Sequence:
    """The sequence with kube-scheduler's decisions, and objects as its API server admitted them."""
    steps = []
    for at, step in enumerate(played.scenario.steps):
        expect = played.theirs.decisions.get(at)
        if at in played.theirs.refused:
            expect = Decision(refused=played.theirs.refused[at])
        admitted = played.theirs.admitted.get(at, step.object)
        steps.append(msgspec.structs.replace(step, object=admitted, expect=expect))
    return msgspec.structs.replace(played.scenario, steps=steps)
