"""`kubesched up`: what it accepts, what it refuses and how it says so."""

from __future__ import annotations

import ssl

import pytest
import yaml

from kubesched.app.cli import main as cli
from kubesched.app.cli import up
from kubesched.base.errors import KubeschedError
from kubesched.playground import pki
from kubesched.playground.cluster import ClusterSettings, EmbeddedCluster, held


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["--nodes=abc"],
            "argument --nodes: 'abc' is not a whole number from 0 to 100000",
            id="no number",
        ),
        pytest.param(
            ["--reload=.", "--no-scheduler"],
            "argument --reload: not with --no-scheduler or --once",
            id="nothing to reload",
        ),
        pytest.param(
            ["--nodes=-1"],
            "argument --nodes: '-1' is not a whole number from 0 to 100000",
            id="negative",
        ),
        pytest.param(
            ["--port=70000"],
            "argument --port: '70000' is not a whole number from 0 to 65535",
            id="no port",
        ),
        pytest.param(
            ["--address=here"], "argument --address: 'here' is not an IP address", id="no address"
        ),
        pytest.param(
            ["--name=A b"],
            "argument --name: 'A b' is not a name: lower case letters, digits and '-', 63 "
            "characters at most",
            id="no name",
        ),
        pytest.param(
            ["-v=x"],
            "argument -v: 'x' is not a whole number from 0 to 2147483647",
            id="no verbosity",
        ),
        pytest.param(
            ["--record-limit=lots"],
            "argument --record-limit: quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="no quantity",
        ),
        pytest.param(
            ["--record-limit=64"],
            "argument --record-limit: must be at least 1048576 bytes",
            id="small record limit",
        ),
        pytest.param(
            ["--once"], "argument --once: only with --demo", id="once without a demonstration"
        ),
        pytest.param(
            ["--kubernetes-version", "1.36", "--reference-version", "1.37"],
            "argument --reference-version: newer than --kubernetes-version",
            id="a scheduler newer than its cluster",
        ),
    ],
)
def test_wrong_options_are_named(words, message, capsys):
    assert cli.main(["up", *words]) == 2
    assert capsys.readouterr().err == f"error: {message}\nsee 'kubesched up --help'\n"


def settings(monkeypatch, tmp_path, *words):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return up._settings(cli.parser_of(["up"]).parse_args(["up", *words]))


def test_a_name_is_that_of_context_and_kubeconfig(monkeypatch, tmp_path):
    plain = settings(monkeypatch, tmp_path)
    assert (plain.name, plain.kubeconfig) == ("kubesched", tmp_path / "kubesched" / "kubeconfig")
    named = settings(monkeypatch, tmp_path, "--name=blue")
    assert named.name == "kubesched-blue"
    assert named.kubeconfig == tmp_path / "kubesched" / "blue.kubeconfig"


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ([], 32 << 20),
        (["--record=r"], 1 << 30),
        (["--record-limit=64Mi"], 64 << 20),
        (["--record=r", "--record-limit=2G"], 2_000_000_000),
    ],
)
def test_the_limit_of_a_recording_is_a_quantity(monkeypatch, tmp_path, words, limit):
    assert settings(monkeypatch, tmp_path, *words).record_limit == limit


def test_a_relative_kubeconfig_is_told_by_its_whole_path(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert settings(monkeypatch, tmp_path, "--kubeconfig=k").kubeconfig == tmp_path / "k"


def test_two_clusters_cannot_share_a_kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    with (
        held(path),
        pytest.raises(KubeschedError, match="belongs to a cluster that is running"),
        held(path),
    ):
        pass
    with held(path):
        pass


async def test_the_kubeconfig_names_the_cluster(tmp_path):
    path = tmp_path / "kubeconfig"
    async with EmbeddedCluster(ClusterSettings(name="kubesched-blue", kubeconfig=path)):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert config["current-context"] == "kubesched-blue"
    assert config["contexts"] == [
        {
            "name": "kubesched-blue",
            "context": {"cluster": "kubesched-blue", "user": "kubesched-blue-admin"},
        }
    ]
    assert [user["name"] for user in config["users"]] == ["kubesched-blue-admin"]


def addresses(certificate, tmp_path):
    path = tmp_path / "server.pem"
    path.write_bytes(certificate)
    decoded = ssl._ssl._test_decode_cert(str(path))
    return [value for kind, value in decoded["subjectAltName"] if kind == "IP Address"]


def test_certificates_are_good_for_the_address(tmp_path):
    first = pki.load_or_make(tmp_path / "pki", 1_767_225_600.0)
    again = pki.load_or_make(tmp_path / "pki", 1_767_225_600.0, "0.0.0.0")
    assert again == first, "all addresses: clients connect to loopback"
    other = pki.load_or_make(tmp_path / "pki", 1_767_225_600.0, "192.0.2.7")
    assert "192.0.2.7" in addresses(other.server_certificate, tmp_path)
    assert pki.load_or_make(tmp_path / "pki", 1_767_225_600.0, "192.0.2.7") == other


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]")],
)
async def test_the_url_can_be_reached(address, host):
    try:
        async with EmbeddedCluster(ClusterSettings(address=address)) as cluster:
            assert cluster.url == f"https://{host}:{cluster.port}"
    except KubeschedError as error:
        if ":" not in address:
            raise
        pytest.skip(f"no IPv6 here: {error}")
