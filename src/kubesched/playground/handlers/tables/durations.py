"""Times as kubectl shows them."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import parse_timestamp

NONE = "<none>"


def age(stamp: str | None, now: float) -> str:
    """Time since a timestamp, in kubectl's short form."""
    if not stamp:
        return "<unknown>"
    return human_duration(now - parse_timestamp(stamp))


def human_duration(seconds: float) -> str:
    """At most two significant units: 45s, 3m10s, 15m, 2h5m, 25h, 3d4h, 12d, 2y30d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        rest = total % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    if years < 8:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"
