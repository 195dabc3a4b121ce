"""Finds the API server from inside a pod, by environment variables and service account files.

Reads what kubelet provides; `credentials` handles rotation of the token and the authority.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kubesched.base.clock import Clock
from kubesched.base.errors import CredentialsError
from kubesched.base.logs import get_logger
from kubesched.client.credentials import ClientCredentials, TokenFile
from kubesched.client.tls_context import Pem, RotatingTls, TlsSettings
from kubesched.client.transport import ConnectionConfig

log = get_logger(__name__)

SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
HOST_VARIABLE = "KUBERNETES_SERVICE_HOST"
PORT_VARIABLE = "KUBERNETES_SERVICE_PORT"
ORIGIN = "in-cluster configuration"


def is_possible(
    environment: Mapping[str, str], *, directory: str = SERVICE_ACCOUNT_DIRECTORY
) -> bool:
    """Whether this looks like a pod with a service account."""
    return (
        bool(environment.get(HOST_VARIABLE))
        and bool(environment.get(PORT_VARIABLE))
        and os.path.isfile(os.path.join(directory, "token"))
    )


def load_connection(
    environment: Mapping[str, str], *, clock: Clock, directory: str = SERVICE_ACCOUNT_DIRECTORY
) -> ConnectionConfig:
    """Connection to the API server of the cluster we run in; else raises `CredentialsError`."""
    host, port = environment.get(HOST_VARIABLE, ""), environment.get(PORT_VARIABLE, "")
    if not host or not port:
        raise CredentialsError(f"{ORIGIN}: {HOST_VARIABLE} and {PORT_VARIABLE} must be defined")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise CredentialsError(f'{ORIGIN}: {PORT_VARIABLE} is not a port number: "{port}"')
    token = TokenFile(os.path.join(directory, "token"), origin=ORIGIN, clock=clock)
    tls = _load_tls(os.path.join(directory, "ca.crt"))
    return ConnectionConfig(
        host=host.strip("[]"),
        port=int(port),
        credentials=ClientCredentials(clock=clock, tls=tls, identity=token),
    )


def load_namespace(
    environment: Mapping[str, str], *, directory: str = SERVICE_ACCOUNT_DIRECTORY
) -> str:
    """The namespace of this pod, `default` if unknown."""
    if namespace := environment.get("POD_NAMESPACE", ""):
        return namespace
    try:
        with open(os.path.join(directory, "namespace"), encoding="utf-8") as file:
            return file.read().strip() or "default"
    except (OSError, UnicodeDecodeError):
        return "default"


def _load_tls(authority_path: str) -> RotatingTls:
    authority = Pem(f"{ORIGIN}: certificate authority", file=authority_path)
    try:
        return RotatingTls(TlsSettings(ca=authority))
    except CredentialsError as error:
        # Upstream: a missing or broken authority is reported, and the system's roots are tried
        # instead.
        log.error("The system's certificate authorities are used instead", error)
        return RotatingTls(TlsSettings())
