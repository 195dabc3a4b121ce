"""What a name may look like: DNS subdomains, labels and path segments, with Kubernetes' explanations."""

from __future__ import annotations

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DNS_LABEL = re.compile(_LABEL)
_DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

_SUBDOMAIN_HELP = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_HELP = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_HELP = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def check_subdomain(name: str) -> str:
    """What is wrong with `name` as a DNS subdomain; empty when nothing is."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_HELP


def check_label(name: str) -> str:
    """What is wrong with `name` as a DNS label; empty when nothing is."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _DNS_LABEL.fullmatch(name) else _LABEL_HELP


def check_label_1035(name: str) -> str:
    """What is wrong with `name` as a label that starts with a letter; empty when nothing is."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _DNS_1035_LABEL.fullmatch(name) else _LABEL_1035_HELP


def check_path_segment(name: str) -> str:
    """What is wrong with `name` as one segment of a URL; empty when nothing is."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    for character in "/%":
        if character in name:
            return f"may not contain '{character}'"
    return ""
