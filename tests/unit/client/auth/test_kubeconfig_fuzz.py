"""Any kubeconfig is usable, or refused with an error that names the file and never shows a secret.

`KUBESCHED_FUZZ_EXAMPLES` sets how many examples each test draws.
"""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_places import places

from kubesched.base.errors import CredentialsError
from kubesched.client.client_config import load_config

EXAMPLES = int(os.environ.get("KUBESCHED_FUZZ_EXAMPLES", "150"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SECRET = "hunter2-secret-value"
GOOD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "preferences": {},
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://api.test:6443",
                "insecure-skip-tls-verify": True,
                "tls-server-name": "api",
                "proxy-url": "http://proxy.test:3128",
                "extensions": [{"name": "e", "extension": {"a": 1}}],
            },
        }
    ],
    "users": [
        {
            "name": "u",
            "user": {
                "token": SECRET,
                "as": "me",
                "as-groups": ["g"],
                "as-user-extra": {"k": ["v"]},
            },
        },
        {
            "name": "x",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "does-not-exist",
                    "args": ["a"],
                    "env": [{"name": "A", "value": SECRET}],
                    "interactiveMode": "Never",
                    "provideClusterInfo": True,
                }
            },
        },
    ],
    "contexts": [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "default"}},
        {"name": "plugin", "context": {"cluster": "c", "user": "x"}},
    ],
}
NONSENSE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(
        ["here", "plugin", "c", "u", "http://", "https://[::1", "://", "a:b:c", "\n"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "user", "cluster", "server"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def refusal(path: Path) -> str | None:
    """None for a usable file; anything but a CredentialsError is a failure."""
    try:
        load_config(str(path), environment={})
    except CredentialsError as error:
        return str(error)
    return None


def check(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    told = refusal(path)
    if told is not None:
        assert told
        assert SECRET not in told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config"


def test_the_starting_point_is_usable(path: Path) -> None:
    path.write_text(yaml.safe_dump(GOOD))
    assert refusal(path) is None


@FUZZ
@given(text=st.binary(max_size=200))
def test_arbitrary_bytes(path: Path, text: bytes) -> None:
    check(path, text)


@FUZZ
@given(tree=NONSENSE)
def test_arbitrary_trees(path: Path, tree: object) -> None:
    check(path, yaml.safe_dump(tree).encode("utf-8", "surrogatepass"))


@FUZZ
@given(
    changes=st.lists(st.tuples(st.sampled_from(places(GOOD)), NONSENSE), min_size=1, max_size=3),
    context=st.sampled_from(["here", "plugin", "nowhere"]),
)
def test_a_spoilt_file(
    path: Path, changes: list[tuple[tuple[Any, ...], object]], context: str
) -> None:
    tree = deepcopy(GOOD) | {"current-context": context}
    for place, value in changes:
        at: Any = tree
        try:
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    check(path, yaml.safe_dump(tree).encode("utf-8", "surrogatepass"))


@FUZZ
@given(position=st.integers(0, 900), inserted=st.binary(min_size=1, max_size=6))
def test_a_file_with_garbage_in_it(path: Path, position: int, inserted: bytes) -> None:
    text = yaml.safe_dump(GOOD).encode()
    check(path, text[:position] + inserted + text[position:])


def test_aliases_that_explode_and_nesting_without_end_are_refused(path: Path) -> None:
    bomb = b"a: &a [x, x]\n" + b"".join(
        b"%c: &%c [*%c, *%c, *%c, *%c]\n" % (c, c, c - 1, c - 1, c - 1, c - 1)
        for c in range(ord("b"), ord("z"))
    )
    path.write_bytes(bomb)
    refusal(path)
    path.write_bytes(b"[" * 100_000)
    assert refusal(path) is not None
