"""Metrics of this process from the operating system and interpreter, read at scrape time.

Names and meanings are those of all Prometheus clients. On systems without /proc the memory and
descriptor metrics are omitted.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
from collections.abc import Callable
from math import nan
from pathlib import Path

from kubesched.base.metrics.registry import MetricsRegistry

_PROC_SELF = Path("/proc/self")
# Positions after the command name in /proc/self/stat.
_STAT_VSIZE, _STAT_RSS, _STAT_START_TIME = 20, 21, 19


def register_process_metrics(registry: MetricsRegistry) -> None:
    """Add `process_*`, `python_info` and `python_gc_*`."""
    cpu = registry.counter("process_cpu_seconds_total")
    cpu.labels().read_from(_cpu_seconds)
    if _PROC_SELF.is_dir():
        _register_proc(registry)
    max_fds = registry.gauge("process_max_fds")
    max_fds.labels().read_from(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    _register_interpreter(registry)


def _register_proc(registry: MetricsRegistry) -> None:
    page_size, ticks = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    readings: dict[str, Callable[[], float]] = {
        "process_open_fds": _open_descriptors,
        "process_resident_memory_bytes": lambda: _stat(_STAT_RSS) * page_size,
        "process_virtual_memory_bytes": lambda: _stat(_STAT_VSIZE),
    }
    for name, read in readings.items():
        registry.gauge(name).labels().read_from(read)
    started = _boot_time() + _stat(_STAT_START_TIME) / ticks
    start_time = registry.gauge("process_start_time_seconds")
    start_time.labels().set(started)


def _register_interpreter(registry: MetricsRegistry) -> None:
    major, minor, patch = platform.python_version_tuple()
    info = registry.gauge("python_info")
    info.labels(
        platform.python_implementation(), major, minor, patch, platform.python_version()
    ).set(1)
    counters = {
        "collections": "python_gc_collections_total",
        "collected": "python_gc_objects_collected_total",
        "uncollectable": "python_gc_objects_uncollectable_total",
    }
    for key, name in counters.items():
        family = registry.counter(name)
        for generation in range(len(gc.get_stats())):
            family.labels(str(generation)).read_from(_gc_reader(generation, key))


def _gc_reader(generation: int, key: str) -> Callable[[], float]:
    return lambda: gc.get_stats()[generation][key]


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _stat(field: int) -> float:
    """A number from /proc/self/stat; NaN if unreadable, so that the rest of the page survives."""
    try:
        text = (_PROC_SELF / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return nan
    # The command name in parentheses may contain blanks and parentheses: search from the right.
    return float(text.rpartition(")")[2].split()[field])


def _open_descriptors() -> float:
    try:
        return len(os.listdir(_PROC_SELF / "fd"))
    except OSError:
        return nan


def _boot_time() -> float:
    for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return nan
