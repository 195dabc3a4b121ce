"""`kubesched up`: a playground cluster with the scheduler in one process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.app.cli.interruption import signals_held, stop_event
from kubesched.app.cli.options import add_options, add_page_options
from kubesched.app.cli.parsing import number_up_to
from kubesched.app.cli.sources import add_configuration, feature_gates
from kubesched.config.references import REFERENCES

if TYPE_CHECKING:
    from kubesched.app.demo import Placement
    from kubesched.app.playground import Playground, PlaygroundSettings
    from kubesched.app.reloading import Reloader
    from kubesched.config.types import KubeSchedulerConfiguration

DESCRIPTION = """\
Start a whole cluster on this machine, in this process: an API server that kubectl talks to, nodes,
controllers, and the scheduler. Nothing is installed, nothing leaves the loopback interface.

It writes a kubeconfig and prints the line that makes kubectl use it. Ctrl-C ends it.
"""

DEMO_TIMEOUT_S = 60.0

_OPTIONS = """
--nodes N {count=10}        nodes to register
--node-template FILE        a NodePools file: what the nodes look like
--kubernetes-version V {|1.37|1.36}  the release that the cluster is (default: that of the
    scheduler, which is of the cluster's release by default, too)
--data-dir DIR              keep the cluster there across restarts (default: in memory)
--name NAME {name}          of the cluster, its context and its kubeconfig; several clusters need
    several names
--port PORT {port=0}        API server port (default: any free one)
--address IP {ip=127.0.0.1}  address to listen on (default: 127.0.0.1); others can then reach the
    cluster
--authorization allow|rbac {allow|rbac}  allow: every authenticated user may do everything
    (default); rbac: what roles say
--kubeconfig FILE           where to write the kubeconfig
--no-scheduler              bring your own scheduler
--demo                      run a demonstration workload and print its placements
--once                      with --demo: end when the demonstration is running
-v N {verbosity}            how much is logged (default: warnings and errors)
--record DIR                record decisions there (default: the last ones, in memory)
--record-limit QUANTITY {quantity}  how much the recording may take (default: 1Gi, in memory 32Mi)
--no-page                   serve no page
--reload DIR                import the plugins in DIR anew whenever one of its files is saved, and
    show what that changes for pending pods
"""
_CONFIG = "--config FILE  scheduler configuration (KubeSchedulerConfiguration)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser, _OPTIONS, count=_count, name=_name, verbosity=_verbosity, quantity=_record_limit
    )
    add_page_options(parser)
    add_configuration(parser, _CONFIG)
    parser.set_defaults(parser=parser)


def _count(text: str) -> int:
    return number_up_to(text, 100_000)


def _record_limit(text: str) -> int:
    from kubesched.api.quantity import value
    from kubesched.app.flags import MIN_RECORD_LIMIT

    number = value(text)
    if number < MIN_RECORD_LIMIT:
        raise ValueError(f"must be at least {MIN_RECORD_LIMIT} bytes")
    return number


def _verbosity(text: str) -> int:
    return number_up_to(text, 2**31 - 1)


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name: lower case letters, digits and '-', 63 characters at most"
        )
    return text


def main(args: argparse.Namespace) -> int:
    began = time.monotonic()
    if args.once and not args.demo:
        args.parser.error("argument --once: only with --demo")
    if args.reload and (args.no_scheduler or args.once):
        args.parser.error("argument --reload: not with --no-scheduler or --once")
    cluster, scheduler = args.kubernetes_version, args.reference_version
    releases = list(REFERENCES)  # the oldest first
    if cluster and scheduler and releases.index(scheduler) > releases.index(cluster):
        args.parser.error("argument --reference-version: newer than --kubernetes-version")
    _configure_logging(args.v)
    with signals_held():
        from kubesched.app.event_loop import run

        reloader = _reloader(args) if args.reload else None  # before plugins are imported
        return run(_up(_settings(args), args, began, reloader))


def _reloader(args: argparse.Namespace) -> Reloader:
    from kubesched.app.reloading import Reloader
    from kubesched.config.load import default_config

    return Reloader(
        Path(args.reload), args.config, lambda: _config(args) or default_config(feature_gates(args))
    )


def _config(args: argparse.Namespace) -> KubeSchedulerConfiguration | None:
    from kubesched.config.load import load_file

    return load_file(args.config, feature_gates(args)) if args.config else None


def _configure_logging(verbosity: int | None) -> None:
    from kubesched.base import logs

    logs.configure(logs.LogSettings(verbosity=verbosity or 0))
    if verbosity is None:
        logs.set_verbosity(-10)  # warnings only
        logs.leave_out(is_ordinary)


def is_ordinary(error: BaseException | None) -> bool:
    """Whether an error is routine in a cluster: retried, or reported as an event."""
    from kubesched.base.errors import AlreadyExists, Conflict, Forbidden, NotFound
    from kubesched.scheduler.groups.results import PodGroupUnschedulable

    if isinstance(error, Forbidden):
        return "exceeded quota" in str(error)
    if isinstance(error, PodGroupUnschedulable):
        return True  # as ordinary as a pod that fits nowhere, which is no error
    return isinstance(error, AlreadyExists | Conflict | NotFound) or (
        error is not None and is_ordinary(error.__cause__)
    )


def _settings(args: argparse.Namespace) -> PlaygroundSettings:
    from kubesched.app.playground import PlaygroundSettings
    from kubesched.config import features
    from kubesched.config.load import read_file
    from kubesched.insight.recording.recorded_dependencies import RING_BYTES
    from kubesched.insight.recording.writer import DEFAULT_LIMIT_BYTES
    from kubesched.playground.kubelet.node_templates import DEFAULT_POOLS, load_node_pools

    args.reference_version = args.reference_version or args.kubernetes_version
    gates = feature_gates(args)
    features.check_implemented(gates)
    version = args.kubernetes_version or gates.reference.version
    data_dir = Path(args.data_dir).expanduser() if args.data_dir else None
    path = Path(args.kubeconfig).expanduser() if args.kubeconfig else None
    return PlaygroundSettings(
        kubeconfig=(path or _kubeconfig_path(data_dir, args.name or "")).absolute(),
        name=f"kubesched-{args.name}" if args.name else "kubesched",
        address=args.address,
        authorization=args.authorization,
        nodes=args.nodes,
        pools=load_node_pools(read_file(args.node_template), args.node_template)
        if args.node_template
        else DEFAULT_POOLS,
        port=args.port,
        data_dir=data_dir,
        with_scheduler=not args.no_scheduler,
        config=_config(args),
        gates=gates,
        cluster_gates=gates if version == gates.reference.version else features.defaults(version),
        record=args.record,
        record_limit=args.record_limit or (DEFAULT_LIMIT_BYTES if args.record else RING_BYTES),
    )


def _kubeconfig_path(data_dir: Path | None, name: str) -> Path:
    """Beside the data, or in the user's cache; never overwrites the user's own kubeconfig."""
    if data_dir is not None:
        return data_dir / "kubeconfig"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kubesched" / (f"{name}.kubeconfig" if name else "kubeconfig")


async def _up(
    settings: PlaygroundSettings, args: argparse.Namespace, began: float, reloader: Reloader | None
) -> int:
    from kubesched.app.playground import playground

    stop = stop_event()
    async with playground(settings) as running:
        _announce(running, settings, time.monotonic() - began)
        code = await _demonstrate(running) if args.demo else 0
        if not (args.demo and args.once):
            async with _page(running, settings, args) as show, _reloading(reloader, running, show):
                print("Ctrl-C ends it.", flush=True)
                await stop.wait()
                print("stopping", file=sys.stderr)
    return code


@contextlib.asynccontextmanager
async def _reloading(
    reloader: Reloader | None, running: Playground, done: Callable[[], None]
) -> AsyncIterator[None]:
    if reloader is None or running.seat is None:
        yield
        return
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reloader.run(running.seat, running.cluster.api, done))
        yield
        task.cancel()


@contextlib.asynccontextmanager
async def _page(
    running: Playground, settings: PlaygroundSettings, args: argparse.Namespace
) -> AsyncIterator[Callable[[], None]]:
    """Serve the page beside the playground, unless it runs without a scheduler.

    Yields a function that shows the present scheduler, in place of one that is gone.
    """
    if args.no_page or running.scheduler is None:
        yield lambda: None
        return
    from kubesched.app.cli.page import served
    from kubesched.app.page_sources import playground_source

    async with served(playground_source(running, settings), args) as page:
        yield lambda: page.show(playground_source(running, settings))


def _announce(running: Playground, settings: PlaygroundSettings, took_s: float) -> None:
    from kubesched.playground.kubelet.node_templates import plan_nodes

    scheduler = "scheduler running" if running.scheduler is not None else "no scheduler"
    nodes = len(plan_nodes(settings.pools, settings.nodes))
    print(f"cluster up at {running.cluster.url} in {took_s:.1f} s: {nodes} nodes, {scheduler}")
    path = shlex.quote(str(settings.kubeconfig))
    print(f"\n    export KUBECONFIG={path}\n", flush=True)


async def _demonstrate(running: Playground) -> int:
    from kubesched.app import demo

    api = running.cluster.api
    began = time.monotonic()
    expected = demo.create(api)
    placed = await demo.wait_until_running(api, expected, DEMO_TIMEOUT_S)
    running_count = sum(placement.phase == "Running" for placement in placed)
    print(
        f"{running_count} of {expected} demonstration pods running in namespace {demo.NAMESPACE}"
        f" after {time.monotonic() - began:.1f} s"
    )
    print_placements(placed)
    sys.stdout.flush()
    return 0 if running_count == expected else 1


def print_placements(placed: Sequence[Placement]) -> None:
    from kubesched.app.cli import terminal

    rows = [(place.pod, place.phase, place.node or "-", place.zone or "-") for place in placed]
    terminal.table(("POD", "STATUS", "NODE", "ZONE"), rows)
