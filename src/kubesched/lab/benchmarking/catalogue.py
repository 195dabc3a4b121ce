"""Finds workloads: those shipped with the package, and files given by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from kubesched.base.errors import KubeschedError
from kubesched.lab.benchmarking.templates import Value
from kubesched.lab.benchmarking.workload_files import Workload, load

FOLDER = Path(__file__).parent / "workloads"
SIZES = ("tiny", "small", "medium", "large")
"""Names of the shipped workloads."""
DEFAULT_SIZE = "small"


def shipped(params: Mapping[str, Value] | None = None) -> list[Workload]:
    """The shipped workloads, in file order."""
    return [workload for path in sorted(FOLDER.glob("*.yaml")) for workload in load(path, params)]


def find(
    wanted: Sequence[str],
    *,
    sizes: Sequence[str] = (),
    labels: Sequence[str] = (),
    params: Mapping[str, Value] | None = None,
) -> list[Workload]:
    """Find workloads by file path or shipped name (`Basic`, `*Affinity`); default: all shipped.

    `sizes` are patterns for workload names (the part after the slash). Shipped workloads run in one
    size by default. `params` override those of the files.

    Raises:
        KubeschedError: no workload is left, a name matches nothing, or no workload has one of the
            parameters.
        ConfigError: a file is invalid.
    """
    ours = shipped(params)
    workloads: dict[tuple[str, str], Workload] = {}
    for word in wanted or ("*",):
        if word.endswith((".yaml", ".yml", ".json")) or Path(word).is_file():
            chosen = list(load(word, params))
            chosen = [workload for workload in chosen if _fits(workload, sizes, labels)]
        else:
            chosen = _named(word, ours, sizes, labels)
        workloads |= {(workload.case.source, workload.full_name): workload for workload in chosen}
    if not workloads:
        raise KubeschedError("no workload fits size and labels; 'kubesched bench list' shows all")
    for name in params or ():
        if not any(name in workload.params for workload in workloads.values()):
            known = sorted({each for workload in workloads.values() for each in workload.params})
            raise KubeschedError(
                f"no workload has a parameter {name}; there are {', '.join(known)}"
            )
    return list(workloads.values())


def _named(
    word: str, ours: Sequence[Workload], sizes: Sequence[str], labels: Sequence[str]
) -> list[Workload]:
    case, _, size = word.partition("/")
    if not any(fnmatchcase(workload.case.name, case) for workload in ours):
        raise KubeschedError(
            f"no workload {word!r}, and no such file; 'kubesched bench list' shows all"
        )
    patterns = [size] if size else list(sizes) or ([] if labels else [DEFAULT_SIZE])
    return [
        workload
        for workload in ours
        if fnmatchcase(workload.case.name, case) and _fits(workload, patterns, labels)
    ]


def _fits(workload: Workload, sizes: Sequence[str], labels: Sequence[str]) -> bool:
    by_size = not sizes or any(fnmatchcase(workload.name, pattern) for pattern in sizes)
    return by_size and all(
        label[1:] not in workload.labels if label.startswith("-") else label in workload.labels
        for label in labels
    )
