"""`kubesched bench gate`: counts per pod against recorded budgets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.app.cli import terminal
from kubesched.app.cli.options import add_options

if TYPE_CHECKING:
    from kubesched.app.cli.parsing import Subparsers
    from kubesched.lab.benchmarking.call_counts import Budgets, Counts

DEFAULT_BUDGETS = "tests/perf/budgets.json"

_DESCRIPTION = """\
Count what one pod costs, in a few fixed workloads: calls, instructions and memory. The counts do
not depend on the machine or on what else it does, so a regression shows without any timing.

They are compared with budgets that were recorded before. More than 5 % above one is a failure, with
the functions that grew; below is fine. After a change that is worth its price, or that made things
cheaper, record anew with --record and commit the file.
"""

_OPTIONS = f"""
--budgets FILE {{={DEFAULT_BUDGETS}}}  recorded budgets
--record  write the counts as new budgets
"""


def add_parser(kinds: Subparsers) -> None:
    parser = kinds.add_parser(
        "gate", help="compare counts per pod with budgets", description=_DESCRIPTION
    )
    add_options(parser, _OPTIONS)


def main(args: argparse.Namespace) -> int:
    from kubesched.lab.benchmarking.call_counts import count_all, excesses, python_version

    path = Path(args.budgets)
    budgets = _read(path, may_be_missing=args.record)
    measured = count_all(lambda text: print(text, file=sys.stderr, flush=True))
    version = python_version()
    known = budgets.by_python.get(version, {})
    print_counts(known, measured)
    if args.record:
        from kubesched.lab.benchmarking.call_counts import Budgets

        _write(path, Budgets(by_python={**budgets.by_python, version: measured}))
        print(f"recorded for Python {version} in {path}", file=sys.stderr)
        return 0
    if not known:
        print(f"{path} has no budgets for Python {version}; record some", file=sys.stderr)
        return 1
    over = excesses(known, measured)
    for excess in over:
        print(excess)
    if over:
        print(f"to accept this: kubesched bench gate --record --budgets {path}", file=sys.stderr)
    return 1 if over else 0


def print_counts(known: Mapping[str, Counts], measured: Mapping[str, Counts]) -> None:
    rows = []
    for name, counts in measured.items():
        row = [name]
        for what in ("calls", "opcodes", "peak_bytes"):
            row.append(f"{getattr(known[name], what):,.0f}" if name in known else "-")
            row.append(f"{getattr(counts, what):,.0f}")
        rows.append(row)
    terminal.table(("WORKLOAD", "CALLS", "NOW", "OPCODES", "NOW", "PEAK BYTES", "NOW"), rows)


def _read(path: Path, *, may_be_missing: bool) -> Budgets:
    import msgspec

    from kubesched.base.errors import KubeschedError
    from kubesched.lab.benchmarking.call_counts import Budgets

    if may_be_missing and not path.exists():
        return Budgets(by_python={})
    try:
        return msgspec.json.decode(path.read_bytes(), type=Budgets)
    except msgspec.DecodeError as error:
        raise KubeschedError(f"{path}: not a file of budgets: {error}") from None


def _write(path: Path, budgets: Budgets) -> None:
    import msgspec

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(budgets), indent=1) + b"\n")
