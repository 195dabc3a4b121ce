"""Text to IP address, as strictly and with the messages of Go's `netip` package."""

from __future__ import annotations

import ipaddress

from kubesched.base.logs import quoted as quote

_HEX = frozenset("0123456789abcdefABCDEF")


class AddressError(ValueError):
    """The text is not an address; the message is Go's."""


def parse_address(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    """The address and its zone, which is empty if there is none."""
    for character in text:
        if character == ".":
            return ipaddress.IPv4Address(bytes(_ipv4_fields(text, text))), ""
        if character == ":":
            return _parse_ipv6(text)
        if character == "%":
            raise _failed(text, "missing IPv6 address")
    raise _failed(text, "unable to parse IP")


def _failed(text: str, message: str, at: str = "") -> AddressError:
    place = f" (at {quote(at)})" if at else ""
    return AddressError(f"ParseAddr({quote(text)}): {message}{place}")


def _ipv4_fields(text: str, part: str) -> list[int]:
    """The four numbers of `part`, which is `text` or its end."""
    fields: list[int] = []
    digits = ""
    for index, character in enumerate(part):
        if character in "0123456789":
            if digits == "0":
                raise _failed(text, "IPv4 field has octet with leading zero")
            digits += character
            if int(digits) > 255:
                raise _failed(text, "IPv4 field has value >255")
        elif character == ".":
            if not digits or index == len(part) - 1:
                raise _failed(text, "IPv4 field must have at least one digit", part[index:])
            if len(fields) == 3:
                raise _failed(text, "IPv4 address too long")
            fields.append(int(digits))
            digits = ""
        else:
            raise _failed(text, "unexpected character", part[index:])
    if len(fields) < 3:
        raise _failed(text, "IPv4 address too short")
    return [*fields, int(digits or "0")]


def _parse_ipv6(text: str) -> tuple[ipaddress.IPv6Address, str]:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _failed(text, "zone must be a non-empty string")
    packed: list[int] = []
    gap = -1
    if rest.startswith("::"):
        gap, rest = 0, rest[2:]
        if not rest:
            return ipaddress.IPv6Address(0), zone
    while len(packed) < 16:
        digits = _hex_digits(text, rest)
        if rest[digits : digits + 1] == ".":
            packed += _embedded_ipv4(text, rest, len(packed), gap)
            rest = ""
            break
        packed += divmod(int(rest[:digits], 16), 256)
        rest = rest[digits:]
        if not rest:
            break
        if rest[0] != ":":
            raise _failed(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _failed(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if gap >= 0:
                raise _failed(text, "multiple :: in address", rest)
            gap, rest = len(packed), rest[1:]
            if not rest:
                break
    if rest:
        raise _failed(text, "trailing garbage after address", rest)
    if len(packed) < 16 and gap < 0:
        raise _failed(text, "address string too short")
    if len(packed) == 16 and gap >= 0:
        raise _failed(text, "the :: must expand to at least one field of zeros")
    if gap >= 0:
        packed[gap:gap] = [0] * (16 - len(packed))
    return ipaddress.IPv6Address(bytes(packed)), zone


def _hex_digits(text: str, rest: str) -> int:
    count = 0
    while count < len(rest) and rest[count] in _HEX:
        count += 1
        if count > 4:
            raise _failed(text, "each group must have 4 or less digits", rest)
    if count == 0:
        raise _failed(text, "each colon-separated field must have at least one digit", rest)
    return count


def _embedded_ipv4(text: str, rest: str, position: int, gap: int) -> list[int]:
    if gap < 0 and position != 12:
        raise _failed(
            text, "embedded IPv4 address must replace the final 2 fields of the address", rest
        )
    if position + 4 > 16:
        raise _failed(
            text,
            "too many hex fields to fit an embedded IPv4 at the end of the address",
            rest,
        )
    return _ipv4_fields(text, rest)
