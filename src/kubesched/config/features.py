"""Feature gates: which optional behaviours of Kubernetes are on.

`FeatureGates` is one frozen record; a gate that affects scheduling is a field with upstream's
spelling (`gates.OpportunisticBatching`), so reading one costs an attribute access and a misspelt
one fails type checking. `parse` reads the `--feature-gates` flag with upstream's rules and texts:
locks, stages, dependencies, `AllAlpha` and `AllBeta`. What a gate is by default comes from
`feature_gates.txt`, and depends on the release and the version that it emulates
(`versions`). Gates of other components are accepted and kept for reporting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config.feature_table import Gate, Stage, effective, histories, is_newer
from kubesched.config.references import REFERENCES, Reference
from kubesched.config.versions import DEFAULT_VERSIONS, Versions, parse_versions

ALL_ALPHA = "AllAlpha"
ALL_BETA = "AllBeta"

_UNSET: Any = None
"""Stands for the default at the versions of the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGates:
    """The gates that a scheduler reads; those not given have the default of `versions`."""

    # Queue, cycles and API calls
    OpportunisticBatching: bool = _UNSET
    NominatedNodeNameForExpectation: bool = _UNSET
    ClearingNominatedNodeNameAfterBinding: bool = _UNSET
    SchedulerQueueingHints: bool = _UNSET
    SchedulerPreQueueingHints: bool = _UNSET
    SchedulerPopFromBackoffQ: bool = _UNSET
    SchedulerAsyncPreemption: bool = _UNSET
    SchedulerAsyncAPICalls: bool = _UNSET
    PodSchedulingReadiness: bool = _UNSET
    PodObservedGenerationTracking: bool = _UNSET

    # Dynamic resource allocation
    DynamicResourceAllocation: bool = _UNSET
    DRAAdminAccess: bool = _UNSET
    DRAConsumableCapacity: bool = _UNSET
    DRADerivedAttributes: bool = _UNSET
    DRADeviceBindingConditions: bool = _UNSET
    DRADeviceCompatibilityGroups: bool = _UNSET
    DRADeviceTaintRules: bool = _UNSET
    DRADeviceTaints: bool = _UNSET
    DRAExtendedResource: bool = _UNSET
    DRAFractionalCapacityRange: bool = _UNSET
    DRAListTypeAttributes: bool = _UNSET
    DRANodeAllocatableResources: bool = _UNSET
    DRAOptionalNodeOperations: bool = _UNSET
    DRAPartitionableDevices: bool = _UNSET
    DRAPrioritizedList: bool = _UNSET
    DRAResourceClaimDeviceStatus: bool = _UNSET
    DRAResourceClaimGranularStatusAuthorization: bool = _UNSET
    DRASchedulerFilterTimeout: bool = _UNSET
    DRAWorkloadResourceClaims: bool = _UNSET

    # Requests and node features
    NodeDeclaredFeatures: bool = _UNSET
    PodLevelResources: bool = _UNSET
    InPlacePodVerticalScaling: bool = _UNSET
    InPlacePodLevelResourcesVerticalScaling: bool = _UNSET
    InPlacePodVerticalScalingSchedulerPreemption: bool = _UNSET

    # Affinity, spreading, taints
    InterPodAffinityHostnameFastPath: bool = _UNSET
    MatchLabelKeysInPodAffinity: bool = _UNSET
    MatchLabelKeysInPodTopologySpread: bool = _UNSET
    MatchLabelKeysInPodTopologySpreadSelectorMerge: bool = _UNSET
    NodeInclusionPolicyInPodTopologySpread: bool = _UNSET
    TaintTolerationComparisonOperators: bool = _UNSET

    # Volumes
    StorageCapacityScoring: bool = _UNSET
    VolumeAttributesClass: bool = _UNSET
    VolumeLimitScaling: bool = _UNSET

    # Pod groups
    GenericWorkload: bool = _UNSET
    GangScheduling: bool = _UNSET
    TopologyAwareWorkloadScheduling: bool = _UNSET
    CompositePodGroup: bool = _UNSET
    PodGroupPreemptionPolicy: bool = _UNSET
    WorkloadAwarePreemption: bool = _UNSET

    # Process
    CoordinatedLeaderElection: bool = _UNSET
    ComponentFlagz: bool = _UNSET
    ComponentStatusz: bool = _UNSET

    set_elsewhere: frozenset[tuple[str, bool]] = frozenset()
    """Gates of other components that differ from their default."""
    versions: Versions = DEFAULT_VERSIONS
    """The release, and the versions that decide about defaults."""

    def __post_init__(self) -> None:
        for name in _own_names():
            if getattr(self, name) is _UNSET:
                object.__setattr__(self, name, self._default(name))

    def _default(self, name: str) -> bool:
        gate, row = known(self.versions).get(name), histories()[name]
        if gate is not None:
            return gate.default
        if row.at(self.versions) is None:
            return False  # newer
        # Removed: decided by another gate, or for good.
        return self.enabled(row.into) if row.into else row.entries[-1].default

    @property
    def reference(self) -> Reference:
        """The kube-scheduler whose behaviour is reproduced."""
        return self.versions.reference

    def enabled(self, name: str) -> bool:
        """Whether the named gate is on.

        Raises:
            KeyError: kube-scheduler has no gate of that name.
        """
        if name in _own_names():
            own: bool = getattr(self, name)
            return own
        if name not in histories():
            raise KeyError(f"unrecognized feature gate: {name}")
        gate = known(self.versions).get(name)
        return dict(self.set_elsewhere).get(name, gate is not None and gate.default)

    def states(self) -> Iterator[tuple[str, Stage, bool]]:
        """Every gate of the emulated version, by name (for the feature metric)."""
        for name, gate in sorted(known(self.versions).items()):
            yield name, gate.stage, self.enabled(name)


@cache
def _own_names() -> tuple[str, ...]:
    return tuple(field.name for field in fields(FeatureGates) if field.name in histories())


def known(versions: Versions = DEFAULT_VERSIONS) -> Mapping[str, Gate]:
    """Every gate that can be set, by name."""
    return effective(versions)


DEFAULT_GATES = FeatureGates()


@cache
def defaults(reference_version: str) -> FeatureGates:
    """The gates of a release of kube-scheduler, none of them set."""
    return FeatureGates(versions=Versions(REFERENCES[reference_version]))


# Go's strconv.ParseBool.
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)


def parse(text: str, versions: Versions = DEFAULT_VERSIONS) -> FeatureGates:
    """Parses a `--feature-gates` value such as `A=true,B=false`.

    A name may have the component prefix `kube:`.

    Raises:
        ConfigError: with every problem found.
    """
    return from_map(wanted(text), versions)


def wanted(text: str) -> dict[str, bool]:
    """The gates that a `--feature-gates` value names, known or not.

    Raises:
        ConfigError: it is not of that form.
    """
    given: dict[str, bool] = {}
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
            given[name] = _BOOLEANS[value]
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
    return given


def from_flags(
    gates: str,
    reference_version: str = "",
    emulated_version: Sequence[str] = (),
    min_compatibility_version: Sequence[str] = (),
) -> FeatureGates:
    """The gates that the four flags ask for.

    Raises:
        ConfigError: with upstream's texts, which are about the first of: a version's syntax,
            the gates, the versions' ranges.
    """
    versions = parse_versions(reference_version, emulated_version, min_compatibility_version)
    parsed = parse(gates, versions)
    problems = list(versions.range_problems())
    if problems:
        raise ConfigError(problems)
    return parsed


def from_map(wanted: Mapping[str, bool], versions: Versions = DEFAULT_VERSIONS) -> FeatureGates:
    """The gates with these set; `AllAlpha` and `AllBeta` apply to gates not named.

    Raises:
        ConfigError: unknown or locked gates, else gates whose dependencies are off.
    """
    gates = known(versions)
    problems = []
    for name, value in wanted.items():
        if is_newer(name, versions):
            problems.append(
                f"cannot set feature gate {name} to {_go(value)}, feature is PreAlpha at emulated "
                f"version {versions.emulated}, min compatibility version "
                f"{versions.min_compatibility}"
            )
        elif name not in gates:
            problems.append(f"unrecognized feature gate: {name}")
        elif gates[name].locked and gates[name].default != value:
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
    state |= {ALL_ALPHA: False, ALL_BETA: False, **wanted}

    for name, gate in sorted(gates.items()):
        missing = [needed for needed in gate.requires if not state.get(needed)]
        if state[name] and missing:
            problems.append(
                f"{name} is enabled, but depends on features that are disabled: "
                f"[{' '.join(missing)}]"
            )
    if problems:
        raise _error(problems)
    return _record(state, versions)


NOT_IMPLEMENTED = {
    "GangScheduling": "pod groups of kube-scheduler 1.36",
    "WorkloadAwarePreemption": "pod groups of kube-scheduler 1.36",
    "DRADerivedAttributes": "derived device attributes",
    "DRADeviceCompatibilityGroups": "compatibility groups of devices",
    "DRAOptionalNodeOperations": "devices without node operations",
    "DRAListTypeAttributes": "device attributes with several values",
    "DRANodeAllocatableResources": "devices that stand for node resources",
}
"""Gate -> what is missing; docs/limits.md has the same list."""


def check_implemented(gates: FeatureGates) -> None:
    """Rejects gates that are known but not implemented.

    Raises:
        ConfigError: naming every such gate that is on.
    """
    problems = [
        f"{name} is enabled, but {what} are not implemented: leave it off"
        for name, what in NOT_IMPLEMENTED.items()
        if name in known(gates.versions) and gates.enabled(name)
    ]
    if gates.GenericWorkload and not gates.reference.pod_group_post_filter:
        problems.append(
            "GenericWorkload is enabled, but pod groups of kube-scheduler "
            f"{gates.reference.version} are not implemented: leave it off"
        )
    if problems:
        raise _error(problems)


def _record(state: Mapping[str, bool], versions: Versions) -> FeatureGates:
    own = {name: state[name] for name in _own_names() if name in state}
    elsewhere = frozenset(
        (name, state[name])
        for name, gate in known(versions).items()
        if name not in own and state[name] != gate.default
    )
    return FeatureGates(**own, set_elsewhere=elsewhere, versions=versions)


def _go(value: bool) -> str:
    return "true" if value else "false"


def _error(problems: list[str]) -> ConfigError:
    return ConfigError([FieldProblem("", text) for text in problems], source="--feature-gates")
