"""Semantic versions: `semver('1.2.3').isLessThan(semver('v2', true))`."""

from __future__ import annotations

import functools
from typing import ClassVar

from kubesched.api.cel import costs
from kubesched.api.cel.environment import Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries.conversions import succeeds
from kubesched.api.cel.types import SEMVER, Type
from kubesched.api.cel.values import MAX_UINT
from kubesched.base.logs import quoted as quote

_DIGITS = frozenset("0123456789")
_IDENTIFIER = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")


class Semver:
    """A version; comparison ignores build metadata. Immutable."""

    __slots__ = ("_order", "build", "major", "minor", "patch", "prerelease")
    cel_type: ClassVar[Type] = SEMVER

    def __init__(
        self,
        major: int,
        minor: int,
        patch: int,
        prerelease: tuple[int | str, ...] = (),
        build: tuple[str, ...] = (),
    ) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        self.prerelease = prerelease
        self.build = build
        # No prerelease sorts last, numbers before words, a prefix before its extensions.
        words = [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in prerelease]
        self._order = (major, minor, patch, not prerelease, words)

    def compare(self, other: Semver) -> int:
        return (self._order > other._order) - (self._order < other._order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._order == other._order

    def __hash__(self) -> int:
        return hash((self.major, self.minor, self.patch, self.prerelease))

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(map(str, self.prerelease))
        return f"{text}+{'.'.join(self.build)}" if self.build else text

    def __repr__(self) -> str:
        return f"Semver({str(self)!r})"


def parse_semver(text: str) -> Semver:
    """A version in the strict form of semver.org; raises EvaluationError."""
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    rest, plus, build = parts[2].partition("+")
    patch, dash, prerelease = rest.partition("-")
    major, minor = _number("Major", parts[0]), _number("Minor", parts[1])
    return Semver(
        major,
        minor,
        _number("Patch", patch),
        tuple(map(_prerelease, prerelease.split("."))) if dash else (),
        tuple(map(_build, build.split("."))) if plus else (),
    )


def _number(name: str, text: str) -> int:
    if not text or not _DIGITS.issuperset(text):
        if not text:
            raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
        raise EvaluationError(f"Invalid character(s) found in {name.lower()} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f"{name} number must not contain leading zeroes {quote(text)}")
    if len(text) > 20 or int(text) > MAX_UINT:
        raise EvaluationError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(text)


def _prerelease(text: str) -> int | str:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _DIGITS.issuperset(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(
                f"Numeric PreRelease version must not contain leading zeroes {quote(text)}"
            )
        if len(text) > 20 or int(text) > MAX_UINT:
            raise EvaluationError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
        return int(text)
    if not _IDENTIFIER.issuperset(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {quote(text)}")
    return text


def _build(text: str) -> str:
    if not text:
        raise EvaluationError("Build meta data is empty")
    if not _IDENTIFIER.issuperset(text):
        raise EvaluationError(f"Invalid character(s) found in build meta data {quote(text)}")
    return text


def normalize(text: str) -> str:
    """Strip a leading `v` and leading zeros, and fill in missing parts."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1] in _DIGITS and stripped else f"0{stripped}"
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise EvaluationError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


@functools.lru_cache(maxsize=4096)
def _semver(text: str, normalized: bool = False) -> Semver:
    return parse_semver(normalize(text) if normalized else text)


def _as_int(number: int) -> int:
    """Upstream converts without a check."""
    return number if number < 2**63 else number - 2**64


SEMVERS = Library(
    "kubernetes.Semver",
    (
        declare("semver(string) -> semver", _semver),
        declare("semver(string, bool) -> semver", _semver),
        declare("isSemver(string) -> bool", succeeds(_semver)),
        declare("isSemver(string, bool) -> bool", succeeds(_semver)),
        declare(".isGreaterThan(semver, semver) -> bool", lambda a, b: a.compare(b) > 0),
        declare(".isLessThan(semver, semver) -> bool", lambda a, b: a.compare(b) < 0),
        declare(".compareTo(semver, semver) -> int", Semver.compare),
        declare(".major(semver) -> int", lambda version: _as_int(version.major)),
        declare(".minor(semver) -> int", lambda version: _as_int(version.minor)),
        declare(".patch(semver) -> int", lambda version: _as_int(version.patch)),
    ),
    costs=dict.fromkeys(("semver", "isSemver"), costs.of_first_argument),
)
