"""The frame that closures share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.values import Value

Frame = list[Value]
"""The cost so far, then the variables."""
Plan = Callable[[Frame], Value]


@dataclass(frozen=True, slots=True)
class Raised:
    """An error stored in a variable; using the variable raises it."""

    error: EvaluationError
