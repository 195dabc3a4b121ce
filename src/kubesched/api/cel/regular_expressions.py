"""Regular expressions in time linear in the text, for any pattern.

Python's `re` backtracks: `(a|a)*b` on thirty letters takes minutes. Expressions come from users, so
patterns run on an automaton instead: `matches` on a deterministic one built lazily, `find` on the
list of possible match positions (leftmost, first alternative first).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.regular_expression_syntax import (
    Assertion,
    CharClass,
    Choice,
    Concatenation,
    Repeat,
    Tree,
    parse,
)

MAX_PROGRAM = 20_000
"""Instructions of a compiled pattern. Go allows some millions."""
_MAX_TRANSITIONS = 20_000
_WORD = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
_END = ""
"""Stands for the character before the first and after the last."""


@functools.lru_cache(maxsize=256)
def compile(pattern: str) -> Regex:
    """Compile a pattern in RE2 syntax; raises EvaluationError with Go's text."""
    try:
        return Regex(pattern)
    except RecursionError as error:
        raise EvaluationError(
            f"error parsing regexp: expression nests too deeply: `{pattern}`"
        ) from error


@dataclass(slots=True)
class _Split:
    """Continues at the first instruction, or failing that at the second."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class _Accept:
    """Consumes a character of a class, then continues at the next instruction."""

    characters: CharClass


class _Matched:
    """The pattern is complete."""


_Instruction = _Split | _Accept | Assertion | _Matched


class Regex:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._program: list[_Instruction] = []
        self._emit(parse(pattern))
        self._program.append(_Matched())
        self._has_assertions = any(isinstance(step, Assertion) for step in self._program)
        self._transitions: dict[tuple[frozenset[int], str, str], frozenset[int] | None] = {}

    def matches(self, text: str) -> bool:
        """True if the pattern matches anywhere in the text."""
        states: frozenset[int] | None = frozenset((0,))
        before = _END
        transitions = self._transitions
        context = self._has_assertions
        for character in (*text, _END):
            assert states is not None
            key = (states, before, character)
            if key in transitions:
                states = transitions[key]
            else:
                states = self._advance(states, before, character)
                if len(transitions) >= _MAX_TRANSITIONS:
                    transitions.clear()
                transitions[key] = states
            if states is None:
                return True
            if context:
                before = _kind(character)
        return False

    def find(self, text: str) -> str:
        """The leftmost match, or an empty string."""
        span = self._search(text, 0)
        return "" if span is None else text[span[0] : span[1]]

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Matches that do not overlap, at most `limit` if that is not negative."""
        spans = self._spans(text)
        if limit >= 0:
            spans = itertools.islice(spans, limit)
        return [text[begin:end] for begin, end in spans]

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        at, previous_end = 0, -1
        while at <= len(text):
            span = self._search(text, at)
            if span is None:
                return
            begin, end = span
            # An empty match right after the previous one does not count.
            if end > begin or begin != previous_end:
                yield span
            previous_end = end
            at = end if end > begin else end + 1

    # -- compilation -------------------------------------------------------------------------------

    def _emit(self, tree: Tree) -> None:
        program = self._program
        if len(program) > MAX_PROGRAM:
            raise EvaluationError(f"error parsing regexp: expression too large: `{self.pattern}`")
        match tree:
            case CharClass():
                program.append(_Accept(tree))
            case Assertion():
                program.append(tree)
            case Concatenation():
                for part in tree.parts:
                    self._emit(part)
            case Choice():
                self._emit_choice(tree)
            case Repeat():
                self._emit_repeat(tree)

    def _emit_choice(self, tree: Choice) -> None:
        program = self._program
        jumps: list[_Split] = []
        for option in tree.options[:-1]:
            split = _Split(len(program) + 1, 0)
            program.append(split)
            self._emit(option)
            jump = _Split(0, -1)
            program.append(jump)
            jumps.append(jump)
            split.second = len(program)
        self._emit(tree.options[-1])
        for jump in jumps:
            jump.first = len(program)

    def _emit_repeat(self, tree: Repeat) -> None:
        program = self._program
        if tree.high is None:
            self._emit_endless(tree)
            return
        for _ in range(tree.low):
            self._emit(tree.part)
        splits = []
        for _ in range(tree.high - tree.low):
            split = _Split(0, 0)
            splits.append((split, len(program) + 1))
            program.append(split)
            self._emit(tree.part)
        for split, into in splits:
            self._aim(split, into, len(program), tree.lazy)

    def _emit_endless(self, tree: Repeat) -> None:
        program = self._program
        for _ in range(tree.low - 1):
            self._emit(tree.part)
        before = len(program)
        optional: _Split | None = None
        if tree.low == 0:
            optional = _Split(0, 0)
            program.append(optional)
        start = len(program)
        self._emit(tree.part)
        if optional is not None and not _is_nullable(tree.part):
            program.append(_Split(before, -1))
        else:
            # An iteration that consumes nothing must be able to leave the loop: `x*` becomes
            # `(x+)?`.
            again = _Split(0, 0)
            program.append(again)
            self._aim(again, start, len(program), tree.lazy)
        if optional is not None:
            self._aim(optional, start, len(program), tree.lazy)

    def _aim(self, split: _Split, into: int, past: int, lazy: bool) -> None:
        split.first, split.second = (past, into) if lazy else (into, past)

    # -- running -----------------------------------------------------------------------------------

    def _advance(self, states: frozenset[int], before: str, after: str) -> frozenset[int] | None:
        """The states after one more character; None if the pattern is complete before it."""
        reached: list[tuple[int, int]] = [(0, 0)]  # a match may also begin at the next character
        seen: set[int] = set()
        for place in sorted(states):
            if not self._step(place, 0, before, after, seen, reached):
                return None
        return frozenset(place for place, _begin in reached)

    def _search(self, text: str, start: int) -> tuple[int, int] | None:
        """The leftmost match at or after `start`; among those, the preferred one."""
        threads: list[tuple[int, int]] = []  # instruction and start of its match, preferred first
        best: tuple[int, int] | None = None
        for at in range(start, len(text) + 1):
            before = text[at - 1] if at else _END
            after = text[at] if at < len(text) else _END
            if best is None:
                threads.append((0, at))
            elif not threads:
                break
            seen: set[int] = set()
            following: list[tuple[int, int]] = []
            for place, begin in threads:
                if not self._step(place, begin, before, after, seen, following):
                    best = (begin, at)
                    break  # less preferred threads no longer matter
            threads = following
        return best

    def _step(
        self,
        place: int,
        begin: int,
        before: str,
        after: str,
        seen: set[int],
        following: list[tuple[int, int]],
    ) -> bool:
        """Move one thread over a character; false if it is complete."""
        stack = [place]
        while stack:
            place = stack.pop()
            if place in seen or place < 0:
                continue
            seen.add(place)
            step = self._program[place]
            if isinstance(step, _Matched):
                return False
            if isinstance(step, _Split):
                stack.append(step.second)
                stack.append(step.first)
            elif isinstance(step, Assertion):
                if _holds(step.kind, before, after):
                    stack.append(place + 1)
            elif after and step.characters.accepts(after):
                following.append((place + 1, begin))
        return True


def _is_nullable(tree: Tree) -> bool:
    """Whether the tree can match without consuming."""
    match tree:
        case CharClass():
            return False
        case Concatenation():
            return all(map(_is_nullable, tree.parts))
        case Choice():
            return any(map(_is_nullable, tree.options))
        case Repeat():
            return tree.low == 0 or _is_nullable(tree.part)
    return True


def _kind(character: str) -> str:
    """A representative of all characters that assertions treat alike."""
    if character in _WORD:
        return "a"
    return character if character in ("\n", _END) else " "


def _holds(kind: str, before: str, after: str) -> bool:
    if kind == "text_start":
        return before == _END
    if kind == "text_end":
        return after == _END
    if kind == "line_start":
        return before in (_END, "\n")
    if kind == "line_end":
        return after in (_END, "\n")
    at_boundary = (before in _WORD) is not (after in _WORD)
    return at_boundary if kind == "boundary" else not at_boundary
