"""Runs a workload end to end: contestants in turn, each time on a new control plane.

Contestants alternate (A B, A B, …), so a machine that gets slower or busier affects all of them.
The first rounds may be discarded as warm-up: disk caches are cold, and CPU frequency rises.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from msgspec import structs

from kubesched.base.clock import Clock, SystemClock
from kubesched.base.errors import KubeschedError
from kubesched.lab.benchmarking.end_to_end.driving import Driver, Pace
from kubesched.lab.benchmarking.end_to_end.measuring import usage_log
from kubesched.lab.benchmarking.end_to_end.observing import observed_bindings
from kubesched.lab.benchmarking.end_to_end.planes import Plane, embedded_plane, real_plane
from kubesched.lab.benchmarking.results import RunResult
from kubesched.lab.benchmarking.workload_files import Workload
from kubesched.lab.contestants import Contestant, running
from kubesched.testing.control_plane import Assets

EMBEDDED = "embedded"
REAL = "real"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEndOptions:
    """How a workload is run."""

    contestants: Sequence[Contestant] = field(default_factory=lambda: (Contestant.kubesched(),))
    assets: Assets | None = None
    """Binaries of a real control plane; without them the embedded one is used."""
    repeats: int = 3
    warm_ups: int = 0
    """Warm-up rounds."""
    pace: Pace = field(default_factory=Pace)
    percentage_of_nodes_to_score: int | None = None
    """Overrides the workload's setting."""

    @property
    def control_plane(self) -> str:
        return EMBEDDED if self.assets is None else REAL


async def run_end_to_end(
    workload: Workload,
    options: EndToEndOptions,
    progress: Callable[[str], None] = lambda _text: None,
) -> list[RunResult]:
    """Run all rounds; returns results in order, one per measured interval.

    Raises:
        KubeschedError: a program did not start, ended early or did not schedule all pods.
    """
    if workload.not_supported:
        raise KubeschedError(f"{workload.full_name}: {workload.not_supported}")
    clock = SystemClock()
    results: list[RunResult] = []
    for number in range(1 - options.warm_ups, options.repeats + 1):
        for contestant in options.contestants:
            label = f"round {number}/{options.repeats}" if number > 0 else "warm-up"
            told = f"{workload.full_name}: {contestant.name}, {label}"

            def report(text: str, told: str = told) -> None:
                progress(f"{told}: {text}")

            measurements = await _round(workload, contestant, options, clock, report)
            if not measurements:
                raise KubeschedError(f"{told}: the workload measures nothing")
            if number > 0:
                results += [
                    _result(workload, contestant, options, number, measurement)
                    for measurement in measurements
                ]
                for measurement in measurements:
                    report(f"{measurement.pods_per_s:.0f} pods/s")
    return results


async def _round(
    workload: Workload,
    contestant: Contestant,
    options: EndToEndOptions,
    clock: Clock,
    report: Callable[[str], None],
) -> list[RunResult]:
    folder = Path(tempfile.mkdtemp(prefix="kubesched-bench-"))
    try:
        with_groups = workload.feature_gates.get("GenericWorkload", False)
        made = (
            embedded_plane(folder, with_groups)
            if options.assets is None
            else real_plane(options.assets, folder, with_groups)
        )
        async with made as plane:
            measurements = await _played(workload, contestant, options, plane, clock, report)
    except KubeschedError as error:
        raise KubeschedError(
            f"{workload.full_name}, {contestant.name}: {error}\nlogs are kept in {folder}"
        ) from error
    except BaseExceptionGroup as errors:
        known, _ = errors.split(KubeschedError)
        if known is None:
            raise
        first = _first(known)
        raise KubeschedError(
            f"{workload.full_name}, {contestant.name}: {first}\nlogs are kept in {folder}"
        ) from first
    shutil.rmtree(folder, ignore_errors=True)
    return measurements


def _first(errors: BaseExceptionGroup[KubeschedError]) -> KubeschedError:
    error: KubeschedError | BaseExceptionGroup[KubeschedError] = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _played(
    workload: Workload,
    contestant: Contestant,
    options: EndToEndOptions,
    plane: Plane,
    clock: Clock,
    report: Callable[[str], None],
) -> list[RunResult]:
    config = _config(workload, options.percentage_of_nodes_to_score)
    async with observed_bindings(plane.client, clock) as observer:
        driver = Driver(
            plane,
            observer,
            lambda: running(contestant, plane, config, workload.feature_gates),
            options.pace,
            clock,
            report,
        )
        async with usage_log(plane, lambda: driver.scheduler, clock) as log:
            driver.log = log
            await driver.play(workload.ops)
    return driver.measurements


def _config(workload: Workload, percentage_of_nodes_to_score: int | None) -> dict[str, Any]:
    path = workload.case.scheduler_config
    read = yaml.safe_load(Path(path).read_text(encoding="utf-8")) if path else {}
    config = dict(read) if isinstance(read, dict) else {}
    if percentage_of_nodes_to_score is not None:
        config["percentageOfNodesToScore"] = percentage_of_nodes_to_score
    return config


def _result(
    workload: Workload,
    contestant: Contestant,
    options: EndToEndOptions,
    number: int,
    measured: RunResult,
) -> RunResult:
    """The measurement with what was run."""
    assert measured.end_to_end is not None, "it was measured end to end"
    return structs.replace(
        measured,
        workload=workload.full_name,
        contestant=contestant.name,
        repeat=number,
        control_plane=options.control_plane,
        nodes=workload.node_count,
        threshold=workload.threshold,
        end_to_end=structs.replace(measured.end_to_end, release=options.pace.release.value),
    )
