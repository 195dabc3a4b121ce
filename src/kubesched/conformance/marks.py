"""Marks on nodes: how a player knows that a scheduler has heard of everything that happened to nodes.

Before a decision that follows changes to nodes, the node that came last gets an annotation, and the scheduler is waited
for until it has handled that. A mark is an update of the node like any other, and schedulers look at a node anew when it
is updated (on how many nodes its images are, for one): whoever replays a sequence has to make the same marks.
"""

from __future__ import annotations

from kubesched.conformance.sequences import Json, Step


class NodeMarks:
    """The marks of one sequence."""

    def __init__(self) -> None:
        self.made = 0
        self._nodes: dict[str, None] = {}
        """In the order in which they came."""
        self._is_due = False

    def note(self, step: Step) -> None:
        """A step that changed a node has been made."""
        self._is_due = True
        if step.action == "create":
            self._nodes[step.name] = None
        elif step.action == "delete":
            del self._nodes[step.name]

    def is_due(self) -> bool:
        """Whether nodes have changed since the last time this was asked."""
        due, self._is_due = self._is_due, False
        return due

    def node(self) -> str:
        """The node to be marked; empty if there is none."""
        return next(reversed(self._nodes), "")

    def next(self) -> Json:
        """A change to the node that nothing is decided by."""
        self.made += 1
        return {"metadata": {"annotations": {"example.com/mark": str(self.made)}}}
