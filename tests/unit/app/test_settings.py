"""Which flag wins over which part of the configuration file, and what the logging flags come to."""

import pytest

from kubesched.app.flag_parsing import parse
from kubesched.app.flags import RunOptions
from kubesched.app.settings import complete, feature_gates, log_settings
from kubesched.base.errors import ConfigError
from kubesched.base.logs import Format, PatternLevel
from kubesched.config.features import DEFAULT_GATES

FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /from/file, qps: 7}
enableProfiling: false
leaderElection: {leaderElect: true, leaseDuration: 30s, resourceName: from-file}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(FILE)
    return str(path)


def settings(*words):
    return complete(parse(words), DEFAULT_GATES)


def test_deprecated_flags_are_ignored_beside_a_file(file):
    got = settings(f"--config={file}", "--kubeconfig=/from/flag", "--kube-api-qps=9", "--profiling")
    assert got.config.client_connection.kubeconfig == "/from/file"
    assert got.config.client_connection.qps == 7
    assert got.config.enable_profiling is False
    assert got.ignored_flags == ("kubeconfig", "kube-api-qps", "profiling")


def test_leader_election_flags_win_over_the_file(file):
    got = settings(f"--config={file}", "--leader-elect=false", "--leader-elect-resource-name=flag")
    election = got.config.leader_election
    assert election.leader_elect is False
    assert election.resource_name == "flag"
    assert election.lease_duration_s == 30.0  # not given on the command line


def test_a_leader_election_flag_with_its_default_value_still_wins(file):
    got = settings(f"--config={file}", "--leader-elect-lease-duration=15s")
    assert got.config.leader_election.lease_duration_s == 15.0


def test_without_a_file_both_kinds_of_flags_apply():
    got = settings(
        "--kubeconfig=/k", "--kube-api-burst=3", "--leader-elect=false", "--profiling=false"
    )
    assert got.config.client_connection.kubeconfig == "/k"
    assert got.config.client_connection.burst == 3
    assert got.config.leader_election.leader_elect is False
    assert got.config.enable_profiling is False
    assert got.ignored_flags == ()


def test_the_file_is_validated_after_leader_election_flags(file):
    with pytest.raises(ConfigError, match="must be greater than `RenewDeadline`"):
        settings(f"--config={file}", "--leader-elect-lease-duration=1s")


def test_without_a_file_the_flags_are_not_validated_here():
    # Upstream: the elector complains later.
    got = settings("--leader-elect-lease-duration=1s")
    assert got.config.leader_election.lease_duration_s == 1.0


def test_bad_flag_values_are_all_reported():
    with pytest.raises(ConfigError) as caught:
        settings("--secure-port=70000", "--drain-timeout=-1s")
    assert len(caught.value.problems) == 2


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"/no/such/file: cannot read the configuration file"):
        settings("--config=/no/such/file")


def test_feature_gates_come_from_all_uses_of_the_flag():
    options = parse(
        ["--feature-gates=GenericWorkload=true", "--feature-gates=CSIVolumeHealth=true"]
    )
    gates = feature_gates(options.options)
    assert gates.GenericWorkload
    assert gates.enabled("CSIVolumeHealth")


def test_versions_come_from_their_flags():
    words = ["--reference-version=1.36", "--emulated-version=kube=1.35"]
    versions = feature_gates(parse(words).options).versions
    assert (versions.reference.release, versions.emulated) == ("1.36.4", "1.35")
    assert versions.min_compatibility == "1.34"


def test_an_unknown_gate_is_refused():
    with pytest.raises(ConfigError, match="unrecognized feature gate: Nope"):
        feature_gates(RunOptions(feature_gates="Nope=true"))


def test_logging_flags_are_read():
    got = log_settings(RunOptions(v=3, vmodule="queue=5"), DEFAULT_GATES)
    assert got.format is Format.TEXT
    assert got.verbosity == 3
    assert got.vmodule == (PatternLevel("queue", 5),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logging_format": "xml"}, 'format: Invalid value: "xml": Unsupported log format'),
        (
            {"log_json_split_stream": True},
            "options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
        ),
        (
            {"vmodule": "a=1", "logging_format": "json"},
            "vmodule: Forbidden: Only supported for text log format",
        ),
    ],
    ids=["format", "alpha option", "vmodule with JSON"],
)
def test_bad_logging_flags_are_refused_in_upstreams_words(options, message):
    with pytest.raises(ConfigError) as caught:
        log_settings(RunOptions(**options), DEFAULT_GATES)
    assert str(caught.value) == message


def test_split_streams_need_the_alpha_gate():
    gates = feature_gates(RunOptions(feature_gates="LoggingAlphaOptions=true"))
    assert log_settings(RunOptions(log_text_split_stream=True), gates).split_stream
    assert not log_settings(RunOptions(log_json_split_stream=True), gates).split_stream
