"""The flags of `kubesched run`: kube-scheduler's, and a few of our own.

`RunOptions` is the parse result: each field is a flag, named with hyphens. `flags.txt` has the type
and the help of each. `flag_parsing` parses command lines; `settings` applies the values to the
configuration.

Unsupported upstream flags are listed too, so that they are rejected with a reason (`problems`) and
not as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kubesched.app.flag_types import TYPES, FlagType, NamedCertKey
from kubesched.base.errors import FieldProblem
from kubesched.base.tables import described
from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES
from kubesched.config.versions import Versions

TABLE = Path(__file__).with_name("flags.txt")
MIN_RECORD_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag as seen by help and parser."""

    name: str
    type: FlagType
    default: Any
    group: str
    help: str
    shorthand: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The parsed command line; the defaults are kube-scheduler's."""

    config: str = ""
    master: str = ""
    write_config_to: str = ""

    bind_address: str = "0.0.0.0"
    secure_port: int = 10259
    cert_dir: str = ""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_min_version: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    tls_curve_preferences: tuple[int, ...] = ()
    tls_sni_cert_key: tuple[NamedCertKey, ...] = ()
    http2_max_streams_per_connection: int = 0
    disable_http2_serving: bool = False
    permit_address_sharing: bool = False
    permit_port_sharing: bool = False

    authentication_kubeconfig: str = ""
    authentication_skip_lookup: bool = False
    authentication_tolerate_lookup_failure: bool = True
    authentication_token_webhook_cache_ttl: float = 10.0
    client_ca_file: str = ""
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: tuple[str, ...] = ()
    requestheader_username_headers: tuple[str, ...] = ("x-remote-user",)
    requestheader_uid_headers: tuple[str, ...] = ()
    requestheader_group_headers: tuple[str, ...] = ("x-remote-group",)
    requestheader_extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)

    authorization_kubeconfig: str = ""
    authorization_always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    authorization_webhook_cache_authorized_ttl: float = 10.0
    authorization_webhook_cache_unauthorized_ttl: float = 10.0

    kubeconfig: str = ""
    kube_api_content_type: str = "application/vnd.kubernetes.protobuf"
    kube_api_qps: float = 50.0
    kube_api_burst: int = 100
    profiling: bool = True
    contention_profiling: bool = True
    pod_max_in_unschedulable_pods_duration: float = 300.0

    leader_elect: bool = True
    leader_elect_lease_duration: float = 15.0
    leader_elect_renew_deadline: float = 10.0
    leader_elect_retry_period: float = 2.0
    leader_elect_resource_lock: str = "leases"
    leader_elect_resource_name: str = "kube-scheduler"
    leader_elect_resource_namespace: str = "kube-system"

    feature_gates: str = ""
    reference_version: str = ""
    emulated_version: tuple[str, ...] = ()
    min_compatibility_version: tuple[str, ...] = ()

    disabled_metrics: tuple[str, ...] = ()
    show_hidden_metrics_for_version: str = ""
    allow_metric_labels: tuple[tuple[str, str], ...] = ()
    allow_metric_labels_manifest: str = ""

    v: int = 0
    vmodule: str = ""
    logging_format: str = "text"
    log_flush_frequency: float = 5.0
    log_text_split_stream: bool = False
    log_json_split_stream: bool = False
    log_text_info_buffer_size: int = 0
    log_json_info_buffer_size: int = 0

    drain_timeout: float = 10.0
    record: str = ""
    record_limit: int = 1 << 30
    page: bool = False

    version: str = "false"
    help: bool = False

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
    defaults = RunOptions()
    flags = {}
    group = ""
    for entry, text in described(TABLE):
        if entry.startswith("["):
            group = entry.strip("[]")
            continue
        name, type_name, *shorthand = entry.split()
        default = getattr(defaults, attribute(name))
        letter = "".join(shorthand).removeprefix("-")
        releases = {"references": ", ".join(REFERENCES), "newest": DEFAULT_REFERENCE.version}
        help_text = text.format(**releases)
        flags[name] = Flag(name, TYPES[type_name], default, group, help_text, letter)
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
