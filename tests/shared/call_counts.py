"""Machine-independent cost of one pod: Python calls, opcodes and memory.

Follows each pod of a gate workload from its arrival in the queue to its confirmed binding, and
apart from that (`WATCHED`) its two watch events from their bytes to the informer's store:

    calls       calls of this package's functions, and of C functions from them
    opcodes     instructions of this package's functions
    peak_bytes  peak memory above the initial level (NumPy's included), per pod

Time would be noisier: it differs between machines and from minute to minute. Only frames of this
package count, so a new library release changes nothing. The interpreter's minor version matters, so
budgets are kept per version. Vectorised work hardly shows in opcodes; memory covers it.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, ClassVar

from recorded_core import RecordedCluster

import kubesched
from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.api.watch import WatchEvent
from kubesched.base.clock import ManualClock
from kubesched.base.errors import KubeschedError
from kubesched.client.informers.informer import Informer
from kubesched.client.informers.sharing import Sharing
from kubesched.client.watch import EventStream
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.recording.recorded_dependencies import Recording, open_recording
from kubesched.insight.recording.writer import Limits
from kubesched.lab.benchmarking.catalogue import find
from kubesched.lab.benchmarking.core_cluster import PacedClock
from kubesched.lab.benchmarking.core_measuring import Measurement
from kubesched.lab.benchmarking.core_mode import CoreOptions, play
from kubesched.lab.benchmarking.workload_files import Workload
from kubesched.testing import make_pod

WORKLOADS = (
    "Basic",
    "RequiredAntiAffinity",
    "HardSpread",
    "DefaultSpread",
    "MixedTemplates",
    "ManyApps",
)
"""Cases whose size `gate` is counted, with and without classes."""

AWKWARD = ("HundredTemplates", "UniqueLabels", "Rollout", "SampledNodes", "OneWorker")
"""Cases that are counted only with classes."""

SIZE = "gate"

_PACKAGE = str(Path(kubesched.__file__).parent)
_OWN = (f"{_PACKAGE}/lab/benchmarking/", f"{_PACKAGE}/insight/state/")
"""Code that plays the workload and the API server; excluded from the counts."""


class Counts(Record):
    """Means over the pods of one workload."""

    calls: float
    opcodes: float
    peak_bytes: float
    functions: dict[str, float]
    """Opcodes by function, largest first."""


RECORDED = "Basic"
"""The case that is also counted with a recorder."""

WATCHED = "Watched pods"
"""Watch events of pods that appear and are bound; every process that watches pods handles them."""


def names() -> list[str]:
    """Names of all counts: every case, most also without classes, one with a recorder."""
    return [
        *(name for case in WORKLOADS for name in (case, f"{case}, no classes")),
        *AWKWARD,
        f"{RECORDED}, recorded",
        WATCHED,
    ]


def count_named(name: str) -> Counts:
    """Count a workload in the variant that its name selects."""
    if name == WATCHED:
        return count_watched()
    case, _, variant = name.partition(", ")
    (workload,) = find([f"{case}/{SIZE}"])
    return count(workload, classes=variant != "no classes", recorded=variant == "recorded")


def count(workload: Workload, *, classes: bool, recorded: bool = False) -> Counts:
    """Play the workload three times: to warm up, to count instructions, to measure memory."""
    options = CoreOptions(repeats=1, warmup=0, classes=classes)
    if recorded:
        options = replace(options, make_cluster=partial(RecordedCluster, _record))
    _play(workload, Measurement, options)
    pods = _play(workload, _CountingInstructions, options)
    calls, opcodes = _CountingInstructions.calls, _CountingInstructions.opcodes
    _play(workload, _WatchingMemory, options)
    return _means(pods, calls, opcodes, _WatchingMemory.peak_bytes)


def count_watched(pods: int = 500) -> Counts:
    """Watch pods of one owner three times, as `count` plays a workload."""
    stream = [line + b"\n" for index in range(pods) for line in _watch_events(index)]
    _Watcher().take(stream)
    watcher, counting = _Watcher(), _CountingInstructions
    counting.calls, counting.opcodes = 0, {}
    sys.setprofile(counting._profile)
    _start_counting(counting.opcodes)
    watcher.take(stream)
    _stop_counting()
    sys.setprofile(None)
    watcher = _Watcher()
    tracemalloc.start(1)
    watcher.take(stream)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return _means(pods, counting.calls, counting.opcodes, peak_bytes)


def _watch_events(index: int) -> tuple[bytes, bytes]:
    """A pod as a ReplicaSet and the API server make it, and bound to one of 50 nodes."""
    made = make_pod(f"web-{index:05}").uid(f"uid-{index}").cpu("100m").label("app", "web")
    pod = made.json
    pod["metadata"] |= {
        "resourceVersion": str(2 * index + 1),
        "annotations": {"team": "web"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}],
    }
    token = {"name": f"kube-api-access-{index:05}", "projected": {"defaultMode": 420}}
    pod["spec"] |= {"volumes": [token], "tolerations": [{"operator": "Exists"}]}
    added = codec.encode(WatchEvent("ADDED", made.build()))
    pod["metadata"]["resourceVersion"] = str(2 * index + 2)
    pod["spec"]["nodeName"] = f"node-{index % 50}"
    pod["status"] = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    return added, codec.encode(WatchEvent("MODIFIED", made.build()))


class _Watcher:
    """Decodes watch events and applies them to an informer's store."""

    def __init__(self) -> None:
        source: Any = None  # nothing is listed
        self._stream = EventStream(Pod)
        self._informer = Informer(
            source, name="pods", clock=ManualClock(), random=Random(1), transform=Sharing().share
        )

    def take(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            for event in self._stream.feed(line):
                self._informer.reflector._take(event)


def _means(pods: int, calls: int, opcodes: dict[int, Tally], peak_bytes: int) -> Counts:
    by_function = {_name(tally.code): tally.number / pods for tally in opcodes.values()}
    total = sum(by_function.values())
    return Counts(
        calls=round(calls / pods, 1),
        opcodes=round(total, 1),
        peak_bytes=round(peak_bytes / pods, 1),
        functions={
            name: round(number, 1)
            for name, number in sorted(by_function.items(), key=lambda item: -item[1])
            if number >= total / 200
        },
    )


def _record(
    config: KubeSchedulerConfiguration, gates: FeatureGates, clock: PacedClock
) -> Recording:
    """The scheduling loop's part of recording; encoding, usually in a thread, runs at the end."""
    return open_recording(
        None, config, gates, limits=Limits(), clock=clock, random=Random(1), threaded=False
    )


def _play(workload: Workload, measurement: type[Measurement], options: CoreOptions) -> int:
    (result,) = play(workload, options, 1, make_measurement=measurement)
    if not result.pods:
        raise KubeschedError(f"{workload.full_name}: no pod was scheduled")
    return result.pods


class Tally:
    """How many instructions of a function were executed.

    Tallies are found by the identity of the code, which they keep alive: to hash code is to hash
    all of its constants, and from Python 3.12 on all of its instructions.
    """

    __slots__ = ("code", "number")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.number = 0


class _CountingInstructions(Measurement):
    """Counts instructions. Tallies are class attributes: there is only one interpreter to hook."""

    calls: ClassVar[int] = 0
    opcodes: ClassVar[dict[int, Tally]] = {}
    """By the identity of the code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # as the base class takes them
        super().__init__(*args, **kwargs)
        type(self).calls = 0
        type(self).opcodes = {}

    def begin(self) -> None:
        super().begin()
        sys.setprofile(self._profile)
        _start_counting(self.opcodes)

    def end(self) -> None:
        _stop_counting()
        sys.setprofile(None)
        super().end()

    @classmethod
    def _profile(cls, frame: FrameType, event: str, arg: object) -> None:
        del arg
        if event in ("call", "c_call") and _counts(frame.f_code.co_filename):
            cls.calls += 1


if sys.version_info >= (3, 12):
    _TOOL = 4  # not reserved for debuggers, coverage, profilers or optimisers
    _INSTRUCTION = sys.monitoring.events.INSTRUCTION

    def _start_counting(opcodes: dict[int, Tally]) -> None:
        def count(code: CodeType, offset: int) -> object:
            del offset
            tally = opcodes.get(id(code))
            if tally is None:
                if not _counts(code.co_filename):
                    return sys.monitoring.DISABLE
                tally = opcodes[id(code)] = Tally(code)
            tally.number += 1
            return None

        sys.monitoring.use_tool_id(_TOOL, "kubesched counts")
        sys.monitoring.register_callback(_TOOL, _INSTRUCTION, count)
        sys.monitoring.set_events(_TOOL, _INSTRUCTION)

    def _stop_counting() -> None:
        sys.monitoring.set_events(_TOOL, 0)
        sys.monitoring.register_callback(_TOOL, _INSTRUCTION, None)
        sys.monitoring.free_tool_id(_TOOL)

else:

    def _start_counting(opcodes: dict[int, Tally]) -> None:
        counts: dict[int, Callable[..., Any]] = {}

        def counting(tally: Tally) -> Callable[..., Any]:
            def count(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
                del frame, arg
                if event == "opcode":
                    tally.number += 1
                return count

            return count

        def enter(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
            del event, arg
            code = frame.f_code
            if not _counts(code.co_filename):
                return None
            if id(code) not in counts:
                counts[id(code)] = counting(opcodes.setdefault(id(code), Tally(code)))
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return counts[id(code)]

        sys.settrace(enter)

    def _stop_counting() -> None:
        sys.settrace(None)


class _WatchingMemory(Measurement):
    """Measures the peak memory increase between two bindings."""

    peak_bytes: ClassVar[int] = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # as the base class takes them
        super().__init__(*args, **kwargs)
        type(self).peak_bytes = 0
        self._memory_before = 0

    def begin(self) -> None:
        tracemalloc.start(1)
        self._restart()
        super().begin()

    def end(self) -> None:
        super().end()
        tracemalloc.stop()

    def note_bound(self, pod: Any) -> None:  # as in the base class
        super().note_bound(pod)
        type(self).peak_bytes += tracemalloc.get_traced_memory()[1] - self._memory_before
        self._restart()

    def _restart(self) -> None:
        tracemalloc.reset_peak()
        self._memory_before = tracemalloc.get_traced_memory()[0]


@cache
def _counts(file_name: str) -> bool:
    return file_name.startswith(_PACKAGE) and not file_name.startswith(_OWN)


def _name(code: CodeType) -> str:
    path = code.co_filename.removeprefix(f"{_PACKAGE}/").removesuffix(".py").replace("/", ".")
    return f"{path}:{code.co_qualname}"


# -- budgets ---------------------------------------------------------------------------------------

TOLERANCE = 0.05
"""Tolerated relative excess over a budget."""

SLACK_BYTES = 256
"""Larger for memory, which varies a little with Python's free lists."""


class Budgets(Record):
    """Budgets by Python minor version and workload."""

    by_python: dict[str, dict[str, Counts]]


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


class Excess(Record):
    """A count above its budget."""

    workload: str
    what: str
    budget: float
    measured: float
    grown: tuple[tuple[str, float, float], ...] = ()
    """Functions with the largest increase: name, budget, measured."""

    def __str__(self) -> str:
        share = self.measured / self.budget - 1 if self.budget else float("inf")
        lines = [
            f"{self.workload}: {self.what} per pod {self.measured:,.1f}, "
            f"budget {self.budget:,.1f} (+{share:.1%})"
        ]
        lines += [
            f"    {name}: {before:,.1f} -> {after:,.1f} opcodes"
            for name, before, after in self.grown
        ]
        return "\n".join(lines)


def excesses(budgets: Mapping[str, Counts], measured: Mapping[str, Counts]) -> list[Excess]:
    """Every figure above its budget. Workloads without a budget are skipped."""
    result: list[Excess] = []
    for name, counts in measured.items():
        budget = budgets.get(name)
        if budget is None:
            continue
        for what, slack in (("calls", 0.0), ("opcodes", 0.0), ("peak_bytes", SLACK_BYTES)):
            allowed, got = getattr(budget, what), getattr(counts, what)
            if got > allowed * (1 + TOLERANCE) + slack:
                grown = tuple(_grown(budget, counts))
                result.append(
                    Excess(workload=name, what=what, budget=allowed, measured=got, grown=grown)
                )
    return result


def _grown(budget: Counts, measured: Counts, most: int = 8) -> Sequence[tuple[str, float, float]]:
    changes = [
        (name, budget.functions.get(name, 0.0), number)
        for name, number in measured.functions.items()
        if number > budget.functions.get(name, 0.0) * 1.02 + 1
    ]
    return sorted(changes, key=lambda change: change[1] - change[2])[:most]
