"""Kubeconfig files become what kubectl would make of them, and broken ones are refused without
showing secrets.

`MERGED_BY_KUBECTL` was recorded from `kubectl config view --merge -o json`, version 1.32.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.base.errors import CredentialsError
from kubesched.client import kubeconfig

SECRET = "hunter2-secret-value"


def test_first_file_decides_every_name_it_defines(write_config):
    first = write_config("shared", cluster={"server": "https://first.test"}, folder=None)
    second = str(Path(first).with_name("second"))
    Path(second).write_text(
        yaml.safe_dump(
            {
                "clusters": [
                    {
                        "name": "shared",
                        "cluster": {"server": "https://second.test", "tls-server-name": "x"},
                    },
                    {"name": "extra", "cluster": {"server": "https://extra.test"}},
                ]
            }
        )
    )
    merged = kubeconfig.load_files([first, second])
    assert merged.clusters["shared"].server == "https://first.test"
    # Not even fields that the first file left out are taken from the second.
    assert merged.clusters["shared"].tls_server_name == ""
    assert merged.clusters["extra"].server == "https://extra.test"


def test_first_current_context_wins_even_if_defined_in_a_later_file(write_config, tmp_path):
    chooser = tmp_path / "chooser"
    chooser.write_text("current-context: b\n")
    merged = kubeconfig.load_files([str(chooser), write_config("a"), write_config("b")])
    assert merged.current_context == "b"


def test_absent_and_repeated_files_are_passed_over(write_config, tmp_path):
    path = write_config("a")
    merged = kubeconfig.load_files([str(tmp_path / "absent"), path, "", path])
    assert merged.files == (path,)


def test_relative_paths_are_relative_to_the_file_that_wrote_them(write_config, tmp_path):
    folder = tmp_path / "deep"
    path = write_config(
        "a",
        folder=folder,
        cluster={"server": "https://a.test", "certificate-authority": "ca.crt"},
        user={
            "client-certificate": "../one.crt",
            "client-key": "/absolute.key",
            "tokenFile": "token",
            "exec": {"command": "./bin/plugin", "apiVersion": "v1"},
        },
    )
    loaded = kubeconfig.load_file(path)
    assert loaded.clusters["a"].certificate_authority == str(folder / "ca.crt")
    user = loaded.users["a"]
    assert user.client_certificate == str(tmp_path / "one.crt")
    assert user.client_key == "/absolute.key"
    assert user.token_file == str(folder / "token")
    assert user.exec is not None
    assert user.exec.command == str(folder / "bin/plugin")


def test_a_bare_plugin_command_is_left_for_path(write_config):
    path = write_config("a", user={"exec": {"command": "plugin", "apiVersion": "v1"}})
    plugin = kubeconfig.load_file(path).users["a"].exec
    assert plugin is not None
    assert plugin.command == "plugin"


def test_an_empty_file_is_an_empty_configuration(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert kubeconfig.load_file(str(path)).is_empty()


def test_null_means_left_out(tmp_path):
    path = tmp_path / "nulls"
    path.write_text(
        "users: null\nclusters:\n- name: a\n  cluster: {server: https://a.test, proxy-url: null}\n"
    )
    loaded = kubeconfig.load_file(str(path))
    assert loaded.users == {}
    assert loaded.clusters["a"].proxy_url == ""


def test_a_name_that_looks_like_a_date_stays_a_name(tmp_path):
    path = tmp_path / "dates"
    path.write_text("current-context: 2026-01-01\n")
    assert kubeconfig.load_file(str(path)).current_context == "2026-01-01"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "users:\n- name: a\n  user: {token: 12345}\n",
            "users[0].user.token: expected a string, got a number",
            id="a number where a string belongs",
        ),
        pytest.param(
            "clusters:\n- name: a\n  cluster: {insecure-skip-tls-verify: maybe}\n",
            "clusters[0].cluster.insecure-skip-tls-verify: expected true or false, got a string",
            id="a word where true or false belongs",
        ),
        pytest.param(
            "users: {}\n", "users: expected a list, got a mapping", id="a mapping for a list"
        ),
        pytest.param("[1, 2]\n", "expected a mapping, got a list", id="no mapping at all"),
        pytest.param("hello\n", "expected a mapping, got a string", id="just a word"),
        pytest.param("kind: Pod\n", "kind and apiVersion must be Config and v1", id="another kind"),
        pytest.param("apiVersion: v2\n", "kind and apiVersion", id="another version"),
        pytest.param(
            "contexts: [{name: a}, {name: a}]\n",
            'contexts: duplicate name "a"',
            id="a name used twice",
        ),
        pytest.param("a: [\n", "not valid YAML", id="broken YAML"),
        pytest.param(
            "a: &x [*x]\nclusters: *x\n",
            "value contains itself",
            id="an alias to itself",
        ),
    ],
)
def test_broken_files_are_refused_by_field(tmp_path, text, expected):
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(CredentialsError) as caught:
        kubeconfig.load_file(str(path))
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert expected in str(caught.value)


def test_unreadable_bytes_are_refused(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"token: \xc3\x28\x80")
    with pytest.raises(CredentialsError, match="not UTF-8 text"):
        kubeconfig.load_file(str(path))


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(CredentialsError, match="Is a directory"):
        kubeconfig.load_file(str(tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        f"token: *{SECRET}",
        f"token: 'unfinished {SECRET}",
        f"token: [{SECRET}",
        f"token: {{{SECRET}: 1}}",
        f"token: &{SECRET} 1",
        f"token: !!int {SECRET}",
        f"? [{SECRET}]\n    : 1",
        f"\ttoken: {SECRET}",
        f"token: [{SECRET}, 1]",
        f"password: {{a: {SECRET}}}",
        f"exec: {SECRET}",
        f"auth-provider: {{name: [{SECRET}]}}",
    ],
)
def test_no_complaint_quotes_the_file(tmp_path, line):
    path = tmp_path / "leaky"
    path.write_text(f"users:\n- name: a\n  user:\n    {line}\n")
    with pytest.raises(CredentialsError) as caught:
        kubeconfig.load_file(str(path))
    assert SECRET not in str(caught.value)
    assert SECRET not in str(caught.value.__cause__)


def test_records_do_not_show_what_they_hold(write_config):
    path = write_config("a", user={"token": SECRET, "password": SECRET})
    loaded = kubeconfig.load_file(path)
    assert SECRET not in repr(loaded)
    assert SECRET not in repr(loaded.users["a"])


@given(text=st.text(max_size=200))
@settings(max_examples=200)
def test_any_text_is_either_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any-text"
    path.write_text(text, encoding="utf-8", newline="", errors="surrogatepass")
    with contextlib.suppress(CredentialsError):  # anything else is a defect
        kubeconfig.load_file(str(path))


FILES = {
    "1": """
clusters:
- {name: red, cluster: {server: "https://red.one"}}
contexts:
- {name: left, context: {cluster: red, user: u1}}
""",
    "2": """
current-context: middle
clusters:
- {name: red, cluster: {server: "https://red.two", tls-server-name: two}}
- {name: blue, cluster: {server: "https://blue.two"}}
users:
- {name: u1, user: {username: from-two}}
contexts:
- {name: middle, context: {cluster: blue, user: u1, namespace: n2}}
""",
    "3": """
current-context: left
users:
- {name: u1, user: {username: from-three, as: someone}}
- {name: u3, user: {username: from-three}}
contexts:
- {name: left, context: {cluster: blue, user: u3, namespace: n3}}
- {name: right, context: {cluster: blue, user: u3}}
""",
}

MERGED_BY_KUBECTL = {
    "1:2:3": (
        "middle",
        {"blue": ("https://blue.two", ""), "red": ("https://red.one", "")},
        {"u1": ("from-two", ""), "u3": ("from-three", "")},
        {"left": ("red", "u1", ""), "middle": ("blue", "u1", "n2"), "right": ("blue", "u3", "")},
    ),
    "3:2:1": (
        "left",
        {"blue": ("https://blue.two", ""), "red": ("https://red.two", "two")},
        {"u1": ("from-three", "someone"), "u3": ("from-three", "")},
        {"left": ("blue", "u3", "n3"), "middle": ("blue", "u1", "n2"), "right": ("blue", "u3", "")},
    ),
    "2:absent:2:1": (
        "middle",
        {"blue": ("https://blue.two", ""), "red": ("https://red.two", "two")},
        {"u1": ("from-two", "")},
        {"left": ("red", "u1", ""), "middle": ("blue", "u1", "n2")},
    ),
    "absent": ("", {}, {}, {}),
}


@pytest.mark.parametrize("order", MERGED_BY_KUBECTL)
def test_merging_gives_what_kubectl_gives(tmp_path, order):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    merged = kubeconfig.load_files(str(tmp_path / name) for name in order.split(":"))
    assert (
        merged.current_context,
        {name: (c.server, c.tls_server_name) for name, c in merged.clusters.items()},
        {name: (u.username, u.impersonate) for name, u in merged.users.items()},
        {name: (c.cluster, c.user, c.namespace) for name, c in merged.contexts.items()},
    ) == MERGED_BY_KUBECTL[order]
