r"""Go's regular expression syntax: text to a tree, with Go's error texts.

The syntax is RE2's: no look-around and no back-references. Classes of scripts (`\p{Greek}`) are not
supported; general categories (`\p{Lu}`) are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from kubesched.api.cel.errors import EvaluationError

MAX_REPEAT = 1000
_MAX_NESTING = 200
"""Go allows 1000 levels."""


@dataclass(frozen=True, slots=True)
class CharClass:
    """Characters in any of the ranges or categories, or all others."""

    ranges: tuple[tuple[int, int], ...]
    categories: tuple[tuple[str, bool], ...] = ()
    """General category and whether it is negated."""
    negated: bool = False
    fold: bool = False

    def accepts(self, character: str) -> bool:
        if self._listed(character):
            return not self.negated
        if self.fold and any(self._listed(other) for other in _folded(character)):
            return not self.negated
        return self.negated

    def _listed(self, character: str) -> bool:
        code = ord(character)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        if not self.categories:
            return False
        category = unicodedata.category(character)
        return any(
            (category.startswith(name) or name == "Any") is not no for name, no in self.categories
        )


@dataclass(frozen=True, slots=True)
class Assertion:
    """An empty match: text_start, text_end, line_start, line_end, boundary or no_boundary."""

    kind: str


@dataclass(frozen=True, slots=True)
class Concatenation:
    """A sequence of parts."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives, preferred first."""

    options: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times; `high` is None if unbounded."""

    part: Tree
    low: int
    high: int | None
    lazy: bool


Tree = CharClass | Assertion | Concatenation | Choice | Repeat

_DIGIT = ((48, 57),)
_SPACE = ((9, 10), (12, 13), (32, 32))
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_MAX = 0x10FFFF
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CATEGORY = re.compile("Any|C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


def _folded(character: str) -> set[str]:
    """The other characters that are equal when case is ignored."""
    variants = {character.lower(), character.upper(), character.swapcase()}
    for variant in tuple(variants):
        variants |= {"k": {"K"}, "s": {"ſ"}, "å": {"Å"}}.get(variant, set())
    return {variant for variant in variants if len(variant) == 1}


def error(message: str, part: str) -> EvaluationError:
    return EvaluationError(f"error parsing regexp: {message}: `{part}`")


def parse(pattern: str) -> Tree:
    """The tree of a pattern; raises EvaluationError."""
    parser = _Parser(pattern)
    tree = parser.choice(0)
    if parser.at < len(pattern):
        raise error("unexpected )", pattern)
    return tree


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    ungreedy: bool = False


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.flags = _Flags()

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def starts(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    # -- structure ---------------------------------------------------------------------------------

    def choice(self, depth: int) -> Tree:
        if depth > _MAX_NESTING:
            raise error("expression nests too deeply", self.pattern)
        options: list[Tree] = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            options.append(self.sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self, depth: int) -> Tree:
        parts: list[Tree] = []
        repeated_at = -1
        """Position of the last repetition operator, if the last part is a repetition."""
        while self.peek() not in ("", "|", ")"):
            before = self.at
            if self.peek() in "*+?" or (self.peek() == "{" and self._bounds() is not None):
                if repeated_at >= 0:
                    self._skip_operator()
                    shown = self.pattern[repeated_at : self.at]
                    raise error("invalid nested repetition operator", shown)
                parts.append(self.repetition(parts))
                repeated_at = before
                continue
            repeated_at = -1
            if self.starts("\\Q"):
                parts.extend(self.quoted())
                continue
            part = self.single(depth)
            if part is not None:
                parts.append(part)
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _bounds(self) -> tuple[int, int | None, int] | None:
        """`{n,m}` at this position: the bounds and its end."""
        end = self.pattern.find("}", self.at)
        if end < 0:
            return None
        low, comma, high = self.pattern[self.at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or (low[0] == "0" and len(low) > 1):
            return None
        if high and (not (high.isascii() and high.isdigit()) or (high[0] == "0" and len(high) > 1)):
            return None
        lowest = int(low[:6])
        highest = lowest if not comma else (int(high[:6]) if high else None)
        return lowest, highest, end + 1

    def _skip_operator(self) -> bool:
        """Skips a repetition operator; true if it is lazy."""
        bounds = self._bounds() if self.peek() == "{" else None
        self.at = bounds[2] if bounds is not None else self.at + 1
        if self.peek() == "?":
            self.at += 1
            return True
        return False

    def repetition(self, parts: list[Tree]) -> Tree:
        start = self.at
        operator = self.peek()
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(operator, (0, None))
        bounds = self._bounds() if operator == "{" else None
        if bounds is not None:
            low, high = bounds[:2]
        lazy = self._skip_operator()
        shown = self.pattern[start : self.at]
        if not parts:
            raise error("missing argument to repetition operator", shown)
        part = parts.pop()
        too_many = low > MAX_REPEAT or (high or 0) > MAX_REPEAT
        if too_many or (high is not None and low > high):
            raise error("invalid repeat count", shown)
        tree = Repeat(part, low, high, lazy is not self.flags.ungreedy)
        if operator == "{" and _repeats(tree) > MAX_REPEAT:
            raise error("invalid repeat count", shown)
        return tree

    def single(self, depth: int) -> Tree | None:
        """A group, class, escape or character; None if only flags changed."""
        character = self.peek()
        if character == "(":
            return self.group(depth)
        if character == "[":
            return self.bracket_class()
        if character == "\\":
            return self.escape()
        self.at += 1
        if character == ".":
            newline = () if self.flags.dot_all else ((10, 10),)
            return CharClass(newline, negated=True)
        if character == "^":
            return Assertion("line_start" if self.flags.multi_line else "text_start")
        if character == "$":
            return Assertion("line_end" if self.flags.multi_line else "text_end")
        return self.literal(character)

    def quoted(self) -> list[CharClass]:
        r"""The characters of `\Q...\E`, separately: a repetition applies to the last one."""
        end = self.pattern.find("\\E", self.at)
        text = self.pattern[self.at + 2 : end if end >= 0 else None]
        self.at = end + 2 if end >= 0 else len(self.pattern)
        return list(map(self.literal, text))

    def literal(self, character: str) -> CharClass:
        code = ord(character)
        return CharClass(((code, code),), fold=self.flags.ignore_case)

    # -- groups ------------------------------------------------------------------------------------

    def group(self, depth: int) -> Tree | None:
        self.at += 1
        outer = self.flags
        if self.starts("?"):
            if self.starts("?P<") or self.starts("?<"):
                self._group_name()
            elif not self._group_flags():
                return None
        tree = self.choice(depth + 1)
        if self.peek() != ")":
            raise error("missing closing )", self.pattern)
        self.at += 1
        self.flags = outer
        return tree

    def _group_name(self) -> None:
        start = self.at - 1
        begin = self.pattern.index("<", self.at) + 1
        end = self.pattern.find(">", begin)
        if end < 0:
            raise error("invalid named capture", self.pattern[start:])
        name = self.pattern[begin:end]
        if not name or not all(c == "_" or (c.isascii() and c.isalnum()) for c in name):
            raise error("invalid named capture", self.pattern[start : end + 1])
        self.at = end + 1

    def _group_flags(self) -> bool:
        """Read `?flags:` or `?flags)`; true if a group follows."""
        start = self.at - 1
        self.at += 1
        values = {
            "i": self.flags.ignore_case,
            "m": self.flags.multi_line,
            "s": self.flags.dot_all,
            "U": self.flags.ungreedy,
        }
        on, seen = True, False
        while True:
            flag = self.peek()
            self.at += 1
            if flag in values and flag:
                values[flag] = on
                seen = True
            elif flag == "-" and on:
                on, seen = False, False
            elif flag in (":", ")") and flag and (on or seen):
                self.flags = _Flags(values["i"], values["m"], values["s"], values["U"])
                return flag == ":"
            else:
                part = self.pattern[start : self.at]
                raise error("invalid or unsupported Perl syntax", part)

    # -- escapes and classes -----------------------------------------------------------------------

    def escape(self) -> Tree:
        following = self.pattern[self.at + 1 : self.at + 2]
        assertions = {"A": "text_start", "z": "text_end", "b": "boundary", "B": "no_boundary"}
        if following in assertions and following:
            self.at += 2
            return Assertion(assertions[following])
        named = self._named_class()
        if named is not None:
            ranges, categories, negated = named
            return CharClass(ranges, categories, negated, self.flags.ignore_case)
        return self.literal(chr(self._escaped_code()))

    def _named_class(
        self,
    ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[str, bool], ...], bool] | None:
        r"""`\d`, `\W`, `\pL`, `\P{Lu}` at this place."""
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter and letter.lower() in _PERL:
            self.at += 2
            return _PERL[letter.lower()], (), letter.isupper()
        if letter not in ("p", "P"):
            return None
        start = self.at
        self.at += 2
        if self.peek() == "{":
            end = self.pattern.find("}", self.at)
            if end < 0:
                raise error("invalid character class range", self.pattern[start:])
            name = self.pattern[self.at + 1 : end]
            self.at = end + 1
        else:
            name = self.peek()
            self.at += 1
        negated = letter == "P"
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if not _CATEGORY.fullmatch(name):
            raise error("invalid character class range", self.pattern[start : self.at])
        return (), ((name, negated),), False

    def _escaped_code(self) -> int:
        start = self.at
        self.at += 1
        character = self.peek()
        if not character:
            raise EvaluationError(
                "error parsing regexp: trailing backslash at end of expression: ``"
            )
        self.at += 1
        if character in "1234567" and (self.peek() in "01234567" and self.peek()):
            return self._octal(character)
        if character == "0":
            return self._octal(character)
        if character == "x":
            return self._hexadecimal(start)
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isascii() and not character.isalnum():
            return ord(character)
        raise error("invalid escape sequence", self.pattern[start : self.at])

    def _octal(self, digits: str) -> int:
        while len(digits) < 3 and self.peek() and self.peek() in "01234567":
            digits += self.peek()
            self.at += 1
        return int(digits, 8)

    def _hexadecimal(self, start: int) -> int:
        r"""`\x7F` or `\x{10FFFF}`; the message shows the text up to the first wrong character."""
        braced = self.peek() == "{"
        self.at += braced
        code = digits = 0
        while braced or digits < 2:
            character = self.peek()
            self.at += bool(character)
            if braced and character == "}" and digits:
                return code
            if not character or character not in "0123456789abcdefABCDEF":
                raise error("invalid escape sequence", self.pattern[start : self.at])
            code = code * 16 + int(character, 16)
            digits += 1
            if code > _MAX:
                raise error("invalid escape sequence", self.pattern[start : self.at])
        return code

    def bracket_class(self) -> CharClass:
        start = self.at
        self.at += 1
        negated = self.peek() == "^"
        if negated:
            self.at += 1
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        first = True
        while first or self.peek() != "]":
            if not self.peek():
                raise error("missing closing ]", self.pattern[start:])
            if self.peek() == "-" and not first and not self.pattern.startswith("]", self.at + 1):
                # Upstream: a `-` between ranges is only allowed at the ends.
                low = self.at
                self.at += 1
                raise error("invalid character class range", self.pattern[low : self.at + 1])
            first = False
            self._class_item(start, ranges, categories)
        self.at += 1
        return CharClass(tuple(ranges), tuple(categories), negated, self.flags.ignore_case)

    def _class_item(
        self, start: int, ranges: list[tuple[int, int]], categories: list[tuple[str, bool]]
    ) -> None:
        if self.starts("[:"):
            end = self.pattern.find(":]", self.at)
            if end >= 0:
                name = self.pattern[self.at + 2 : end]
                shown = self.pattern[self.at : end + 2]
                self.at = end + 2
                listed = _POSIX.get(name.removeprefix("^"))
                if listed is None:
                    raise error("invalid character class range", shown)
                ranges.extend(_complement(listed) if name.startswith("^") else listed)
                return
        if self.peek() == "\\":
            named = self._named_class()
            if named is not None:
                listed, properties, negated = named
                ranges.extend(_complement(listed) if negated else listed)
                categories.extend(properties)
                return
        begin = self.at
        low = self._class_character(start)
        high = low
        if self.peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self._class_character(start)
            if high < low:
                raise error("invalid character class range", self.pattern[begin : self.at])
        ranges.append((low, high))

    def _class_character(self, start: int) -> int:
        character = self.peek()
        if not character:
            raise error("missing closing ]", self.pattern[start:])
        if character == "\\":
            return self._escaped_code()
        self.at += 1
        return ord(character)


def _complement(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    result, low = [], 0
    for first, last in sorted(ranges):
        if first > low:
            result.append((low, first - 1))
        low = last + 1
    if low <= _MAX:
        result.append((low, _MAX))
    return result


def _repeats(tree: Tree) -> int:
    """How often the innermost part is repeated, at most."""
    match tree:
        case Repeat():
            return max(tree.low, tree.high or 0, 1) * _repeats(tree.part)
        case Concatenation():
            return max(map(_repeats, tree.parts), default=1)
        case Choice():
            return max(map(_repeats, tree.options))
    return 1
