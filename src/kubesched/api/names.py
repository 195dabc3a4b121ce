"""Names of objects and labels: `namespace/name` keys, and Kubernetes' naming rules.

The `*_problems` functions return the problems in upstream's words, or nothing. Lengths are counted
in bytes, as in Go.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from kubesched.api.meta import ObjectMeta

_LABEL_CHARACTERS = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DNS_1123_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1123_SUBDOMAIN = rf"{_DNS_1123_LABEL}(\.{_DNS_1123_LABEL})*"
_DNS_1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"

_label_name = re.compile(_LABEL_CHARACTERS)
_label_value = re.compile(f"({_LABEL_CHARACTERS})?")
_dns_1123_label = re.compile(_DNS_1123_LABEL)
_dns_1123_subdomain = re.compile(_DNS_1123_SUBDOMAIN)
_dns_1035_label = re.compile(_DNS_1035_LABEL)

LABEL_MAX_BYTES = 63
SUBDOMAIN_MAX_BYTES = 253

# The same keys and values come with every pod, so results are cached.
_CACHE_SIZE = 32768


def object_key(namespace: str, name: str) -> str:
    """`namespace/name`, or just the name of a cluster-scoped object."""
    return f"{namespace}/{name}" if namespace else name


def key_of(metadata: ObjectMeta) -> str:
    """`namespace/name` of an object."""
    # Inlined: called several times per pod on the scheduling path.
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def key_of_manifest(manifest: Mapping[str, Any]) -> str:
    """`namespace/name` of an object as plain JSON."""
    metadata = manifest["metadata"]
    return object_key(metadata.get("namespace") or "", metadata["name"])


def split_key(key: str) -> tuple[str, str]:
    """(namespace, name) of a key made by `object_key`."""
    namespace, slash, name = key.partition("/")
    if not slash:
        return "", key
    if "/" in name:
        raise ValueError(f'unexpected key format: "{key}"')
    return namespace, name


def _too_long(limit: int, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


def _pattern_problem(message: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {listed}regex used for validation is '{pattern}')"


_LABEL_NAME_PROBLEM = _pattern_problem(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character",
    _LABEL_CHARACTERS,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE_PROBLEM = _pattern_problem(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    f"({_LABEL_CHARACTERS})?",
    "MyValue",
    "my_value",
    "12345",
)
_DNS_1123_LABEL_PROBLEM = _pattern_problem(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character",
    _DNS_1123_LABEL,
    "my-name",
    "123-abc",
)
_DNS_1123_SUBDOMAIN_PROBLEM = _pattern_problem(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character",
    _DNS_1123_SUBDOMAIN,
    "example.com",
)
_DNS_1035_LABEL_PROBLEM = _pattern_problem(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character",
    _DNS_1035_LABEL,
    "my-name",
    "abc-123",
)


@functools.lru_cache(maxsize=_CACHE_SIZE)
def label_key_problems(key: str) -> tuple[str, ...]:
    """Problems of a label key, also called a qualified name: `[prefix/]name`."""
    *prefixes, name = key.split("/")
    if len(prefixes) > 1:
        return (
            f"a valid label key {_LABEL_NAME_PROBLEM} with an optional DNS subdomain prefix and "
            "'/' (e.g. 'example.com/MyName')",
        )
    problems: list[str] = []
    for prefix in prefixes:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += (f"prefix part {p}" for p in _subdomain_problems(prefix, "bytes"))
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > LABEL_MAX_BYTES:
        problems.append(f"name part {_too_long(LABEL_MAX_BYTES, 'bytes')}")
    if not _label_name.fullmatch(name):
        problems.append(f"name part {_LABEL_NAME_PROBLEM}")
    return tuple(problems)


@functools.lru_cache(maxsize=_CACHE_SIZE)
def label_value_problems(value: str) -> tuple[str, ...]:
    """Problems of a label value; the empty one is valid."""
    problems = []
    if len(value.encode()) > LABEL_MAX_BYTES:
        problems.append(_too_long(LABEL_MAX_BYTES, "bytes"))
    if not _label_value.fullmatch(value):
        problems.append(_LABEL_VALUE_PROBLEM)
    return tuple(problems)


def dns_1123_label_problems(value: str) -> tuple[str, ...]:
    """Problems of the name of a namespace, a container or a volume."""
    problems = []
    if len(value.encode()) > LABEL_MAX_BYTES:
        problems.append(_too_long(LABEL_MAX_BYTES))
    if not _dns_1123_label.fullmatch(value):
        is_subdomain = _dns_1123_subdomain.fullmatch(value) is not None
        problems.append("must not contain dots" if is_subdomain else _DNS_1123_LABEL_PROBLEM)
    return tuple(problems)


def dns_1123_subdomain_problems(value: str) -> tuple[str, ...]:
    """Problems of the name of most objects."""
    return _subdomain_problems(value, "characters")


def is_dns_1123_subdomain(value: str) -> bool:
    """Whether `dns_1123_subdomain_problems` finds no problem."""
    # The pattern only allows ASCII, so characters are bytes.
    return len(value) <= SUBDOMAIN_MAX_BYTES and _dns_1123_subdomain.fullmatch(value) is not None


def _subdomain_problems(value: str, unit: str) -> tuple[str, ...]:
    problems = []
    if len(value.encode()) > SUBDOMAIN_MAX_BYTES:
        problems.append(_too_long(SUBDOMAIN_MAX_BYTES, unit))
    if not _dns_1123_subdomain.fullmatch(value):
        problems.append(_DNS_1123_SUBDOMAIN_PROBLEM)
    return tuple(problems)


def dns_1035_label_problems(value: str) -> tuple[str, ...]:
    """Problems of the name of a service."""
    problems = []
    if len(value.encode()) > LABEL_MAX_BYTES:
        problems.append(_too_long(LABEL_MAX_BYTES))
    if not _dns_1035_label.fullmatch(value):
        problems.append(_DNS_1035_LABEL_PROBLEM)
    return tuple(problems)
