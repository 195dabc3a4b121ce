"""NominatingInfo: how an attempt changes the pod's nominated node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """Keeps the pod's nominated node (`override` False) or sets it (an empty name clears it)."""

    override: bool = False
    node_name: str = ""


KEEP_NOMINATION: Final = NominatingInfo()
CLEAR_NOMINATION: Final = NominatingInfo(override=True)
