"""Errors of expressions with cel-go's texts, and their positions in the expression."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.base.errors import KubeschedError

MAX_ISSUES = 100


class CelError(KubeschedError):
    """Base of all errors about an expression."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem of an expression and its position."""

    message: str
    line: int
    """1 for the first line; -1 if the problem has no position."""
    column: int
    """0 for the first character; -1 if the problem has no position."""

    def format(self, lines: list[str]) -> str:
        """The problem with the line of the expression and a mark under the column."""
        text = f"ERROR: <input>:{self.line}:{self.column + 1}: {self.message}"
        if not 0 < self.line <= len(lines) or self.column < 0:
            return text
        source = lines[self.line - 1].replace("\t", " ")
        marked = "".join(map(_dot, source[: self.column]))
        at = source[self.column] if self.column < len(source) else ""
        return f"{text}\n | {source}\n | {marked}{'^' if _is_narrow(at) else '＾'}"


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


class CompileError(CelError):
    """The expression does not parse or does not type-check; the text is cel-go's issue list."""

    def __init__(self, issues: list[Issue], expression: str) -> None:
        self.issues = issues
        self.expression = expression
        lines = expression.split("\n")
        super().__init__("\n".join(issue.format(lines) for issue in issues))


class InstantiationError(CelError):
    """A constant part of a well-typed expression cannot be evaluated, such as `int("x")`."""


class EvaluationError(CelError):
    """Evaluation failed; the text is cel-go's."""


class CostLimitExceededError(EvaluationError):
    """Evaluation was cancelled because it exceeded the environment's cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def _is_narrow(character: str) -> bool:
    return character < "\x80"


def _dot(character: str) -> str:
    """A mark as wide as the character above it."""
    return "." if _is_narrow(character) else "．"
