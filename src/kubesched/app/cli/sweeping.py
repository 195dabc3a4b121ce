"""Options of commands that sweep over many cells, and running them with a progress bar."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kubesched.app.cli.options import add_options
from kubesched.app.cli.terminal import ProgressLine

if TYPE_CHECKING:
    from kubesched.lab.sweeps.executors import Work
    from kubesched.lab.sweeps.sweep import Keyed, Progress, Result

_BAR = 30
_OPTIONS = """
--executor WHERE {executor=local:1}  where to run: local (all cores), local:N (processes),
    dask:ADDRESS
--results DIR  keep results here, under the hash of their inputs; what is there is not run again
"""


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser, _OPTIONS, executor=_executor)


def _executor(text: str) -> str:
    from kubesched.lab.sweeps.executors import parse

    parse(text)
    return text


def run_with_progress(
    args: argparse.Namespace, work: Work, shared: object, cells: Sequence[Keyed]
) -> Iterator[Result]:
    """The results in the order of the cells."""
    from kubesched.lab.sweeps.executors import parse
    from kubesched.lab.sweeps.store import ResultStore
    from kubesched.lab.sweeps.sweep import run_sweep

    executor, store = parse(args.executor), ResultStore(args.results)
    with ProgressLine(enabled=len(cells) > 1) as line:
        yield from run_sweep(
            work, shared, cells, executor, store, lambda progress: line.show(_bar(progress))
        )


def _bar(progress: Progress) -> str:
    filled = _BAR * progress.done // max(1, progress.total)
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{'█' * filled}{'░' * (_BAR - filled)} {progress.done} of {progress.total}{failed}"
