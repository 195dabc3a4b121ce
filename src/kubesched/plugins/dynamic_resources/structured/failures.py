"""How an allocation can end other than with devices or with none to be had."""

from __future__ import annotations


class AllocationError(Exception):
    """The claims cannot be judged: the scheduling attempt fails, whatever other nodes offer."""


class AllocationTimeout(AllocationError):
    """The search exceeded its time limit."""


class InvalidPools(Exception):
    """No solution on this node, where some pool is invalid. Other nodes may still fit."""

    def __init__(self) -> None:
        super().__init__("invalid resource pools were encountered")
