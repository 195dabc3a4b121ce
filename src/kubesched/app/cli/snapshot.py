"""`kubesched snapshot`: save the objects of a cluster that scheduling reads."""

from __future__ import annotations

import argparse
import sys
import time

from kubesched.app.cli.options import add_options
from kubesched.app.cli.sources import add_state_source, load_state

DESCRIPTION = """\
Save the objects that scheduling reads (nodes, pods, namespaces, volumes, claims, budgets, ...) in
one file, to look at them elsewhere with --from. Only list calls are made.

What scheduling does not read is left out: environments, commands, templates, addresses, annotations
but a few, names of Secrets, messages. Names and label values are kept.
"""

DEFAULT_FILE = "snapshot.jsonl.gz"
_OPTIONS = f"""
-o, --output FILE {{={DEFAULT_FILE}}}  where to write it, - for standard output
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, _OPTIONS)
    add_state_source(parser)


def main(args: argparse.Namespace) -> int:
    from kubesched.insight.state.archive import redacted_state, save_archive, write_archive

    state = load_state(args)
    redacted = redacted_state(state)
    if args.output == "-":
        write_archive(redacted, sys.stdout.buffer, now=time.time())
        return 0
    save_archive(redacted, args.output, now=time.time())
    print(f"{args.output}: {state.describe()}", file=sys.stderr)
    return 0
