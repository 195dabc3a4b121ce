"""Differences between two versions of an object, as sets of paths."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubesched.playground.apimachinery.managed_fields.paths import (
    Layout,
    Path,
    collect_paths,
    is_object,
    item_step,
    value_step,
)
from kubesched.playground.apimachinery.objects import Json, JsonObject

_ABSENT: Json = object()


@dataclass(slots=True)
class Difference:
    """Paths with a new or changed value, and removed paths."""

    changed: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


def compare(layout: Layout, old: JsonObject, new: JsonObject) -> Difference:
    result = Difference()
    _compare(layout, old, new, (), result)
    return result


def _compare(layout: Layout, old: Json, new: Json, path: Path, result: Difference) -> None:
    if old is new or old == new:
        return
    if is_object(layout, old) and is_object(layout, new):
        _compare_members(layout, old, new, path, result)
    elif layout.kind == "items" and isinstance(old, list) and isinstance(new, list):
        _compare_items(layout, old, new, path, result)
    elif layout.kind == "set" and isinstance(old, list) and isinstance(new, list):
        before, after = {value_step(item) for item in old}, {value_step(item) for item in new}
        result.changed |= {(*path, step) for step in after - before}
        result.removed |= {(*path, step) for step in before - after}
    else:
        before_paths = _below(layout, old, path)
        after_paths = _below(layout, new, path)
        result.changed |= after_paths
        result.removed |= before_paths - after_paths


def _compare_members(
    layout: Layout, old: JsonObject, new: JsonObject, path: Path, result: Difference
) -> None:
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        here = (*path, f"f:{name}")
        if before is _ABSENT:
            result.changed |= _below(layout.child(name), value, here)
        elif before is not value:
            _compare(layout.child(name), before, value, here, result)
    for name in old.keys() - new.keys():
        result.removed |= _below(layout.child(name), old[name], (*path, f"f:{name}"))


def _compare_items(
    layout: Layout, old: list[Json], new: list[Json], path: Path, result: Difference
) -> None:
    inner = layout.item
    before = {item_step(layout, item): item for item in old}
    after = {item_step(layout, item): item for item in new}
    for step, item in after.items():
        here = (*path, step)
        if step not in before:
            result.changed.add(here)
            result.changed |= _members(inner, item, here)
        elif before[step] == item:
            continue
        elif isinstance(item, dict) and isinstance(before[step], dict):
            _compare_members(inner, before[step], item, here, result)
    for step in before.keys() - after.keys():
        result.removed.add((*path, step))
        result.removed |= _members(inner, before[step], (*path, step))


def _members(layout: Layout, item: Json, path: Path) -> set[Path]:
    collected: list[Path] = []
    for name, value in item.items() if isinstance(item, dict) else ():
        collect_paths(layout.child(name), value, (*path, f"f:{name}"), collected)
    return set(collected)


def _below(layout: Layout, value: Json, path: Path) -> set[Path]:
    collected: list[Path] = []
    collect_paths(layout, value, path, collected)
    return set(collected)
