"""Times and durations as text: RFC 3339 timestamps and Go's durations (`1m30s`).

Internally, a time is a float of seconds since the epoch and a duration a float of seconds. Records
keep the text as sent.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta, timezone

from kubesched.base.errors import KubeschedError

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


class TimeError(KubeschedError, ValueError):
    """The text is not a time or duration."""


@functools.lru_cache(maxsize=8192)
def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp, to the microsecond."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise TimeError(f"cannot parse {_quoted(text)} as an RFC 3339 time")
    *fields, fraction, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = UTC if sign is None else timezone(-offset if sign == "-" else offset)
        year, month, day, hour, minute, second = map(int, fields)
        whole = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as error:
        raise TimeError(f"cannot parse {_quoted(text)} as an RFC 3339 time: {error}") from None
    return whole.timestamp() + int((fraction or "0").ljust(6, "0")[:6]) / 1e6


def format_time(seconds: float) -> str:
    """An RFC 3339 timestamp with whole seconds, the format of most fields."""
    return f"{_to_microseconds(seconds):%Y-%m-%dT%H:%M:%SZ}"


def format_micro_time(seconds: float) -> str:
    """An RFC 3339 timestamp with six decimals, the format of leases and events."""
    # There are hundreds of events per second, so the text of a second is cached.
    whole, micros = split_micros(seconds)
    return f"{_second_text(whole)}.{micros:06d}Z"


def split_micros(seconds: float) -> tuple[int, int]:
    """Whole seconds and the remaining microseconds."""
    return divmod(round(seconds * 1e6), 1_000_000)


@functools.lru_cache(maxsize=16)
def _second_text(whole: int) -> str:
    return f"{_to_microseconds(whole):%Y-%m-%dT%H:%M:%S}"


def _to_microseconds(seconds: float) -> datetime:
    # Through an integer: datetime's rounding of floats may be off by one microsecond.
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(seconds * 1e6))


_UNIT_NANOS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)", re.ASCII)
_MAX_NANOS = 2**63 - 1


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as `1m30s` or `500ms`; errors are Go's."""
    return parse_duration_nanos(text) / 1e9


def parse_duration_nanos(text: str) -> int:
    """Nanoseconds of a Go duration."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, position = 0, 0
    while position < len(rest) or not rest:
        part = _DURATION_PART.match(rest, position)
        if part is None or not (part.group(1) or part.group(2)):
            raise TimeError(f"time: invalid duration {_quoted(text)}")
        whole, fraction, unit = part.groups()
        if not unit:
            raise TimeError(f"time: missing unit in duration {_quoted(text)}")
        if unit not in _UNIT_NANOS:
            raise TimeError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
        total += int(whole[-30:] or "0") * _UNIT_NANOS[unit]
        if fraction:
            total += int(fraction[:18]) * _UNIT_NANOS[unit] // 10 ** len(fraction[:18])
        if total > _MAX_NANOS + text.startswith("-") or len(whole.lstrip("0")) > 30:
            raise TimeError(f"time: invalid duration {_quoted(text)}")
        position = part.end()
    return -total if text.startswith("-") else total


def format_duration(seconds: float) -> str:
    """A duration as Go prints it: `1h0m0s`, `1m30s`, `1.5s`, `500ms`, `0s`."""
    nanos = round(abs(seconds) * 1e9)
    if nanos == 0:
        return "0s"
    sign = "-" if seconds < 0 else ""
    for unit in ("ns", "µs", "ms"):
        if nanos < 1000 * _UNIT_NANOS[unit]:
            return f"{sign}{_decimal(nanos, _UNIT_NANOS[unit])}{unit}"
    minutes, nanos = divmod(nanos, _UNIT_NANOS["m"])
    text = f"{_decimal(nanos, _UNIT_NANOS['s'])}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")


def _quoted(text: str) -> str:
    """Text as Go's time package quotes it: plain ASCII, other bytes as numbers."""
    escaped = []
    for byte in text.encode():
        if byte in b'"\\':
            escaped.append(f"\\{byte:c}")
        else:
            escaped.append(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}")
    return f'"{"".join(escaped)}"'
