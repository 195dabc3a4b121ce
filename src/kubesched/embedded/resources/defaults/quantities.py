"""Quantities in the form a typed server gives them back: readable, canonical, no finer than a thousandth."""

from __future__ import annotations

from functools import lru_cache

from kubesched.api import quantity
from kubesched.embedded.apimachinery.objects import Json, JsonObject

_MILLI = -3


@lru_cache(maxsize=16384)
def rounded(raw: Json) -> str:
    """The quantity rounded up to thousandths; `QuantityError` if it cannot be read."""
    return str(quantity.parse(raw).round_up(_MILLI))


def round_list(amounts: JsonObject | None) -> None:
    """Round a resource list in place."""
    if amounts:
        for name, amount in amounts.items():
            amounts[name] = rounded(amount)
