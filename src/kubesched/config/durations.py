"""Durations as Kubernetes configuration writes them: Go's `15s`, `1m30s`, `1.5h`.

Values are float seconds everywhere in this program; only text goes through here.
"""

from __future__ import annotations

import re

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^0-9.]*)")
_MAX_NANOSECONDS = 2**63 - 1


def parse(text: str) -> float:
    """Seconds.

    Raises:
        ValueError: with Go's wording.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    total = 0
    position = 0
    if not rest:
        raise ValueError(f'time: invalid duration "{text}"')
    while position < len(rest):
        match = _PART.match(rest, position)
        assert match is not None  # every part of the pattern is optional
        whole, fraction, unit = match["whole"], match["fraction"] or "", match["unit"]
        if not (whole or fraction):
            raise ValueError(f'time: invalid duration "{text}"')
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in _NANOSECONDS:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        if len(whole) + len(fraction) > 40:
            raise ValueError(f'time: invalid duration "{text}"')
        scale = _NANOSECONDS[unit]
        total += int(whole or "0") * scale + int(fraction or "0") * scale // 10 ** len(fraction)
        position = match.end()
    if total > _MAX_NANOSECONDS:
        raise ValueError(f'time: invalid duration "{text}"')
    return (-total if text[0] == "-" else total) / 1e9


def to_text(seconds: float) -> str:
    """The shortest Go spelling: `0s`, `15s`, `1m30s`, `1h0m0s`, `1.5ms`."""
    nanoseconds = round(seconds * 1e9)
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    for unit in ("ns", "µs", "ms"):
        if rest < 1000 * _NANOSECONDS[unit]:
            return f"{sign}{_fraction(rest, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(rest, _NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_fraction(rest, _NANOSECONDS['s'])}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _fraction(value: int, scale: int) -> str:
    whole, part = divmod(value, scale)
    if not part:
        return str(whole)
    digits = str(part).rjust(len(str(scale)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
