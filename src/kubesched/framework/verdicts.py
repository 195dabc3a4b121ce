"""Verdicts: the answer of a column filter for many nodes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kubesched.framework.nodes.columns import Mask
from kubesched.framework.status import Status

Codes = np.ndarray[Any, Any]


class Verdicts:
    """A code per node (0 means "passes"), and the meaning of each other code.

    Codes are the plugin's own: a flag, an index into a list of statuses, a bit set of missing
    resources. They are turned into statuses on demand (for an unschedulable pod, or `explain`),
    once per distinct code.

    Where `broken` is true the plugin failed to judge the node: its code then describes an error,
    which ends the attempt unless an earlier filter rejected that node.
    """

    __slots__ = ("broken", "codes", "describe")

    def __init__(
        self, codes: Codes, describe: Callable[[int], Status], broken: Mask | None = None
    ) -> None:
        self.codes = codes
        self.describe = describe
        self.broken = broken

    @property
    def rejected(self) -> Mask:
        """True where the node does not pass."""
        codes = self.codes
        return codes if codes.dtype.kind == "b" else codes != 0

    @classmethod
    def reject(cls, rejected: Mask, status: Status) -> Verdicts:
        """The common case: one status for all nodes where `rejected` is true."""
        return cls(rejected, lambda _code: status)

    @classmethod
    def numbered(
        cls, codes: Codes, statuses: Sequence[Status], broken: Mask | None = None
    ) -> Verdicts:
        """Code 1 means the first status, 2 the second, and so on."""
        return cls(codes, lambda code: statuses[code - 1], broken)
