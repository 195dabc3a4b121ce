"""Compares the plugins with recorded answers of the originals.

    python -m kubesched_plugins.golden FILE...

A file has one JSON object per line (it may be compressed with gzip): `plugin`, `input` and what the
original answered, `result`. A player per plugin puts the input into a cluster in memory and gives
the answers in the recording's form; every difference is printed with its path.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

JSON = dict[str, Any]
PLAYERS: Final[Mapping[str, str]] = {
    "CapacityScheduling": "capacity",
    "Coscheduling": "coscheduling",
    "LoadVariationRiskBalancing": "trimaran",
    "LowRiskOverCommitment": "trimaran",
    "NodeResourceTopologyMatch": "node_resource_topology",
    "PreemptionToleration": "preemption",
    "TargetLoadPacking": "trimaran",
}
"""Plugin -> the module here that plays its cases.

Its `play(case)` gives the answers; `comparable(case)` the recorded ones that can be compared, and a
list of those that cannot.
"""


class Difference(NamedTuple):
    """Where an answer is not the recorded one."""

    path: str
    recorded: object
    answered: object


class Case(NamedTuple):
    """One recorded case and its comparison."""

    id: str
    plugin: str
    differences: list[Difference]
    skipped: list[str]
    """Paths at which the original failed, so that there is nothing to compare with."""


class UnknownPlugin(ValueError):
    """A file with cases of a plugin that is not here."""


def compare_file(path: Path) -> Iterator[Case]:
    """The cases of a file, compared.

    Raises:
        UnknownPlugin: there is no player for a case.
    """
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            yield compare(json.loads(line))


def compare(case: JSON) -> Case:
    plugin = case["plugin"]
    if plugin not in PLAYERS:
        raise UnknownPlugin(f"there is no player for cases of {plugin}")
    module = import_module(f"{__name__}.{PLAYERS[plugin]}")
    answered = module.play(case)
    expected, skipped = module.comparable(case)
    return Case(case["id"], plugin, list(differences(expected, answered)), skipped)


def differences(expected: object, answered: object, path: str = "") -> Iterator[Difference]:
    """Deepest places at which the two differ."""
    if isinstance(expected, dict) and isinstance(answered, dict):
        for key in sorted(expected.keys() | answered.keys()):
            where = f"{path}.{key}" if path else key
            yield from differences(expected.get(key), answered.get(key), where)
    elif (
        isinstance(expected, list) and isinstance(answered, list) and len(expected) == len(answered)
    ):
        for index, (one, other) in enumerate(zip(expected, answered, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif expected != answered:
        yield Difference(path, expected, answered)
