"""TLS of the serving port: certificates by name, versions and ciphers, client authorities.

A connection uses the context that is current when its handshake begins, so reloading builds a new
context. Files are checked every few seconds; if they cannot be loaded, the last good pair stays in
use and the error is logged.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubesched.app.flag_types import NamedCertKey
from kubesched.app.flags import RunOptions
from kubesched.app.server.trust import Trust
from kubesched.base.certificates import Pair, private_file
from kubesched.base.errors import CredentialsError
from kubesched.base.logs import get_logger
from kubesched.client.tls_context import signatures

log = get_logger(__name__)

VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
OLD_VERSIONS: Final = ("VersionTLS10", "VersionTLS11")

CURVES: Final = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}
"""Go's numbers to OpenSSL's names."""

_TLS13: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CIPHERS: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
"""Go's names to OpenSSL's. RC4 and 3DES are absent: current OpenSSL versions lack them."""


def check(options: RunOptions) -> None:
    """Raise `CredentialsError` for unsupported values, in upstream's words if it has any."""
    if options.tls_min_version in OLD_VERSIONS:
        raise CredentialsError(
            f"{options.tls_min_version} is not offered: it is not secure any more"
        )
    if options.tls_min_version not in VERSIONS:
        raise CredentialsError(f'unknown tls version "{options.tls_min_version}"')
    for name in options.tls_cipher_suites:
        if name not in CIPHERS and name not in _TLS13:
            raise CredentialsError(f"Cipher suite {name} not supported or doesn't exist")
    for curve in options.tls_curve_preferences:
        if curve not in CURVES:
            raise CredentialsError(
                f"tls-curve-preferences: curve {curve} is not supported (known: {sorted(CURVES)})"
            )


class ServingTls:
    """Provides the TLS context for new connections."""

    def __init__(
        self, options: RunOptions, trust: Callable[[], Trust], self_signed: Pair | None = None
    ) -> None:
        """`self_signed` is used when the flags name no files."""
        check(options)
        self._options = options
        self._trust = trust
        self._self_signed = self_signed
        self._versions: tuple[object, ...] = ()
        self._context = self._build()

    def context(self) -> ssl.SSLContext:
        return self._context

    def refresh(self) -> bool:
        """Load changed files and authorities; True if anything changed."""
        versions = self._read_versions()
        if versions == self._versions:
            return False
        try:
            self._context = self._build()
        except CredentialsError as error:
            # Logged once per change: the files may be in the middle of being replaced.
            log.error("Serving certificate not reloaded; the last one stays in use", error)
            self._versions = versions
            return False
        log.info("Reloaded serving certificate and client authorities")
        return True

    def _read_versions(self) -> tuple[object, ...]:
        options = self._options
        files = [options.tls_cert_file, options.tls_private_key_file]
        for named in options.tls_sni_cert_key:
            files += [named.cert_file, named.key_file]
        trust = self._trust()
        return (*signatures([path for path in files if path]), trust.client_ca, trust.proxy_ca)

    def _build(self) -> ssl.SSLContext:
        versions = self._read_versions()
        options = self._options
        if options.tls_cert_file:
            context = self._new_context(options.tls_cert_file, options.tls_private_key_file)
        else:
            assert self._self_signed is not None, "no certificate was given and none was made"
            with private_file(self._self_signed.certificate + self._self_signed.key) as path:
                context = self._new_context(path, path)
        if options.tls_sni_cert_key:
            named = [
                (_names_of(files), self._new_context(files.cert_file, files.key_file))
                for files in options.tls_sni_cert_key
            ]
            context.sni_callback = _chooser(named)
        self._versions = versions
        return context

    def _new_context(self, cert_file: str, key_file: str) -> ssl.SSLContext:
        options, trust = self._options, self._trust()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = VERSIONS[options.tls_min_version]
        context.set_alpn_protocols(["http/1.1"])
        older = [CIPHERS[name] for name in options.tls_cipher_suites if name in CIPHERS]
        if older:
            context.set_ciphers(":".join(older))
        for curve in options.tls_curve_preferences[:1]:
            context.set_ecdh_curve(CURVES[curve])
        try:
            context.load_cert_chain(cert_file, key_file)
        except (OSError, ssl.SSLError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise CredentialsError(
                f"serving certificate {cert_file} with key {key_file} cannot be used: "
                f"{reason or error}"
            ) from error
        authorities = f"{trust.client_ca}\n{trust.proxy_ca}".strip()
        if authorities:
            try:
                context.load_verify_locations(cadata=authorities)
            except (ssl.SSLError, ValueError) as error:
                raise CredentialsError(f"client authorities cannot be used: {error}") from error
            context.verify_mode = ssl.CERT_OPTIONAL
            # As Go does: every certificate in the bundle is trusted, even if it is not a root.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context


def _names_of(files: NamedCertKey) -> tuple[tuple[str, bool], ...]:
    """Host patterns, and whether a flag gave them; those override names in the certificate."""
    if files.names:
        return tuple((name, True) for name in files.names)
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(Path(files.cert_file).read_bytes())
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise CredentialsError(
            f"certificate {files.cert_file} names no hosts and none were given: {error}"
        ) from error
    return tuple((name, False) for name in alternatives.value.get_values_for_type(x509.DNSName))


Named = Sequence[tuple[tuple[tuple[str, bool], ...], ssl.SSLContext]]


def _chooser(named: Named) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], int | None]:
    """Exact names before patterns, then flag names before certificate names, then first to last."""

    def choose(connection: ssl.SSLObject, host: str | None, _default: ssl.SSLContext) -> None:
        best: tuple[tuple[bool, bool], ssl.SSLContext] | None = None
        for patterns, context in named:
            for pattern, written in patterns:
                if host is None or not _matches(pattern, host):
                    continue
                rank = ("*" not in pattern, written)
                if best is None or rank > best[0]:
                    best = rank, context
        if best is not None:
            connection.context = best[1]

    return choose


def _matches(pattern: str, host: str) -> bool:
    """A star matches (part of) one label, as in certificates."""
    expression = re.escape(pattern.lower()).replace(r"\*", "[^.]*")
    return re.fullmatch(expression, host.lower()) is not None
