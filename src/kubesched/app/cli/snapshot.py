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
but a few, names of Secrets, messages. With --pseudonyms, names and label values are replaced by a
keyed hash: equal stay equal, so that decisions stay the same, and with the same key so do later
snapshots.
"""

DEFAULT_FILE = "snapshot.jsonl.gz"
_OPTIONS = f"""
-o, --output FILE {{={DEFAULT_FILE}}}  where to write it, - for standard output
--pseudonyms KEYFILE  replace names and label values, by a hash under the key in this file (16 bytes
    or more)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, _OPTIONS)
    add_state_source(parser)


def main(args: argparse.Namespace) -> int:
    from kubesched.insight.state.archive import save_archive, write_archive
    from kubesched.insight.state.pseudonyms import Pseudonyms, read_key
    from kubesched.insight.state.redaction import Redaction

    pseudonyms = Pseudonyms(read_key(args.pseudonyms)) if args.pseudonyms else None
    state = load_state(args)
    redacted = Redaction(pseudonyms).state(state)
    has_pseudonyms = pseudonyms is not None
    if args.output == "-":
        write_archive(redacted, sys.stdout.buffer, now=time.time(), pseudonyms=has_pseudonyms)
        return 0
    save_archive(redacted, args.output, now=time.time(), pseudonyms=has_pseudonyms)
    print(f"{args.output}: {state.describe()}", file=sys.stderr)
    return 0
