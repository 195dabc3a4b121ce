"""Which feature gates there are: the release, the version it emulates, and its oldest neighbour.

`--reference-version` (ours) chooses the kube-scheduler release to stand in for, with all of its
behaviour. `--emulated-version` and `--min-compatibility-version` are kube-scheduler's own flags:
within that release they move defaults, stages and locks of feature gates, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES, Reference

EMULATED_RELEASES: Final = 3
"""How many releases before its own kube-scheduler can emulate."""


def number(version: str) -> tuple[int, ...]:
    """The version for comparisons; nothing is older than every version."""
    return tuple(map(int, version.split("."))) if version else ()


def _before(version: str, releases: int) -> str:
    major, minor, *_ = number(version)
    return f"{major}.{max(0, minor - releases)}"


@dataclass(frozen=True, slots=True)
class Versions:
    """What decides about feature gates; empty versions mean kube-scheduler's defaults."""

    reference: Reference = DEFAULT_REFERENCE
    emulated: str = ""
    """By default the version of the release."""
    min_compatibility: str = ""
    """The oldest version of the other components; by default the one before `emulated`."""

    def __post_init__(self) -> None:
        emulated = self.emulated or self.reference.version
        oldest = self.min_compatibility or max(self.floor, _before(emulated, 1), key=number)
        object.__setattr__(self, "emulated", emulated)
        object.__setattr__(self, "min_compatibility", oldest)

    @property
    def floor(self) -> str:
        """The oldest version that the release emulates."""
        return _before(self.reference.version, EMULATED_RELEASES)

    def __str__(self) -> str:
        """For output: the release, and the other versions where they are not its own."""
        text = self.reference.version
        if self != Versions(self.reference):
            text += f", emulating {self.emulated}"
            if self != Versions(self.reference, self.emulated):
                text += f", compatible with {self.min_compatibility}"
        return text

    def range_problems(self) -> Iterator[FieldProblem]:
        """Upstream checks the ranges last, after syntax and feature gates."""
        newest = self.reference.version
        if not number(self.floor) <= number(self.emulated) <= number(newest):
            yield FieldProblem(
                "", f"emulation version {self.emulated} is not between [{self.floor}, {newest}.0]"
            )
        if not number(self.floor) <= number(self.min_compatibility) <= number(self.emulated):
            yield FieldProblem(
                "",
                f"minCompatibilityVersion version {self.min_compatibility} is not between "
                f"[{self.floor}, {self.emulated}]",
            )


DEFAULT_VERSIONS: Final = Versions()


def parse_versions(
    reference_version: str, emulated: Sequence[str] = (), min_compatibility: Sequence[str] = ()
) -> Versions:
    """The versions from their flags; an empty reference means the newest one.

    Raises:
        ConfigError: no such reference, or not the syntax of a version. Ranges are not checked.
    """
    name = reference_version or DEFAULT_REFERENCE.version
    if name not in REFERENCES:
        known = ", ".join(REFERENCES)
        raise _error("--reference-version", f'"{name}" is not one of the known releases: {known}')
    return Versions(
        REFERENCES[name],
        _version("--emulated-version", emulated),
        _version("--min-compatibility-version", min_compatibility),
    )


_VERSION = re.compile(r"\s*v?(\d+(?:\.\d+)*)[^.]*", re.ASCII)


def _version(flag: str, given: Sequence[str]) -> str:
    """Kube's version among `component=version` pairs; plain versions are kube's."""
    found: dict[str, str] = {}
    for pair in given:
        component, equals, text = pair.partition("=")
        component, text = (component.strip(), text.strip()) if equals else ("kube", pair)
        match = _VERSION.fullmatch(text)
        if match is None:
            raise _error(flag, f'could not parse "{text}" as version')
        if "." not in match[1]:
            raise _error(flag, f'illegal version string "{text}"')
        major, minor, *patch = number(match[1])
        if any(patch[:1]):
            raise _error(flag, f"patch version not allowed, got: {component}={match[1]}")
        version = f"{major}.{minor}"
        if component in found:
            raise _error(
                flag,
                f"duplicate version flag, {component}={found[component]} and {component}={version}",
            )
        found[component] = version
    for component in found.keys() - {"kube"}:
        raise _error(flag, f"component not registered: {component}")
    return found.get("kube", "")


def _error(flag: str, text: str) -> ConfigError:
    return ConfigError([FieldProblem("", text)], source=flag)
