"""The flags of `kubesched run`: kube-scheduler's, and a few of our own.

`RunOptions` is both the flag table and the parse result: each field is a flag, named with hyphens.
`flag_parsing` parses command lines; `settings` applies the values to the configuration.

Unsupported upstream flags are listed too, so that they are rejected with a reason (`problems`) and
not as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final

from kubesched.app import flag_types
from kubesched.app.flag_types import FlagType, NamedCertKey
from kubesched.base.errors import FieldProblem
from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES
from kubesched.config.versions import Versions

_IGNORED_WITH_FILE = "DEPRECATED, ignored when --config is given: "


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag as seen by help and parser."""

    name: str
    type: FlagType
    default: Any
    group: str
    help: str
    shorthand: str = ""


_USUAL_TYPES: Final = {
    str: flag_types.STRING,
    bool: flag_types.BOOL,
    int: flag_types.INT,
    float: flag_types.DURATION,
    tuple: flag_types.STRINGS,
}


def _flag(
    default: object, group: str, text: str, type_: FlagType | None = None, *, shorthand: str = ""
) -> Any:  # noqa: ANN401 - stands in for a field's default
    """A flag of the given type, or of the default's usual type."""
    type_ = type_ or _USUAL_TYPES[type(default)]
    return field(default=default, metadata={"flag": (type_, group, text, shorthand)})


_MISC, _SERVING, _AUTHN, _AUTHZ = "Misc", "Secure serving", "Authentication", "Authorization"
_DEPRECATED, _ELECTION, _GATES = "Deprecated", "Leader election", "Feature gate"
MIN_RECORD_LIMIT = 1 << 20
_METRICS, _LOGS, _OWN, _GLOBAL = "Metrics", "Logs", "kubesched", "Global"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The parsed command line; the defaults are kube-scheduler's."""

    config: str = _flag("", _MISC, "configuration file (KubeSchedulerConfiguration)")
    master: str = _flag("", _MISC, "address of the API server; wins over the kubeconfig's")
    write_config_to: str = _flag(
        "", _MISC, "write the completed configuration to this file and exit"
    )

    bind_address: str = _flag(
        "0.0.0.0",
        _SERVING,
        "address to serve on; 0.0.0.0 or :: means all of them",
        flag_types.ADDRESS,
    )
    secure_port: int = _flag(10259, _SERVING, "port to serve HTTPS on; 0 serves nothing")
    cert_dir: str = _flag(
        "",
        _SERVING,
        "where to keep the self-signed certificate (kube-scheduler.crt and .key); in memory if "
        "empty",
    )
    tls_cert_file: str = _flag(
        "", _SERVING, "serving certificate, intermediates after it; reloaded on change"
    )
    tls_private_key_file: str = _flag("", _SERVING, "key of --tls-cert-file")
    tls_min_version: str = _flag("", _SERVING, "VersionTLS12 (the default) or VersionTLS13")
    tls_cipher_suites: tuple[str, ...] = _flag(
        (), _SERVING, "cipher suites to offer below TLS 1.3, by their Go names"
    )
    tls_curve_preferences: tuple[int, ...] = _flag(
        (), _SERVING, "the key exchange curve by its Go number; one at most", flag_types.INTEGERS
    )
    tls_sni_cert_key: tuple[NamedCertKey, ...] = _flag(
        (),
        _SERVING,
        "cert.pem,key.pem[:name,...]: a certificate for some names; may be repeated",
        flag_types.CERT_KEYS,
    )
    http2_max_streams_per_connection: int = _flag(0, _SERVING, "accepted; HTTP/2 is not served")
    disable_http2_serving: bool = _flag(False, _SERVING, "accepted; HTTP/2 is not served")
    permit_address_sharing: bool = _flag(False, _SERVING, "accepted; SO_REUSEADDR is always used")
    permit_port_sharing: bool = _flag(
        False, _SERVING, "let several processes listen on the port (SO_REUSEPORT)"
    )

    authentication_kubeconfig: str = _flag(
        "",
        _AUTHN,
        "credentials for asking the API server who sends a token (TokenReview); empty: tokens are "
        "not understood",
    )
    authentication_skip_lookup: bool = _flag(
        False, _AUTHN, "do not look up client CAs in the cluster"
    )
    authentication_tolerate_lookup_failure: bool = _flag(
        True, _AUTHN, "start although client CAs could not be looked up"
    )
    authentication_token_webhook_cache_ttl: float = _flag(
        10.0, _AUTHN, "how long answers about tokens are remembered"
    )
    client_ca_file: str = _flag(
        "", _AUTHN, "authorities whose client certificates prove a user's name"
    )
    requestheader_client_ca_file: str = _flag(
        "", _AUTHN, "authorities of proxies that may name users in headers"
    )
    requestheader_allowed_names: tuple[str, ...] = _flag(
        (), _AUTHN, "common names of those proxies; empty: any"
    )
    requestheader_username_headers: tuple[str, ...] = _flag(
        ("x-remote-user",), _AUTHN, "headers that hold the user"
    )
    requestheader_uid_headers: tuple[str, ...] = _flag(
        (), _AUTHN, "headers that hold the user's UID"
    )
    requestheader_group_headers: tuple[str, ...] = _flag(
        ("x-remote-group",), _AUTHN, "headers that hold groups"
    )
    requestheader_extra_headers_prefix: tuple[str, ...] = _flag(
        ("x-remote-extra-",), _AUTHN, "prefixes of headers that hold anything else"
    )

    authorization_kubeconfig: str = _flag(
        "",
        _AUTHZ,
        "credentials for asking the API server who may read what (SubjectAccessReview); empty: "
        "requests are refused",
    )
    authorization_always_allow_paths: tuple[str, ...] = _flag(
        ("/healthz", "/readyz", "/livez"), _AUTHZ, "paths open to everybody"
    )
    authorization_webhook_cache_authorized_ttl: float = _flag(
        10.0, _AUTHZ, "how long a yes is remembered"
    )
    authorization_webhook_cache_unauthorized_ttl: float = _flag(
        10.0, _AUTHZ, "how long a no is remembered"
    )

    kubeconfig: str = _flag(
        "",
        _DEPRECATED,
        _IGNORED_WITH_FILE + "credentials for the API server; empty and no --master: in-cluster",
    )
    kube_api_content_type: str = _flag(
        "application/vnd.kubernetes.protobuf",
        _DEPRECATED,
        _IGNORED_WITH_FILE + "encoding of bindings and events; all else is JSON",
    )
    kube_api_qps: float = _flag(
        50.0,
        _DEPRECATED,
        _IGNORED_WITH_FILE + "requests per second; negative: any",
        flag_types.FLOAT,
    )
    kube_api_burst: int = _flag(
        100, _DEPRECATED, _IGNORED_WITH_FILE + "requests at once above the rate", flag_types.INT32
    )
    profiling: bool = _flag(
        True, _DEPRECATED, _IGNORED_WITH_FILE + "serve /debug/pprof and /debug/flags"
    )
    contention_profiling: bool = _flag(
        True, _DEPRECATED, _IGNORED_WITH_FILE + "accepted; there are no locks to profile"
    )
    pod_max_in_unschedulable_pods_duration: float = _flag(
        300.0,
        _DEPRECATED,
        "DEPRECATED: longest time a pod waits for an event before it is tried again anyway",
    )

    leader_elect: bool = _flag(
        True, _ELECTION, "schedule only while holding the lease; wins over the file"
    )
    leader_elect_lease_duration: float = _flag(
        15.0, _ELECTION, "how long others wait for a silent leader"
    )
    leader_elect_renew_deadline: float = _flag(
        10.0, _ELECTION, "how long a leader tries to renew before it gives up"
    )
    leader_elect_retry_period: float = _flag(2.0, _ELECTION, "pause between tries")
    leader_elect_resource_lock: str = _flag("leases", _ELECTION, "kind of lock; only leases")
    leader_elect_resource_name: str = _flag("kube-scheduler", _ELECTION, "name of the Lease")
    leader_elect_resource_namespace: str = _flag("kube-system", _ELECTION, "namespace of the Lease")

    feature_gates: str = _flag(
        "", _GATES, "A=true,B=false,...: Kubernetes feature gates to switch", flag_types.GATES
    )
    reference_version: str = _flag(
        "",
        _GATES,
        f"the kube-scheduler release to stand in for: {', '.join(REFERENCES)} "
        f"(default: {DEFAULT_REFERENCE.version})",
    )
    emulated_version: tuple[str, ...] = _flag(
        (),
        _GATES,
        "the version whose feature gates to emulate, such as kube=1.36; up to three before "
        "--reference-version (the default)",
    )
    min_compatibility_version: tuple[str, ...] = _flag(
        (),
        _GATES,
        "oldest version of the other components; some feature gates wait for it (default: one "
        "before --emulated-version)",
    )

    disabled_metrics: tuple[str, ...] = _flag(
        (), _METRICS, "metrics to leave off the page, by full name"
    )
    show_hidden_metrics_for_version: str = _flag(
        "", _METRICS, "accepted when it is the previous minor version; none are hidden"
    )
    allow_metric_labels: tuple[tuple[str, str], ...] = _flag(
        (),
        _METRICS,
        "metric,label=value,...: other values of the label become 'unexpected'",
        flag_types.MAP,
    )
    allow_metric_labels_manifest: str = _flag(
        "", _METRICS, "file with the same under allowListMapping"
    )

    v: int = _flag(0, _LOGS, "how much is logged", flag_types.LEVEL, shorthand="v")
    vmodule: str = _flag(
        "", _LOGS, "modules (by file name) with a level of their own", flag_types.VMODULE
    )
    logging_format: str = _flag("text", _LOGS, "text or json")
    log_flush_frequency: float = _flag(5.0, _LOGS, "accepted; lines are written at once")
    log_text_split_stream: bool = _flag(
        False, _LOGS, "[alpha] text: errors to stderr, the rest to stdout"
    )
    log_json_split_stream: bool = _flag(
        False, _LOGS, "[alpha] JSON: errors to stderr, the rest to stdout"
    )
    log_text_info_buffer_size: int = _flag(
        0, _LOGS, "[alpha] accepted when 0; lines are never held back", flag_types.QUANTITY
    )
    log_json_info_buffer_size: int = _flag(
        0, _LOGS, "[alpha] accepted when 0; lines are never held back", flag_types.QUANTITY
    )

    drain_timeout: float = _flag(
        10.0, _OWN, "how long bindings under way may take once told to stop"
    )
    record: str = _flag("", _OWN, "folder to record decisions and their inputs in; empty: none")
    record_limit: int = _flag(
        1 << 30,
        _OWN,
        "how much the recording may take in bytes; the oldest segments are deleted",
        flag_types.QUANTITY,
    )
    page: bool = _flag(
        False,
        _OWN,
        "serve the page below /debug/page/ on the secure port, to clients that may list pods in "
        "all namespaces",
    )

    version: str = _flag("false", _GLOBAL, "print versions and exit", flag_types.VERSION)
    help: bool = _flag(False, _GLOBAL, "show this help", shorthand="h")

    def shown(self) -> dict[str, str]:
        """Every flag with its value, sorted by name; logged at startup and served on /flagz."""
        table = all_flags()
        return {
            name: table[name].type.show(getattr(self, attribute(name))) for name in sorted(table)
        }


def attribute(name: str) -> str:
    """The field name of a flag."""
    return name.replace("-", "_")


@cache
def all_flags() -> dict[str, Flag]:
    """Every flag by name, in the order of the help text."""
    flags = {}
    for option in fields(RunOptions):
        type_, group, text, shorthand = option.metadata["flag"]
        name = option.name.replace("_", "-")
        flags[name] = Flag(name, type_, option.default, group, text, shorthand)
    return flags


def problems(options: RunOptions) -> Iterator[FieldProblem]:
    """Invalid values, except those only the configuration or the cluster can reveal."""
    if options.secure_port < 0:
        yield FieldProblem(
            "",
            f"--secure-port {options.secure_port} must be between 0 and 65535, inclusive. "
            "0 for turning off secure port",
        )
    if options.secure_port > 65535:
        # Upstream: the text is wrong about 0, which turns serving off.
        yield FieldProblem(
            "",
            f"--secure-port {options.secure_port} must be between 1 and 65535, inclusive. "
            "It cannot be turned off with 0",
        )
    if bool(options.tls_cert_file) != bool(options.tls_private_key_file):
        yield FieldProblem("", "--tls-cert-file and --tls-private-key-file must be given together")
    if len(options.tls_curve_preferences) > 1:
        yield FieldProblem(
            "", "--tls-curve-preferences: this program's TLS library takes one curve, not a list"
        )
    for path in options.authorization_always_allow_paths:
        if "*" in path.removesuffix("*"):
            yield FieldProblem(
                "", f'--authorization-always-allow-paths: only trailing * allowed in "{path}"'
            )
    if options.record_limit < MIN_RECORD_LIMIT:
        yield FieldProblem("", f"--record-limit must be at least {MIN_RECORD_LIMIT} bytes")
    if options.drain_timeout < 0:
        yield FieldProblem("", "--drain-timeout must not be negative")
    reference = REFERENCES.get(options.reference_version, DEFAULT_REFERENCE)
    previous = Versions(reference).min_compatibility
    if options.show_hidden_metrics_for_version not in ("", previous):
        yield FieldProblem(
            "metrics.showHiddenMetricsForVersion",
            f'Invalid value: "{options.show_hidden_metrics_for_version}": must be omitted or have '
            "the value "
            f"'{previous}'; only the previous minor version is allowed",
        )
