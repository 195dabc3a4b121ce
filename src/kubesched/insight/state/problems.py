"""Problems in a dump: file, line, object, field."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.base.errors import KubeschedError

SHOWN = 20
"""Number of problems listed in an error message; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One malformed document or object."""

    file: str
    line: int
    message: str
    """Starts with the object, if known: `Pod default/a: spec.containers: expected array`."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class StateError(KubeschedError):
    """A state cannot be loaded; lists all problems."""

    def __init__(self, problems: list[Problem] | str) -> None:
        self.problems = [] if isinstance(problems, str) else problems
        super().__init__(problems if isinstance(problems, str) else _text(problems))


def _text(problems: list[Problem]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    lines = [f"  {problem}" for problem in problems[:SHOWN]]
    if more := len(problems) - SHOWN:
        lines += [f"  and {more} more"] if more > 0 else []
    return f"{len(problems)} objects cannot be read:\n" + "\n".join(lines)
