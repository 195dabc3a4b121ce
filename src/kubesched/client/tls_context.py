"""TLS contexts for connections to the API server, rebuilt when their files change.

Turns a certificate authority, a client certificate and its key (each a file or inline PEM) into an
`ssl.SSLContext`, and notices replaced files. `credentials` decides when to look; the settings come
from `kubeconfig`, `in_cluster` or `exec_plugin`.

Invariants:

* Only `insecure`, which the caller sets explicitly, disables verification.
* An inline private key touches the disk only as a file with mode 0600 that is removed before
  loading returns. OpenSSL's API in Python takes paths only.
* A failed reload changes nothing: half-written or mismatched files are retried at the next look.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kubesched.base.certificates import private_file
from kubesched.base.errors import CredentialsError

FileSignature = tuple[int, int, int]
"""Inode, size and mtime in nanoseconds: differs whenever a file was replaced or rewritten."""


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM text from a file or given inline; `name` is its origin in messages."""

    name: str
    file: str = ""
    data: bytes = field(default=b"", repr=False)

    def __bool__(self) -> bool:
        return bool(self.file or self.data)

    def __str__(self) -> str:
        return f"{self.name} {self.file}" if self.file else self.name

    def read(self) -> bytes:
        if self.data:
            return self.data
        with open(self.file, "rb") as file:
            return file.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Inputs of a context. Without `ca`, the system's roots are trusted."""

    ca: Pem = Pem("certificate-authority")
    certificate: Pem = Pem("client-certificate")
    key: Pem = Pem("client-key")
    insecure: bool = False

    def __str__(self) -> str:
        return ", ".join(self.files()) or "inline certificates"

    def files(self) -> tuple[str, ...]:
        return tuple(pem.file for pem in (self.ca, self.certificate, self.key) if pem.file)


def build_context(settings: TlsSettings) -> ssl.SSLContext:
    """A client context; blocks on files. Raises `CredentialsError` naming the field at fault."""
    if settings.ca and settings.insecure:
        raise CredentialsError(
            f"{settings.ca} and insecure-skip-tls-verify contradict each other; remove one"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Go, and so every other Kubernetes client, trusts any certificate listed as authority even if
    # it is not self-signed, and never reads the host from the common name. Clusters rely on that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.ca:
        _load_authorities(context, settings)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.certificate:
        _load_client_certificate(context, settings)
    return context


class RotatingTls:
    """A context and the state of its files. Methods block: call them off the loop."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self._signatures = signatures(settings.files())
        self.context = build_context(settings)

    def look(self) -> RotatingTls | None:
        """The successor of this object if its files changed; `CredentialsError` if unusable."""
        is_same = signatures(self.settings.files()) == self._signatures
        return None if is_same else RotatingTls(self.settings)

    def with_client_certificate(self, certificate: bytes, key: bytes) -> RotatingTls:
        """The same authority with another client certificate, given inline."""
        changed = TlsSettings(
            ca=self.settings.ca,
            certificate=Pem("exec plugin: clientCertificateData", data=certificate),
            key=Pem("exec plugin: clientKeyData", data=key),
            insecure=self.settings.insecure,
        )
        return RotatingTls(changed)


def signature(path: str) -> FileSignature:
    """`stat` of the file behind `path`, following links as kubelet's projected volumes require."""
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


def signatures(paths: Sequence[str]) -> tuple[FileSignature | None, ...]:
    """The signature of every file; None for one that cannot be read, which reading will explain."""
    found: list[FileSignature | None] = []
    for path in paths:
        try:
            found.append(signature(path))
        except OSError:
            found.append(None)
    return tuple(found)


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> None:
    try:
        pem = settings.ca.read()
        if not pem.strip():
            raise CredentialsError(f"{settings.ca} is empty")
        # Bundles may contain comments in any encoding; only the base64 between the markers matters.
        context.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except OSError as error:  # ssl.SSLError is one
        raise CredentialsError(
            f"{settings.ca} cannot be used: {_cause(error, 'no valid certificate in it')}"
        ) from error


def _load_client_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    what = f"{settings.certificate} with its key"
    try:
        with _paths(settings) as (certificate, key):
            context.load_cert_chain(certificate, key, password=lambda: _refuse_password(settings))
    except OSError as error:
        reason = "not a certificate and the private key that belongs to it, in PEM form"
        raise CredentialsError(f"{what} cannot be used: {_cause(error, reason)}") from error


@contextlib.contextmanager
def _paths(settings: TlsSettings) -> Iterator[tuple[str, str | None]]:
    if settings.certificate.file and settings.key.file:
        yield settings.certificate.file, settings.key.file
        return
    joined = settings.certificate.read().rstrip() + b"\n" + settings.key.read()
    with private_file(joined) as path:
        yield path, None


def _refuse_password(settings: TlsSettings) -> str:
    # Without this OpenSSL would prompt on the terminal.
    raise CredentialsError(f"{settings.key} is encrypted; only unencrypted keys can be used")


def _cause(error: OSError, tls_reason: str) -> str:
    if not isinstance(error, ssl.SSLError):
        return error.strerror or type(error).__name__
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return tls_reason
