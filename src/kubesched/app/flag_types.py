"""Types of flag values, parsed and formatted like Go's flag library.

Existing scripts for kube-scheduler rely on those rules, so messages keep Go's wording.
"""

from __future__ import annotations

import csv
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubesched.api import times
from kubesched.base.logs import parse_vmodule

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


@dataclass(frozen=True, slots=True)
class FlagType:
    """A type of flag value.

    `parse` gets the text and the value so far (None on the flag's first use), because some types
    accumulate over repeated uses. It raises `ValueError` with Go's wording.
    """

    name: str
    parse: Callable[[str, Any], Any]
    show: Callable[[Any], str] = str
    bare: str | None = None
    """Value of `--flag` without a value; None if a value is required."""


def _integer(bits: int, *, signed: bool = True) -> Callable[[str, Any], int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    function = "strconv.ParseInt" if signed else "strconv.ParseUint"

    def parse(text: str, _before: object) -> int:
        digits = text[1:] if signed and text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(f'{function}: parsing "{text}": invalid syntax')
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f'{function}: parsing "{text}": value out of range')
        return value

    return parse


def _boolean(text: str, _before: object) -> bool:
    if text not in _TRUE + _FALSE:
        raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def _number(text: str, _before: object) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'strconv.ParseFloat: parsing "{text}": invalid syntax') from None


def _address(text: str, _before: object) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f'failed to parse IP: "{text}"') from None
    return text


def _duration(text: str, _before: object) -> float:
    return times.parse_duration(text)


def _list(text: str, before: tuple[str, ...] | None) -> tuple[str, ...]:
    """Comma-separated, quoted as in CSV; the first use replaces the default, later uses append."""
    row = next(csv.reader([text], strict=True), []) if text else []
    return (*(before or ()), *row)


def _integers(text: str, before: tuple[int, ...] | None) -> tuple[int, ...]:
    parse = _integer(32)
    return (*(before or ()), *(parse(part, None) for part in text.split(",")))


def _gates(text: str, before: str | None) -> str:
    """Repeated uses are concatenated; `config.features` parses them."""
    return f"{before},{text}" if before else text


def _map(text: str, before: tuple[tuple[str, str], ...] | None) -> tuple[tuple[str, str], ...]:
    """`key=value,key=value`; a value that contains commas must be the only pair of its use."""
    parts = [text] if text.count("=") == 1 else next(csv.reader([text], strict=True), [])
    pairs = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part} must be formatted as key=value")
        pairs.append((key, value))
    return (*(before or ()), *pairs)


@dataclass(frozen=True, slots=True)
class NamedCertKey:
    """One `--tls-sni-cert-key`: files and host names (if empty, those in the certificate)."""

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        files = f"{self.cert_file},{self.key_file}"
        return f"{files}:{','.join(self.names)}" if self.names else files


def _named_cert_key(text: str, before: tuple[NamedCertKey, ...] | None) -> tuple[NamedCertKey, ...]:
    files, _, names = text.partition(":")
    parts = files.split(",")
    if len(parts) != 2 or not all(parts):
        raise ValueError("expected comma separated certificate and key file paths")
    pair = NamedCertKey(
        parts[0].strip(), parts[1].strip(), tuple(names.split(",") if names else ())
    )
    return (*(before or ()), pair)


def _quantity(text: str, _before: object) -> int:
    from kubesched.api.quantity import value  # rarely needed, and imports msgspec

    return value(text)


def _vmodule(text: str, _before: object) -> str:
    for entry in text.split(","):
        pattern, equals, level = entry.partition("=")
        if entry and not (pattern and equals and level):
            raise ValueError(f'"{entry}" does not have the pattern=N format')
    parse_vmodule(text)
    return text


def _version(text: str, _before: object) -> str:
    return text if text == "raw" else "true" if _boolean(text, None) else "false"


def show_boolean(value: bool) -> str:
    return "true" if value else "false"


def _show_list(value: tuple[object, ...]) -> str:
    return f"[{','.join(map(str, value))}]"


def _show_map(value: tuple[tuple[str, str], ...]) -> str:
    return f"[{','.join(f'{key}={text}' for key, text in value)}]"


TYPES = {
    type_.name: type_
    for type_ in (
        FlagType("string", lambda text, _before: text),
        FlagType("int", _integer(64)),
        FlagType("int32", _integer(32)),
        FlagType("Level", _integer(31, signed=False)),
        FlagType("float32", _number, lambda value: f"{value:g}"),
        FlagType("bool", _boolean, show_boolean, bare="true"),
        FlagType("duration", _duration, times.format_duration),
        FlagType("ip", _address),
        FlagType("strings", _list, _show_list),
        FlagType("int32Slice", _integers, _show_list),
        FlagType("gates", _gates),
        FlagType("stringToString", _map, _show_map),
        FlagType("namedCertKey", _named_cert_key, _show_list),
        FlagType("quantity", _quantity),
        FlagType("pattern=N,...", _vmodule),
        FlagType("version", _version, bare="true"),
    )
}
"""By name."""
