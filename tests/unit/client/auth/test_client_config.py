"""Which connection comes out of flags, environment and files, and what is said when none can.

Covers both sets of rules, the choice of the context, every contradiction and every removed or
unsupported way to log in. What the credentials do afterwards is proved in `test_credentials` and
its neighbours.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import CredentialsError
from kubesched.client.client_config import (
    ClientConfig,
    default_paths,
    load_config,
    load_default_config,
)

SECRET = "hunter2-secret-value"


@pytest.fixture
def pod(tmp_path: Path, authority):
    """The files and variables that kubelet gives to a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "namespace").write_text("kube-system")
    return {
        "environment": {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
        "service_account": str(folder),
    }


@pytest.fixture
def nowhere(tmp_path: Path):
    """Neither a pod nor a home with a configuration."""
    return {
        "environment": {"HOME": str(tmp_path / "home")},
        "service_account": str(tmp_path / "none"),
    }


async def authorization(config: ClientConfig):
    return (await config.connection.credentials.headers()).get("Authorization")


# kube-scheduler's rules


async def test_explicit_file_is_used_even_inside_a_pod(write_config, pod):
    path = write_config("a", user={"token": "abc"}, context={"namespace": "ns"})
    config = load_config(path, **pod)
    assert (config.connection.scheme, config.connection.host, config.connection.port) == (
        "https",
        "a.test",
        6443,
    )
    assert config.namespace == "ns"
    assert await authorization(config) == "Bearer abc"


def test_master_replaces_the_address_and_with_it_the_server_name(write_config, nowhere):
    path = write_config(
        "a",
        cluster={
            "server": "https://a.test",
            "tls-server-name": "inner",
            "disable-compression": True,
        },
    )
    config = load_config(path, "https://other.test:1234/prefix/", **nowhere)
    connection = config.connection
    assert (connection.host, connection.port, connection.path_prefix) == (
        "other.test",
        1234,
        "/prefix",
    )
    assert connection.server_name == ""
    assert connection.disable_compression


async def test_master_alone_is_anonymous(nowhere):
    config = load_config("", "http://127.0.0.1:8080", **nowhere)
    assert (config.connection.scheme, config.connection.port) == ("http", 8080)
    assert config.connection.credentials.ssl_context() is None
    assert await config.connection.credentials.headers() == {}


async def test_without_flags_the_pod_counts_and_home_does_not(write_config, pod, tmp_path):
    path = write_config("a", folder=tmp_path / ".kube")
    pod["environment"] |= {"KUBECONFIG": path, "HOME": str(tmp_path)}
    config = load_config(**pod)
    assert config.connection.host == "10.0.0.1"
    assert config.namespace == "kube-system"
    assert await authorization(config) == "Bearer pod-token"


def test_outside_of_a_pod_the_flags_are_asked_for(nowhere):
    with pytest.raises(CredentialsError, match="no configuration has been provided") as caught:
        load_config(**nowhere)
    assert "--kubeconfig" in str(caught.value)
    assert "KUBERNETES_SERVICE_HOST" in str(caught.value)


def test_missing_explicit_file_is_an_error(nowhere, tmp_path):
    with pytest.raises(CredentialsError, match=r"kubeconfig .*/absent: no such file"):
        load_config(str(tmp_path / "absent"), **nowhere)


# kubectl's rules


def test_kubeconfig_variable_lists_files_in_order(write_config, nowhere):
    nowhere["environment"]["KUBECONFIG"] = f"{write_config('a')}:{write_config('b')}"
    assert load_default_config(**nowhere).connection.host == "a.test"
    assert load_default_config(context="b", **nowhere).connection.host == "b.test"


def test_home_is_looked_at_without_the_variable(write_config, nowhere, tmp_path):
    path = write_config("a", folder=tmp_path / "home" / ".kube")
    Path(path).rename(tmp_path / "home" / ".kube" / "config")
    assert default_paths(nowhere["environment"]) == [str(tmp_path / "home/.kube/config")]
    assert load_default_config(**nowhere).connection.host == "a.test"


def test_a_pod_without_files_uses_its_service_account(pod, tmp_path):
    pod["environment"]["HOME"] = str(tmp_path)
    assert load_default_config(**pod).connection.host == "10.0.0.1"


def test_files_come_before_the_service_account(write_config, pod):
    pod["environment"]["KUBECONFIG"] = write_config("a")
    assert load_default_config(**pod).connection.host == "a.test"


def test_master_variable_is_the_last_resort(nowhere):
    nowhere["environment"]["KUBERNETES_MASTER"] = "http://master.test:8080"
    assert load_default_config(**nowhere).connection.host == "master.test"


def test_nothing_found_says_where_was_looked(nowhere):
    with pytest.raises(CredentialsError, match=r"no cluster is described in .*/home/\.kube/config"):
        load_default_config(**nowhere)


# Choosing a context


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            {"current-context": "gone"},
            'context "gone": context was not found for specified context: gone',
            id="current-context names nothing",
        ),
        pytest.param(
            {"current-context": ""}, "no current-context is set (contexts: a)", id="none is current"
        ),
        pytest.param(
            {"contexts": [{"name": "a", "context": {"cluster": "b", "user": "a"}}]},
            'context "a": cluster: there is no cluster "b"',
            id="its cluster is missing",
        ),
        pytest.param(
            {"contexts": [{"name": "a", "context": {"cluster": "a", "user": "b"}}]},
            'context "a": user: there is no user "b"',
            id="its user is missing",
        ),
        pytest.param(
            {"contexts": [{"name": "a", "context": {"user": "a"}}]},
            'cluster "": server is not set',
            id="it has no cluster",
        ),
        pytest.param(
            {"contexts": [{"name": "a"}]}, 'cluster "": server is not set', id="it is empty"
        ),
    ],
)
def test_a_context_that_leads_nowhere_is_an_error(write_config, nowhere, document, expected):
    path = write_config("a", **document)
    with pytest.raises(CredentialsError) as caught:
        load_config(path, **nowhere)
    assert str(caught.value).startswith(f"kubeconfig {path}")
    assert expected in str(caught.value)


async def test_a_context_without_user_is_anonymous(write_config, nowhere):
    path = write_config("a", contexts=[{"name": "a", "context": {"cluster": "a"}}])
    assert await load_config(path, **nowhere).connection.credentials.headers() == {}


# Addresses


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://h.test", ("https", "h.test", 443, "")),
        ("http://h.test", ("http", "h.test", 80, "")),
        ("https://h.test:6443/", ("https", "h.test", 6443, "")),
        ("https://[::1]:6443/k8s/clusters/c-1", ("https", "::1", 6443, "/k8s/clusters/c-1")),
        ("h.test:8080", ("http", "h.test", 8080, "")),
        ("h.test", ("http", "h.test", 80, "")),
    ],
)
def test_server_addresses(write_config, nowhere, server, expected):
    connection = load_config(write_config("a", cluster={"server": server}), **nowhere).connection
    assert (
        connection.scheme,
        connection.host,
        connection.port,
        connection.path_prefix,
    ) == expected


@pytest.mark.parametrize(
    "server",
    [
        "ftp://h.test",
        "https://",
        "https://h.test:port",
        "https://h.test:99999",
        "https://u:p@h.test",
        "https://[::1",
    ],
)
def test_impossible_addresses_are_refused_by_field(write_config, nowhere, server):
    path = write_config("a", cluster={"server": server})
    with pytest.raises(CredentialsError, match=r'cluster "a": server is not of the form'):
        load_config(path, **nowhere)


def test_proxy_and_server_name_reach_the_connection(write_config, nowhere):
    cluster = {
        "server": "https://a.test",
        "proxy-url": "https://proxy.test:1080",
        "tls-server-name": "inner.test",
    }
    connection = load_config(write_config("a", cluster=cluster), **nowhere).connection
    assert connection.proxy_url == "https://proxy.test:1080"
    assert connection.server_name == "inner.test"


# Contradictions


@pytest.mark.parametrize(
    ("cluster", "user", "expected"),
    [
        pytest.param(
            {"insecure-skip-tls-verify": True, "certificate-authority": "/ca.crt"},
            {},
            'cluster "a": insecure-skip-tls-verify and a certificate authority contradict',
            id="not verifying with an authority file",
        ),
        pytest.param(
            {"insecure-skip-tls-verify": True, "certificate-authority-data": "YQ=="},
            {},
            "contradict",
            id="not verifying with authority data",
        ),
        pytest.param(
            {"certificate-authority": "/ca.crt", "certificate-authority-data": "YQ=="},
            {},
            'cluster "a": certificate-authority and certificate-authority-data are both set',
            id="two authorities",
        ),
        pytest.param(
            {"proxy-url": "ftp://proxy.test"},
            {},
            'cluster "a": proxy-url must begin',
            id="odd proxy",
        ),
        pytest.param(
            {"certificate-authority": "/does/not/exist"},
            {},
            'cluster "a": certificate-authority /does/not/exist cannot be used: No such file',
            id="authority file is missing",
        ),
        pytest.param(
            {"certificate-authority-data": "!!!"},
            {},
            'cluster "a": certificate-authority-data is not valid base64',
            id="authority data is no base64",
        ),
        pytest.param(
            {"certificate-authority-data": base64.b64encode(b"no pem").decode()},
            {},
            'cluster "a": certificate-authority-data cannot be used: no valid certificate',
            id="authority data is no certificate",
        ),
        pytest.param(
            {},
            {"token": SECRET, "username": "u", "password": SECRET},
            'user "a": token and username/password are both set',
            id="token and password",
        ),
        pytest.param(
            {},
            {"client-certificate-data": "YQ=="},
            'user "a": client-key or client-key-data must be set',
            id="certificate without key",
        ),
        pytest.param(
            {},
            {"client-certificate": "/x", "client-certificate-data": "YQ==", "client-key": "/y"},
            'user "a": client-certificate and client-certificate-data are both set',
            id="two certificates",
        ),
        pytest.param(
            {},
            {"client-certificate": "/x", "client-key": "/y", "client-key-data": "YQ=="},
            'user "a": client-key and client-key-data are both set',
            id="two keys",
        ),
        pytest.param(
            {},
            {"client-certificate": "/no/crt", "client-key": "/no/key"},
            'user "a": client-certificate /no/crt with its key cannot be used: No such file',
            id="certificate file is missing",
        ),
        pytest.param(
            {},
            {"as-groups": ["g"]},
            'user "a": as-uid, as-groups and as-user-extra need as',
            id="groups without a user",
        ),
        pytest.param(
            {},
            {"exec": {"command": "x", "apiVersion": "v1"}, "auth-provider": {"name": "oidc"}},
            'user "a": exec and auth-provider are both set',
            id="two plugins",
        ),
        pytest.param(
            {},
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}},
            'user "a": exec.command must be set',
            id="plugin without command",
        ),
        pytest.param(
            {},
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            'user "a": exec.apiVersion "client.authentication.k8s.io/v1alpha1" is not one of',
            id="plugin of a removed version",
        ),
        pytest.param(
            {},
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}},
            'user "a": exec.interactiveMode must be set',
            id="v1 plugin without interactiveMode",
        ),
        pytest.param(
            {},
            {
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Sometimes",
                }
            },
            'user "a": exec.interactiveMode "Sometimes" is not one of',
            id="unknown interactiveMode",
        ),
        pytest.param(
            {},
            {
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Always",
                }
            },
            'user "a": exec plugin: interactiveMode Always needs a terminal',
            id="a plugin that must prompt",
        ),
        pytest.param(
            {},
            {
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1beta1",
                    "env": [{"value": SECRET}],
                }
            },
            'user "a": exec.env: every variable needs a name',
            id="nameless plugin variable",
        ),
        pytest.param(
            {},
            {"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}},
            'user "a": the auth-provider "gcp" is not supported; use the exec plugin '
            "gke-gcloud-auth-plugin instead",
            id="gcp is gone",
        ),
        pytest.param(
            {},
            {"auth-provider": {"name": "azure"}},
            'user "a": the auth-provider "azure" is not supported; use the exec plugin kubelogin '
            "instead",
            id="azure is gone",
        ),
        pytest.param(
            {},
            {"auth-provider": {"name": "oidc", "config": {"id-token": SECRET}}},
            'user "a": the auth-provider "oidc" is not supported; use the exec plugin kubectl '
            "oidc-login",
            id="oidc is for plugins",
        ),
        pytest.param(
            {},
            {"auth-provider": {"name": "openstack"}},
            'user "a": the auth-provider "openstack" is not supported',
            id="unknown provider",
        ),
        pytest.param(
            {},
            {"tokenFile": "/no/token"},
            'user "a": token file /no/token cannot be used',
            id="no token file",
        ),
        pytest.param(
            {},
            {"token": f"{SECRET}\nX-Evil: 1"},
            'user "a": token contains characters',
            id="two-line token",
        ),
    ],
)
def test_contradictions_and_dead_ends_name_file_context_and_field(
    write_config, nowhere, cluster, user, expected
):
    path = write_config("a", cluster={"server": "https://a.test", **cluster}, user=user)
    with pytest.raises(CredentialsError) as caught:
        load_config(path, **nowhere)
    message = str(caught.value)
    assert message.startswith(f'kubeconfig {path}: context "a": ')
    assert expected in message
    assert SECRET not in message


def test_everything_wrong_is_said_at_once(write_config, nowhere):
    path = write_config(
        "a",
        cluster={"server": "", "proxy-url": "x"},
        user={"token": "t", "username": "u", "as-uid": "1"},
    )
    with pytest.raises(CredentialsError) as caught:
        load_config(path, **nowhere)
    for field in ("server is not set", "proxy-url must", "token and username", "as-uid, as-groups"):
        assert field in str(caught.value)


def test_encrypted_keys_are_refused_instead_of_asked_about(write_config, nowhere, authority):
    issued = authority.issue("me", password=SECRET.encode())
    user = {
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }
    path = write_config("a", user=user)
    with pytest.raises(CredentialsError, match="is encrypted; only unencrypted keys"):
        load_config(path, **nowhere)


def test_key_of_another_certificate_is_refused(write_config, nowhere, authority):
    user = {
        "client-certificate-data": base64.b64encode(authority.issue("me").certificate).decode(),
        "client-key-data": base64.b64encode(authority.issue("you").key).decode(),
    }
    path = write_config("a", user=user)
    with pytest.raises(CredentialsError, match="the key does not belong to the certificate"):
        load_config(path, **nowhere)


# Who we are


async def test_basic_authentication(write_config, nowhere):
    config = load_config(write_config("a", user={"username": "u", "password": "p:x"}), **nowhere)
    assert await authorization(config) == "Basic " + base64.b64encode(b"u:p:x").decode()


async def test_token_file_comes_before_token(write_config, nowhere, tmp_path):
    (tmp_path / "token").write_text(" from-file \n")
    path = write_config("a", user={"token": "inline", "tokenFile": "token"})
    assert await authorization(load_config(path, **nowhere)) == "Bearer from-file"


async def test_token_is_used_while_the_token_file_is_missing(write_config, nowhere):
    path = write_config("a", user={"token": "inline", "tokenFile": "token"})
    assert await authorization(load_config(path, **nowhere)) == "Bearer inline"


async def test_token_comes_before_a_plugin(write_config, nowhere):
    plugin = {
        "command": "/does/not/exist",
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
    }
    path = write_config("a", user={"token": "inline", "exec": plugin})
    assert await authorization(load_config(path, **nowhere)) == "Bearer inline"


async def test_credentials_are_not_sent_over_plain_http(write_config, nowhere, told):
    path = write_config("a", cluster={"server": "http://a.test"}, user={"token": SECRET, "as": "x"})
    config = load_config(path, **nowhere)
    assert await config.connection.credentials.headers() == {"Impersonate-User": "x"}
    assert "no credentials are sent" in told()
    assert SECRET not in told()


async def test_impersonation_headers(write_config, nowhere):
    user = {
        "as": "jane",
        "as-uid": "42",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"Scopes": ["a", "b"], "acme.com/some %key": ["c"], "empty": []},
    }
    config = load_config(write_config("a", user=user), **nowhere)
    assert await config.connection.credentials.headers() == {
        "Impersonate-User": "jane",
        "Impersonate-Uid": "42",
        "Impersonate-Group": ("dev", "ops"),
        "Impersonate-Extra-Scopes": ("a", "b"),
        "Impersonate-Extra-acme.com%2Fsome%20%25key": ("c",),
    }


def test_nothing_shows_a_secret(write_config, nowhere, authority):
    issued = authority.issue("me")
    user = {
        "token": SECRET,
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }
    config = load_config(write_config("a", user=user), clock=ManualClock(), **nowhere)
    assert SECRET not in repr(config)
    assert "PRIVATE KEY" not in repr(config)


def test_no_private_key_stays_behind(write_config, nowhere, authority, tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    issued = authority.issue("me")
    user = {
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }
    load_config(write_config("a", user=user), **nowhere)
    assert list(temporary.iterdir()) == []


# In a pod


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"KUBERNETES_SERVICE_HOST": ""}, "must be defined", id="no host"),
        pytest.param({"KUBERNETES_SERVICE_PORT": "tcp://1"}, "is not a port number", id="odd port"),
        pytest.param({"KUBERNETES_SERVICE_PORT": "70000"}, "is not a port number", id="large port"),
    ],
)
def test_a_pod_with_odd_variables_is_an_error(pod, change, expected):
    pod["environment"] |= change
    with pytest.raises(CredentialsError, match=expected):
        load_config(**pod)


def test_a_pod_without_token_is_an_error(pod):
    Path(pod["service_account"], "token").unlink()
    with pytest.raises(CredentialsError, match=r"token file .*/token cannot be used: No such file"):
        load_config(**pod)


def test_a_pod_without_authority_trusts_the_system(pod, told):
    Path(pod["service_account"], "ca.crt").unlink()
    config = load_config(**pod)
    assert config.connection.credentials.ssl_context() is not None
    assert "The system's certificate authorities are used instead" in told()


def test_an_ipv6_service_address_is_taken_without_brackets(pod):
    pod["environment"]["KUBERNETES_SERVICE_HOST"] = "fd00::1"
    assert load_config(**pod).connection.host == "fd00::1"


def test_downward_api_namespace_comes_first(pod):
    pod["environment"]["POD_NAMESPACE"] = "mine"
    assert load_config(**pod).namespace == "mine"
