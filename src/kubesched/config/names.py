"""What Kubernetes accepts as label keys, label values and extended resource names."""

from __future__ import annotations

import re

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_NAME})?"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = f"{_DNS_LABEL}(\\.{_DNS_LABEL})*"

_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_NAME}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '{_LABEL_VALUE}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)

_LONGEST_NAME = 63
_LONGEST_SUBDOMAIN = 253


def label_key_problems(key: str) -> list[str]:
    """Why this is no label key (also called a qualified name); empty if it is one."""
    *prefixes, name = key.split("/")
    if len(prefixes) > 1:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    problems = [
        f"prefix part {rule}" for prefix in prefixes for rule in _subdomain_problems(prefix)
    ]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > _LONGEST_NAME:
        problems.append(f"name part must be no more than {_LONGEST_NAME} bytes")
    if not re.fullmatch(_NAME, name):
        problems.append(f"name part {_NAME_RULE}")
    return problems


def _subdomain_problems(prefix: str) -> list[str]:
    if not prefix:
        return ["must be non-empty"]
    problems = []
    if len(prefix.encode()) > _LONGEST_SUBDOMAIN:
        problems.append(f"must be no more than {_LONGEST_SUBDOMAIN} bytes")
    if not re.fullmatch(_SUBDOMAIN, prefix):
        problems.append(_SUBDOMAIN_RULE)
    return problems


def label_value_problems(value: str) -> list[str]:
    """Why this is no label value; empty if it is one."""
    problems = []
    if len(value.encode()) > _LONGEST_NAME:
        problems.append(f"must be no more than {_LONGEST_NAME} bytes")
    if not re.fullmatch(_LABEL_VALUE, value):
        problems.append(_VALUE_RULE)
    return problems


def is_extended_resource(name: str) -> bool:
    """Whether a (valid) name denotes a resource that Kubernetes itself does not define."""
    is_native = "/" not in name or "kubernetes.io/" in name
    if is_native or name.startswith("requests."):
        return False
    # Quotas put this prefix in front, and the result must still be a name.
    return not label_key_problems(f"requests.{name}")
