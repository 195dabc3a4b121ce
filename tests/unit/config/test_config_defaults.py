"""Proves what a file means when it says little: defaults, and the user's plugins over the default
ones.
"""

from __future__ import annotations

import pytest

from kubesched.config import features
from kubesched.config.default_plugins import default_plugins
from kubesched.config.defaults import merge_plugin_set, with_extender_resources
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config, load
from kubesched.config.plugin_args import NodeResourcesFitArgs
from kubesched.config.references import REFERENCES
from kubesched.config.schema import RawArgs
from kubesched.config.types import (
    ClientConnectionConfiguration,
    Extender,
    ExtenderManagedResource,
    KubeSchedulerConfiguration,
    LeaderElectionConfiguration,
    Plugin,
    PluginSet,
)
from kubesched.config.versions import Versions

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
DEFAULT_LIST = (
    "SchedulingGates PrioritySort NodeName NodeUnschedulable TaintToleration(3) NodeAffinity(2) "
    "NodePorts NodeResourcesFit(1) VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone "
    "PodTopologySpread(2) InterPodAffinity(2) DynamicResources(2) DefaultPreemption "
    "NodeResourcesBalancedAllocation(1) ImageLocality(1) DefaultBinder NodeDeclaredFeatures"
)
LIST_OF_1_36 = DEFAULT_LIST.replace("NodeName NodeUnschedulable", "NodeUnschedulable NodeName")


def read(text: str, gates=DEFAULT_GATES) -> KubeSchedulerConfiguration:
    return load((HEADER + text).encode(), gates=gates)


def shown(plugins) -> str:
    return " ".join(f"{p.name}({p.weight})" if p.weight else p.name for p in plugins)


# -- fields ---------------------------------------------------------------------------------------


def test_an_empty_file_is_the_default_configuration():
    assert read("") == default_config()


def test_the_default_configuration_has_upstream_values():
    config = default_config()
    assert config.parallelism == 16
    assert config.leader_election == LeaderElectionConfiguration(
        leader_elect=True,
        lease_duration_s=15,
        renew_deadline_s=10,
        retry_period_s=2,
        resource_lock="leases",
        resource_name="kube-scheduler",
        resource_namespace="kube-system",
    )
    assert config.client_connection == ClientConnectionConfiguration(
        kubeconfig="",
        accept_content_types="",
        content_type="application/vnd.kubernetes.protobuf",
        qps=50,
        burst=100,
    )
    assert (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds) == (1, 10)
    assert (config.enable_profiling, config.enable_contention_profiling) == (True, True)
    assert config.extenders == ()
    assert config.delay_cache_until_active is False
    (profile,) = config.profiles
    assert profile.scheduler_name == "default-scheduler"
    assert profile.percentage_of_nodes_to_score is None


@pytest.mark.parametrize(
    ("text", "profiling", "contention"),
    [
        pytest.param("enableProfiling: true", True, True, id="on brings contention with it"),
        pytest.param("enableProfiling: false", False, False, id="off takes contention with it"),
        pytest.param(
            "enableProfiling: false\nenableContentionProfiling: true",
            False,
            True,
            id="contention without profiling is accepted",
        ),
        pytest.param("enableContentionProfiling: false", True, False, id="contention alone off"),
    ],
)
def test_contention_profiling_follows_profiling_unless_said(text, profiling, contention):
    config = read(text)
    assert (config.enable_profiling, config.enable_contention_profiling) == (profiling, contention)


def test_zero_durations_and_empty_names_of_leader_election_count_as_absent():
    text = (
        "leaderElection: {leaseDuration: 0s, renewDeadline: '0', resourceName: '', retryPeriod: 1s}"
    )
    assert read(text).leader_election == LeaderElectionConfiguration(retry_period_s=1)


def test_leader_election_can_be_switched_off():
    assert read("leaderElection: {leaderElect: false}").leader_election.leader_elect is False


def test_zero_limits_of_the_client_count_as_absent_and_negative_ones_do_not():
    connection = read("clientConnection: {qps: 0, burst: 0}").client_connection
    assert (connection.qps, connection.burst) == (50, 100)
    assert read("clientConnection: {qps: -1}").client_connection.qps == -1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("", 100, id="not said"),
        pytest.param("percentageOfNodesToScore: 0", 0, id="zero asks for adaptive sampling"),
        pytest.param("percentageOfNodesToScore: 70", 70, id="a percentage"),
    ],
)
def test_the_percentage_of_nodes_keeps_unsaid_and_zero_apart(text, value):
    assert read(text).percentage_of_nodes_to_score == value


def test_a_profile_can_override_the_percentage_with_zero():
    config = read("percentageOfNodesToScore: 50\nprofiles: [{percentageOfNodesToScore: 0}]")
    assert config.profiles[0].percentage_of_nodes_to_score == 0


def test_an_empty_list_of_profiles_counts_as_absent():
    assert read("profiles: []") == default_config()


def test_a_single_unnamed_profile_is_the_default_scheduler():
    assert read("profiles: [{plugins: {}}]").profiles[0].scheduler_name == "default-scheduler"


def test_several_profiles_keep_the_names_they_have():
    config = read("profiles: [{schedulerName: a}, {schedulerName: b}]")
    assert [profile.scheduler_name for profile in config.profiles] == ["a", "b"]


# -- default plugins by gate ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "gates", "expected"),
    [
        pytest.param(Versions(), "", DEFAULT_LIST, id="the defaults of 1.37"),
        pytest.param(Versions(REFERENCES["1.36"]), "", LIST_OF_1_36, id="the defaults of 1.36"),
        pytest.param(
            Versions(emulated="1.36"),
            "AllBeta=false",
            DEFAULT_LIST.removesuffix(" NodeDeclaredFeatures"),
            id="without NodeDeclaredFeatures",
        ),
        pytest.param(
            Versions(),
            "InPlacePodVerticalScalingSchedulerPreemption=true",
            DEFAULT_LIST.replace("NodeResourcesFit", "DeferredPodScheduling NodeResourcesFit"),
            id="with DeferredPodScheduling",
        ),
        pytest.param(
            Versions(REFERENCES["1.36"]),
            "GenericWorkload=true,GangScheduling=true",
            f"{LIST_OF_1_36} GangScheduling",
            id="with GangScheduling",
        ),
        pytest.param(
            Versions(),
            "GenericWorkload=true",
            f"{DEFAULT_LIST} GangScheduling",
            id="which is part of GenericWorkload in 1.37",
        ),
        pytest.param(
            Versions(REFERENCES["1.36"]),
            "GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
            f"{LIST_OF_1_36} TopologyPlacementGenerator PodGroupPodsCount(1)",
            id="with TopologyAwareWorkloadScheduling",
        ),
        pytest.param(
            Versions(),
            "GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
            f"{DEFAULT_LIST} GangScheduling TopologyPlacementGenerator PodGroupPodsCount(1)",
            id="with both",
        ),
    ],
)
def test_gates_change_the_default_plugins(versions, gates, expected):
    plugins = default_plugins(features.parse(gates, versions))
    assert shown(plugins.multi_point.enabled) == expected
    assert all(plugins.at(point) == PluginSet() for point in _points())


def _points():
    from kubesched.config.types import ExtensionPoint

    return ExtensionPoint


# -- merging --------------------------------------------------------------------------------------


def plugin_set(text: str) -> PluginSet:
    """`A B(2) -C -*`: enabled with weights, a dash disables."""
    enabled, disabled = [], []
    for word in text.split():
        if word.startswith("-"):
            disabled.append(Plugin(word[1:]))
        else:
            name, _, weight = word.rstrip(")").partition("(")
            enabled.append(Plugin(name, int(weight or 0)))
    return PluginSet(tuple(enabled), tuple(disabled))


@pytest.mark.parametrize(
    ("default", "custom", "merged"),
    [
        pytest.param("A B", "", "A B", id="nothing said leaves the defaults"),
        pytest.param("A B", "C", "A B C", id="a new plugin is appended"),
        pytest.param("A B C", "-B", "A C -B", id="a disabled one is gone but remembered"),
        pytest.param("A B C", "-*", "-*", id="a star disables all"),
        pytest.param("A B C", "C A -*", "C A -*", id="a star and a list give exactly the list"),
        pytest.param(
            "A B C", "X B -B", "A C X B -B", id="disabling and enabling moves behind the defaults"
        ),
        pytest.param("A(1) B(2)", "A(5)", "A(5) B(2)", id="an override keeps its position"),
        pytest.param("A(3) B(2)", "A", "A B(2)", id="an override without weight loses the weight"),
        pytest.param(
            "A B C",
            "B(1) D B(2)",
            "A B(2) C B(1) D",
            id="of a repeated plugin the last replaces, the others are appended",
        ),
        pytest.param("A -C", "D -B", "A D -B -C", id="disabled lists are joined, the user's first"),
        pytest.param("", "A", "A", id="no defaults"),
        pytest.param("A", "Unknown -Other", "A Unknown -Other", id="unknown names are kept"),
    ],
)
def test_lists_are_merged(default, custom, merged):
    assert merge_plugin_set(plugin_set(default), plugin_set(custom)) == plugin_set(merged)


def test_weights_of_disabled_plugins_are_dropped():
    merged = merge_plugin_set(PluginSet(), PluginSet(disabled=(Plugin("A", 3),)))
    assert merged == plugin_set("-A")


# -- arguments ------------------------------------------------------------------------------------


def test_plugins_that_take_arguments_get_their_defaults_by_name():
    names = [entry.name for entry in default_config().profiles[0].plugin_config]
    assert names == [
        "DefaultPreemption",
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
        "VolumeBinding",
    ]


def test_given_arguments_come_first_and_are_completed():
    text = """
profiles:
- pluginConfig:
  - name: VolumeBinding
  - name: Mine
    args: {some: thing}
  - name: InterPodAffinity
    args: {ignorePreferredTermsOfExistingPods: true}
"""
    entries = read(text).profiles[0].plugin_config
    assert [entry.name for entry in entries[:4]] == [
        "VolumeBinding",
        "Mine",
        "InterPodAffinity",
        "DefaultPreemption",
    ]
    assert entries[0].args.bind_timeout_seconds == 600
    assert entries[1].args == RawArgs({"some": "thing"})
    assert entries[2].args.hard_pod_affinity_weight == 1
    assert entries[2].args.ignore_preferred_terms_of_existing_pods is True


def test_a_plugin_that_is_off_gets_no_default_arguments():
    text = "profiles: [{plugins: {multiPoint: {disabled: [{name: InterPodAffinity}]}}}]"
    names = [entry.name for entry in read(text).profiles[0].plugin_config]
    assert "InterPodAffinity" not in names
    assert "NodeAffinity" in names


def test_what_extenders_ignore_replaces_what_fit_ignores():
    text = """
extenders:
- urlPrefix: "http://a"
  managedResources: [{name: example.com/a, ignoredByScheduler: true}, {name: example.com/b}]
profiles:
- pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/c]}}]
"""
    config = with_extender_resources(read(text))
    (fit,) = (e.args for e in config.profiles[0].plugin_config if e.name == "NodeResourcesFit")
    assert isinstance(fit, NodeResourcesFitArgs)
    assert fit.ignored_resources == ("example.com/a",)


def test_without_ignored_resources_nothing_changes():
    managed = (ExtenderManagedResource("example.com/a"),)
    config = KubeSchedulerConfiguration(extenders=(Extender(managed_resources=managed),))
    assert with_extender_resources(config) is config


def test_an_extender_has_all_its_fields():
    text = """
extenders:
- urlPrefix: https://extender
  filterVerb: f
  preemptVerb: p
  prioritizeVerb: s
  weight: 5
  bindVerb: b
  enableHTTPS: true
  httpTimeout: 3s
  nodeCacheCapable: true
  ignorable: true
  managedResources: [{name: example.com/a}]
  tlsConfig: {insecure: false, serverName: sni, certFile: c, keyFile: k, caFile: a,
              certData: Yw==, keyData: aw==, caData: YQ==}
"""
    (extender,) = read(text).extenders
    assert extender.url_prefix == "https://extender"
    verbs = (
        extender.filter_verb,
        extender.preempt_verb,
        extender.prioritize_verb,
        extender.bind_verb,
    )
    assert verbs == ("f", "p", "s", "b")
    assert (extender.weight, extender.http_timeout_s) == (5, 3.0)
    assert (extender.enable_https, extender.node_cache_capable, extender.ignorable) == (
        True,
        True,
        True,
    )
    assert extender.managed_resources == (ExtenderManagedResource("example.com/a"),)
    tls = extender.tls_config
    assert tls is not None
    assert (tls.server_name, tls.cert_file, tls.key_file, tls.ca_file) == ("sni", "c", "k", "a")
    assert (tls.cert_data, tls.key_data, tls.ca_data) == (b"c", b"k", b"a")
    assert "aw==" not in repr(tls)
    assert "b'k'" not in repr(tls)
