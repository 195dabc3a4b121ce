"""Results of a run, as records with a JSON form.

One `RunResult` is one repetition of one workload by one contestant. Durations are in the unit that
their name ends with. Values that a mode cannot measure are absent (None, empty), never zero.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from kubesched.api.meta import Record
from kubesched.base.version import __version__
from kubesched.scheduler.plugin_profile import PluginCost

SCHEMA_VERSION = 1
"""Version of the JSON file."""


class Mode(StrEnum):
    """How a workload is run."""

    CORE = "core"
    END_TO_END = "end-to-end"


class Contestant(StrEnum):
    """The measured scheduler."""

    KUBESCHED = "kubesched"
    KUBESCHED_NO_CLASSES = "kubesched-no-classes"
    KUBE_SCHEDULER = "kube-scheduler"


class Percentiles(Record):
    """A distribution, in the unit of the field that holds it."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


class ProcessUse(Record):
    """Resource use of a process during the measurement."""

    cpu_s: float
    cpu_ms_per_pod: float
    max_rss_bytes: int = 0


class DecisionCpu(Record):
    """CPU of scheduling cycles alone, without queue, bindings, event handlers and API traffic."""

    us_per_pod: float
    """All attempts of a pod, including garbage collection for them."""
    collector_us_per_pod: float = 0.0
    """The collector's part if it runs concurrently; otherwise it is part of the timed cycles."""
    samples: int = 0
    """Samples of the CPU profile; 0 if cycles were timed one by one, in core mode."""


class EndToEnd(Record):
    """Figures that only a run against a control plane has."""

    release: str
    """Measured pods came while the scheduler ran (`as-created`) or before its start (`drained`)."""
    events: int = 0
    """Number of events written."""
    settled_s: float = 0.0
    """From the last binding to the last event written."""
    pods_per_s_with_events: float = 0.0
    """Pods per second, including the time for writing the events."""
    etcd: ProcessUse | None = None
    driver: ProcessUse | None = None
    """The process that creates and observes pods."""
    others_cores: float = 0.0
    """Cores busy with unrelated work; near zero on a quiet machine."""


class RunResult(Record):
    """One repetition."""

    workload: str
    """`Case/Workload`."""
    contestant: str
    mode: Mode
    repeat: int
    """From 1."""
    control_plane: str = ""
    """End to end: `embedded` or `real`."""
    nodes: int = 0
    pods: int = 0
    """Pods whose scheduling was measured."""
    seconds: float = 0.0
    """From the start of the measurement to the last of these pods."""
    pods_per_s: float = 0.0
    decisions_per_s: float = 0.0
    """Core: attempts per second of attempt time, without enqueueing and binding."""
    decision_us: Percentiles | None = None
    """Core: one attempt, from the pop to the assumed pod."""
    decision_cpu: DecisionCpu | None = None
    """End to end. kube-scheduler: from its CPU profile; kubesched: same workload in core mode."""
    attempt_ms: Percentiles | None = None
    """`scheduling_attempt_duration_seconds`."""
    sli_ms: Percentiles | None = None
    """`pod_scheduling_sli_duration_seconds`."""
    attempts: int = 0
    unschedulable_attempts: int = 0
    scheduler: ProcessUse | None = None
    api_server: ProcessUse | None = None
    threshold: float | None = None
    """The workload file's threshold for upstream's machines, in pods per second."""
    end_to_end: EndToEnd | None = None
    plugins: tuple[PluginCost, ...] = ()
    """Core: costs of plugins since the start of the repetition, if asked for."""
    notes: tuple[str, ...] = ()


class Refusal(Record):
    """A workload that was not run, and why."""

    workload: str
    reason: str


class Environment(Record):
    """Machine and versions."""

    kubesched: str
    python: str
    numpy: str
    system: str
    machine: str
    cores: int
    kube_scheduler: str = ""
    control_plane: str = ""


class Report(Record, kw_only=True):
    """All results of one command."""

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    started: str = ""
    """RFC 3339."""
    command: str = ""
    environment: Environment
    results: tuple[RunResult, ...] = ()
    refused: tuple[Refusal, ...] = ()


def this_environment(*, kube_scheduler: str = "", control_plane: str = "") -> Environment:
    """Versions and machine, without identifying data."""
    import numpy as np

    return Environment(
        kubesched=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        kube_scheduler=kube_scheduler,
        control_plane=control_plane,
    )


def percentiles(values: Iterable[float]) -> Percentiles | None:
    """Nearest-rank percentiles; None if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(round(share * len(ordered), 6)) - 1)]

    return Percentiles(
        mean=statistics.fmean(ordered), p50=at(0.5), p90=at(0.9), p95=at(0.95), p99=at(0.99)
    )


def encode(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
