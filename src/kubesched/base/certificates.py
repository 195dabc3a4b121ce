"""Certificates of an authority made on the spot, and files that only their owner can read.

`cryptography` is imported only to make certificates.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LIFETIME = datetime.timedelta(days=365)
_BACKDATE = datetime.timedelta(hours=1)  # as upstream: clocks differ
_KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    """PEM texts of a certificate, perhaps with its chain, and of its key. Never printed."""

    certificate: bytes
    key: bytes


class Authority:
    """A new certificate authority; its key is not stored anywhere."""

    def __init__(
        self, common_name: str, now: float, lifetime: datetime.timedelta = LIFETIME
    ) -> None:
        from cryptography import x509

        self._now = datetime.datetime.fromtimestamp(now, datetime.UTC)
        self._key, self._name = _new_key(), _subject(common_name)
        public_key = self._key.public_key()
        self.certificate = self._sign(
            self._name,
            self._key,
            lifetime,
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_key_usage("digital_signature", "key_cert_sign", "crl_sign"), True),
            (x509.SubjectKeyIdentifier.from_public_key(public_key), False),
        )
        """PEM."""

    def issue(
        self,
        common_name: str,
        *,
        organization: str = "",
        names: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> Pair:
        """A certificate for a server with these names and addresses, or else for a client."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        key = _new_key()
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        usage = Usage.SERVER_AUTH if alternatives else Usage.CLIENT_AUTH
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage([usage]), False),
            (issuer, False),
        ]
        if alternatives:
            extensions.append((x509.SubjectAlternativeName(alternatives), False))
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        name = _subject(common_name, organization)
        return Pair(self._sign(name, key, LIFETIME, *extensions), private)

    def _sign(
        self,
        name: x509.Name,
        key: EllipticCurvePrivateKey,
        lifetime: datetime.timedelta,
        *extensions: tuple[x509.ExtensionType, bool],
    ) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _BACKDATE)
            .not_valid_after(self._now + lifetime)
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _subject(common_name: str, organization: str = "") -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _key_usage(*uses: str) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(**{usage: usage in uses for usage in _KEY_USAGES})


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file atomically: never readable by others, never incomplete."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)  # to /dev/null, say, and not in its place
        return
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


@contextlib.contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """The path of a file in the block: the ssl module loads keys from files only."""
    # mkstemp creates the file with mode 0600 and does not follow a planted link.
    descriptor, path = tempfile.mkstemp(prefix="kubesched-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)
