"""Merges an applied configuration into a live object and prunes abandoned fields. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.playground.apimachinery.managed_fields.paths import (
    Layout,
    Path,
    is_object,
    item_step,
    value_step,
)
from kubesched.playground.apimachinery.objects import Json, JsonObject, encode


def merge(layout: Layout, live: Json, applied: Json) -> Json:
    """Merge the configuration into the live value; items it does not mention keep their place."""
    if (
        isinstance(applied, dict)
        and isinstance(live, dict)
        and layout.kind in ("object", "untyped")
    ):
        result = dict(live)
        for name, value in applied.items():
            result[name] = merge(layout.child(name), live[name], value) if name in live else value
        return result
    if layout.kind == "items" and isinstance(applied, list) and isinstance(live, list):
        return _merge_items(layout, live, applied)
    if layout.kind == "set" and isinstance(applied, list) and isinstance(live, list):
        known = {encode(item) for item in live}
        return live + [item for item in applied if encode(item) not in known]
    return applied


def _merge_items(layout: Layout, live: list[Json], applied: list[Json]) -> list[Json]:
    """Common items take the configuration's order; the others keep their place among them."""
    inner = layout.item
    wanted = {item_step(layout, item): item for item in applied}
    present = {item_step(layout, item): item for item in live}
    merged = {
        step: merge(inner, present[step], item) if step in present else item
        for step, item in wanted.items()
    }
    ordered = iter([step for step in wanted if step in present])
    result = []
    for step, item in present.items():
        result.append(merged[next(ordered)] if step in wanted else item)
    result += [merged[step] for step in wanted if step not in present]
    return result


def prefixes(paths: Iterable[Path]) -> set[Path]:
    """All paths with their prefixes."""
    collected: set[Path] = set()
    for path in paths:
        while path and path not in collected:
            collected.add(path)
            path = path[:-1]
    return collected


def prune(layout: Layout, value: JsonObject, removed: set[Path], kept: set[Path]) -> JsonObject:
    """Remove the values at or below `removed` paths, except prefixes of `kept` paths.

    Both sets contain their own prefixes. An abandoned object or item is removed as a whole,
    including its defaults, unless another manager owns a part of it.
    """
    pruned: JsonObject = _prune_members(layout, value, (), removed, kept)
    return pruned


def _prune_members(
    layout: Layout, value: JsonObject, path: Path, removed: set[Path], kept: set[Path]
) -> JsonObject:
    result = {}
    for name, member in value.items():
        here = (*path, f"f:{name}")
        if here not in removed or here in kept:
            result[name] = _prune_value(layout.child(name), member, here, removed, kept)
    return result


def _prune_value(
    layout: Layout, value: Json, path: Path, removed: set[Path], kept: set[Path]
) -> Json:
    if is_object(layout, value):
        return _prune_members(layout, value, path, removed, kept)
    if layout.kind == "set" and isinstance(value, list):
        steps = ((entry, (*path, value_step(entry))) for entry in value)
        return [step for step, here in steps if here not in removed or here in kept]
    if layout.kind == "items" and isinstance(value, list):
        inner = layout.item
        result = []
        for item in value:
            here = (*path, item_step(layout, item))
            if here not in removed or here in kept:
                result.append(
                    _prune_members(inner, item, here, removed, kept)
                    if isinstance(item, dict)
                    else item
                )
        return result
    return value
