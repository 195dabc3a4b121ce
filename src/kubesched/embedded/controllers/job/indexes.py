"""Sets of completion indexes, as text: `0-2,5`."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.embedded.apimachinery.objects import JsonObject, annotations_of

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def parse_indexes(text: str) -> set[int]:
    """The indexes a text names; parts that are not indexes are ignored, as upstream does."""
    indexes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """The shortest text that names these indexes; two neighbours are listed, three are a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts: list[str] = []
    for run in runs:
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += [str(index) for index in run]
    return ",".join(parts)


def index_of(pod: JsonObject) -> int | None:
    """The completion index a pod works on."""
    text = annotations_of(pod).get(COMPLETION_INDEX, "")
    return int(text) if text.isdecimal() else None
