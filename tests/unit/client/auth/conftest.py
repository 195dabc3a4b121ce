"""Real certificates, kubeconfig files and executable plugins for the credential tests."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubesched.base.clock import ManualClock


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority that issues for loopback."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, password: bytes = b"") -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [
            x509.DNSName("localhost"),
            x509.DNSName(name),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        certificate = (
            self._builder(subject, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            protection = serialization.BestAvailableEncryption(password)
        return Issued(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
            ),
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey):
        start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=36500))
        )


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("test authority")


@pytest.fixture(scope="session")
def other_authority() -> Authority:
    return Authority("another authority")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server_context(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    """A TLS server for localhost that asks for client certificates but takes anybody."""
    issued = authority.issue("server.test")
    pem = tmp_path / "server.pem"
    pem.write_bytes(issued.certificate + issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture
def write_config(tmp_path: Path):
    """Write a kubeconfig with one cluster, user and context, each named after `name`; returns its
    path.
    """

    def write(name: str = "a", *, cluster=None, user=None, context=None, folder=None, **top) -> str:
        folder = Path(folder or tmp_path)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": name, "cluster": cluster or {"server": f"https://{name}.test:6443"}}
            ],
            "users": [{"name": name, "user": user or {}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, **(context or {})}}
            ],
            "current-context": name,
            **top,
        }
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


@pytest.fixture
def write_plugin(tmp_path: Path):
    """Write an executable shell script; returns its path."""

    def write(script: str, name: str = "plugin") -> str:
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


@pytest.fixture
def exec_credential():
    """The ExecCredential a plugin prints."""

    def build(version: str = "v1", **status) -> str:
        return json.dumps(
            {
                "apiVersion": f"client.authentication.k8s.io/{version}",
                "kind": "ExecCredential",
                "status": status,
            }
        )

    return build


@pytest.fixture
def rewrite():
    """Replace a file's content the way rotation does: with a newer modification time."""

    def replace(path: str | os.PathLike[str], content: str | bytes) -> None:
        path = Path(path)
        before = path.stat().st_mtime_ns
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        os.utime(path, ns=(before + 10**9, before + 10**9))

    return replace


@pytest.fixture
def told(caplog):
    """Everything that was logged so far: messages and their values."""

    def text() -> str:
        return "\n".join(
            f"{record.getMessage()} {getattr(record, 'values', '')}" for record in caplog.records
        )

    return text
