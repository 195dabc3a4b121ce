"""Whether a pod tolerates a node's taints."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from kubesched.api.core_v1 import Taint, Toleration
from kubesched.api.quantity import MAX_INT64, MIN_INT64

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"

DO_NOT_SCHEDULE: Collection[str] = (NO_SCHEDULE, NO_EXECUTE)
"""The effects that exclude a node; others are preferences or unknown."""

# Comparisons accept only canonical numbers: no sign but "-", no leading zeros.
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """True if this toleration covers this taint.

    Without `comparison_operators` (gate TaintTolerationComparisonOperators), `Gt` and `Lt` cover
    nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    # Upstream: an empty key matches every taint for every operator, so `Equal` with neither key nor
    # value tolerates each taint without a value. Validation forbids it, the matcher does not.
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator
    if operator in ("", "Equal"):
        return toleration.value == taint.value
    if operator == "Exists":
        return True
    if comparison_operators and operator in ("Gt", "Lt"):
        bound, value = _integer(toleration.value), _integer(taint.value)
        if bound is None or value is None:
            return False
        return value > bound if operator == "Gt" else value < bound
    return False


def is_tolerated(
    taint: Taint, tolerations: Sequence[Toleration] | None, *, comparison_operators: bool = False
) -> bool:
    """True if any toleration covers the taint."""
    return any(
        tolerates(toleration, taint, comparison_operators=comparison_operators)
        for toleration in tolerations or ()
    )


def first_untolerated_taint(
    taints: Sequence[Taint] | None,
    tolerations: Sequence[Toleration] | None,
    effects: Collection[str] = DO_NOT_SCHEDULE,
    *,
    comparison_operators: bool = False,
) -> Taint | None:
    """The first untolerated taint with one of `effects`, in the node's order."""
    for taint in taints or ():
        if taint.effect in effects and not is_tolerated(
            taint, tolerations, comparison_operators=comparison_operators
        ):
            return taint
    return None


def _integer(text: str) -> int | None:
    if not _CANONICAL_INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if MIN_INT64 <= number <= MAX_INT64 else None
