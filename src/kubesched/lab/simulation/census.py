"""Counts injected faults by kind.

Counted outside the trace, so that the digest of a run does not depend on the counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from kubesched.lab.simulation.options import EPISODES, FURTHER_EPISODES

CODES: Final = (409, 429, 500, 503)
"""Status codes of rejected calls."""
UNUSUAL_CODES: Final = (401, 403, 404, 422)
"""Only in some runs. 404 only for lists, watches and creations: it must not deny an object."""
LOST: Final = {
    "unreachable": "connection refused",
    "broken": "connection broken",
    "silent": "no answer in time",
    "refused": "error answered",
}
"""How a call fails for its caller."""
CHANGES: Final = (
    *("add_node", "remove_node", "relabel_node", "taint_node", "cordon_node", "resize_node"),
    *("delete_pod", "recreate_pod", "ungate_one", "change_budget", "delete_claim", "refuse_node"),
    *("compact", "change_slice", "delete_resource_claim", "restore_shared_claims"),
    *("delete_group", "change_min_count", "grow_group", "relabel_namespace"),
    *("resize_pod", "relabel_pod", "add_odd_pod", "add_odd_node"),
)
MOODS: Final = ("dead", "nonsense", "refuses", "errs", "silent", "breaks", "slow", "moody")

FAULTS: Final = {
    "calls": (
        "late",
        *(f"refused with {code}" for code in (*CODES, *UNUSUAL_CODES)),
        "asked to wait for an absurd time",
        *(
            "arrived after its deadline",
            "answered after its deadline",
            "answered at the last moment",
        ),
        *(f"{LOST[how]} without effect" for how in ("unreachable", "broken", "silent")),
        *(f"{LOST[how]} after it took effect" for how in ("broken", "silent", "refused")),
    ),
    "watches": ("late", "overtaken", "repeated", "cut", "expired", "silent", "in pieces"),
    "processes": (
        *("crashed in a call without effect", "crashed in a call that took effect"),
        "started again",
        *("cut off from the lease", "cut off", "lost the lead", "took the lead"),
        "frozen",
    ),
    "time": ("clock jumped", "world frozen", "clock drifts", "restored to an older revision"),
    "cluster": CHANGES,
    "plugins": (
        *("raised", "returned garbage", "returned an error"),
        *("held and allowed", "held and rejected", "held and forgot"),
    ),
    "extenders": MOODS,
    "episodes": (*EPISODES, *FURTHER_EPISODES),
    "disks": (
        *("short write", "write failed", "no room", "file not deleted"),
        *("not synced", "crashed in a write", "power failed", "sector torn"),
    ),
}
"""Kinds of faults by place."""


class Census:
    """Counts of the kinds in `FAULTS`."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def tally(self, where: str, what: str) -> None:
        assert what in FAULTS[where], f"unknown fault {what} among {where}"
        self._counts[where, what] += 1

    def to_plain(self) -> dict[str, dict[str, int]]:
        """Includes kinds that did not occur, as zero."""
        return {
            where: {what: self._counts[where, what] for what in kinds}
            for where, kinds in FAULTS.items()
        }


def total(censuses: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """The sum of several runs' counts."""
    totals = Census().to_plain()
    for counts in censuses:
        for where, kinds in counts.items():
            for what, count in kinds.items():
                totals[where][what] += count
    return totals
