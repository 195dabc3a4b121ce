"""Proves that feature gates have 1.36's defaults, stages, locks and dependencies, and its error texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import ConfigError
from kubesched.config import features
from kubesched.config.features import DEFAULT_GATES, FeatureGates, Stage

ON, OFF, LOCKED = "on", "off", "on, locked"


@pytest.mark.parametrize(
    ("name", "state", "stage"),
    [
        ("OpportunisticBatching", ON, Stage.BETA),
        ("NominatedNodeNameForExpectation", ON, Stage.BETA),
        ("ClearingNominatedNodeNameAfterBinding", ON, Stage.BETA),
        ("SchedulerQueueingHints", LOCKED, Stage.GA),
        ("SchedulerPopFromBackoffQ", ON, Stage.BETA),
        ("SchedulerAsyncPreemption", ON, Stage.BETA),
        ("SchedulerAsyncAPICalls", OFF, Stage.BETA),
        ("DynamicResourceAllocation", LOCKED, Stage.GA),
        ("DRASchedulerFilterTimeout", ON, Stage.BETA),
        ("DRADeviceBindingConditions", ON, Stage.BETA),
        ("DRAResourceClaimDeviceStatus", ON, Stage.BETA),
        ("DRAResourceClaimGranularStatusAuthorization", ON, Stage.BETA),
        ("DRAExtendedResource", ON, Stage.BETA),
        ("DRADeviceTaints", ON, Stage.BETA),
        ("DRAConsumableCapacity", ON, Stage.BETA),
        ("DRAPartitionableDevices", ON, Stage.BETA),
        ("DRAPrioritizedList", ON, Stage.GA),
        ("DRAAdminAccess", LOCKED, Stage.GA),
        ("DRADeviceTaintRules", OFF, Stage.BETA),
        ("DRANodeAllocatableResources", OFF, Stage.ALPHA),
        ("DRAWorkloadResourceClaims", OFF, Stage.ALPHA),
        ("DRAListTypeAttributes", OFF, Stage.ALPHA),
        ("DRAResourcePoolStatus", OFF, Stage.ALPHA),
        ("NodeDeclaredFeatures", ON, Stage.BETA),
        ("InPlacePodVerticalScaling", LOCKED, Stage.GA),
        ("InPlacePodLevelResourcesVerticalScaling", ON, Stage.BETA),
        ("PodLevelResources", ON, Stage.BETA),
        ("MatchLabelKeysInPodTopologySpread", ON, Stage.BETA),
        ("MatchLabelKeysInPodTopologySpreadSelectorMerge", ON, Stage.BETA),
        ("NodeInclusionPolicyInPodTopologySpread", LOCKED, Stage.GA),
        ("MatchLabelKeysInPodAffinity", LOCKED, Stage.GA),
        ("SidecarContainers", LOCKED, Stage.GA),
        ("PodSchedulingReadiness", LOCKED, Stage.GA),
        ("VolumeAttributesClass", LOCKED, Stage.GA),
        ("StorageCapacityScoring", OFF, Stage.ALPHA),
        ("VolumeLimitScaling", OFF, Stage.ALPHA),
        ("TaintTolerationComparisonOperators", OFF, Stage.ALPHA),
        ("GenericWorkload", OFF, Stage.ALPHA),
        ("GangScheduling", OFF, Stage.ALPHA),
        ("TopologyAwareWorkloadScheduling", OFF, Stage.ALPHA),
        ("WorkloadAwarePreemption", OFF, Stage.ALPHA),
        ("CoordinatedLeaderElection", OFF, Stage.BETA),
        ("ComponentFlagz", ON, Stage.BETA),
        ("ComponentStatusz", ON, Stage.BETA),
        ("PodObservedGenerationTracking", LOCKED, Stage.GA),
        ("WatchListClient", ON, Stage.BETA),
    ],
)
def test_gate_has_its_default_stage_and_lock(name, state, stage):
    gate = features.known()[name]
    assert (gate.default, gate.locked) == (state != OFF, state == LOCKED)
    assert gate.stage is stage
    assert DEFAULT_GATES.enabled(name) is gate.default


@pytest.mark.parametrize(
    ("name", "requires"),
    [
        ("DRASchedulerFilterTimeout", ("DynamicResourceAllocation",)),
        (
            "DRADeviceBindingConditions",
            ("DynamicResourceAllocation", "DRAResourceClaimDeviceStatus"),
        ),
        ("DRADeviceTaintRules", ("DRADeviceTaints",)),
        ("DRAWorkloadResourceClaims", ("DynamicResourceAllocation", "GenericWorkload")),
        (
            "InPlacePodLevelResourcesVerticalScaling",
            ("InPlacePodVerticalScaling", "PodLevelResources", "NodeDeclaredFeatures"),
        ),
        ("GangScheduling", ("GenericWorkload",)),
        ("TopologyAwareWorkloadScheduling", ("GenericWorkload",)),
        ("WorkloadAwarePreemption", ("GangScheduling",)),
        (
            "MatchLabelKeysInPodTopologySpreadSelectorMerge",
            ("MatchLabelKeysInPodTopologySpread",),
        ),
    ],
)
def test_gate_requires_what_upstream_says(name, requires):
    assert features.known()[name].requires == requires


def test_every_dependency_is_a_known_gate():
    gates = features.known()
    assert all(needed in gates for gate in gates.values() for needed in gate.requires)


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
    assert features.parse("SchedulerQueueingHints=true").SchedulerQueueingHints


def test_gates_of_other_components_are_accepted_and_reported():
    gates = features.parse("HPAScaleToZero=true")
    assert gates.enabled("HPAScaleToZero")
    assert not DEFAULT_GATES.enabled("HPAScaleToZero")
    states = {name: on for name, _, on in gates.states()}
    assert states["HPAScaleToZero"]
    assert states["SchedulerQueueingHints"]
    assert list(states) == sorted(features.known())


def test_all_alpha_switches_on_what_is_not_named():
    gates = features.parse("AllAlpha=true,GenericWorkload=true,VolumeLimitScaling=false")
    assert gates.StorageCapacityScoring
    assert gates.enabled("HPAScaleToZero")
    assert not gates.VolumeLimitScaling
    assert not gates.SchedulerAsyncAPICalls


def test_all_beta_switches_off_what_is_not_named():
    gates = features.parse("AllBeta=false,OpportunisticBatching=true")
    assert gates.OpportunisticBatching
    assert not gates.NodeDeclaredFeatures
    assert gates.SchedulerQueueingHints


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
            "SchedulerQueueingHints=false",
            ["cannot set feature gate SchedulerQueueingHints to false, feature is locked to true"],
            id="a locked gate",
        ),
        pytest.param(
            "GangScheduling=true",
            [
                "GangScheduling is enabled, but depends on features that are disabled: "
                "[GenericWorkload]"
            ],
            id="a dependency that is off",
        ),
        pytest.param(
            "DRAResourceClaimDeviceStatus=false",
            [
                "DRADeviceBindingConditions is enabled, but depends on features that are "
                "disabled: [DRAResourceClaimDeviceStatus]",
                "DRAResourceClaimGranularStatusAuthorization is enabled, but depends on features "
                "that are disabled: [DRAResourceClaimDeviceStatus]",
            ],
            id="switching off what defaults depend on",
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


@pytest.mark.parametrize(
    "text",
    ["GenericWorkload=true,GangScheduling=true", "GenericWorkload=true", "AllAlpha=true"],
)
def test_gates_of_pod_groups_are_refused_by_name(text):
    words = "GenericWorkload is enabled, but pod groups are not implemented: leave it off"
    with pytest.raises(ConfigError, match=words):
        features.check_implemented(features.parse(text))


@pytest.mark.parametrize("gate", ["DRAListTypeAttributes", "DRANodeAllocatableResources"])
def test_alpha_gates_of_device_allocation_are_refused_by_name(gate):
    with pytest.raises(ConfigError, match=f"{gate} is enabled, but .* are not implemented"):
        features.check_implemented(features.parse(f"{gate}=true"))


def test_the_default_gates_are_implemented():
    features.check_implemented(features.DEFAULT_GATES)
