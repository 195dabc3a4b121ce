"""Proves that what is written is what was meant: encoding, YAML text, and the effective
configuration.
"""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.yaml_nodes import parse
from kubesched.api.yaml_nodes import to_plain as nodes_to_plain
from kubesched.base.errors import ConfigError
from kubesched.config import features
from kubesched.config.default_plugins import IN_TREE_PLUGINS, implements
from kubesched.config.defaults import default_profile, with_extender_resources
from kubesched.config.effective import effective, effective_plain
from kubesched.config.expansion import expand
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import default_config, load
from kubesched.config.output import to_plain, to_yaml
from kubesched.config.plugin_args import (
    InterPodAffinityArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ScoringStrategy,
    VolumeBindingArgs,
)
from kubesched.config.schema import RawArgs
from kubesched.config.types import (
    ClientConnectionConfiguration,
    Extender,
    ExtenderManagedResource,
    ExtenderTLSConfig,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
)
from kubesched.config.versions import Versions

WRITTEN = """\
apiVersion: kubescheduler.config.k8s.io/v1
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: ""
  qps: 0
delayCacheUntilActive: true
enableContentionProfiling: false
enableProfiling: false
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
  leaseDuration: 0s
  renewDeadline: 0s
  resourceLock: ""
  resourceName: ""
  resourceNamespace: ""
  retryPeriod: 0s
parallelism: 8
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 0
podMaxBackoffSeconds: 0
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      hardPodAffinityWeight: 5
      ignorePreferredTermsOfExistingPods: false
      kind: InterPodAffinityArgs
    name: InterPodAffinity
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        resources:
        - name: cpu
          weight: 1
        type: LeastAllocated
    name: NodeResourcesFit
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      bindTimeoutSeconds: 300
      kind: VolumeBindingArgs
    name: VolumeBinding
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
    name: PodTopologySpread
  - args:
      foo: bar
    name: OutOfTreePlugin
  schedulerName: ""
"""


def test_a_configuration_is_written_as_kube_scheduler_writes_it():
    strategy = ScoringStrategy(
        type="LeastAllocated", resources=(ResourceSpec(name="cpu", weight=1),)
    )
    config = KubeSchedulerConfiguration(
        parallelism=8,
        delay_cache_until_active=True,
        enable_profiling=False,
        enable_contention_profiling=False,
        pod_initial_backoff_seconds=0,
        pod_max_backoff_seconds=0,
        client_connection=ClientConnectionConfiguration(content_type="", qps=0, burst=0),
        leader_election=LeaderElectionConfiguration(
            leader_elect=False,
            lease_duration_s=0,
            renew_deadline_s=0,
            retry_period_s=0,
            resource_lock="",
            resource_name="",
            resource_namespace="",
        ),
        profiles=(
            KubeSchedulerProfile(
                plugin_config=(
                    PluginConfig(
                        "InterPodAffinity", InterPodAffinityArgs(hard_pod_affinity_weight=5)
                    ),
                    PluginConfig(
                        "NodeResourcesFit", NodeResourcesFitArgs(scoring_strategy=strategy)
                    ),
                    PluginConfig("VolumeBinding", VolumeBindingArgs(bind_timeout_seconds=300)),
                    PluginConfig("PodTopologySpread", PodTopologySpreadArgs(defaulting_type="")),
                    PluginConfig("OutOfTreePlugin", RawArgs({"foo": "bar"})),
                )
            ),
        ),
    )
    assert to_yaml(to_plain(config)) == WRITTEN


@pytest.mark.parametrize(
    "gates",
    ["", "AllAlpha=true,GenericWorkload=true", "AllBeta=false"],
    ids=["default", "alpha", "no beta"],
)
def test_the_default_configuration_survives_writing_and_reading(gates):
    given = features.parse(gates)
    config = default_config(given)
    assert load(to_yaml(to_plain(config)).encode(), gates=given) == config
    assert load(json.dumps(to_plain(config), ensure_ascii=False).encode(), gates=given) == config


def test_each_release_writes_the_fields_that_it_knows():
    """T52 and X4"""
    shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    for gates, has_point, shown_shape in (
        (DEFAULT_GATES, True, shape),
        (features.parse("", Versions(emulated="1.36")), True, None),
        (features.defaults("1.36"), False, None),
    ):
        config = default_config(gates)
        plain = to_plain(config, gates.reference)
        plugins = plain["profiles"][0]["plugins"]
        assert plugins.get("podGroupPostFilter") == ({} if has_point else None)
        names = [plugin["name"] for plugin in plugins["multiPoint"]["enabled"]]
        first = ["NodeName", "NodeUnschedulable"]
        assert names[2:4] == (first if has_point else first[::-1])
        if has_point:
            assert list(plugins)[-2:] == ["placementScore", "podGroupPostFilter"]
        (volumes,) = (
            entry["args"]
            for entry in plain["profiles"][0]["pluginConfig"]
            if entry["name"] == "VolumeBinding"
        )
        assert volumes.get("shape") == shown_shape
        assert load(to_yaml(plain).encode(), gates=gates) == config


# -- any configuration ----------------------------------------------------------------------------

_NAMES = st.sampled_from([*sorted(IN_TREE_PLUGINS), "mine", "my.module:Mine"])
_SETS = st.builds(
    PluginSet,
    enabled=st.lists(st.builds(Plugin, _NAMES, st.integers(-5, 50)), max_size=3).map(tuple),
    disabled=st.lists(st.builds(Plugin, _NAMES | st.just("*")), max_size=2).map(tuple),
)
_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=6)
_RAW = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=6,
)
_PLUGIN_CONFIG = st.one_of(
    st.builds(
        PluginConfig,
        st.just("InterPodAffinity"),
        st.builds(InterPodAffinityArgs, hard_pod_affinity_weight=st.integers(0, 100)),
    ),
    st.builds(
        PluginConfig,
        st.just("mine"),
        st.builds(RawArgs, st.dictionaries(_WORDS, _RAW, min_size=1, max_size=3)),
    ),
    st.just(PluginConfig("mine", None)),
)
_PROFILES = st.builds(
    KubeSchedulerProfile,
    scheduler_name=_WORDS.filter(bool),
    percentage_of_nodes_to_score=st.none() | st.integers(0, 100),
    plugins=st.builds(Plugins, multi_point=_SETS, score=_SETS, filter=_SETS, bind=_SETS),
    plugin_config=st.lists(_PLUGIN_CONFIG, max_size=2, unique_by=lambda e: e.name).map(tuple),
)
_EXTENDERS = st.builds(
    Extender,
    url_prefix=_WORDS,
    filter_verb=_WORDS,
    weight=st.integers(0, 2**40),
    enable_https=st.booleans(),
    http_timeout_s=st.integers(0, 10**6).map(lambda ms: ms / 1000),
    managed_resources=st.just(()) | st.just((ExtenderManagedResource("example.com/a", True),)),
    tls_config=st.none() | st.builds(ExtenderTLSConfig, ca_data=st.binary(max_size=6)),
)
_CONFIGS = st.builds(
    KubeSchedulerConfiguration,
    parallelism=st.integers(1, 100),
    percentage_of_nodes_to_score=st.integers(0, 100),
    leader_election=st.builds(
        LeaderElectionConfiguration,
        leader_elect=st.booleans(),
        lease_duration_s=st.integers(20_000, 10**7).map(lambda ms: ms / 1000),
        resource_name=_WORDS.filter(bool),
    ),
    client_connection=st.builds(
        ClientConnectionConfiguration, kubeconfig=_WORDS, qps=st.floats(1, 1e4, width=32)
    ),
    enable_profiling=st.booleans(),
    enable_contention_profiling=st.booleans(),
    profiles=st.lists(_PROFILES, min_size=1, max_size=1).map(tuple),
    extenders=st.lists(_EXTENDERS, max_size=1).map(tuple),
    delay_cache_until_active=st.booleans(),
)


def completed(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    from dataclasses import replace

    profiles = tuple(default_profile(profile, DEFAULT_GATES) for profile in config.profiles)
    return replace(config, profiles=profiles)


@pytest.mark.slow
@given(_CONFIGS)
def test_reading_what_was_written_gives_the_same_configuration(config):
    complete = completed(config)
    for text in (to_yaml(to_plain(complete)), json.dumps(to_plain(complete), ensure_ascii=False)):
        assert load(text.encode(), imports=True) == _merged_again(complete)


def _merged_again(config):
    """What reading does to complete lists: defaults that were removed by name stay removed."""
    return completed(config)


@given(_CONFIGS)
def test_completing_a_complete_configuration_keeps_what_runs(config):
    def able(name, point):
        return implements(name, point) if name in IN_TREE_PLUGINS else point.value == "filter"

    once = completed(config)
    try:
        before = [expand(profile, able) for profile in once.profiles]
    except ConfigError:
        return
    assert [expand(profile, able) for profile in completed(once).profiles] == before


# -- the effective configuration ------------------------------------------------------------------


@given(_CONFIGS)
def test_the_effective_configuration_means_the_same_and_is_its_own_effect(config):
    def able(name, point):
        return implements(name, point) if name in IN_TREE_PLUGINS else point.value == "filter"

    complete = completed(config)
    try:
        plain = effective_plain(complete, able)
    except ConfigError:
        return
    again = load(to_yaml(plain).encode())
    for before, after in zip(complete.profiles, again.profiles, strict=True):
        assert expand(after, able).by_point == expand(before, able).by_point
        names = expand(before, able).by_point
        for point in names:
            assert expand(after, able).weighted(point) == expand(before, able).weighted(point)
        wanted = {
            e.name: e.args for e in with_extender_resources(complete).profiles[0].plugin_config
        }
        assert {e.name: e.args for e in after.plugin_config}.items() >= wanted.items()
    assert effective_plain(again, able) == plain


def test_the_effective_default_lists_every_point():
    (profile,) = effective(default_config(), implements).profiles
    assert profile.plugins is not None
    assert profile.plugins.multi_point == PluginSet(disabled=(Plugin("*"),))
    assert profile.plugins.score.enabled[0] == Plugin("TaintToleration", 3)
    assert profile.plugins.bind.enabled == (Plugin("DefaultBinder"),)


def test_the_effective_text_has_no_clutter():
    text = to_yaml(effective_plain(default_config(), implements))
    assert "weight: 0" not in text
    assert "{}" not in text


# -- YAML text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "no",
        "on",
        "y",
        "1e3",
        "012",
        "0x10",
        "~",
        "null",
        "",
        "<<",
        ".5",
        "1_0",
        "-",
        "a: b",
        "- a",
        "#x",
        "'",
        '"',
        "\n",
        "é",
        "12:30",
        "=",
        "!x",
        "&x",
        "*x",
        "%",
        "@",
        "`",
        "a\tb",
        " a ",
    ],
    ids=repr,
)
def test_text_stays_text(text):
    written = to_yaml({"a": text, "list": [text]})
    read = nodes_to_plain(parse(written.encode()), "", _fail, json=False)
    assert read == {"a": text, "list": [text]}


def _fail(path, message, node):
    pytest.fail(f"{path}: {message}")


@given(_RAW)
def test_plain_data_survives_yaml(data):
    assert nodes_to_plain(parse(to_yaml({"a": data}).encode()), "", _fail, json=False) == {
        "a": data
    }


def test_other_yaml_readers_understand_us():
    text = to_yaml(to_plain(default_config()))
    assert yaml.safe_load(text) == json.loads(json.dumps(to_plain(default_config())))
