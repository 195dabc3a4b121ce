"""What a column filter says about many nodes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kubesched.framework.status import Status
from kubesched.snapshot.columns import Mask


class Verdicts:
    """A code per node, 0 meaning "passes", and what each other code means.

    Codes are the plugin's own: a plain flag, an index into a list of statuses, a bit set of missing resources. Only
    when somebody asks why (a pod that fits nowhere, a person) is a code turned into a status, once per distinct code.

    Where `broken` is true the plugin could not judge: its code then describes an error, which ends the attempt if that
    node is still in the running.
    """

    __slots__ = ("broken", "codes", "describe")

    def __init__(
        self,
        codes: np.ndarray[Any, Any],
        describe: Callable[[int], Status],
        broken: Mask | None = None,
    ) -> None:
        self.codes = codes
        self.describe = describe
        self.broken = broken

    @classmethod
    def reject(cls, rejected: Mask, status: Status) -> Verdicts:
        """The common case: one reason, true where it applies."""
        return cls(rejected, lambda _code: status)
