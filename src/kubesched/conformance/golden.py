"""Whole recordings: evaluate every pod, tally agreement, keep the first disagreements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kubesched.conformance.comparison import Agreement, Finding, compare
from kubesched.conformance.placements import Cluster
from kubesched.conformance.recordings import RecordedPlacement, RecordingError, read_placements
from kubesched.errors import ConfigError
from kubesched.snapshot.pods import PodInfo


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A finding that does not agree, and where it was made."""

    file: str
    line: int
    pod: str
    finding: Finding


@dataclass(slots=True)
class Report:
    """What came of evaluating recordings."""

    clusters: int = 0
    pods: int = 0
    pods_in_agreement: int = 0
    agreement: Agreement = field(default_factory=Agreement)
    disagreements: list[Disagreement] = field(default_factory=list)
    """The first ones only."""


def evaluate(
    files: Iterable[str | Path],
    *,
    limit: int | None = None,
    show: int = 10,
    progress: Callable[[Report], None] = lambda _report: None,
) -> Report:
    """Evaluate up to `limit` pods and keep the first `show` disagreements.

    Raises:
        RecordingError: a file cannot be read or makes no sense.
    """
    report = Report()
    for file in files:
        for recorded in read_placements(file):
            if limit is not None and report.pods >= limit:
                return report
            remaining = None if limit is None else limit - report.pods
            _evaluate_cluster(recorded, report, remaining, show)
            progress(report)
    return report


def _evaluate_cluster(
    recorded: RecordedPlacement, report: Report, limit: int | None, show: int
) -> None:
    try:
        cluster = Cluster(recorded.placement)
        report.clusters += 1
        for pending in recorded.placement.pending[:limit]:
            findings = list(compare(pending.expect, cluster.place(pending.pod)))
            report.pods += 1
            report.pods_in_agreement += all(finding.agrees for finding in findings)
            for finding in findings:
                report.agreement.count(finding)
                if not finding.agrees and len(report.disagreements) < show:
                    report.disagreements.append(
                        Disagreement(
                            recorded.file, recorded.line, PodInfo(pending.pod).key, finding
                        )
                    )
    except (RecordingError, ConfigError) as error:
        raise RecordingError(f"{recorded.file}:{recorded.line}: {error}") from error
