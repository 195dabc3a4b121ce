"""Marks on nodes tell a player that a scheduler has handled every node event.

Before a decision that follows changes to nodes, the newest node gets an annotation, and the player
waits until the scheduler has handled that update. Schedulers refresh a node on every update (for
example its image counts), so a replay must make the same marks.
"""

from __future__ import annotations

from kubesched.lab.conformance.sequences import Json, Step


class NodeMarks:
    """The marks of one sequence."""

    def __init__(self) -> None:
        self.made = 0
        self._nodes: dict[str, None] = {}
        """In order of creation."""
        self._is_due = False

    def note(self, step: Step) -> None:
        """Note a step that changed a node."""
        self._is_due = True
        if step.action == "create":
            self._nodes[step.name] = None
        elif step.action == "delete":
            del self._nodes[step.name]

    def is_due(self) -> bool:
        """Whether nodes have changed since the last call."""
        due, self._is_due = self._is_due, False
        return due

    def node(self) -> str:
        """The node to mark; empty if there is none."""
        return next(reversed(self._nodes), "")

    def next(self) -> Json:
        """A patch of the node that affects no decision."""
        self.made += 1
        return {"metadata": {"annotations": {"example.com/mark": str(self.made)}}}
