"""The cluster's CA, and the certificates of the server and the administrator.

They are made when the cluster is created. A data directory keeps them, so that a kubeconfig
survives a restart. `cryptography` is imported only to make certificates.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

_CA_LIFETIME = datetime.timedelta(days=3650)
_LEAF_LIFETIME = datetime.timedelta(days=365)
_BACKDATE = datetime.timedelta(minutes=5)  # clocks of client and server may differ a little

_KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)

SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, repr=False)
class Certificates:
    """Certificates and keys as PEM; keys are excluded from `repr`."""

    ca_certificate: bytes
    server_certificate: bytes
    server_key: bytes
    client_certificate: bytes
    client_key: bytes

    def server_context(self) -> ssl.SSLContext:
        """Server-side TLS context; a client may present a certificate of our CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.ca_certificate.decode())
        context.set_alpn_protocols(["http/1.1"])
        # The ssl module loads keys only from files: use a private file, deleted before returning.
        with tempfile.TemporaryDirectory(prefix="kubesched-") as folder:
            path = Path(folder) / "server.pem"
            write_private(path, self.server_certificate + self.server_key)
            context.load_cert_chain(path)
        return context


_FILES = {
    "ca_certificate": "ca.crt",
    "server_certificate": "server.crt",
    "server_key": "server.key",
    "client_certificate": "admin.crt",
    "client_key": "admin.key",
}


def load_or_make(folder: Path | None, now: float, address: str = "127.0.0.1") -> Certificates:
    """The certificates stored in `folder`, or new ones for `address`, stored there if given."""
    if folder is not None and all((folder / name).exists() for name in _FILES.values()):
        kept = Certificates(
            **{field: (folder / name).read_bytes() for field, name in _FILES.items()}
        )
        if _expires_after(kept.server_certificate, now + 86400) and _covers(
            kept.server_certificate, address
        ):
            return kept
    made = make(now, address)
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for field, name in _FILES.items():
            write_private(folder / name, getattr(made, field))
    return made


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is readable only by its owner from the moment it is created."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def _expires_after(certificate: bytes, moment: float) -> bool:
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp() > moment


def _covers(certificate: bytes, address: str) -> bool:
    """Whether the certificate is valid for clients that connect to this address."""
    from cryptography import x509

    wanted = ipaddress.ip_address(address)
    if wanted.is_unspecified:
        return True
    extensions = x509.load_pem_x509_certificate(certificate).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return wanted in names.get_values_for_type(x509.IPAddress)


def make(now: float, address: str = "127.0.0.1") -> Certificates:
    """A new CA, with one certificate for the server and one for the administrator."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    start = datetime.datetime.fromtimestamp(now, datetime.UTC) - _BACKDATE

    def subject(common_name: str, organization: str = "") -> x509.Name:
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        return x509.Name(parts)

    def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = subject("kubesched-ca")

    def signed(
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        lifetime: datetime.timedelta,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + lifetime)
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        certificate = builder.sign(ca_key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    usage = dict.fromkeys(_KEY_USAGES, False)
    usage |= {"digital_signature": True, "key_cert_sign": True, "crl_sign": True}
    ca_extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.KeyUsage(**usage), True),
        (x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False),
    ]

    def leaf(
        name: x509.Name, usage: x509.ObjectIdentifier, alternatives: list[x509.GeneralName]
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage([usage]), False),
            (issuer, False),
        ]
        if alternatives:
            extensions.append((x509.SubjectAlternativeName(alternatives), False))
        return signed(name, key, _LEAF_LIFETIME, extensions), pem(key)

    addresses = [*SERVER_ADDRESSES]
    if address not in addresses and not ipaddress.ip_address(address).is_unspecified:
        addresses.append(address)
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    server_certificate, server_key = leaf(
        subject("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, names
    )
    client_certificate, client_key = leaf(
        subject("kubernetes-admin", "system:masters"), ExtendedKeyUsageOID.CLIENT_AUTH, []
    )
    return Certificates(
        ca_certificate=signed(ca_name, ca_key, _CA_LIFETIME, ca_extensions),
        server_certificate=server_certificate,
        server_key=server_key,
        client_certificate=client_certificate,
        client_key=client_key,
    )
