"""Keys of objects, and what Kubernetes accepts as a name, in its own words."""

from __future__ import annotations

import pytest

from kubesched.api.meta import ObjectMeta
from kubesched.api.names import (
    dns_1035_label_problems,
    dns_1123_label_problems,
    dns_1123_subdomain_problems,
    key_of,
    label_key_problems,
    label_value_problems,
    object_key,
    split_key,
)

NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    "validation "
    r"is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must "
    "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SERVICE_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def test_keys_join_and_split():
    assert object_key("ns", "n") == "ns/n"
    assert object_key("", "n") == "n"
    assert key_of(ObjectMeta(namespace="ns", name="n")) == "ns/n"
    assert split_key("ns/n") == ("ns", "n")
    assert split_key("n") == ("", "n")
    with pytest.raises(ValueError, match='unexpected key format: "a/b/c"'):
        split_key("a/b/c")


@pytest.mark.parametrize(
    ("key", "problems"),
    [
        pytest.param("app", (), id="a plain key"),
        pytest.param("example.com/App_1.x", (), id="a prefixed key"),
        pytest.param("x" * 63, (), id="as long as allowed"),
        pytest.param("x" * 64, ("name part must be no more than 63 bytes",), id="too long"),
        pytest.param("", ("name part must be non-empty", f"name part {NAME_RULE}"), id="empty"),
        pytest.param("/x", ("prefix part must be non-empty",), id="an empty prefix"),
        pytest.param("A/x", (f"prefix part {SUBDOMAIN_RULE}",), id="a prefix in capitals"),
        pytest.param(
            f"{'a' * 254}/x", ("prefix part must be no more than 253 bytes",), id="a long prefix"
        ),
        pytest.param("-x", (f"name part {NAME_RULE}",), id="a leading dash"),
        pytest.param("é", (f"name part {NAME_RULE}",), id="not ASCII"),
        pytest.param("x\n", (f"name part {NAME_RULE}",), id="a trailing newline"),
        pytest.param(
            "a/b/c",
            (
                f"a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')",
            ),
            id="two slashes",
        ),
    ],
)
def test_label_keys(key, problems):
    assert label_key_problems(key) == problems


def test_label_values():
    assert label_value_problems("") == ()
    assert label_value_problems("A_b.1") == ()
    assert label_value_problems("a" * 64) == ("must be no more than 63 bytes",)
    assert len(label_value_problems("-a")) == 1
    assert len(label_value_problems("a" * 63 + "-")) == 2
    assert label_value_problems("é" * 32)[0] == "must be no more than 63 bytes"


@pytest.mark.parametrize(
    ("name", "label", "subdomain", "service"),
    [
        pytest.param("my-name", (), (), (), id="fits everywhere"),
        pytest.param("1-name", (), (), (SERVICE_RULE,), id="a service starts with a letter"),
        pytest.param(
            "a.b", ("must not contain dots",), (), (SERVICE_RULE,), id="dots are for subdomains"
        ),
        pytest.param(
            "A", (LABEL_RULE,), (SUBDOMAIN_RULE,), (SERVICE_RULE,), id="capitals fit nowhere"
        ),
        pytest.param(
            "", (LABEL_RULE,), (SUBDOMAIN_RULE,), (SERVICE_RULE,), id="empty fits nowhere"
        ),
        pytest.param(
            "a" * 64,
            ("must be no more than 63 characters",),
            (),
            ("must be no more than 63 characters",),
            id="labels are short",
        ),
        pytest.param(
            "a" * 254,
            ("must be no more than 63 characters",),
            ("must be no more than 253 characters",),
            ("must be no more than 63 characters",),
            id="subdomains are not endless",
        ),
    ],
)
def test_dns_names(name, label, subdomain, service):
    assert dns_1123_label_problems(name) == label
    assert dns_1123_subdomain_problems(name) == subdomain
    assert dns_1035_label_problems(name) == service
