"""What a pod asks for as a whole, from its JSON: the sum that LimitRanges and ResourceQuotas are measured with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from kubesched.api import quantity
from kubesched.api.quantity import Quantity
from kubesched.embedded.apimachinery.objects import JsonObject

Totals: TypeAlias = dict[str, Quantity]
Side: TypeAlias = Literal["requests", "limits"]


def pod_total(spec: JsonObject, side: Side) -> Totals:
    """Requests or limits: containers and sidecars together, or the largest moment of initialisation; plus overhead."""
    running: Totals = {}
    for container in spec.get("containers") or ():
        running = _add(running, _amounts(container, side))
    sidecars: Totals = {}
    starting: Totals = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, side)
        if container.get("restartPolicy") == "Always":
            sidecars = _add(sidecars, own)
            own = sidecars
        else:
            own = _add(sidecars, own)
        starting = _largest(starting, own)
    total = _largest(_add(running, sidecars), starting)
    total.update(_parsed((spec.get("resources") or {}).get(side)))
    overhead = _parsed(spec.get("overhead"))
    if side == "limits":  # Upstream: overhead raises only limits that are set.
        overhead = {name: amount for name, amount in overhead.items() if name in total}
    return _add(total, overhead)


def _amounts(container: JsonObject, side: Side) -> Totals:
    return _parsed((container.get("resources") or {}).get(side))


def _parsed(amounts: JsonObject | None) -> Totals:
    return {name: quantity.parse(amount) for name, amount in (amounts or {}).items()}


def _add(first: Totals, second: Totals) -> Totals:
    return {
        name: first[name] + second[name] if name in first and name in second else present
        for name, present in _both(first, second)
    }


def _largest(first: Totals, second: Totals) -> Totals:
    return {
        name: max(first[name], second[name]) if name in first and name in second else present
        for name, present in _both(first, second)
    }


def _both(first: Totals, second: Totals) -> Iterable[tuple[str, Quantity]]:
    return {**second, **first}.items()
