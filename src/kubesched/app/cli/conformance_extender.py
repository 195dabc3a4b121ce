"""`kubesched conformance extender`: the extenders of a written case, for a replay with kubectl."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.app.cli.options import add_options

if TYPE_CHECKING:
    from kubesched.app.cli.parsing import Subparsers
    from kubesched.lab.conformance.sequences import Sequence

_DESCRIPTION = """\
Serve the extenders of a case that `kubesched conformance run` has written, at the address that the
case's scheduler-config.yaml names, until Ctrl-C. They answer as they did in the run: by the names
of pods and nodes alone.

FILE is the case's sequence.json.
"""

_OPTIONS = """
file FILE              the sequence.json of the case
--kubeconfig FILE {!}  the cluster on which the case is replayed, for extenders that bind
"""


def add_parser(kinds: Subparsers) -> None:
    parser = kinds.add_parser(
        "extender", help="serve the extenders of a written case", description=_DESCRIPTION
    )
    add_options(parser, _OPTIONS)


def main(args: argparse.Namespace) -> int:
    from kubesched.app.event_loop import run

    run(_serve(_read(args.file), args.kubeconfig))
    return 0


def _read(path: str) -> Sequence:
    from kubesched.lab.conformance.recordings import (
        RecordedSequence,
        RecordingError,
        read_recordings,
    )

    recorded = next(iter(read_recordings(Path(path))))
    if not isinstance(recorded, RecordedSequence) or not recorded.sequence.extenders:
        raise RecordingError(f"{path}: a case without extenders")
    return recorded.sequence


async def _serve(sequence: Sequence, kubeconfig: str) -> None:
    from random import Random

    from kubesched.client.client_config import load_config
    from kubesched.client.pool import HttpTransport
    from kubesched.client.rest import RestClient, user_agent
    from kubesched.lab.conformance.extender_server import CASE_PORT, extender_server
    from kubesched.lab.conformance.watching import watched

    transport = HttpTransport(load_config(kubeconfig).connection)
    agent = user_agent("conformance")
    client = RestClient(transport, user_agent=agent, random=Random(), deadline_s=30.0)
    try:
        async with (
            watched(client) as (pods, _),
            extender_server(client, sequence.extenders, CASE_PORT) as server,
        ):
            server.key_of = pods.key_of
            names = ", ".join(policy.name for policy in sequence.extenders)
            print(f"serving {names} at {server.url}; Ctrl-C ends it", file=sys.stderr)
            await asyncio.Event().wait()
    finally:
        await transport.aclose()
