"""NominatingInfo: how an attempt changes the pod's nominated node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """What to do with the pod's nominated node: keep it (`override` False) or set it (empty name clears)."""

    override: bool = False
    node_name: str = ""


KEEP_NOMINATION: Final = NominatingInfo()
CLEAR_NOMINATION: Final = NominatingInfo(override=True)
