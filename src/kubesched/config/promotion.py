"""Promoting a shadow: the configuration file with the candidate in the live profile's place."""

from __future__ import annotations

import difflib
from typing import Any

import yaml

from kubesched.base.errors import KubeschedError
from kubesched.config.output import to_yaml


def promotion(text: str, source: str, name: str = "") -> str:
    """The change as a unified diff; `text` is a valid configuration.

    The live profile's entry goes, and the candidate's takes its scheduler name and loses `shadow`.
    Comments stay where the file is in block style.

    Raises:
        KubeschedError: there is no such shadow, or several and no name.
    """
    document: dict[str, Any] = yaml.safe_load(text)
    profiles = document["profiles"]
    shadows = [at for at, profile in enumerate(profiles) if profile.get("shadow")]
    chosen = [at for at in shadows if name in ("", profiles[at]["schedulerName"])]
    if len(chosen) != 1:
        names = ", ".join(profiles[at]["schedulerName"] for at in shadows) or "none"
        what = f'no shadow "{name}"' if name else "not one shadow"
        raise KubeschedError(f"{source}: {what}; there are: {names}")
    candidate, of = profiles[chosen[0]], profiles[chosen[0]]["shadow"]["of"]
    live = next(at for at, profile in enumerate(profiles) if _name_of(profile) == of)
    kept = {key: value for key, value in candidate.items() if key != "shadow"}
    wanted = [
        {**kept, "schedulerName": of} if profile is candidate else profile
        for at, profile in enumerate(profiles)
        if at != live
    ]
    expected = {**document, "profiles": wanted}
    changed = _edited(text, live, chosen[0], of)
    try:
        is_exact = yaml.safe_load(changed) == expected
    except yaml.YAMLError:
        is_exact = False
    if not is_exact:  # in flow style there are no lines to take out
        text, changed = to_yaml(document), to_yaml(expected)
    before, after = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, source, source))


def _name_of(profile: dict[str, Any]) -> str:
    return "" if profile.get("shadow") else profile.get("schedulerName", "")


def _edited(text: str, live: int, candidate: int, of: str) -> str:
    """The text with lines taken out and a name replaced; the caller checks what it says then."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    profiles = next(value for key, value in root.value if key.value == "profiles")
    starts = [item.start_mark.line for item in profiles.value] + [profiles.end_mark.line]
    lines = text.splitlines(keepends=True)
    gone = set(range(starts[live], starts[live + 1]))
    fields = profiles.value[candidate].value
    for key, value in fields:
        line, column = value.start_mark.line, value.start_mark.column
        if key.value == "schedulerName":
            end = value.end_mark.column
            lines[line] = f"{lines[line][:column]}{of}{lines[line][end:]}"
        elif key.value == "shadow":
            last = value.end_mark.line if value.end_mark.column == 0 else value.end_mark.line + 1
            following = [k.start_mark.line for k, _ in fields if k.start_mark.line > line]
            end = min([last, starts[candidate + 1], *following])
            gone |= set(range(key.start_mark.line, max(end, line + 1)))
    return "".join(line for at, line in enumerate(lines) if at not in gone)
