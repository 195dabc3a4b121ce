"""Evaluates whole recordings: tallies agreement and keeps the first disagreements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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
    DevicePlacement,
    Placement,
    Recorded,
    RecordingError,
    SelectedDevice,
    Selector,
    read_recordings,
)
from kubesched.lab.conformance.replay import replay
from kubesched.lab.conformance.sequences import GroupSequence, Sequence
from kubesched.playground.resources.validation.devices import compile_problem
from kubesched.plugins.dynamic_resources.structured.selectors import (
    DeviceContent,
    DeviceSelectors,
    SelectorFailure,
)

_RUN_TIME_ERROR = "CEL runtime error: "
SHIPPED = Path(__file__).with_name("recorded.jsonl.gz")
"""Sequences with kube-scheduler's answers, for use without its binary."""


class Judged(NamedTuple):
    """What an answer is about."""

    pod: str = ""
    selector: str = ""
    step: int | None = None
    """Of a sequence of pod groups, from 0."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A finding that does not agree, and its location."""

    file: str
    line: int
    finding: Finding
    what: Judged


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
            if explained and not isinstance(recorded.content, Placement):
                continue
            remaining = None if limit is None else limit - done
            try:
                _evaluate(recorded, gates, report, remaining, show, explained)
            except (RecordingError, ConfigError, msgspec.ValidationError) as error:
                raise RecordingError(f"{recorded.file}:{recorded.line}: {error}") from error
            progress(report)
    return report


def _evaluate(
    recorded: Recorded,
    gates: FeatureGates,
    report: Report,
    limit: int | None,
    show: int,
    explained: bool,
) -> None:
    content, agrees = recorded.content, True
    judged: Iterator[tuple[Judged, list[Finding]]]
    if isinstance(content, Selector):
        judged = iter([(Judged(selector=content.expression), list(_compare_selector(content)))])
    elif isinstance(content, GroupSequence):
        judged = ((Judged(step=step), found) for step, found in compare_groups(content))
    else:
        judged = _pods(content, _gates_of(recorded, gates), limit, explained)
        report.clusters += 1
    for what, findings in islice(judged, limit):
        agrees = all(finding.agrees for finding in findings)
        if what.pod:
            report.pods += 1
            report.pods_in_agreement += agrees
        elif what.step is not None:
            report.steps += 1
            report.steps_in_agreement += agrees
        else:
            report.selectors += 1
            report.selectors_in_agreement += agrees
        for finding in findings:
            report.agreement.count(finding)
            if not finding.agrees and len(report.disagreements) < show:
                report.disagreements.append(
                    Disagreement(recorded.file, recorded.line, finding, what)
                )
    if isinstance(content, GroupSequence):  # it ends with its first difference
        report.group_sequences += 1
        report.group_sequences_in_agreement += agrees


def _gates_of(recorded: Recorded, gates: FeatureGates) -> FeatureGates:
    """The gates of the kube-scheduler that answered, if the recording says, with those it sets."""
    if recorded.version:
        if recorded.version not in REFERENCES:
            raise RecordingError(f"version: there is no behaviour of {recorded.version}")
        gates = defaults(recorded.version)
    for name in recorded.gates:
        if not isinstance(getattr(gates, name, None), bool):
            raise RecordingError(f"gates: there is no feature gate {name}")
    values: dict[str, Any] = dict(recorded.gates)
    return replace(gates, **values) if values else gates


def _pods(
    content: Placement | DevicePlacement | Sequence,
    gates: FeatureGates,
    limit: int | None,
    explained: bool,
) -> Iterator[tuple[Judged, list[Finding]]]:
    if isinstance(content, Sequence):
        yield from _decisions(content, gates, limit)
    elif isinstance(content, DevicePlacement):
        devices = DeviceCluster(content, gates)
        for with_claims in content.pending:
            yield Judged(PodInfo(with_claims.pod).key), list(devices.compare(with_claims))
    else:
        cluster = (ExplainedCluster if explained else Cluster)(content, gates)
        for pending in content.pending:
            findings = list(compare(pending.expect, cluster.place(pending.pod)))
            if explained:
                findings = [finding for finding in findings if not _says_more(finding)]
            yield Judged(PodInfo(pending.pod).key), findings


def _says_more(finding: Finding) -> bool:
    """True if an explanation names the plugin that narrowed a node away; recordings do not."""
    return finding.aspect is Aspect.REJECTING_PLUGIN and not finding.expected


def _decisions(
    sequence: Sequence, gates: FeatureGates, limit: int | None
) -> Iterator[tuple[Judged, list[Finding]]]:
    """Replay up to the last step that counts."""
    expected = [
        (at, step, step.expect)
        for at, step in sequence.decisions()
        if step.expect is not None and not step.expect.refused
    ][:limit]
    if not expected:
        raise RecordingError("a sequence without answers")
    last = expected[-1][0]
    decisions = replay(msgspec.structs.replace(sequence, steps=sequence.steps[: last + 1]), gates)
    for at, step, decision in expected:
        yield Judged(step.key), list(compare_decisions(decision, decisions[at]))


def _compare_selector(selector: Selector) -> Iterator[Finding]:
    """Compile and evaluate an expression on every recorded device."""
    compile_error = compile_problem(selector.expression)
    yield Finding(Aspect.COMPILATION, selector.compile_error, compile_error)
    if selector.compile_error or compile_error:
        return
    selectors = DeviceSelectors()
    for device, expected in zip(selector.devices, selector.results, strict=True):
        got = _verdict(selectors, selector.expression, device)
        yield Finding(Aspect.SELECTION, expected, got, device=_described(device))


def _verdict(selectors: DeviceSelectors, expression: str, device: SelectedDevice) -> bool | str:
    try:
        return selectors.matches(expression, DeviceContent(device.driver, device))
    except SelectorFailure as failure:
        return str(failure).removeprefix(_RUN_TIME_ERROR)


def _described(device: SelectedDevice) -> str:
    return f"of {device.driver} with {', '.join(device.attributes or ()) or 'no attributes'}"
