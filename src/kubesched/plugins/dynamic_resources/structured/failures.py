"""Allocation errors."""

from __future__ import annotations


class AllocationError(Exception):
    """The claims cannot be evaluated: the scheduling attempt fails, regardless of other nodes."""


class AllocationTimeout(AllocationError):
    """The search exceeded its time limit."""


class InvalidPools(Exception):
    """No solution on this node, which has an invalid pool. Other nodes may still fit."""

    def __init__(self) -> None:
        super().__init__("invalid resource pools were encountered")
