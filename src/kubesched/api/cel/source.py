"""The text of an expression, and positions of problems in it."""

from __future__ import annotations

from kubesched.api.cel.errors import Issue

MAX_ISSUES = 100


class Source:
    """An expression's text. Offsets count code points."""

    def __init__(self, text: str) -> None:
        self.text = text

    def issue(self, offset: int, message: str) -> Issue:
        """A problem at `offset`; a negative offset means no position."""
        if offset < 0:
            return Issue(message, -1, -1)
        if not self.text:  # upstream has no column for it
            return Issue(message, 1, -1)
        before = self.text[:offset]
        line = before.count("\n") + 1
        return Issue(message, line, offset - (before.rfind("\n") + 1))


def in_order(issues: list[Issue]) -> list[Issue]:
    """Issues in report order: by position, at most one hundred."""
    return sorted(issues, key=lambda issue: (issue.line, issue.column))[:MAX_ISSUES]
