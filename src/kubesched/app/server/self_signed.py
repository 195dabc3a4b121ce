"""A serving certificate when none is configured, signed by an authority made for it.

Sufficient for probes and for scrapers that skip verification. `cryptography` is imported only when
one is made.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import KeyUsage

LIFETIME = datetime.timedelta(days=365)
BACKDATE = datetime.timedelta(hours=1)  # as upstream: clocks differ
PAIR_NAME = "kube-scheduler"
HOST = "localhost"
ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    """PEM texts: the certificate with its chain, and its key. Never printed."""

    certificate: bytes
    key: bytes


def load_or_make(folder: str, now: float) -> Pair:
    """The pair stored in `folder`, or a new one, stored there if a folder is given."""
    if not folder:
        return make(now)
    certificate, key = Path(folder) / f"{PAIR_NAME}.crt", Path(folder) / f"{PAIR_NAME}.key"
    if certificate.exists() and key.exists():
        return Pair(certificate.read_bytes(), key.read_bytes())
    made = make(now)
    Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    _write(certificate, made.certificate, 0o644)
    _write(key, made.key, 0o600)
    return made


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a private file atomically: never readable by others, never incomplete."""
    temporary = path.with_name(f"{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def make(now: float) -> Pair:
    """A new authority, and its certificate for the loopback names of this machine."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    start = datetime.datetime.fromtimestamp(now, datetime.UTC)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{text}@{int(now)}")])

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start - BACKDATE)
            .not_valid_after(start + LIFETIME)
        )

    issuer = name(f"{HOST}-ca")
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = (
        builder(issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName(HOST), x509.IPAddress(ipaddress.ip_address(ADDRESS))]
    certificate = (
        builder(name(HOST), key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Pair(
        certificate.public_bytes(pem) + authority.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _key_usage(*, signs_certificates: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
