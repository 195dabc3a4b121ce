"""Reads `feature_gates.txt`: every gate that kube-scheduler registers, with its history.

kube-scheduler shares one gate registry with the other components, and operators pass the same
`--feature-gates` value to each. Names that do not concern a scheduler are therefore accepted,
checked and reported as upstream does. `effective` has the gates of one release at one emulated
version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from kubesched.config.references import Reference
from kubesched.config.versions import Versions, number

TABLE = Path(__file__).with_name("feature_gates.txt")


class Stage(StrEnum):
    """Maturity of a gate; the value is the label in the feature metric."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = ""
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate's definition at one version."""

    stage: Stage
    default: bool
    locked: bool = False
    requires: tuple[str, ...] = ()
    """Gates that must be on as well, alphabetically."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A step in a gate's history."""

    version: str
    min_compatibility: str
    """Applies only if every neighbour is at least of this version; may be empty."""
    stage: Stage
    default: bool
    locked: bool


@dataclass(frozen=True, slots=True)
class History:
    """A row of the table."""

    entries: tuple[Entry, ...]
    needs: tuple[tuple[str, str], ...]
    """Gates that must be on as well, each with the first release that says so (or "")."""
    since: str
    until: str
    into: str
    """The gate that decides after `until`."""

    def known_to(self, reference: Reference) -> bool:
        """Whether the release registers the gate."""
        release = number(reference.version)
        return number(self.since) <= release and (not self.until or release <= number(self.until))

    def at(self, versions: Versions) -> Entry | None:
        """The last entry that applies; None before the first one."""
        emulated, oldest = number(versions.emulated), number(versions.min_compatibility)
        found = None
        for entry in self.entries:
            if number(entry.version) <= emulated and number(entry.min_compatibility) <= oldest:
                found = entry
        return found


@cache
def histories() -> Mapping[str, History]:
    """The table, by name."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return {name: _history(words) for name, *words in rows}


def _history(words: list[str]) -> History:
    parts: dict[str, list[str]] = {"": [], "needs": [], "since": [], "until": [], "into": []}
    part = ""
    for word in words:
        if word in parts:
            part = word
        else:
            parts[part].append(word)
    entries = tuple(_entries(parts[""]))
    return History(
        entries,
        tuple((gate, since) for gate, _, since in (w.partition("@") for w in parts["needs"])),
        since="".join(parts["since"]) or entries[0].version,
        until="".join(parts["until"]),
        into="".join(parts["into"]),
    )


def _entries(words: list[str]) -> Iterator[Entry]:
    oldest = ""
    for when, what in zip(words[::2], words[1::2], strict=True):
        version, _, given = when.partition("/")
        oldest = given or oldest  # it never goes back
        stage = Stage[what.rstrip("+-!").upper()]
        yield Entry(version, oldest, stage, "+" in what, "!" in what)


@cache
def effective(versions: Versions) -> Mapping[str, Gate]:
    """The gates that can be set, by name."""
    reference = versions.reference
    known = {name: row for name, row in histories().items() if row.known_to(reference)}
    found = {}
    for name, row in known.items():
        entry = row.at(versions)
        if entry is not None:
            needs = tuple(
                gate
                for gate, since in row.needs
                if gate in known and number(since) <= number(reference.version)
            )
            found[name] = Gate(entry.stage, entry.default, entry.locked, needs)
    return found


def is_newer(name: str, versions: Versions) -> bool:
    """Whether the release has the gate, but not yet at the emulated version."""
    row = histories().get(name)
    return row is not None and row.known_to(versions.reference) and row.at(versions) is None
