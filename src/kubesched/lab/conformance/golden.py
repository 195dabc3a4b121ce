"""Evaluates whole recordings: tallies agreement and keeps the first disagreements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from kubesched.base.errors import ConfigError
from kubesched.config.features import DEFAULT_GATES, FeatureGates, defaults
from kubesched.config.references import REFERENCES
from kubesched.framework.nodes.pods import PodInfo
from kubesched.lab.conformance.comparison import (
    Agreement,
    Aspect,
    Finding,
    compare,
    compare_decisions,
)
from kubesched.lab.conformance.device_placements import DeviceCluster
from kubesched.lab.conformance.explained import ExplainedCluster
from kubesched.lab.conformance.groups import compare_groups
from kubesched.lab.conformance.placements import Cluster
from kubesched.lab.conformance.recordings import (
    Recorded,
    RecordedDevicePlacement,
    RecordedGroups,
    RecordedPlacement,
    RecordedSelector,
    RecordedSequence,
    RecordingError,
    read_recordings,
)
from kubesched.lab.conformance.replay import replay
from kubesched.lab.conformance.selectors import compare_selector

SHIPPED = Path(__file__).with_name("recorded.jsonl.gz")
"""Sequences with kube-scheduler's answers, for use without its binary."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A finding that does not agree, and its location."""

    file: str
    line: int
    pod: str
    """Empty for a selector and for a step."""
    finding: Finding
    selector: str = ""
    step: int | None = None
    """Of a sequence of pod groups, from 0."""


@dataclass(slots=True)
class Report:
    """The result of evaluating recordings."""

    clusters: int = 0
    pods: int = 0
    pods_in_agreement: int = 0
    selectors: int = 0
    selectors_in_agreement: int = 0
    group_sequences: int = 0
    group_sequences_in_agreement: int = 0
    steps: int = 0
    """Of sequences of pod groups."""
    steps_in_agreement: int = 0
    agreement: Agreement = field(default_factory=Agreement)
    disagreements: list[Disagreement] = field(default_factory=list)
    """Only the first ones."""


def evaluate(
    files: Iterable[str | Path],
    gates: FeatureGates = DEFAULT_GATES,
    *,
    limit: int | None = None,
    show: int = 10,
    explained: bool = False,
    progress: Callable[[Report], None] = lambda _report: None,
) -> Report:
    """Evaluate up to `limit` pods, selectors and steps of pod groups.

    The first `show` disagreements are kept. `gates` apply to recordings that do not name the
    version of kube-scheduler.
    `explained`: compare only the output of `kubesched explain` for the pods of placements.

    Raises:
        RecordingError: a file cannot be read or is not a recording.
    """
    report = Report()
    for file in files:
        for recorded in read_recordings(file):
            done = report.pods + report.selectors + report.steps
            if limit is not None and done >= limit:
                return report
            remaining = None if limit is None else limit - done
            if isinstance(recorded, RecordedSelector):
                if not explained:
                    _evaluate_selector(recorded, report, show)
            elif isinstance(recorded, RecordedPlacement):
                _evaluate_cluster(
                    recorded, _gates_of(recorded, gates), report, remaining, show, explained
                )
            elif explained:
                continue
            elif isinstance(recorded, RecordedGroups):
                _evaluate_groups(recorded, report, remaining, show)
            elif isinstance(recorded, RecordedDevicePlacement):
                _evaluate_devices(recorded, _gates_of(recorded, gates), report, remaining, show)
            else:
                _evaluate_sequence(recorded, _gates_of(recorded, gates), report, remaining, show)
            progress(report)
    return report


def _gates_of(
    recorded: RecordedPlacement | RecordedDevicePlacement | RecordedSequence, gates: FeatureGates
) -> FeatureGates:
    """The gates of the kube-scheduler that answered, if the recording says, with those it sets."""
    where = f"{recorded.file}:{recorded.line}"
    version, named = recorded.setting
    if version:
        if version not in REFERENCES:
            raise RecordingError(f"{where}: version: there is no behaviour of {version}")
        gates = defaults(version)
    for name in named:
        if not isinstance(getattr(gates, name, None), bool):
            raise RecordingError(f"{where}: gates: there is no feature gate {name}")
    values: dict[str, Any] = dict(named)
    return replace(gates, **values) if values else gates


def _evaluate_cluster(
    recorded: RecordedPlacement,
    gates: FeatureGates,
    report: Report,
    limit: int | None,
    show: int,
    explained: bool,
) -> None:
    try:
        cluster = (ExplainedCluster if explained else Cluster)(recorded.placement, gates)
        report.clusters += 1
        for pending in recorded.placement.pending[:limit]:
            findings = list(compare(pending.expect, cluster.place(pending.pod)))
            if explained:
                findings = [finding for finding in findings if not _says_more(finding)]
            _count(recorded, PodInfo(pending.pod).key, findings, report, show)
    except (RecordingError, ConfigError) as error:
        raise RecordingError(f"{recorded.file}:{recorded.line}: {error}") from error


def _evaluate_devices(
    recorded: RecordedDevicePlacement,
    gates: FeatureGates,
    report: Report,
    limit: int | None,
    show: int,
) -> None:
    try:
        cluster = DeviceCluster(recorded.placement, gates)
        report.clusters += 1
        for pending in recorded.placement.pending[:limit]:
            findings = list(cluster.compare(pending))
            _count(recorded, PodInfo(pending.pod).key, findings, report, show)
    except RecordingError as error:
        raise RecordingError(f"{recorded.file}:{recorded.line}: {error}") from error


def _says_more(finding: Finding) -> bool:
    """True if an explanation names the plugin that narrowed a node away; recordings do not."""
    return finding.aspect is Aspect.REJECTING_PLUGIN and not finding.expected


def _evaluate_sequence(
    recorded: RecordedSequence,
    gates: FeatureGates,
    report: Report,
    limit: int | None,
    show: int,
) -> None:
    """Replay up to the first pod that is placed differently: after that the clusters differ."""
    expected = [
        (at, step, step.expect)
        for at, step in recorded.sequence.decisions()
        if step.expect is not None and not step.expect.refused
    ][:limit]
    if not expected:
        raise RecordingError(f"{recorded.file}:{recorded.line}: a sequence without answers")
    last = expected[-1][0]
    played = msgspec.structs.replace(recorded.sequence, steps=recorded.sequence.steps[: last + 1])
    try:
        decisions = replay(played, gates)
    except RecordingError as error:
        raise RecordingError(f"{recorded.file}:{recorded.line}: {error}") from error
    report.clusters += 1
    for at, step, decision in expected:
        findings = list(compare_decisions(decision, decisions[at]))
        _count(recorded, step.key, findings, report, show)


def _evaluate_groups(
    recorded: RecordedGroups, report: Report, limit: int | None, show: int
) -> None:
    """Play up to the first step that differs: after that the clusters differ."""
    agrees = True
    try:
        for step, findings in islice(compare_groups(recorded.sequence), limit):
            agrees = all(finding.agrees for finding in findings)
            report.steps += 1
            report.steps_in_agreement += agrees
            _tally(recorded, findings, report, show, step=step)
    except (RecordingError, ConfigError, msgspec.ValidationError) as error:
        raise RecordingError(f"{recorded.file}:{recorded.line}: {error}") from error
    report.group_sequences += 1
    report.group_sequences_in_agreement += agrees


def _evaluate_selector(recorded: RecordedSelector, report: Report, show: int) -> None:
    findings = list(compare_selector(recorded.selector))
    report.selectors += 1
    report.selectors_in_agreement += all(finding.agrees for finding in findings)
    _tally(recorded, findings, report, show, selector=recorded.selector.expression)


def _count(
    recorded: Recorded,
    pod: str,
    findings: list[Finding],
    report: Report,
    show: int,
) -> None:
    report.pods += 1
    report.pods_in_agreement += all(finding.agrees for finding in findings)
    _tally(recorded, findings, report, show, pod=pod)


def _tally(
    recorded: Recorded,
    findings: list[Finding],
    report: Report,
    show: int,
    *,
    pod: str = "",
    selector: str = "",
    step: int | None = None,
) -> None:
    for finding in findings:
        report.agreement.count(finding)
        if not finding.agrees and len(report.disagreements) < show:
            report.disagreements.append(
                Disagreement(recorded.file, recorded.line, pod, finding, selector, step)
            )
