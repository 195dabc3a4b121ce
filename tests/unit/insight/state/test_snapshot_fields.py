"""Every text in a record is either left out of snapshots or on the list of those that are kept.

A new field of a record fails here until someone has decided which it is.
"""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import msgspec

from kubesched.insight.state.archive import DROPPED
from kubesched.insight.state.cluster_state import KINDS

KEPT = Path(__file__).with_name("kept_in_snapshots.txt")


def texts(record: type[Any], seen: set[type[Any]]) -> typing.Iterator[str]:
    """`Record.field` of all fields with text that are kept, of this record and those in it."""
    if record in seen:
        return
    seen.add(record)
    dropped = DROPPED.get(record, "").split()
    for name, hint in typing.get_type_hints(record).items():
        if name in dropped or typing.get_origin(hint) is typing.ClassVar:
            continue
        parts = set(parts_of(hint))
        if parts & {str, Any, object}:
            yield f"{record.__name__}.{name}"
        for part in parts:
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield from texts(part, seen)


def parts_of(hint: Any) -> typing.Iterator[Any]:
    arguments = typing.get_args(hint)
    if not arguments:
        yield hint
    for argument in arguments:
        yield from parts_of(argument)


def test_every_text_is_dropped_or_known_to_be_kept() -> None:
    seen: set[type[Any]] = set()
    found = sorted({text for kind in KINDS for text in texts(kind.record, seen)})
    assert found == KEPT.read_text().split()
    assert set(DROPPED) <= seen, "a record that no kind holds any more"
