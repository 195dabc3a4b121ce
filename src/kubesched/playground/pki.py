"""The cluster's CA, and the certificates of the server and the administrator.

They are made when the cluster is created. A data directory keeps them, so that a kubeconfig
survives a restart. `cryptography` is imported only to make or check certificates.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from kubesched.base.certificates import Authority, private_file, write_private

_CA_LIFETIME = datetime.timedelta(days=3650)

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
        with private_file(self.server_certificate + self.server_key) as path:
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
    addresses = [*SERVER_ADDRESSES]
    if address not in addresses and not ipaddress.ip_address(address).is_unspecified:
        addresses.append(address)
    authority = Authority("kubesched-ca", now, _CA_LIFETIME)
    server = authority.issue("kube-apiserver", names=SERVER_NAMES, addresses=addresses)
    client = authority.issue("kubernetes-admin", organization="system:masters")
    return Certificates(
        ca_certificate=authority.certificate,
        server_certificate=server.certificate,
        server_key=server.key,
        client_certificate=client.certificate,
        client_key=client.key,
    )


def kubeconfig(
    name: str, url: str, authority: bytes, user: str, credentials: dict[str, str]
) -> bytes:
    """A kubeconfig with one context, which has the cluster's name."""
    import yaml

    data = base64.b64encode(authority).decode()
    cluster = {"server": url, "certificate-authority-data": data}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return yaml.safe_dump(config, sort_keys=False).encode()
