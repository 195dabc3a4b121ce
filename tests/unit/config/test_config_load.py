"""Proves reading whole files: strictness, kinds and versions, positions, and all problems at
once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubesched.base.errors import ConfigError
from kubesched.config import default_plugins, features
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.load import check, load, load_file
from kubesched.config.schema import RawArgs
from kubesched.config.types import Plugin
from kubesched.config.versions import Versions

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def problems(text: str | bytes, **options) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(ConfigError) as caught:
        load(data, **options)
    return [str(problem) for problem in caught.value.problems]


def check_problems(text: str, **options) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check((HEADER + text).encode(), implements=default_plugins.implements, **options)
    return [str(problem) for problem in caught.value.problems]


# -- kinds and versions ---------------------------------------------------------------------------


def test_a_file_without_kind_and_version_says_so_and_quotes_itself():
    assert problems("parallelism: 1\n") == [
        "Object 'Kind' is missing in 'parallelism: 1\n'",
        "Object 'apiVersion' is missing in 'parallelism: 1\n'",
    ]


def test_a_file_without_version_says_so():
    assert problems("kind: KubeSchedulerConfiguration") == [
        "Object 'apiVersion' is missing in 'kind: KubeSchedulerConfiguration'"
    ]


def test_a_long_file_is_not_quoted_in_full():
    (problem, _) = problems("a: b\n" * 1000)
    assert len(problem) < 1200


def test_an_empty_file_is_no_configuration():
    assert problems("") == [
        "Object 'Kind' is missing in ''",
        "Object 'apiVersion' is missing in ''",
    ]


@pytest.mark.parametrize("text", ["- a", "hello", "12"], ids=["a list", "a word", "a number"])
def test_a_document_that_is_no_map_is_refused(text):
    (problem,) = problems(text)
    assert problem == "the document is not a map of fields (line 1, column 1)"


@pytest.mark.parametrize(
    ("version", "today"),
    [
        ("kubescheduler.config.k8s.io/v1beta3", "removed in Kubernetes 1.29"),
        ("kubescheduler.config.k8s.io/v1beta2", "removed in Kubernetes 1.28"),
        ("kubescheduler.config.k8s.io/v1beta1", "removed in Kubernetes 1.23"),
        ("kubescheduler.config.k8s.io/v1alpha2", "removed in Kubernetes 1.19"),
        ("kubescheduler.config.k8s.io/v1alpha1", "removed in Kubernetes 1.18"),
        ("componentconfig/v1alpha1", 'the supported version is "kubescheduler.config.k8s.io/v1"'),
        ("kubescheduler.config.k8s.io/unknown", "the supported version is"),
        ("v1", "the supported version is"),
    ],
)
def test_another_version_is_refused_and_todays_is_named(version, today):
    (problem,) = problems(f"kind: KubeSchedulerConfiguration\napiVersion: {version}\n")
    assert problem.startswith(
        f'apiVersion: no kind "KubeSchedulerConfiguration" is registered for version "{version}"'
    )
    assert today in problem
    assert problem.endswith("(line 2, column 13)")


def test_another_kind_of_the_group_is_refused():
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: InterPodAffinityArgs\n"
    assert problems(text) == [
        "kind: couldn't decode as KubeSchedulerConfiguration, got "
        "kubescheduler.config.k8s.io/v1, Kind=InterPodAffinityArgs; the supported kind is "
        '"KubeSchedulerConfiguration" (line 2, column 7)'
    ]


def test_an_unknown_kind_is_refused():
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Nonsense\n"
    assert problems(text) == [
        'kind: no kind "Nonsense" is registered for version "kubescheduler.config.k8s.io/v1"; '
        'the supported kind is "KubeSchedulerConfiguration" (line 2, column 7)'
    ]


# -- strictness -----------------------------------------------------------------------------------


def test_unknown_fields_are_refused():
    assert problems(f"{HEADER}leaderElection:\n  foo: 1\nbar: 2\n") == [
        'leaderElection.foo: strict decoding error: unknown field "foo" (line 4, column 3)',
        'bar: strict decoding error: unknown field "bar" (line 5, column 1)',
    ]


def test_duplicate_keys_are_refused():
    (problem,) = problems(f"{HEADER}leaderElection:\n  leaderElect: true\n  leaderElect: false\n")
    assert 'line 5: key "leaderElect" already set in map' in problem


def test_duplicate_keys_in_json_are_refused():
    text = (
        '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",'
        ' "parallelism": 1, "parallelism": 2}'
    )
    (problem,) = problems(text)
    assert 'strict decoding error: duplicate field "parallelism"' in problem


def test_json_is_accepted():
    text = (
        '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",'
        ' "parallelism": 3, "leaderElection": {"leaseDuration": "20s"}}'
    )
    config = load(text.encode())
    assert (config.parallelism, config.leader_election.lease_duration_s) == (3, 20.0)


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = f"""{HEADER}parallelism: many
percentageOfNodesToScore: 200
profiles:
- schedulerName: a
  pluginConfig:
  - name: InterPodAffinity
    args:
      hardPodAffinityWeight: 101
      Ignore: true
- plugins:
    score: {{enabled: [{{name: EBSLimits}}]}}
podMaxBackoffSeconds: 0
"""
    result = problems(text)
    assert [problem.split(":")[0] for problem in result] == [
        "parallelism",
        "percentageOfNodesToScore",
        "profiles[0].pluginConfig[0].args.hardPodAffinityWeight",
        "profiles[0].pluginConfig[0].args.Ignore",
        "profiles[1].schedulerName",
        "profiles[1].plugins.score.enabled[0]",
        "podMaxBackoffSeconds",
    ]
    places = [problem[problem.rindex("(line ") :] for problem in result]
    assert places == [
        "(line 3, column 14)",
        "(line 4, column 27)",
        "(line 10, column 30)",
        "(line 11, column 7)",
        "(line 12, column 3)",
        "(line 13, column 23)",
        "(line 14, column 23)",
    ]


def test_a_field_that_cannot_be_read_is_complained_about_once():
    text = f"{HEADER}profiles: [{{schedulerName: 1}}, {{schedulerName: b}}]\n"
    assert len(problems(text)) == 1


def test_the_source_is_part_of_the_message():
    with pytest.raises(ConfigError) as caught:
        load(f"{HEADER}parallelism: 0\n".encode(), "scheduler.yaml")
    assert str(caught.value) == (
        "scheduler.yaml: parallelism: Invalid value: 0: should be an integer value greater than "
        "zero (line 3, column 14)"
    )


# -- plugin arguments -----------------------------------------------------------------------------


def profile(entry: str) -> str:
    return f"{HEADER}profiles:\n- pluginConfig:\n  - {entry}\n"


def test_arguments_may_carry_their_kind():
    entry = (
        "{name: InterPodAffinity, args: {apiVersion: kubescheduler.config.k8s.io/v1, "
        "kind: InterPodAffinityArgs, hardPodAffinityWeight: 5}}"
    )
    config = load(profile(entry).encode())
    assert config.profiles[0].plugin_config[0].args.hard_pod_affinity_weight == 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            "{kind: InterPodAffinityArgs}",
            "decoding .profiles[0].pluginConfig[0]: args for plugin DefaultPreemption were not of "
            "type DefaultPreemptionArgs.kubescheduler.config.k8s.io, got "
            "InterPodAffinityArgs.kubescheduler.config.k8s.io",
            id="another plugin's kind",
        ),
        pytest.param(
            "{kind: Nonsense}",
            "decoding .profiles[0].pluginConfig[0]: decoding args for plugin DefaultPreemption: "
            'no kind "Nonsense" is registered for version "kubescheduler.config.k8s.io/v1"',
            id="an unknown kind",
        ),
        pytest.param(
            "{apiVersion: kubescheduler.config.k8s.io/v1beta3}",
            "decoding .profiles[0].pluginConfig[0]: decoding args for plugin DefaultPreemption: "
            'no kind "DefaultPreemptionArgs" is registered for version '
            '"kubescheduler.config.k8s.io/v1beta3"',
            id="an old version",
        ),
        pytest.param(
            "[]", "Invalid value: expected a map, found a list", id="arguments that are no map"
        ),
    ],
)
def test_arguments_of_another_kind_are_refused(args, message):
    (problem,) = problems(profile(f"{{name: DefaultPreemption, args: {args}}}"))
    assert problem.startswith(f"profiles[0].pluginConfig[0].args: {message}")


def test_capitalised_keys_in_arguments_are_unknown_fields():
    entry = (
        "{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio, "
        "requestedToCapacityRatio: {shape: [{Utilization: 1, Score: 2}]}}}}"
    )
    result = problems(profile(entry))
    assert [problem.split(" (line")[0] for problem in result] == [
        "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape[0]."
        'Utilization: strict decoding error: unknown field "Utilization"; did you mean '
        '"utilization"?',
        "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape[0]."
        'Score: strict decoding error: unknown field "Score"; did you mean "score"?',
    ]


def test_arguments_of_other_plugins_stay_raw():
    entry = "{name: 'my.module:Mine', args: {foo: bar, list: [1, 2.5, yes]}}"
    config = load(profile(entry).encode())
    entry_read = config.profiles[0].plugin_config[0]
    assert entry_read.name == "my.module:Mine"
    assert entry_read.args == RawArgs({"foo": "bar", "list": [1, 2.5, True]})


def test_fit_arguments_are_left_to_the_plugin():
    text = profile("{name: NodeResourcesFit, args: {scoringStrategy: {type: Random}}}")
    load(text.encode())


def test_gates_decide_what_may_be_said():
    text = profile("{name: VolumeBinding, args: {shape: [{utilization: 0, score: 1}]}}")
    load(text.encode(), gates=DEFAULT_GATES)
    for gates in (
        features.parse("StorageCapacityScoring=false"),
        features.parse("", Versions(emulated="1.36")),
        features.defaults("1.36"),
    ):
        assert problems(text, gates=gates) == [
            "profiles[0].pluginConfig[0].args.shape: Invalid value: "
            '[{"Utilization":0,"Score":1}]: unexpected field `shape`, remove it or turn on the '
            "feature gate StorageCapacityScoring (line 5, column 34)"
        ]


def test_fields_of_a_later_release_are_unknown_to_an_earlier_one():
    """T53"""
    text = HEADER + (
        "profiles:\n- plugins:\n    podGroupPostFilter: {disabled: [{name: DynamicResources}]}\n"
    )
    (profile,) = load(text.encode()).profiles
    assert profile.plugins.pod_group_post_filter.disabled == (Plugin("DynamicResources"),)
    load(text.encode(), gates=features.parse("", Versions(emulated="1.36")))
    unknown = [
        "profiles[0].plugins.podGroupPostFilter: strict decoding error: unknown field "
        '"podGroupPostFilter" (line 5, column 5)'
    ]
    assert problems(text, gates=features.defaults("1.36")) == unknown
    enabled = text.removeprefix(HEADER).replace("disabled", "enabled")
    assert check_problems(enabled, gates=features.defaults("1.36")) == unknown, "and no more"


def test_plugins_cannot_be_enabled_at_points_that_they_got_in_a_later_release():
    text = "profiles:\n- plugins:\n    preFilter: {enabled: [{name: NodeName}]}\n"
    check((HEADER + text).encode(), implements=default_plugins.implements)
    assert check_problems(text, gates=features.defaults("1.36")) == [
        "profiles[0].plugins.preFilter.enabled[0]: "
        'plugin "NodeName" does not extend PreFilterPlugin plugin (line 5, column 27)'
    ]


# -- flags over the file --------------------------------------------------------------------------


def test_adjustments_are_made_before_validation():
    def shorten(config):
        election = replace(config.leader_election, lease_duration_s=1.0)
        return replace(config, leader_election=election)

    text = f"{HEADER}leaderElection: {{leaseDuration: 60s}}\n"
    (problem,) = problems(text, adjust=shorten)
    assert "must be greater than `RenewDeadline`" in problem
    assert problem.endswith("(line 3, column 33)")


def test_adjustments_can_repair_a_file():
    def lengthen(config):
        election = replace(config.leader_election, lease_duration_s=60.0)
        return replace(config, leader_election=election)

    text = f"{HEADER}leaderElection: {{leaseDuration: 5s}}\n"
    assert load(text.encode(), adjust=lengthen).leader_election.lease_duration_s == 60.0


# -- files ----------------------------------------------------------------------------------------


def test_a_file_is_loaded_by_path(tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(f"{HEADER}parallelism: 4\n")
    assert load_file(path).parallelism == 4


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot read the configuration file: No"):
        load_file(tmp_path / "missing.yaml")


def test_a_path_no_file_can_have_is_an_ordinary_error():
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        load_file("a\0b")


# -- checking as far as starting ------------------------------------------------------------------


def test_checking_finds_what_only_building_would():
    text = """profiles:
- plugins:
    multiPoint:
      enabled:
      - name: NodeName
      - name: Ghost
    filter: {enabled: [{name: PrioritySort}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: Random}}
leaderElection: {renewDeadline: 2s}
"""
    assert check_problems(text) == [
        'profiles[0].plugins.multiPoint.enabled[1]: PreFilterPlugin "Ghost" does not exist '
        "(line 8, column 9)",
        'profiles[0].plugins.filter.enabled[0]: plugin "PrioritySort" does not extend '
        "FilterPlugin plugin (line 9, column 24)",
        'profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: "Random": '
        'supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio" '
        "(line 12, column 36)",
        'leaderElection.renewDeadline: Invalid value: "2s": renewDeadline must be greater than '
        "retryPeriod*JitterFactor (2s * 1.2) (line 13, column 33)",
    ]


def test_checking_counts_plugins_and_compares_profiles():
    text = """profiles:
- schedulerName: a
- schedulerName: b
  plugins: {multiPoint: {disabled: [{name: DefaultBinder}]}}
"""
    assert check_problems(text) == [
        "profiles[1].plugins.bind: at least one bind plugin is needed for profile with scheduler "
        'name "b" (line 6, column 3)'
    ]


def test_one_fault_is_not_reported_by_two_checks():
    text = "profiles: [{pluginConfig: [{name: Mine}, {name: Mine}]}]\n"
    assert check_problems(text) == [
        'profiles[0].pluginConfig[1]: Duplicate value: "Mine" (line 3, column 42)'
    ]


def test_a_good_file_passes_with_its_expansion():
    checked = check(HEADER.encode(), implements=default_plugins.implements)
    assert len(checked.expanded) == len(checked.config.profiles) == 1
    assert checked.warnings == ()


def test_only_a_file_may_name_plugins_of_modules_that_are_not_loaded(tmp_path):
    text = f"{HEADER}profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: 'a.b:C'}}]}}}}}}]\n"
    (problem,) = problems(text)
    assert problem.startswith('profiles[0].plugins.multiPoint.enabled[0]: plugin "a.b:C" is not')
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert "a.b:C" in load_file(path).profiles[0].plugins.enabled_names()
    load(text.replace("a.b:C", "json.decoder:JSONDecoder").encode())  # loaded, if no plugin
