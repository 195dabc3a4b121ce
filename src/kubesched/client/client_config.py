"""From flags, environment and files to one connection: API server, identity and trust.

Two sets of rules, both client-go's: `load_config` is kube-scheduler's (the flags name a file or an
address, else in-cluster), `load_default_config` is kubectl's (a named file, else `KUBECONFIG`, else
`~/.kube/config`, else in-cluster). Chooses the context, checks everything it refers to, and
assembles the credentials. Reading files is in `kubeconfig`; using credentials is in `credentials`
and `exec_plugin`.

All problems of a context are reported at once; every message names file, context and field.
"""

from __future__ import annotations

import base64
import binascii
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from kubesched.base.clock import Clock, SystemClock
from kubesched.base.errors import CredentialsError
from kubesched.base.logs import get_logger
from kubesched.client import in_cluster, kubeconfig
from kubesched.client.credentials import (
    ClientCredentials,
    FixedIdentity,
    Identity,
    Proof,
    TokenFile,
    impersonation_headers,
    is_sendable,
)
from kubesched.client.exec_plugin import API_VERSIONS, ExecCluster, ExecPlugin
from kubesched.client.kubeconfig import Cluster, ExecConfig, Kubeconfig, User
from kubesched.client.tls_context import Pem, RotatingTls, TlsSettings
from kubesched.client.transport import ConnectionConfig

log = get_logger(__name__)

PROXY_SCHEMES = ("http", "https")

_PLUGINS = {
    "azure": "kubelogin",
    "gcp": "gke-gcloud-auth-plugin",
    "oidc": "kubectl oidc-login (kubelogin)",
}
"""What replaces the auth-providers: Kubernetes removed two, and kube-scheduler lacks the third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """A connection and the other settings of the context."""

    connection: ConnectionConfig
    namespace: str = "default"
    source: str = ""
    """Where it was found, for logs."""


def load_config(
    kubeconfig_path: str = "",
    master: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    clock: Clock | None = None,
    service_account: str = in_cluster.SERVICE_ACCOUNT_DIRECTORY,
) -> ClientConfig:
    """As kube-scheduler: `--kubeconfig` and `--master` if either is given, else in-cluster."""
    clock = clock or SystemClock()
    if kubeconfig_path or master:
        config = _load_explicit(kubeconfig_path) if kubeconfig_path else Kubeconfig()
        return _from_kubeconfig(config, environment, clock, server=master)
    try:
        return _in_cluster(environment, clock, service_account)
    except CredentialsError as error:
        raise CredentialsError(
            "invalid configuration: no configuration has been provided: neither --kubeconfig nor "
            "--master was "
            f"given, and this is not a pod with a service account ({error})"
        ) from error


def load_default_config(
    kubeconfig_path: str = "",
    *,
    context: str = "",
    server: str = "",
    environment: Mapping[str, str] = os.environ,
    clock: Clock | None = None,
    service_account: str = in_cluster.SERVICE_ACCOUNT_DIRECTORY,
) -> ClientConfig:
    """As kubectl: the named file, else `KUBECONFIG`, else `~/.kube/config`, else in-cluster."""
    clock = clock or SystemClock()
    if kubeconfig_path:
        config = _load_explicit(kubeconfig_path)
        tried = [kubeconfig_path]
    else:
        tried = default_paths(environment)
        config = kubeconfig.load_files(tried)
    if config.is_empty() and not server and not context:
        if in_cluster.is_possible(environment, directory=service_account):
            return _in_cluster(environment, clock, service_account)
        server = environment.get("KUBERNETES_MASTER", "")
        if not server:
            raise CredentialsError(
                "invalid configuration: no configuration has been provided: no cluster is "
                "described in "
                f"{', '.join(tried)}, and this is not a pod with a service account"
            )
    return _from_kubeconfig(config, environment, clock, server=server, context=context)


def default_paths(environment: Mapping[str, str]) -> list[str]:
    """Where kubectl looks when no file is named."""
    if listed := environment.get("KUBECONFIG", ""):
        return [path for path in listed.split(os.pathsep) if path]
    home = environment.get("HOME", "") or os.path.expanduser("~")
    return [os.path.join(home, ".kube", "config")]


def _load_explicit(path: str) -> Kubeconfig:
    try:
        return kubeconfig.load_file(path)
    except FileNotFoundError:
        raise CredentialsError(f"kubeconfig {path}: no such file") from None


def _in_cluster(environment: Mapping[str, str], clock: Clock, directory: str) -> ClientConfig:
    connection = in_cluster.load_connection(environment, clock=clock, directory=directory)
    namespace = in_cluster.load_namespace(environment, directory=directory)
    return ClientConfig(connection=connection, namespace=namespace, source=in_cluster.ORIGIN)


def _from_kubeconfig(
    config: Kubeconfig,
    environment: Mapping[str, str],
    clock: Clock,
    *,
    server: str = "",
    context: str = "",
) -> ClientConfig:
    chosen = _choose(config, context=context, server=server)
    problems = [*_cluster_problems(chosen), *_user_problems(chosen)]
    if problems:
        raise CredentialsError(f"{chosen.origin}: {'; '.join(problems)}")
    return ClientConfig(
        connection=_Assembly(chosen, environment, clock).connection(),
        namespace=chosen.namespace or "default",
        source=chosen.origin,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """A context with its cluster and user, overrides applied."""

    cluster: Cluster
    user: User
    origin: str
    cluster_name: str = ""
    user_name: str = ""
    namespace: str = ""


def _choose(config: Kubeconfig, *, context: str, server: str) -> _Chosen:
    name = context or config.current_context
    origin = _origin(config, name)
    cluster, user = Cluster(), User()
    cluster_name = user_name = namespace = ""
    if name:
        chosen = config.contexts.get(name)
        if chosen is None:
            raise CredentialsError(f"{origin}: context was not found for specified context: {name}")
        cluster_name, user_name, namespace = chosen.cluster, chosen.user, chosen.namespace
        if cluster_name and cluster_name not in config.clusters and not server:
            raise CredentialsError(f'{origin}: cluster: there is no cluster "{cluster_name}"')
        if user_name and user_name not in config.users:
            raise CredentialsError(f'{origin}: user: there is no user "{user_name}"')
        cluster = config.clusters.get(cluster_name, cluster)
        user = config.users.get(user_name, user)
    if not name and not server:
        known = ", ".join(sorted(config.contexts)) or "none"
        raise CredentialsError(f"{origin}: no current-context is set (contexts: {known})")
    if server:
        # Upstream: another address makes the file's tls-server-name meaningless, everything else is
        # kept.
        cluster = msgspec.structs.replace(cluster, server=server, tls_server_name="")
    return _Chosen(
        cluster=cluster,
        user=user,
        origin=origin,
        cluster_name=cluster_name,
        user_name=user_name,
        namespace=namespace,
    )


def _origin(config: Kubeconfig, context: str) -> str:
    """Origin for messages: file first, then context."""
    if not config.files:
        return "client configuration"
    where = f"kubeconfig {os.pathsep.join(config.files)}"
    return f'{where}: context "{context}"' if context else where


def _cluster_problems(chosen: _Chosen) -> Iterator[str]:
    cluster, name = chosen.cluster, f'cluster "{chosen.cluster_name}"'
    if not cluster.server:
        yield f"{name}: server is not set"
    scheme = _scheme(cluster.proxy_url)
    if cluster.proxy_url and scheme not in PROXY_SCHEMES:
        found = f', not "{scheme}://"' if scheme else ""
        yield f"{name}: proxy-url must begin with http:// or https://{found}"
    if cluster.certificate_authority and cluster.certificate_authority_data:
        yield (
            f"{name}: certificate-authority and certificate-authority-data are both set; remove one"
        )
    if cluster.insecure_skip_tls_verify and (
        cluster.certificate_authority or cluster.certificate_authority_data
    ):
        yield (
            f"{name}: insecure-skip-tls-verify and a certificate authority contradict each other; "
            "remove one"
        )


def _user_problems(chosen: _Chosen) -> Iterator[str]:
    user, name = chosen.user, f'user "{chosen.user_name}"'
    if user.token and (user.username or user.password):
        yield f"{name}: token and username/password are both set; only one can be used"
    if not is_sendable(user.token):
        yield f"{name}: token contains characters that cannot be sent in a header"
    if user.client_certificate and user.client_certificate_data:
        yield f"{name}: client-certificate and client-certificate-data are both set; remove one"
    if user.client_key and user.client_key_data:
        yield f"{name}: client-key and client-key-data are both set; remove one"
    if (user.client_certificate or user.client_certificate_data) and not (
        user.client_key or user.client_key_data
    ):
        yield f"{name}: client-key or client-key-data must be set to use the client certificate"
    acts_as = user.impersonate_uid or user.impersonate_groups or user.impersonate_user_extra
    if acts_as and not user.impersonate:
        yield f"{name}: as-uid, as-groups and as-user-extra need as, the user to impersonate"
    if user.exec is not None and user.auth_provider is not None:
        yield f"{name}: exec and auth-provider are both set; only one can be used"
    if user.exec is not None:
        yield from (f"{name}: exec.{problem}" for problem in _exec_problems(user.exec))


def _exec_problems(plugin: ExecConfig) -> Iterator[str]:
    if not plugin.command:
        yield "command must be set"
    if plugin.api_version not in API_VERSIONS:
        yield f'apiVersion "{plugin.api_version}" is not one of {", ".join(API_VERSIONS)}'
    if any(not variable.name for variable in plugin.env):
        yield "env: every variable needs a name"
    mode = _interactive_mode(plugin)
    if not mode:
        yield "interactiveMode must be set: Never, IfAvailable or Always"
    elif mode not in ("Never", "IfAvailable", "Always"):
        yield f'interactiveMode "{mode}" is not one of Never, IfAvailable, Always'


def _interactive_mode(plugin: ExecConfig) -> str:
    is_optional = plugin.api_version == "client.authentication.k8s.io/v1beta1"
    return plugin.interactive_mode or ("IfAvailable" if is_optional else "")


class _Assembly:
    """Builds the connection of a validated context."""

    def __init__(self, chosen: _Chosen, environment: Mapping[str, str], clock: Clock) -> None:
        self._cluster = chosen.cluster
        self._user = chosen.user
        self._environment = environment
        self._clock = clock
        self._cluster_origin = f'{chosen.origin}: cluster "{chosen.cluster_name}"'
        self._user_origin = f'{chosen.origin}: user "{chosen.user_name}"'

    def connection(self) -> ConnectionConfig:
        scheme, host, port, prefix = self._address()
        user = self._user
        impersonation = impersonation_headers(
            user.impersonate,
            user.impersonate_uid,
            tuple(user.impersonate_groups),
            {name: tuple(values) for name, values in user.impersonate_user_extra.items()},
        )
        tls, identity = None, None
        if scheme == "https":
            tls, identity = self._tls(), self._identity()
        elif user != User():
            # Upstream: credentials are not sent to a server whose identity is not verified.
            log.warning("Server is not https, so no credentials are sent", user=self._user_origin)
        return ConnectionConfig(
            host=host,
            port=port,
            scheme=scheme,
            path_prefix=prefix,
            server_name=self._cluster.tls_server_name,
            proxy_url=self._cluster.proxy_url,
            disable_compression=self._cluster.disable_compression,
            credentials=ClientCredentials(
                clock=self._clock, tls=tls, identity=identity, impersonation=impersonation
            ),
        )

    def _address(self) -> tuple[str, str, int, str]:
        server = self._cluster.server
        # Upstream: an address without a scheme is plain HTTP.
        url = server if "://" in server else f"http://{server}"
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urllib.parse.SplitResult("", "", "", "", "")
        if parts.scheme not in ("http", "https") or not host or parts.username is not None:
            raise CredentialsError(
                f"{self._cluster_origin}: server is not of the form https://host[:port][/path]"
            )
        default_port = 443 if parts.scheme == "https" else 80
        return parts.scheme, host, port or default_port, parts.path.rstrip("/")

    def _tls(self) -> RotatingTls:
        cluster, user = self._cluster, self._user
        certificate = self._pem(
            self._user_origin,
            "client-certificate",
            user.client_certificate,
            user.client_certificate_data,
        )
        key = self._pem(self._user_origin, "client-key", user.client_key, user.client_key_data)
        return RotatingTls(
            TlsSettings(
                ca=self._authority(),
                certificate=certificate,
                key=key,
                insecure=cluster.insecure_skip_tls_verify,
            )
        )

    def _identity(self) -> Identity | None:
        user = self._user
        if user.token_file:
            return TokenFile(
                user.token_file, origin=self._user_origin, clock=self._clock, fallback=user.token
            )
        if user.token:
            return FixedIdentity(Proof.bearer(user.token))
        if user.username or user.password:
            return FixedIdentity(Proof.basic(user.username, user.password))
        if user.auth_provider is not None:
            name = user.auth_provider.name
            instead = f"; use the exec plugin {_PLUGINS[name]} instead" if name in _PLUGINS else ""
            raise CredentialsError(
                f'{self._user_origin}: the auth-provider "{name}" is not supported{instead}'
            )
        if user.exec is not None and not (user.client_certificate or user.client_certificate_data):
            return self._exec_plugin(user.exec)
        return None

    def _exec_plugin(self, plugin: ExecConfig) -> Identity:
        cluster = self._cluster
        extensions = {item.name: item.extension for item in cluster.extensions}
        told = ExecCluster(
            server=cluster.server,
            tls_server_name=cluster.tls_server_name,
            insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
            certificate_authority_data=_read(self._authority()),
            proxy_url=cluster.proxy_url,
            disable_compression=cluster.disable_compression,
            config=extensions.get(kubeconfig.EXEC_EXTENSION),
        )
        return ExecPlugin(
            msgspec.structs.replace(plugin, interactive_mode=_interactive_mode(plugin)),
            cluster=told,
            origin=self._user_origin,
            clock=self._clock,
            environment=self._environment,
        )

    def _authority(self) -> Pem:
        cluster = self._cluster
        file, data = cluster.certificate_authority, cluster.certificate_authority_data
        return self._pem(self._cluster_origin, "certificate-authority", file, data)

    def _pem(self, origin: str, name: str, file: str, data: str) -> Pem:
        if not data:
            return Pem(f"{origin}: {name}", file=file)
        try:
            # Long values are often written over several lines.
            decoded = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise CredentialsError(f"{origin}: {name}-data is not valid base64") from None
        return Pem(f"{origin}: {name}-data", data=decoded)


def _read(pem: Pem) -> bytes:
    try:
        return pem.read() if pem else b""
    except OSError as error:
        raise CredentialsError(f"{pem} cannot be read: {error.strerror}") from error


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else ""
