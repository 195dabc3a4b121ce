"""`kubesched page`: view a cluster, a dump or a recording in the browser."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.app.cli import terminal
from kubesched.app.cli.interruption import signals_held, stop_event
from kubesched.app.cli.options import add_page_options
from kubesched.app.cli.sources import (
    add_configuration,
    add_state_source,
    check_state_source,
    has_gates,
    load_configuration,
    load_state,
)

if TYPE_CHECKING:
    from kubesched.insight.page.serving import ServedPage
    from kubesched.insight.page.source import Source

DESCRIPTION = """\
Serve a page over a cluster: its nodes as a map, the pods that wait, decisions, why a pod is where
it is, and what would happen if.

Over a live cluster the page follows its changes; over a recording it goes back in time. Nothing is
written. The page is served on the loopback interface, and the link that is printed opens it once.
Ctrl-C ends it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_page_options(parser)
    add_configuration(parser)
    add_state_source(parser)


def main(args: argparse.Namespace) -> int:
    from kubesched.base.logs import silence

    check_state_source(args)
    silence()  # the page shows what the in-memory scheduler logs
    with signals_held():
        from kubesched.app.event_loop import run
    return run(_serve(args))  # until the page is served, a signal interrupts


async def _serve(args: argparse.Namespace) -> int:
    async with _source(args) as source:
        stop = stop_event()
        async with served(source, args):
            print("Ctrl-C ends it.", flush=True)
            await stop.wait()
    return 0


@contextlib.asynccontextmanager
async def _source(args: argparse.Namespace) -> AsyncIterator[Source]:
    from kubesched.app import page_sources

    config, gates = load_configuration(args)
    if args.recording is not None:
        own = config if args.config else None
        given = gates if has_gates(args) or args.config else None
        yield await asyncio.to_thread(page_sources.recording_source, args.recording, own, given)
    elif args.from_:
        state = await asyncio.to_thread(load_state, args)
        yield await asyncio.to_thread(page_sources.state_source, state, config, gates)
    else:
        async with page_sources.watched_source(
            args.kubeconfig, args.context, config, gates, terminal.still_waiting
        ) as source:
            yield source


@contextlib.asynccontextmanager
async def served(source: Source, args: argparse.Namespace) -> AsyncIterator[ServedPage]:
    """Serve the page and print its link."""
    from kubesched.insight.page.serving import serve_page

    async with serve_page(
        source,
        address=args.page_address,
        port=args.page_port,
        key=_key(),
        on_link_used=_link_used,
    ) as page:
        print(f"page at {page.link}", flush=True)
        yield page


def _link_used(page: ServedPage) -> None:
    print(f"page opened; for another browser: {page.link}", flush=True)


def _key() -> bytes:
    """The key in the user's cache, or a temporary one if there is no folder for it."""
    from kubesched.insight.page.access import load_or_make_key

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        return load_or_make_key(cache / "kubesched" / "page.key")
    except OSError:
        return secrets.token_bytes(32)
