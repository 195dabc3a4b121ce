"""TLS of the server: self-signed certificates, reloading, names, versions, ciphers, client
certificates.
"""

import contextlib
import os
import socket
import ssl
import stat
import time

import pytest

from kubesched.app.flag_types import NamedCertKey
from kubesched.app.flags import RunOptions
from kubesched.app.server import self_signed
from kubesched.app.server.tls import ServingTls, check
from kubesched.app.server.trust import Trust
from kubesched.base.certificates import Pair
from kubesched.base.errors import CredentialsError


def handshake(server, client, name="localhost"):
    """Both ends in memory; returns them once they agree."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        done = True
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                done = False
        if done:
            break
    assert done, "the handshake does not end"
    with contextlib.suppress(ssl.SSLWantReadError):
        near.read(1)  # session tickets, and the server's opinion of our certificate
    return near, far


def write(folder, name, pair):
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    cert.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return str(cert), str(key)


def tls(settings=None, trust=None, pair=None):
    return ServingTls(settings or RunOptions(), lambda: trust or Trust(), pair)


def common_name(near):
    from cryptography import x509

    found = x509.load_der_x509_certificate(near.getpeercert(True))
    return found.subject.rfc4514_string()


def test_a_self_signed_certificate_serves_localhost(serving_pair, make_client):
    near, _ = handshake(tls(pair=serving_pair).context(), make_client())
    assert common_name(near).startswith("CN=localhost@")


def test_a_self_signed_certificate_is_valid_for_its_names(serving_pair, tmp_path):
    chain = serving_pair.certificate.decode()
    authority = chain[chain.index("-----BEGIN", 10) :]
    client = ssl.create_default_context(cadata=authority)
    for name in ("localhost", "127.0.0.1"):
        handshake(tls(pair=serving_pair).context(), client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls(pair=serving_pair).context(), client, "example.com")


def test_with_a_directory_the_pair_is_kept_and_its_key_is_private(tmp_path):
    first = self_signed.load_or_make(str(tmp_path / "certs"), time.time())
    again = self_signed.load_or_make(str(tmp_path / "certs"), time.time())
    assert (first.certificate, first.key) == (again.certificate, again.key)
    mode = os.stat(tmp_path / "certs" / "kube-scheduler.key").st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_without_a_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    self_signed.load_or_make("", time.time())
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_not_printed(serving_pair):
    assert "PRIVATE" not in repr(serving_pair)


def test_changed_files_are_taken_up(tmp_path, serving_pair, make_client):
    cert, key = write(tmp_path, "a", serving_pair)
    serving = tls(RunOptions(tls_cert_file=cert, tls_private_key_file=key))
    before = common_name(handshake(serving.context(), make_client())[0])
    assert not serving.refresh()
    write(tmp_path, "a", self_signed.make(time.time() + 1000))
    assert serving.refresh()
    after = common_name(handshake(serving.context(), make_client())[0])
    assert before != after


def test_files_that_do_not_fit_together_leave_the_last_pair_in_use(
    tmp_path, serving_pair, make_client
):
    cert, key = write(tmp_path, "a", serving_pair)
    serving = tls(RunOptions(tls_cert_file=cert, tls_private_key_file=key))
    other = self_signed.make(time.time())
    write(tmp_path, "a", Pair(other.certificate, serving_pair.key))
    assert not serving.refresh()
    handshake(serving.context(), make_client())
    write(tmp_path, "a", other)
    assert serving.refresh()


def test_a_missing_certificate_ends_the_start(tmp_path):
    with pytest.raises(CredentialsError, match="cannot be used: No such file"):
        tls(RunOptions(tls_cert_file=str(tmp_path / "x"), tls_private_key_file=str(tmp_path / "y")))


def test_names_get_certificates_of_their_own(tmp_path, serving_pair, make_client):
    exact = write(tmp_path, "exact", self_signed.make(1_700_000_001))
    wild = write(tmp_path, "wild", self_signed.make(1_700_000_002))
    settings = RunOptions(
        tls_sni_cert_key=(
            NamedCertKey(*wild, ("*.example.com",)),
            NamedCertKey(*exact, ("a.example.com",)),
        )
    )
    context = tls(settings, pair=serving_pair).context()
    client = make_client()
    names = {
        host: common_name(handshake(context, client, host)[0])
        for host in ("a.example.com", "b.example.com", "x.b.example.com", "other.org")
    }
    assert names["a.example.com"] == "CN=localhost@1700000001"
    assert names["b.example.com"] == "CN=localhost@1700000002"
    assert names["x.b.example.com"] == names["other.org"]
    assert names["other.org"] not in ("CN=localhost@1700000001", "CN=localhost@1700000002")


def test_names_may_be_read_from_the_certificate(tmp_path, serving_pair, make_client):
    own = write(tmp_path, "own", self_signed.make(1_700_000_003))
    context = tls(RunOptions(tls_sni_cert_key=(NamedCertKey(*own),)), pair=serving_pair).context()
    near, _ = handshake(context, make_client(), "localhost")
    assert common_name(near) == "CN=localhost@1700000003"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tls_min_version": "foo"}, 'unknown tls version "foo"'),
        ({"tls_min_version": "VersionTLS10"}, "VersionTLS10 is not offered"),
        ({"tls_cipher_suites": ("FOO",)}, "Cipher suite FOO not supported or doesn't exist"),
        ({"tls_curve_preferences": (1,)}, "curve 1 is not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused(settings, message):
    with pytest.raises(CredentialsError, match=message):
        check(RunOptions(**settings))


def test_the_minimum_version_is_kept(serving_pair, make_client):
    client = make_client()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    near, _ = handshake(tls(pair=serving_pair).context(), client)
    assert near.version() == "TLSv1.2"
    strict = tls(RunOptions(tls_min_version="VersionTLS13"), pair=serving_pair)
    with pytest.raises(ssl.SSLError):
        handshake(strict.context(), client)


def test_ciphers_below_tls13_are_those_asked_for(serving_pair, make_client):
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    context = tls(RunOptions(tls_cipher_suites=(suite,)), pair=serving_pair).context()
    client = make_client()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    near, _ = handshake(context, client)
    assert near.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_a_client_of_a_trusted_authority_is_known(serving_pair, certificates, make_client):
    trust = Trust(client_ca=certificates.ca_certificate.decode())
    context = tls(trust=trust, pair=serving_pair).context()
    _, far = handshake(context, make_client(certificates))
    assert ("commonName", "kubernetes-admin") in [part[0] for part in far.getpeercert()["subject"]]


def test_a_client_without_a_certificate_is_served_too(serving_pair, certificates, make_client):
    trust = Trust(client_ca=certificates.ca_certificate.decode())
    _, far = handshake(tls(trust=trust, pair=serving_pair).context(), make_client())
    assert not far.getpeercert()


def test_a_client_of_a_foreign_authority_is_turned_away(
    serving_pair, certificates, other_certificates, make_client
):
    trust = Trust(client_ca=certificates.ca_certificate.decode())
    context = tls(trust=trust, pair=serving_pair).context()
    with pytest.raises(ssl.SSLError):
        handshake(context, make_client(other_certificates))


def test_new_authorities_are_taken_up(serving_pair, certificates, other_certificates, make_client):
    trust = [Trust(client_ca=certificates.ca_certificate.decode())]
    serving = ServingTls(RunOptions(), lambda: trust[0], serving_pair)
    trust[0] = Trust(client_ca=other_certificates.ca_certificate.decode())
    assert serving.refresh()
    handshake(serving.context(), make_client(other_certificates))


def test_only_http_1_1_is_offered(serving_pair, make_client):
    client = make_client()
    client.set_alpn_protocols(["h2", "http/1.1"])
    near, _ = handshake(tls(pair=serving_pair).context(), client)
    assert near.selected_alpn_protocol() == "http/1.1"


def test_all_interfaces_and_families_are_served():
    from kubesched.base.http_server.sockets import open_socket

    with open_socket("0.0.0.0", 0) as sock:
        port = sock.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_a_port_in_use_is_named():
    from kubesched.base.http_server.sockets import open_socket

    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"failed to listen on 127.0.0.1:{port}"):
            open_socket("127.0.0.1", port)
