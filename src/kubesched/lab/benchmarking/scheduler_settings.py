"""Feature gates and configuration that a workload requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kubesched.config import features
from kubesched.config.feature_table import Gate
from kubesched.config.features import FeatureGates
from kubesched.config.load import default_config, load_file
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.config.versions import DEFAULT_VERSIONS, Versions
from kubesched.lab.benchmarking.workload_files import Workload


def gates_to_set(
    workload: Workload, versions: Versions = DEFAULT_VERSIONS
) -> tuple[dict[str, bool], tuple[str, ...]]:
    """The gates that can be set as requested, and a note on each that cannot.

    Locked gates keep their value: workload files still list both values of such gates. Gates that
    depend on a disabled gate are disabled as well.
    """
    known = features.known(versions)
    settable: dict[str, bool] = {}
    notes: list[str] = []
    release = f"Kubernetes {versions.emulated}"
    for name, value in workload.feature_gates.items():
        gate = known.get(name)
        if gate is not None and gate.locked and gate.default != value:
            notes.append(f"{name}={str(value).lower()} is ignored: locked in {release}")
        elif gate is None:
            notes.append(f"{name} is ignored: {release} has no such feature gate")
        else:
            settable[name] = value
    for name, needed in _left_without(settable, known):
        settable[name] = False
        notes.append(f"{name} is off: it depends on {needed}, which the workload turns off")
    return settable, tuple(notes)


def _left_without(settable: Mapping[str, bool], known: Mapping[str, Gate]) -> list[tuple[str, str]]:
    """Gates that are on by default and depend, directly or not, on a disabled gate."""
    off = {name for name, value in settable.items() if not value}
    disabled: dict[str, str] = {}
    while True:
        more = {
            name: next(requirement for requirement in gate.requires if requirement in off)
            for name, gate in known.items()
            if gate.default and name not in off and name not in settable and off & {*gate.requires}
        }
        if not more:
            return list(disabled.items())
        disabled |= more
        off |= more.keys()


def feature_gates(
    workload: Workload, versions: Versions = DEFAULT_VERSIONS
) -> tuple[FeatureGates, tuple[str, ...]]:
    """The gates of a run, and a note on each that differs from the request.

    Raises:
        ConfigError: the gates contradict each other.
    """
    settable, notes = gates_to_set(workload, versions)
    return features.from_map(settable, versions), notes


def configuration(
    workload: Workload, gates: FeatureGates, percentage_of_nodes_to_score: int | None = None
) -> KubeSchedulerConfiguration:
    """The workload's configuration file or the defaults, with an optional percentage override.

    Raises:
        ConfigError: the file is not usable.
    """
    path = workload.case.scheduler_config
    config = load_file(Path(path), gates=gates) if path else default_config(gates)
    if percentage_of_nodes_to_score is None:
        return config
    return replace(config, percentage_of_nodes_to_score=percentage_of_nodes_to_score)
