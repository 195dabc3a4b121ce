"""Feature gates: which optional behaviours of Kubernetes 1.36 are on.

`FeatureGates` is one frozen record; a gate that affects scheduling is a field with upstream's
spelling (`gates.OpportunisticBatching`), so reading one costs an attribute access and a misspelt
one fails type checking. `parse` reads the `--feature-gates` flag with upstream's rules and texts:
locks, stages, dependencies, `AllAlpha` and `AllBeta`. Gates of other components are accepted and
kept for reporting (`feature_table`).

Emulating older versions is not supported: defaults, stages and locks are those of 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any

from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config import feature_table
from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES, Reference


class Stage(StrEnum):
    """Maturity of a gate; the value is the label in the feature metric."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = ""
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate's definition."""

    stage: Stage
    default: bool
    locked: bool = False
    requires: tuple[str, ...] = ()


ALL_ALPHA = "AllAlpha"
ALL_BETA = "AllBeta"
_DRA = "DynamicResourceAllocation"


def _gate(stage: Stage, default: bool, *requires: str, locked: bool = False) -> Any:  # noqa: ANN401 - stands in for a bool default
    return field(default=default, metadata={"gate": Gate(stage, default, locked, requires)})


def _alpha(*requires: str) -> Any:  # noqa: ANN401 - stands in for a bool default
    return _gate(Stage.ALPHA, False, *requires)


def _beta(*requires: str, on: bool = True) -> Any:  # noqa: ANN401 - stands in for a bool default
    return _gate(Stage.BETA, on, *requires)


def _stable(*requires: str, locked: bool = True) -> Any:  # noqa: ANN401 - stands in for a bool default
    return _gate(Stage.GA, True, *requires, locked=locked)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGates:
    """The gates that a scheduler reads; the defaults are those of Kubernetes 1.36."""

    # Queue, cycles and API calls
    OpportunisticBatching: bool = _beta()
    NominatedNodeNameForExpectation: bool = _beta()
    ClearingNominatedNodeNameAfterBinding: bool = _beta()
    SchedulerQueueingHints: bool = _stable()
    SchedulerPopFromBackoffQ: bool = _beta()
    SchedulerAsyncPreemption: bool = _beta()
    SchedulerAsyncAPICalls: bool = _beta(on=False)
    PodSchedulingReadiness: bool = _stable()
    PodObservedGenerationTracking: bool = _stable()

    # Dynamic resource allocation
    DynamicResourceAllocation: bool = _stable()
    DRAAdminAccess: bool = _stable(_DRA)
    DRAConsumableCapacity: bool = _beta(_DRA)
    DRADeviceBindingConditions: bool = _beta(_DRA, "DRAResourceClaimDeviceStatus")
    DRADeviceTaintRules: bool = _beta("DRADeviceTaints", on=False)
    DRADeviceTaints: bool = _beta(_DRA)
    DRAExtendedResource: bool = _beta(_DRA)
    DRAListTypeAttributes: bool = _alpha(_DRA)
    DRANodeAllocatableResources: bool = _alpha(_DRA)
    DRAPartitionableDevices: bool = _beta(_DRA)
    DRAPrioritizedList: bool = _stable(_DRA, locked=False)
    DRAResourceClaimDeviceStatus: bool = _beta()
    DRAResourceClaimGranularStatusAuthorization: bool = _beta(_DRA, "DRAResourceClaimDeviceStatus")
    DRASchedulerFilterTimeout: bool = _beta(_DRA)
    DRAWorkloadResourceClaims: bool = _alpha(_DRA, "GenericWorkload")

    # Requests and node features
    NodeDeclaredFeatures: bool = _beta()
    SidecarContainers: bool = _stable()
    PodLevelResources: bool = _beta()
    InPlacePodVerticalScaling: bool = _stable()
    InPlacePodLevelResourcesVerticalScaling: bool = _beta(
        "InPlacePodVerticalScaling", "PodLevelResources", "NodeDeclaredFeatures"
    )

    # Affinity, spreading, taints
    MatchLabelKeysInPodAffinity: bool = _stable()
    MatchLabelKeysInPodTopologySpread: bool = _beta()
    MatchLabelKeysInPodTopologySpreadSelectorMerge: bool = _beta(
        "MatchLabelKeysInPodTopologySpread"
    )
    NodeInclusionPolicyInPodTopologySpread: bool = _stable()
    TaintTolerationComparisonOperators: bool = _alpha()

    # Volumes
    StorageCapacityScoring: bool = _alpha()
    VolumeAttributesClass: bool = _stable()
    VolumeLimitScaling: bool = _alpha()

    # Pod groups
    GenericWorkload: bool = _alpha()
    GangScheduling: bool = _alpha("GenericWorkload")
    TopologyAwareWorkloadScheduling: bool = _alpha("GenericWorkload")
    WorkloadAwarePreemption: bool = _alpha("GangScheduling")

    # Process
    CoordinatedLeaderElection: bool = _beta(on=False)
    ComponentFlagz: bool = _beta()
    ComponentStatusz: bool = _beta()

    flipped_elsewhere: frozenset[str] = frozenset()
    """Gates of other components that differ from their default."""
    reference: Reference = DEFAULT_REFERENCE
    """The kube-scheduler whose behaviour is reproduced."""

    def enabled(self, name: str) -> bool:
        """Whether the named gate is on.

        Raises:
            KeyError: Kubernetes 1.36 has no gate of that name.
        """
        if name in known_elsewhere():
            return known_elsewhere()[name].default != (name in self.flipped_elsewhere)
        if name not in known():
            raise KeyError(f"unrecognized feature gate: {name}")
        value: bool = getattr(self, name)
        return value

    def states(self) -> Iterator[tuple[str, Stage, bool]]:
        """Every known gate with its stage and state, by name (for the feature metric)."""
        for name, gate in sorted(known().items()):
            yield name, gate.stage, self.enabled(name)


@cache
def known_elsewhere() -> Mapping[str, Gate]:
    """The gates that do not concern a scheduler."""
    return {
        name: Gate(Stage(stage), default, locked, feature_table.REQUIRES.get(name, ()))
        for stage, default, locked, names in feature_table.GROUPS
        for name in names.split()
    }


@cache
def known() -> Mapping[str, Gate]:
    """Every gate of Kubernetes 1.36 by name."""
    own = {
        field_.name: field_.metadata["gate"]
        for field_ in fields(FeatureGates)
        if "gate" in field_.metadata
    }
    return {**own, **known_elsewhere()}


DEFAULT_GATES = FeatureGates()


def defaults(reference_version: str) -> FeatureGates:
    """The gates of a release of kube-scheduler, none of them set."""
    return FeatureGates(reference=REFERENCES[reference_version])


# Go's strconv.ParseBool.
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)


def parse(text: str, reference: Reference = DEFAULT_REFERENCE) -> FeatureGates:
    """Parses a `--feature-gates` value such as `A=true,B=false`.

    A name may have the component prefix `kube:`.

    Raises:
        ConfigError: with every problem found.
    """
    wanted: dict[str, bool] = {}
    problems: list[str] = []
    prefixes: set[str] = set()
    for item in text.split(","):
        if not item.strip():
            continue
        component, colon, rest = item.partition(":")
        name, equals, value = (rest if colon else item).partition("=")
        name, value = name.strip(), value.strip()
        prefixes.add(component.strip() if colon else "")
        if not equals:
            problems.append(f"missing bool value for {name}")
        elif value not in _BOOLEANS:
            problems.append(
                f"invalid value of {name}={value}, "
                f'err: strconv.ParseBool: parsing "{value}": invalid syntax'
            )
        else:
            wanted[name] = _BOOLEANS[value]
    problems += [
        f"component not registered: {prefix}" for prefix in sorted(prefixes - {"", "kube"})
    ]
    if {"", "kube"} <= prefixes:
        problems.append(
            "set kube feature gates with default empty prefix or kube: prefix consistently, "
            "do not mix use"
        )
    if problems:
        raise _error(problems)
    return from_map(wanted, reference)


def from_map(wanted: Mapping[str, bool], reference: Reference = DEFAULT_REFERENCE) -> FeatureGates:
    """The gates with these set; `AllAlpha` and `AllBeta` apply to gates not named.

    Raises:
        ConfigError: unknown or locked gates, else gates whose dependencies are off.
    """
    gates = known()
    problems = []
    for name, value in wanted.items():
        if name not in gates and name not in (ALL_ALPHA, ALL_BETA):
            problems.append(f"unrecognized feature gate: {name}")
        elif name in gates and gates[name].locked and gates[name].default != value:
            problems.append(
                f"cannot set feature gate {name} to {_go(value)}, "
                f"feature is locked to {_go(gates[name].default)}"
            )
    if problems:
        raise _error(problems)

    state = {name: gate.default for name, gate in gates.items()}
    for special, stage in ((ALL_ALPHA, Stage.ALPHA), (ALL_BETA, Stage.BETA)):
        if special in wanted:
            state |= {n: wanted[special] for n, gate in gates.items() if gate.stage is stage}
    state |= {name: value for name, value in wanted.items() if name in gates}

    for name, gate in sorted(gates.items()):
        missing = [needed for needed in gate.requires if not state[needed]]
        if state[name] and missing:
            problems.append(
                f"{name} is enabled, but depends on features that are disabled: "
                f"[{' '.join(missing)}]"
            )
    if problems:
        raise _error(problems)
    return _record(state, reference)


_NOT_IMPLEMENTED = {
    "GenericWorkload": "pod groups",
    "GangScheduling": "pod groups",
    "TopologyAwareWorkloadScheduling": "pod groups",
    "WorkloadAwarePreemption": "pod groups",
    "DRAWorkloadResourceClaims": "pod groups",
    "DRAListTypeAttributes": "device attributes with several values",
    "DRANodeAllocatableResources": "devices that stand for node resources",
}
"""Gate -> missing prerequisite."""


def check_implemented(gates: FeatureGates) -> None:
    """Rejects gates that are known but not implemented.

    Raises:
        ConfigError: naming every such gate that is on.
    """
    problems = [
        f"{name} is enabled, but {what} are not implemented: leave it off"
        for name, what in _NOT_IMPLEMENTED.items()
        if gates.enabled(name)
    ]
    if problems:
        raise _error(problems)


def _record(state: Mapping[str, bool], reference: Reference) -> FeatureGates:
    foreign = known_elsewhere()
    own = {name: value for name, value in state.items() if name not in foreign}
    flipped = frozenset(name for name, gate in foreign.items() if state[name] != gate.default)
    return FeatureGates(**own, flipped_elsewhere=flipped, reference=reference)


def _go(value: bool) -> str:
    return "true" if value else "false"


def _error(problems: list[str]) -> ConfigError:
    return ConfigError([FieldProblem("", text) for text in problems], source="--feature-gates")
