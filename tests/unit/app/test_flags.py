"""The command line of `kubesched run`: Go's syntax and messages, and that every flag of
kube-scheduler is known.
"""

import pytest

from kubesched.app.flag_parsing import FlagError, UnexpectedWords, parse
from kubesched.app.flag_types import NamedCertKey
from kubesched.app.flags import RunOptions, all_flags, problems

KUBE_SCHEDULER_1_36 = [
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "authentication-kubeconfig",
    "authentication-skip-lookup",
    "authentication-token-webhook-cache-ttl",
    "authentication-tolerate-lookup-failure",
    "authorization-always-allow-paths",
    "authorization-kubeconfig",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "config",
    "contention-profiling",
    "disable-http2-serving",
    "disabled-metrics",
    "emulated-version",
    "feature-gates",
    "help",
    "http2-max-streams-per-connection",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "kubeconfig",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
    "logging-format",
    "master",
    "min-compatibility-version",
    "permit-address-sharing",
    "permit-port-sharing",
    "pod-max-in-unschedulable-pods-duration",
    "profiling",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "secure-port",
    "show-hidden-metrics-for-version",
    "tls-cert-file",
    "tls-cipher-suites",
    "tls-curve-preferences",
    "tls-min-version",
    "tls-private-key-file",
    "tls-sni-cert-key",
    "v",
    "version",
    "vmodule",
    "write-config-to",
]

OURS = {
    "drain-timeout",
    "page",
    "record",
    "record-limit",
    "reference-version",
}


def test_every_flag_of_kube_scheduler_exists_and_nothing_else_but_ours():
    assert set(all_flags()) == {*KUBE_SCHEDULER_1_36, *OURS}


def test_values_are_shown_as_upstream_logs_them():
    shown = RunOptions().shown()
    assert shown["authorization-always-allow-paths"] == "[/healthz,/readyz,/livez]"
    assert shown["pod-max-in-unschedulable-pods-duration"] == "5m0s"
    assert shown["kube-api-qps"] == "50"
    assert shown["leader-elect"] == "true"
    assert shown["tls-sni-cert-key"] == "[]"
    assert shown["v"] == "0"
    assert list(shown) == sorted(shown)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        pytest.param(["--secure-port=1"], "secure_port", 1, id="with an equals sign"),
        pytest.param(["--secure-port", "1"], "secure_port", 1, id="as two words"),
        pytest.param(["--secure_port=1"], "secure_port", 1, id="underscores stand for hyphens"),
        pytest.param(["--leader-elect=false"], "leader_elect", False, id="a switch with a value"),
        pytest.param(["--profiling"], "profiling", True, id="a bare switch is on"),
        pytest.param(["--leader-elect=F"], "leader_elect", False, id="Go's short booleans"),
        pytest.param(["-v=4"], "v", 4, id="a letter with an equals sign"),
        pytest.param(["-v", "4"], "v", 4, id="a letter and a word"),
        pytest.param(["-v4"], "v", 4, id="a letter with its value"),
        pytest.param(["--v=4"], "v", 4, id="the long spelling of a letter"),
        pytest.param(["--v=1", "--v=2"], "v", 2, id="the last one counts"),
        pytest.param(["--config="], "config", "", id="an empty value"),
        pytest.param(["--config", "--x"], "config", "--x", id="any word can be a value"),
        pytest.param(
            ["--leader-elect-lease-duration=1m30s"], "leader_elect_lease_duration", 90.0, id="time"
        ),
        pytest.param(
            ["--disabled-metrics=a,b", "--disabled-metrics=c"],
            "disabled_metrics",
            ("a", "b", "c"),
            id="lists grow",
        ),
        pytest.param(
            ["--authorization-always-allow-paths=/x"],
            "authorization_always_allow_paths",
            ("/x",),
            id="the first use replaces the default",
        ),
        pytest.param(
            ["--feature-gates=A=true", "--feature-gates=B=false"],
            "feature_gates",
            "A=true,B=false",
            id="gates add up",
        ),
        pytest.param(
            ["--tls-sni-cert-key=a,b:x.com,*.y.com", "--tls-sni-cert-key=c,d"],
            "tls_sni_cert_key",
            (NamedCertKey("a", "b", ("x.com", "*.y.com")), NamedCertKey("c", "d")),
            id="certificates with names",
        ),
        pytest.param(
            ["--allow-metric-labels=m,l=a,b"],
            "allow_metric_labels",
            (("m,l", "a,b"),),
            id="a label and its values",
        ),
        pytest.param(["--tls-curve-preferences=29"], "tls_curve_preferences", (29,), id="a curve"),
        pytest.param(["--kube-api-qps=-1"], "kube_api_qps", -1.0, id="a negative number"),
    ],
)
def test_a_flag_is_read(words, name, value):
    line = parse(words)
    assert getattr(line.options, name) == value
    assert line.given == {name.replace("_", "-")}


def test_a_default_that_is_spelled_out_still_counts_as_given():
    line = parse(["--leader-elect=true"])
    assert line.options == RunOptions()
    assert line.given == {"leader-elect"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nope"], "unknown flag: --nope"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--config"], "flag needs an argument: --config"),
        (["-v"], "flag needs an argument: 'v' in -v"),
        (["--=x"], "bad flag syntax: --=x"),
        (
            ["--secure-port=x"],
            'invalid argument "x" for "--secure-port" flag: strconv.ParseInt: parsing "x": '
            "invalid syntax",
        ),
        (
            ["--kube-api-burst=99999999999"],
            'invalid argument "99999999999" for "--kube-api-burst" flag: '
            'strconv.ParseInt: parsing "99999999999": value out of range',
        ),
        (
            ["--kube-api-qps=x"],
            'invalid argument "x" for "--kube-api-qps" flag: strconv.ParseFloat: parsing "x": '
            "invalid syntax",
        ),
        (
            ["--leader-elect=maybe"],
            'invalid argument "maybe" for "--leader-elect" flag: strconv.ParseBool: parsing '
            '"maybe": invalid syntax',
        ),
        (
            ["-vx"],
            'invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid '
            "syntax",
        ),
        (
            ["--v=-1"],
            'invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid '
            "syntax",
        ),
        (
            ["--bind-address=x"],
            'invalid argument "x" for "--bind-address" flag: failed to parse IP: "x"',
        ),
        (
            ["--leader-elect-lease-duration=x"],
            'invalid argument "x" for "--leader-elect-lease-duration" flag: time: invalid '
            'duration "x"',
        ),
        (
            ["--tls-sni-cert-key=a"],
            'invalid argument "a" for "--tls-sni-cert-key" flag: expected comma separated '
            "certificate and key file paths",
        ),
        (
            ["--allow-metric-labels=a"],
            'invalid argument "a" for "--allow-metric-labels" flag: a must be formatted as '
            "key=value",
        ),
        (
            ["--vmodule=a"],
            'invalid argument "a" for "--vmodule" flag: "a" does not have the pattern=N format',
        ),
        (
            ["--version=foo"],
            'invalid argument "foo" for "--version" flag: strconv.ParseBool: parsing "foo": '
            "invalid syntax",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_flag_is_refused_in_gos_words(words, message):
    with pytest.raises(FlagError) as caught:
        parse(words)
    assert str(caught.value) == message


def test_a_switch_does_not_swallow_the_next_word():
    with pytest.raises(UnexpectedWords, match=r'does not take any arguments, got \["false"\]'):
        parse(["--leader-elect", "false"])


def test_everything_after_two_hyphens_is_no_flag():
    with pytest.raises(UnexpectedWords, match=r'got \["--v=1" "x"\]'):
        parse(["--", "--v=1", "x"])


def problems_of(**options):
    return [str(problem) for problem in problems(RunOptions(**options))]


def test_the_defaults_are_in_order():
    assert problems_of() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"secure_port": 70000},
            "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off "
            "with 0",
        ),
        (
            {"tls_cert_file": "x"},
            "--tls-cert-file and --tls-private-key-file must be given together",
        ),
        (
            {"tls_curve_preferences": (23, 29)},
            "--tls-curve-preferences: this program's TLS library takes one curve, not a list",
        ),
        (
            {"show_hidden_metrics_for_version": "1.20"},
            'metrics.showHiddenMetricsForVersion: Invalid value: "1.20": must be omitted or have '
            "the value "
            "'1.36'; only the previous minor version is allowed",
        ),
        (
            {"show_hidden_metrics_for_version": "1.36", "reference_version": "1.36"},
            'metrics.showHiddenMetricsForVersion: Invalid value: "1.36": must be omitted or have '
            "the value "
            "'1.35'; only the previous minor version is allowed",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_cannot_be_honoured_is_refused_with_the_reason(options, message):
    assert problems_of(**options) == [message]


def test_values_that_change_nothing_are_accepted():
    assert (
        problems_of(
            secure_port=0,
            show_hidden_metrics_for_version="1.36",
            disable_http2_serving=True,
        )
        == []
    )
