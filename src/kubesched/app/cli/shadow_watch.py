"""The work of `kubesched shadow`: informers, the observer, and its report."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from dataclasses import replace
from typing import Any, cast

from kubesched.api.core_v1 import Node, Pod
from kubesched.app import event_loop
from kubesched.app.cli import terminal
from kubesched.app.cli.interruption import stop_event
from kubesched.app.cli.records import write_record
from kubesched.app.cli.sources import load_configuration
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.clock import SystemClock
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import silence
from kubesched.client.informers.factory import InformerFactory
from kubesched.client.informers.informer import EventHandler
from kubesched.client.rest import RestClient
from kubesched.config.defaults import without_extenders
from kubesched.insight.shadowing import CLASSES, BindingObserver
from kubesched.insight.state.live import check_answers, live_client
from kubesched.insight.state.memory import NoEvents, RefusingClient
from kubesched.insight.state.watching import last_state

SETTLE_S = 0.1
_MEANING = {
    "same": "its node is our only best one",
    "tie": "its node is one of our best ones",
    "sampling": "its node is the best of a sample as large as its scheduler takes",
    "race": "explained by what arrived at the same moment",
    "different": "ours decides otherwise",
    "error": "not judged",
}


def watch(args: argparse.Namespace) -> int:
    silence()
    report = event_loop.run(_watch(args))
    if args.output != "table":
        write_record(args.output, report)
    else:
        print_report(report)
    return 1 if report["bindings"]["different"] or report["unschedulable"]["different"] else 0


async def _watch(args: argparse.Namespace) -> dict[str, Any]:
    async with live_client("shadow", args.kubeconfig, args.context) as (client, _):
        await check_answers(client)
        app, observer = _observed(args, client)
        async with asyncio.TaskGroup() as group:
            await app.start_informers(group, terminal.still_waiting)
            stop = stop_event()
            observer.is_synced = True
            print(f"comparing with {args.scheduler_name}; Ctrl-C ends it.", file=sys.stderr)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(args.for_):
                    while not stop.is_set():
                        observer.settle()
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(stop.wait(), SETTLE_S)
            observer.settle(all_of_them=True)
            await app.informers.stop()
        return observer.report()


def _observed(args: argparse.Namespace, client: RestClient) -> tuple[SchedulerApp, BindingObserver]:
    """A scheduler that never runs: its cache follows the cluster, its plugins judge."""
    config, gates = load_configuration(args)
    config, notes = without_extenders(config)
    terminal.notes(notes)
    live = [profile for profile in config.profiles if profile.shadow is None]
    if args.scheduler_name not in [profile.scheduler_name for profile in live]:
        raise KubeschedError(f'no profile "{args.scheduler_name}"; name its file with --config')
    # All nodes are judged; that the other scheduler samples is taken into account afterwards.
    whole = tuple(replace(profile, percentage_of_nodes_to_score=None) for profile in live)
    config = replace(config, profiles=whole, percentage_of_nodes_to_score=100)
    observers: list[BindingObserver] = []

    def observe(app: SchedulerApp) -> None:
        observers.append(
            BindingObserver(
                app.assembly,
                SystemClock(),
                args.scheduler_name,
                percentage=args.percentage_of_nodes_to_score,
                window_s=args.window,
                on_found=lambda found: print(
                    f"different: {found.line()}", file=sys.stderr, flush=True
                ),
            )
        )
        _listen(app.informers, observers[0])

    app = SchedulerApp(
        config,
        gates,
        client,
        lambda _profile: NoEvents(),
        calls=cast("Any", RefusingClient()),
        before_handlers=observe,  # it judges on the state before each event
    )
    return app, observers[0]


def _listen(informers: InformerFactory, observer: BindingObserver) -> None:
    informers.informer(Pod).add_event_handler(
        EventHandler(
            on_add=observer.pod_added,
            on_update=observer.pod_updated,
            on_delete=lambda gone: observer.pod_deleted(last_state(gone)),
        )
    )
    informers.informer(Node).add_event_handler(
        EventHandler(
            on_add=lambda new: observer.node_changed(None, new),
            on_update=observer.node_changed,
            on_delete=lambda gone: observer.node_changed(last_state(gone), None),
        )
    )


def print_report(report: dict[str, Any]) -> None:
    bindings, failures = report["bindings"], report["unschedulable"]
    total = sum(bindings.values())
    terminal.heading(
        f"{total} bindings and {sum(failures.values())} failures of {report['scheduler']} "
        f"from {report['since']} to {report['until']}"
    )
    rows = []
    for name in CLASSES:
        share = f"{100 * bindings[name] / total:.2f} %" if total else "-"
        rows.append((name, str(bindings[name]), share, str(failures[name]), _MEANING[name]))
    terminal.table(("RESULT", "BINDINGS", "SHARE", "FAILURES", "MEANS"), rows)
    keys = ("pod", "theirs", "ours", "plugin", "reason", "refused_since")
    found = [[made[key] or "-" for key in keys] for made in report["different"]]
    terminal.section(("POD", "NODE", "OURS", "PLUGIN", "WHY", "REFUSED SINCE"), found)
