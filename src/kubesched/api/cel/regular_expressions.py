"""Regular expressions as Go has them: RE2's syntax, in time linear in the text.

Python's `re` backtracks: `(a|a)*b` on thirty letters takes minutes, and expressions come from
users. RE2 itself does the work; imported with the first pattern.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from kubesched.api.cel.errors import EvaluationError

if TYPE_CHECKING:
    import re2

_GO_TEXTS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}
"""RE2's words for an error -> Go's, where they differ."""
_ANY_BYTE = re.compile(r"(?:[^\\]|\\Q.*?\\E|\\[^C])*\\C", re.DOTALL)


@functools.lru_cache(maxsize=256)
def compile(pattern: str) -> Regex:
    """Compile a pattern; raises EvaluationError with Go's text."""
    return Regex(pattern)


class Regex:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        import re2

        if _ANY_BYTE.match(pattern):  # a byte may be part of a character; Go knows no such class
            raise EvaluationError(r"error parsing regexp: invalid escape sequence: `\C`")
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled: re2._Regexp[str] = re2.compile(_encodable(pattern), options)
        except re2.error as error:
            (text,) = error.args
            raise EvaluationError(_in_go_words(text.decode())) from None

    def matches(self, text: str) -> bool:
        """True if the pattern matches anywhere in the text."""
        return self._compiled.search(_encodable(text)) is not None

    def find(self, text: str) -> str:
        """The leftmost match, or an empty string."""
        found = self._compiled.search(_encodable(text))
        return "" if found is None else found.group()

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Matches that do not overlap, at most `limit` if that is not negative."""
        found: list[str] = []
        previous_end = -1
        for match in self._compiled.finditer(_encodable(text)):
            if len(found) == limit:
                break
            # An empty match right after the previous one does not count.
            if match.end() > match.start() or match.start() != previous_end:
                found.append(match.group())
            previous_end = match.end()
        return found


def _encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _in_go_words(text: str) -> str:
    what, colon, part = text.partition(": ")
    what = _GO_TEXTS.get(what, what)
    return f"error parsing regexp: {what}: `{part if colon else ''}`"
