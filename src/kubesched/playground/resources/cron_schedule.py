"""Cron schedules: five fields, or a descriptor such as `@hourly` or `@every 90s`, in a time zone.

    minute hour day-of-month month day-of-week

A field is `*`, `?`, a value, a range `a-b`, a step `*/n` or `a-b/n`, or a list of these; months and
weekdays have names. Of two restricted day fields one must match. Skipped local times never match.
"""

from __future__ import annotations

import calendar
import datetime
import zoneinfo
from dataclasses import dataclass
from typing import TypeAlias

from kubesched.api import times

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_WEEKDAYS = {
    name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
}
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _WEEKDAYS),
)
"""Minimum and maximum of each field, and names of its values."""

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SEARCH_YEARS = 5
"""An expression without a match for this many years (30 February) never matches."""


@dataclass(frozen=True, slots=True)
class Every:
    """`@every`: a fixed interval from any start."""

    period_s: int

    def next_after(self, moment: float) -> float:
        return float(int(moment) + self.period_s)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    needs_both_days: bool
    """One of the day fields is `*`, so the other alone decides."""
    zone: datetime.tzinfo

    def next_after(self, moment: float) -> float | None:
        """The first time after `moment`, in seconds since the epoch; None if there is none."""
        start = datetime.datetime.fromtimestamp(moment, self.zone)
        local = start.replace(tzinfo=None, second=0, microsecond=0) + _MINUTE
        last_year = local.year + _SEARCH_YEARS
        while local.year <= last_year:
            if local.month not in self.months:
                local = _next_month(local)
            elif not self._is_day(local):
                local = local.replace(hour=0, minute=0) + _DAY
            elif local.hour not in self.hours:
                local = local.replace(minute=0) + _HOUR
            elif local.minute not in self.minutes:
                local += _MINUTE
            else:
                candidate = self._moment(local)
                if candidate is not None and candidate > moment:
                    return candidate
                local += _MINUTE
        return None

    def _is_day(self, local: datetime.datetime) -> bool:
        by_day = local.day in self.days
        by_weekday = local.isoweekday() % 7 in self.weekdays
        return by_day and by_weekday if self.needs_both_days else by_day or by_weekday

    def _moment(self, local: datetime.datetime) -> float | None:
        aware = local.replace(tzinfo=self.zone)
        back = datetime.datetime.fromtimestamp(aware.timestamp(), self.zone)
        return aware.timestamp() if back.replace(tzinfo=None) == local else None


Schedule: TypeAlias = Every | Cron
_MINUTE = datetime.timedelta(minutes=1)
_HOUR = datetime.timedelta(hours=1)
_DAY = datetime.timedelta(days=1)


def _next_month(local: datetime.datetime) -> datetime.datetime:
    first = local.replace(day=1, hour=0, minute=0)
    return (
        first.replace(year=local.year + 1, month=1)
        if local.month == 12
        else first.replace(month=local.month + 1)
    )


def parse_zone(name: str) -> datetime.tzinfo:
    """The time zone of this name; UTC for an empty one.

    Raises:
        ValueError: there is no such zone.
    """
    if not name:
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name}") from None


def parse_schedule(text: str, zone: datetime.tzinfo = datetime.UTC) -> Schedule:
    """Parse a schedule.

    Raises:
        ValueError: with the parser's message.
    """
    if text.startswith("@every "):
        try:
            period = times.parse_duration(text.removeprefix("@every "))
        except ValueError as error:
            raise ValueError(f"failed to parse duration {text}: {error}") from None
        return Every(max(1, int(period)))
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise ValueError(f"unrecognized descriptor: {text}")
    parts = _DESCRIPTORS.get(text, text).split()
    if len(parts) != len(_FIELDS):
        listed = " ".join(parts)
        raise ValueError(f"expected exactly {len(_FIELDS)} fields, found {len(parts)}: [{listed}]")
    minutes, hours, days, months, weekdays = (
        _parse_field(part, low, high, names)
        for part, (low, high, names) in zip(parts, _FIELDS, strict=True)
    )
    return Cron(
        minutes, hours, days, months, weekdays, _is_star(parts[2]) or _is_star(parts[4]), zone
    )


def _is_star(field: str) -> bool:
    return any(part.partition("/")[0] in ("*", "?") for part in field.split(","))


def _parse_field(field: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for part in field.split(","):
        values |= _parse_range(part, low, high, names)
    return frozenset(values)


def _parse_range(part: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    span, slash, step_text = part.partition("/")
    first_text, dash, last_text = span.partition("-")
    if first_text in ("*", "?") and not dash:
        first, last = low, high
    else:
        first = _parse_value(first_text, names)
        last = _parse_value(last_text, names) if dash else (high if slash else first)
    step = _parse_value(step_text, {}) if slash else 1
    if first < low:
        raise ValueError(f"beginning of range ({first}) below minimum ({low}): {part}")
    if last > high:
        raise ValueError(f"end of range ({last}) above maximum ({high}): {part}")
    if first > last:
        raise ValueError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {part}")
    return set(range(first, last + 1, step))


def _parse_value(text: str, names: dict[str, int]) -> int:
    known = names.get(text.lower())
    if known is not None:
        return known
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(
            f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
        )
    return int(text)
