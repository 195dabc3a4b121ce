"""Values of literal tokens."""

from __future__ import annotations

from kubesched.api.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_SIMPLE_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_HEX_DIGITS = {"x": 2, "X": 2, "u": 4, "U": 8}


class LiteralError(ValueError):
    """The token is well-formed but has no value; the message is cel-go's."""


def int_value(text: str) -> int:
    value = _number(text)
    if not MIN_INT <= value <= MAX_INT:
        raise LiteralError("invalid int literal")
    return value


def uint_value(text: str) -> Uint:
    value = _number(text[:-1])
    if value > MAX_UINT:
        raise LiteralError("invalid uint literal")
    return Uint(value)


def double_value(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise LiteralError("invalid double literal")
    return value


def string_value(text: str) -> str:
    """The value of a string token, quotes and prefix included in `text`."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body
    parts: list[str] = []
    for character, code in _unescape(body):
        if code is None:
            parts.append(character)
        elif 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            raise LiteralError("invalid unicode code point")
        else:
            parts.append(chr(code))
    return "".join(parts)


def bytes_value(text: str) -> bytes:
    """The value of a bytes token; octal and hexadecimal escapes are bytes, not code points."""
    body, raw = _body(text[1:])
    if raw or "\\" not in body:
        return body.encode(errors="replace")
    result = bytearray()
    for character, code in _unescape(body, allow_unicode=False):
        result += character.encode(errors="replace") if code is None else bytes((code,))
    return bytes(result)


def _number(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits, base = text.removeprefix("-"), 10
    if digits.startswith("0x"):
        digits, base = digits[2:], 16
    digits = digits.lstrip("0") or "0"
    # Python limits the digits it converts; this many always exceed 64 bits.
    return sign * (int(digits, base) if len(digits) <= 20 else 2**70)


def _body(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[width:-width], raw


def _unescape(body: str, *, allow_unicode: bool = True) -> list[tuple[str, int | None]]:
    """Characters as they are, or as a code point if written as a number."""
    parts: list[tuple[str, int | None]] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            parts.append((body[at], None))
            at += 1
            continue
        escape = body[at + 1]
        if escape in _SIMPLE_ESCAPES:
            parts.append((_SIMPLE_ESCAPES[escape], None))
            at += 2
        elif escape in _HEX_DIGITS:
            if escape in "uU" and not allow_unicode:
                raise LiteralError("unable to unescape string")
            width = _HEX_DIGITS[escape]
            parts.append(("", int(body[at + 2 : at + 2 + width], 16)))
            at += 2 + width
        else:
            parts.append(("", int(body[at + 1 : at + 4], 8)))
            at += 4
    return parts
