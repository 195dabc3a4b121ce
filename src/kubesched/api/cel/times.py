"""Durations and timestamps as text, and the parts of a timestamp, as in Go's `time` package."""

from __future__ import annotations

import calendar
import re
import zoneinfo
from datetime import UTC, datetime, timedelta

from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.operators import SECOND, checked_timestamp, show_positional
from kubesched.api.cel.values import Duration, Timestamp
from kubesched.api.times import TimeError, parse_duration_nanos

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})"
    r"(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_OFFSET = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DAY = 86400


def parse_duration(text: str) -> Duration | None:
    """`1h30m`, `-1.5s`; None if the text is not a duration or out of range."""
    try:
        return Duration(parse_duration_nanos(text))
    except TimeError:
        return None


def format_duration(duration: Duration) -> str:
    """Seconds in decimal: `90s`, `0.5s`."""
    nanos = abs(duration.nanos)
    seconds = nanos // SECOND + (nanos % SECOND) / 1e9
    text = show_positional(-seconds if duration.nanos < 0 else seconds)
    return f"{text}s"


def parse_timestamp(text: str) -> Timestamp | None:
    """RFC 3339; None for any other text.

    Raises:
        EvaluationError: it is a time outside the years 1 to 9999.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
    if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    nanos = int((match[7] or "0")[:9].ljust(9, "0"))
    offset = 0
    if match[8]:
        if int(match[9]) > 24 or int(match[10]) > 60:
            return None
        offset = (int(match[9]) * 60 + int(match[10])) * 60 * (-1 if match[8] == "-" else 1)
    days = _days_from_civil(year, month, day)
    seconds = days * _DAY + hour * 3600 + minute * 60 + second - offset
    return checked_timestamp(seconds * SECOND + nanos, offset)


def format_timestamp(timestamp: Timestamp) -> str:
    seconds, nanos = divmod(timestamp.nanos, SECOND)
    local = seconds + timestamp.offset_seconds
    year, month, day = _civil_from_days(local // _DAY)
    hour, minute, second = local % _DAY // 3600, local % 3600 // 60, local % 60
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    zone = "Z"
    if timestamp.offset_seconds:
        total = abs(timestamp.offset_seconds) // 60
        sign = "-" if timestamp.offset_seconds < 0 else "+"
        zone = f"{sign}{total // 60:02d}:{total % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{fraction}{zone}"


class Parts:
    """Calendar and clock of a timestamp in a time zone."""

    def __init__(self, timestamp: Timestamp, zone: str = "UTC") -> None:
        seconds, nanos = divmod(timestamp.nanos, SECOND)
        local = seconds + _offset_of(zone, seconds)
        days = local // _DAY
        self.year, self.month, self.day = _civil_from_days(days)
        self.day_of_year = days - _days_from_civil(self.year, 1, 1)
        self.day_of_week = (days + 4) % 7
        self.hour = local % _DAY // 3600
        self.minute = local % 3600 // 60
        self.second = local % 60
        self.millisecond = nanos // 1_000_000


def _offset_of(zone: str, seconds: int) -> int:
    """Seconds east of UTC at that time, for a name such as `Europe/Oslo` or an offset `-02:30`."""
    hours, colon, minutes = zone.partition(":")
    if colon:
        for part in (hours, minutes):
            if not _OFFSET.fullmatch(part) or len(part) > 18:
                raise EvaluationError(f'strconv.Atoi: parsing "{part}": invalid syntax')
        total = int(hours) * 60
        total += -int(minutes) if zone.startswith("-") else int(minutes)
        return total * 60
    if zone in ("", "UTC"):
        return 0
    try:
        named = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise EvaluationError(f"unknown time zone {zone}") from error
    # Years outside datetime's range have the offset of the nearest year inside.
    bounded = min(max(seconds, -62135510400), 253402214400)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=bounded)
    offset = moment.astimezone(named).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


# -- the proleptic Gregorian calendar, without the bounds of datetime ------------------------------


def _days_from_civil(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _civil_from_days(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719468, 146097)
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day
