"""Proves that feature gates have upstream's defaults, stages, locks and dependencies, and its error
texts.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import ConfigError
from kubesched.config import features
from kubesched.config.feature_table import histories
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.references import REFERENCES
from kubesched.config.versions import EMULATED_RELEASES, Versions, number

REFERENCE_136 = Versions(REFERENCES["1.36"])
EMULATING_136 = Versions(emulated="1.36")
NEWEST = Versions(min_compatibility="1.37")

# Gate, then what it is in 1.36.4, in 1.37, and in 1.37 emulating 1.36. L: locked.
STATES = """
OpportunisticBatching                          on-beta    on-beta        on-beta
NominatedNodeNameForExpectation                on-beta    on-beta        on-beta
ClearingNominatedNodeNameAfterBinding          on-beta    on-beta        on-beta
SchedulerPopFromBackoffQ                       on-beta    on-beta        on-beta
SchedulerAsyncPreemption                       on-beta    on-beta        on-beta
SchedulerAsyncAPICalls                         off-beta   off-beta       off-beta
SchedulerQueueingHints                         on-GA-L    removed        removed
SchedulerPreQueueingHints                      removed    off-alpha      newer
InterPodAffinityHostnameFastPath               removed    off-alpha      newer
InPlacePodVerticalScalingSchedulerPreemption   removed    off-alpha      newer
InPlacePodVerticalScaling                      on-GA-L    on-GA-L        on-GA-L
InPlacePodLevelResourcesVerticalScaling        on-beta    on-beta        on-beta
PodLevelResources                              on-beta    on-beta        on-beta
PodObservedGenerationTracking                  on-GA-L    on-GA-L        on-GA-L
PodSchedulingReadiness                         on-GA-L    on-GA-L        on-GA-L
SidecarContainers                              on-GA-L    removed        removed
NodeDeclaredFeatures                           on-beta    on-GA-L        on-beta
TaintTolerationComparisonOperators             off-alpha  off-alpha      off-alpha
NodeInclusionPolicyInPodTopologySpread         on-GA-L    on-GA-L        on-GA-L
MatchLabelKeysInPodAffinity                    on-GA-L    on-GA-L        on-GA-L
MatchLabelKeysInPodTopologySpread              on-beta    on-beta        on-beta
MatchLabelKeysInPodTopologySpreadSelectorMerge on-beta    on-beta        on-beta
StorageCapacityScoring                         off-alpha  on-beta        off-alpha
VolumeLimitScaling                             off-alpha  on-beta        off-alpha
VolumeAttributesClass                          on-GA-L    on-GA-L        on-GA-L
DynamicResourceAllocation                      on-GA-L    on-GA-L        on-GA-L
DRAAdminAccess                                 on-GA-L    on-GA-L        on-GA-L
DRAPrioritizedList                             on-GA      on-GA-L        on-GA
DRAPartitionableDevices                        on-beta    on-beta        on-beta
DRADeviceTaints                                on-beta    on-GA          on-beta
DRADeviceTaintRules                            off-beta   on-GA          off-beta
DRAConsumableCapacity                          on-beta    on-beta        on-beta
DRAFractionalCapacityRange                     removed    off-beta       newer
DRAExtendedResource                            on-beta    on-GA-L        on-beta
DRAResourceClaimDeviceStatus                   on-beta    on-GA-L        on-beta
DRAResourceClaimGranularStatusAuthorization    on-beta    on-beta        on-beta
DRADeviceBindingConditions                     on-beta    on-beta        on-beta
DRASchedulerFilterTimeout                      on-beta    on-beta        on-beta
DRAListTypeAttributes                          off-alpha  off-alpha      off-alpha
DRANodeAllocatableResources                    off-alpha  off-alpha      off-alpha
DRADerivedAttributes                           removed    off-alpha      newer
DRADeviceCompatibilityGroups                   removed    off-alpha      newer
DRAOptionalNodeOperations                      removed    off-alpha      newer
DRAPartitionableDevicesType                    removed    off-alpha      newer
DRAResourcePoolStatus                          off-alpha  off-alpha      off-alpha
DRAWorkloadResourceClaims                      off-alpha  off-beta       off-alpha
GenericWorkload                                off-alpha  off-beta       off-alpha
GangScheduling                                 off-alpha  removed        removed
WorkloadAwarePreemption                        off-alpha  removed        removed
TopologyAwareWorkloadScheduling                off-alpha  off-alpha      off-alpha
CompositePodGroup                              removed    off-alpha      newer
PodGroupPreemptionPolicy                       removed    off-alpha      newer
CoordinatedLeaderElection                      off-beta   off-beta       off-beta
ComponentFlagz                                 on-beta    on-beta        on-beta
ComponentStatusz                               on-beta    on-beta        on-beta
NativeHistograms                               off-alpha  on-beta        off-alpha
WatchListClient                                on-beta    on-beta        on-beta
KubeProxyIPVS                                  removed    on-deprecated  on-GA
MaxUnavailableStatefulSet                      off-beta   on-beta        off-beta
SELinuxMount                                   off-beta   on-GA          off-beta
DisableCPUQuotaWithExclusiveCPUs               on-deprecated on-deprecated-L on-deprecated
DeclarativeValidationTakeover                  off-deprecated off-deprecated-L off-deprecated
PodLevelResourceManagers                       off-alpha  off-beta       off-alpha
HPAScaleToZero                                 off-alpha  on-beta        off-alpha
"""


def state_of(name, versions):
    gate = features.known(versions).get(name)
    if gate is None:
        return "newer" if features.is_newer(name, versions) else "removed"
    words = ["on" if gate.default else "off", gate.stage.name.lower().replace("ga", "GA")]
    return "-".join(words + ["L"] * gate.locked)


@pytest.mark.parametrize("row", STATES.split("\n")[1:-1], ids=lambda row: row.split()[0])
def test_gate_has_its_default_stage_and_lock(row):
    name, *expected = row.split()
    versions = (REFERENCE_136, Versions(), EMULATING_136)
    assert [state_of(name, each) for each in versions] == expected
    for each, state in zip(versions, expected, strict=True):
        if state not in ("removed", "newer"):
            assert FeatureGates(versions=each).enabled(name) is state.startswith("on")


def test_a_gate_may_wait_for_all_neighbours_to_be_new():
    name = "DRAFractionalCapacityRange"
    assert state_of(name, NEWEST) == "on-beta"
    assert FeatureGates(versions=NEWEST).DRAFractionalCapacityRange
    assert not DEFAULT_GATES.DRAFractionalCapacityRange


@pytest.mark.parametrize(
    ("versions", "series"),
    [
        (Versions(), 253),
        (NEWEST, 253),
        (EMULATING_136, 217),
        (Versions(emulated="1.35"), 189),
        (Versions(emulated="1.34"), 169),
        (REFERENCE_136, 241),
    ],
    ids=str,
)
def test_as_many_gates_are_reported_as_kube_scheduler_reports(versions, series):
    """X11; all but the last were counted on the page of kube-scheduler 1.37."""
    states = [name for name, _, _ in FeatureGates(versions=versions).states()]
    assert len(states) == series
    assert states == sorted(states)
    assert {"AllAlpha", "AllBeta"} <= set(states)


def test_removed_gates_stay_what_they_were_when_they_went():
    assert DEFAULT_GATES.SchedulerQueueingHints
    assert not DEFAULT_GATES.GangScheduling
    groups = features.parse("GenericWorkload=true")
    assert groups.GangScheduling
    assert groups.WorkloadAwarePreemption
    assert not features.parse("GenericWorkload=true", REFERENCE_136).GangScheduling


def test_every_field_is_a_gate_of_the_table():
    own = {field.name for field in fields(FeatureGates)} - {"set_elsewhere", "versions"}
    assert own <= set(histories())


def test_the_table_is_sorted_and_its_words_are_gates_and_versions():
    rows = histories()
    assert list(rows) == sorted(rows)
    for name, row in rows.items():
        assert {gate for gate, _ in row.needs} <= set(rows), name
        assert [gate for gate, _ in row.needs] == sorted(gate for gate, _ in row.needs), name
        assert row.until in ("", *REFERENCES), name
        assert row.into == "" or row.into in rows, name
        numbers = [number(entry.version) for entry in row.entries]
        assert numbers == sorted(numbers), name
        assert numbers[-1] <= max(map(number, REFERENCES)), name


@pytest.mark.parametrize(
    ("name", "requires"),
    [
        ("DRASchedulerFilterTimeout", "DynamicResourceAllocation"),
        ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus DynamicResourceAllocation"),
        ("DRADeviceTaintRules", "DRADeviceTaints"),
        ("DRAFractionalCapacityRange", "DRAConsumableCapacity"),
        ("DRADeviceCompatibilityGroups", "DRAPartitionableDevices DynamicResourceAllocation"),
        ("DRAOptionalNodeOperations", "DynamicResourceAllocation NodeDeclaredFeatures"),
        ("DRAWorkloadResourceClaims", "DynamicResourceAllocation GenericWorkload"),
        (
            "InPlacePodLevelResourcesVerticalScaling",
            "InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources",
        ),
        ("InPlacePodVerticalScalingSchedulerPreemption", "InPlacePodVerticalScaling"),
        ("TopologyAwareWorkloadScheduling", "GenericWorkload"),
        ("CompositePodGroup", "GenericWorkload TopologyAwareWorkloadScheduling"),
        (
            "MatchLabelKeysInPodTopologySpreadSelectorMerge",
            "MatchLabelKeysInPodTopologySpread",
        ),
        ("EventedPLEG", "PLEGOnDemandRelist"),
        ("PodCertificateRequest", ""),
    ],
)
def test_gate_requires_what_upstream_says(name, requires):
    assert features.known()[name].requires == tuple(requires.split())


@pytest.mark.parametrize(
    ("name", "requires"),
    [
        ("GangScheduling", "GenericWorkload"),
        ("WorkloadAwarePreemption", "GangScheduling"),
        ("EventedPLEG", ""),
        ("PodCertificateRequest", "AuthorizeNodeWithSelectors"),
    ],
)
def test_gate_required_something_else_in_1_36(name, requires):
    assert features.known(REFERENCE_136)[name].requires == tuple(requires.split())


@pytest.mark.parametrize("reference", REFERENCES)
def test_every_dependency_is_a_known_gate(reference):
    gates = features.known(Versions(REFERENCES[reference]))
    assert all(needed in gates for gate in gates.values() for needed in gate.requires)


@pytest.mark.parametrize("reference", REFERENCES)
def test_defaults_hold_together_at_every_version_that_can_be_emulated(reference):
    newest = number(reference)[1]
    for minor in range(newest - EMULATED_RELEASES, newest + 1):
        versions = Versions(REFERENCES[reference], f"1.{minor}")
        assert features.from_map({}, versions) == FeatureGates(versions=versions)


def test_attributes_and_names_agree():
    gates = features.parse("SchedulerAsyncAPICalls=true,OpportunisticBatching=false")
    assert gates.SchedulerAsyncAPICalls is gates.enabled("SchedulerAsyncAPICalls") is True
    assert gates.OpportunisticBatching is gates.enabled("OpportunisticBatching") is False


def test_nothing_given_means_defaults():
    assert features.parse("") == DEFAULT_GATES == FeatureGates()


def test_gates_are_a_hashable_record():
    assert hash(features.parse("CSIVolumeHealth=true")) != hash(DEFAULT_GATES)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("SchedulerAsyncAPICalls=true", id="plainly"),
        pytest.param(" SchedulerAsyncAPICalls = true ", id="with spaces"),
        pytest.param("SchedulerAsyncAPICalls=T,", id="as Go's T, with a stray comma"),
        pytest.param("kube:SchedulerAsyncAPICalls=1", id="with the component's name"),
        pytest.param(
            "SchedulerAsyncAPICalls=false,SchedulerAsyncAPICalls=true", id="the last one counts"
        ),
    ],
)
def test_a_gate_can_be_set(text):
    assert features.parse(text).SchedulerAsyncAPICalls


def test_a_locked_gate_can_be_set_to_what_it_is():
    assert features.parse("NodeDeclaredFeatures=true").NodeDeclaredFeatures


def test_gates_of_other_components_are_accepted_and_reported():
    gates = features.parse("CSIVolumeHealth=true")
    assert gates.enabled("CSIVolumeHealth")
    assert not DEFAULT_GATES.enabled("CSIVolumeHealth")
    states = {name: on for name, _, on in gates.states()}
    assert states["CSIVolumeHealth"]
    assert states["NodeDeclaredFeatures"]
    assert list(states) == sorted(features.known())


def test_all_alpha_switches_on_what_is_not_named():
    gates = features.parse("AllAlpha=true,GenericWorkload=true,DRADerivedAttributes=false")
    assert gates.SchedulerPreQueueingHints
    assert gates.enabled("CSIVolumeHealth")
    assert not gates.DRADerivedAttributes
    assert not gates.SchedulerAsyncAPICalls
    assert gates.enabled("AllAlpha")
    assert not gates.enabled("AllBeta")


def test_all_beta_switches_off_what_is_not_named():
    gates = features.parse("AllBeta=false,OpportunisticBatching=true")
    assert gates.OpportunisticBatching
    assert not gates.StorageCapacityScoring
    assert gates.NodeDeclaredFeatures


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        pytest.param("Foo=true", ["unrecognized feature gate: Foo"], id="an unknown gate"),
        pytest.param(
            "OpportunisticBatching",
            ["missing bool value for OpportunisticBatching"],
            id="no value",
        ),
        pytest.param(
            "OpportunisticBatching=maybe",
            [
                "invalid value of OpportunisticBatching=maybe, err: "
                'strconv.ParseBool: parsing "maybe": invalid syntax'
            ],
            id="no boolean",
        ),
        pytest.param(
            "DRAExtendedResource=false",
            ["cannot set feature gate DRAExtendedResource to false, feature is locked to true"],
            id="a locked gate (X6)",
        ),
        pytest.param(
            "DRAPrioritizedList=false",
            ["cannot set feature gate DRAPrioritizedList to false, feature is locked to true"],
            id="another one (X7)",
        ),
        pytest.param(
            "SidecarContainers=true",
            ["unrecognized feature gate: SidecarContainers"],
            id="a removed gate (T54)",
        ),
        pytest.param(
            "GangScheduling=true",
            ["unrecognized feature gate: GangScheduling"],
            id="the gate of gangs in 1.36 (scenario 91 of groups)",
        ),
        pytest.param(
            "TopologyAwareWorkloadScheduling=true",
            [
                "TopologyAwareWorkloadScheduling is enabled, but depends on features that are "
                "disabled: [GenericWorkload]"
            ],
            id="without GenericWorkload (scenario 91 of groups)",
        ),
        pytest.param(
            "CompositePodGroup=true",
            [
                "CompositePodGroup is enabled, but depends on features that are disabled: "
                "[GenericWorkload TopologyAwareWorkloadScheduling]"
            ],
            id="dependencies that are off",
        ),
        pytest.param(
            "DRADeviceTaints=false",
            [
                "DRADeviceTaintRules is enabled, but depends on features that are disabled: "
                "[DRADeviceTaints]"
            ],
            id="switching off what defaults depend on (X8)",
        ),
        pytest.param(
            "Foo=true,DynamicResourceAllocation=false",
            [
                "unrecognized feature gate: Foo",
                "cannot set feature gate DynamicResourceAllocation to false, "
                "feature is locked to true",
            ],
            id="all problems at once",
        ),
        pytest.param(
            "etcd:Foo=true", ["component not registered: etcd"], id="another component's prefix"
        ),
        pytest.param(
            "kube:OpportunisticBatching=true,GenericWorkload=true",
            [
                "set kube feature gates with default empty prefix or kube: prefix consistently, "
                "do not mix use"
            ],
            id="prefixed and not prefixed",
        ),
    ],
)
def test_wrong_gates_are_refused_with_upstream_texts(text, messages):
    with pytest.raises(ConfigError) as caught:
        features.parse(text)
    assert [problem.message for problem in caught.value.problems] == messages
    assert caught.value.source == "--feature-gates"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("DRAExtendedResource=false", id="X6"),
        pytest.param("DRAPrioritizedList=false", id="X7"),
        pytest.param("DRADeviceTaints=false", id="X8"),
    ],
)
def test_emulation_brings_back_what_could_be_set(text):
    gates = features.parse(text, EMULATING_136)
    assert not gates.enabled(text.partition("=")[0])


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        pytest.param(
            "InterPodAffinityHostnameFastPath=true",
            [
                "cannot set feature gate InterPodAffinityHostnameFastPath to true, feature is "
                "PreAlpha at emulated version 1.36, min compatibility version 1.35"
            ],
            id="a newer gate (X9)",
        ),
        pytest.param(
            "NodeDeclaredFeatures=false",
            [
                f"{gate} is enabled, but depends on features that are disabled: "
                "[NodeDeclaredFeatures]"
                for gate in (
                    "ExtendWebSocketsToKubelet",
                    "InPlacePodLevelResourcesVerticalScaling",
                    "InPlacePodVerticalScalingInitContainers",
                    "RestartAllContainersOnContainerExits",
                )
            ],
            id="what others depend on (X12)",
        ),
        pytest.param(
            "SidecarContainers=true",
            ["unrecognized feature gate: SidecarContainers"],
            id="a removed gate (T54)",
        ),
    ],
)
def test_emulation_refuses_with_upstream_texts(text, messages):
    with pytest.raises(ConfigError) as caught:
        features.parse(text, EMULATING_136)
    assert [problem.message for problem in caught.value.problems] == messages


def test_1_36_knows_the_gates_that_1_37_removed():
    gates = features.parse("SidecarContainers=true,GenericWorkload=true", REFERENCE_136)
    assert gates.enabled("SidecarContainers")
    with pytest.raises(ConfigError, match="unrecognized feature gate: CompositePodGroup"):
        features.parse("CompositePodGroup=true", REFERENCE_136)


def test_gates_that_a_release_does_not_have_yet_are_off():
    assert not features.defaults("1.36").DRAFractionalCapacityRange


def test_asking_for_an_unknown_gate_is_an_error():
    with pytest.raises(KeyError, match="unrecognized feature gate: Nonsense"):
        DEFAULT_GATES.enabled("Nonsense")


@given(st.dictionaries(st.sampled_from(sorted(features.known())), st.booleans(), max_size=6))
def test_accepted_gates_are_as_asked_and_consistent(wanted):
    try:
        gates = features.from_map(wanted)
    except ConfigError:
        return
    assert all(gates.enabled(name) is value for name, value in wanted.items())
    for name, gate in features.known().items():
        if gates.enabled(name):
            assert all(gates.enabled(needed) for needed in gate.requires)
        if gate.locked:
            assert gates.enabled(name) is gate.default


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text):
    refusal = None
    try:
        features.parse(text)
    except ConfigError as error:
        refusal = error
    assert refusal is None or refusal.problems


def test_pod_groups_are_those_of_1_37():
    gates = {"GenericWorkload": True}
    features.check_implemented(features.from_map(gates))
    words = "GenericWorkload is enabled, but pod groups of kube-scheduler 1.36 are not implemented"
    with pytest.raises(ConfigError, match=words):
        features.check_implemented(features.from_map(gates, Versions(REFERENCES["1.36"])))


def test_the_default_gates_are_implemented():
    features.check_implemented(features.DEFAULT_GATES)


def test_gates_that_are_not_implemented_are_listed_among_the_limits():
    page = (Path(__file__).parents[3] / "docs/limits.md").read_text(encoding="utf-8")
    section = page.split("\n## Feature gates\n")[1].split("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == (
        features.NOT_IMPLEMENTED
    )


@pytest.mark.parametrize("name", features.NOT_IMPLEMENTED)
def test_a_gate_that_is_not_implemented_is_refused_by_name(name):
    what = features.NOT_IMPLEMENTED[name]
    versions = Versions(REFERENCES["1.36"]) if "1.36" in what else Versions()
    gates = FeatureGates(**{name: True}, versions=versions)
    words = f"{name} is enabled, but {what} are not implemented: leave it off"
    with pytest.raises(ConfigError, match=words):
        features.check_implemented(gates)
