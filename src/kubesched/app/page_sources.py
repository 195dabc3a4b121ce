"""Data sources of the page: the playground, a watched cluster, a dump, a recording."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import msgspec

from kubesched.api import codec
from kubesched.api.kinds import Kind
from kubesched.app.connecting import connections_to
from kubesched.app.explaining import explain_attempt, find_attempt
from kubesched.app.playground import Playground, PlaygroundSettings
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.clock import SystemClock
from kubesched.client.client_config import load_default_config
from kubesched.config.defaults import with_extender_resources
from kubesched.config.features import FeatureGates
from kubesched.config.load import default_config, load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.explain.explainer import Explainer
from kubesched.insight.explain.model import Explanation
from kubesched.insight.explain.selection import Selection
from kubesched.insight.page.actions import PlaygroundActions
from kubesched.insight.page.source import Source, View, view_of_state
from kubesched.insight.recording.reader import RecordingReader
from kubesched.insight.recording.recorded_dependencies import Recording
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.live import check_answers
from kubesched.insight.state.memory import PretendingClient, state_of_listers
from kubesched.playground.client.local import LocalApi
from kubesched.playground.kubelet.node_templates import PlannedNode, build_node

WATCH_QPS = -1.0


def playground_source(running: Playground, settings: PlaygroundSettings) -> Source:
    """The playground with its scheduler, its in-memory recording, and all actions."""
    seat = running.seat
    assert seat is not None, "the page needs the scheduler"
    app, title = seat.app, f"playground {settings.name}"
    source = scheduler_source(app, title, seat.config, settings.gates)
    source.kind = "playground"
    api = running.cluster.api
    source.view = replace(
        source.view,
        state=lambda: state_of_listers(title, app.informers, lambda kind: _stored(api, kind)),
    )
    source.actions = PlaygroundActions(api, partial(_new_nodes, api, settings))
    if running.recording is not None:
        add_recording(source, running.recording)
    return source


def _stored(api: LocalApi, kind: Kind[Any]) -> list[Any]:
    """The playground's objects of a kind that its scheduler does not watch."""
    if kind.is_preview:
        return []
    return [codec.convert(obj, kind.record) for obj in api.list(kind.resource)[0]]


def scheduler_source(
    app: SchedulerApp, title: str, config: KubeSchedulerConfiguration, gates: FeatureGates
) -> Source:
    """A running scheduler: its table, its queue and its last attempts."""
    return Source(
        kind="scheduler",
        title=title,
        view=View(
            assembly=app.assembly,
            state=lambda: state_of_listers(title, app.informers),
            explainer=None,
        ),
        config=config,
        gates=gates,
        is_live=True,
        ring=app.assembly.scheduler.decisions,
    )


def add_recording(source: Source, recording: Recording) -> None:
    """Let the page go back in time in a live recording."""
    source.reader = lambda: RecordingReader(recording.storage, "the recording")
    source.play = play_attempt


def play_attempt(
    reader: RecordingReader, pod: str, number: int, select: Selection, fix: bool
) -> Explanation | None:
    """The pod at an attempt of the last run; None if the start of the run was deleted."""
    attempt = find_attempt(reader, pod, number=number)
    return None if attempt is None else explain_attempt(attempt, select, fix=fix)


def state_source(
    state: ClusterState, config: KubeSchedulerConfiguration | None, gates: FeatureGates
) -> Source:
    """Static objects: from a dump, or listed once."""
    config = config or default_config(gates)
    return Source(
        kind="dump",
        title=state.source,
        view=view_of_state(state, config, gates),
        config=config,
        gates=gates,
    )


def recording_source(
    folder: str, config: KubeSchedulerConfiguration | None, gates: FeatureGates | None
) -> Source:
    """A recording on disk, initially at its end; by default under its own configuration.

    Raises:
        RecordingError, ConfigError: it cannot be used; the message says why.
    """
    reader = RecordingReader.of_folder(folder)
    header = reader.segments[-1].header
    played = gates is None and config is None
    gates = header.gates() if gates is None else gates
    config = config or load(msgspec.json.encode(header.config), folder, gates)
    return Source(
        kind="recording",
        title=f"recording {folder}",
        view=view_of_state(reader.state_at(), config, gates),
        config=config,
        gates=gates,
        reader=lambda: RecordingReader.of_folder(folder),
        play=play_attempt if played else None,
    )


@contextlib.asynccontextmanager
async def watched_source(
    kubeconfig: str,
    context: str,
    config: KubeSchedulerConfiguration | None,
    gates: FeatureGates,
    on_wait: Callable[[str], None],
) -> AsyncIterator[Source]:
    """A live cluster, watched with the scheduler's informers; nothing is scheduled.

    `on_wait` hears what the server does not list, for as long as that lasts.

    Raises:
        CredentialsError: no cluster is configured, or its credentials cannot be used.
        ApiError, TransportError: the server refuses or cannot be reached.
    """
    client_config = load_default_config(kubeconfig, context=context)
    connection = client_config.connection
    config = config or default_config(gates)
    watching = replace(with_extender_resources(config), extenders=())
    async with (
        connections_to(connection, qps=WATCH_QPS, random=Random()) as connections,
        asyncio.TaskGroup() as group,
    ):
        await check_answers(connections.main)
        app = SchedulerApp(
            watching, gates, connections.main, connections.events.recorder, calls=PretendingClient()
        )
        watches = group.create_task(_watch(app, on_wait), name="page watches")
        await app.synced.wait()
        title = f"cluster at {connection.host}:{connection.port}"
        try:
            yield Source(
                kind="cluster",
                title=title,
                view=View(
                    assembly=app.assembly,
                    state=lambda: state_of_listers(title, app.informers),
                    explainer=Explainer(app.assembly),
                ),
                config=config,
                gates=gates,
                is_live=True,
            )
        finally:
            watches.cancel()


async def _watch(app: SchedulerApp, on_wait: Callable[[str], None]) -> None:
    async with asyncio.TaskGroup() as group:
        await app.start_informers(group, on_wait)


def _new_nodes(
    api: LocalApi, settings: PlaygroundSettings, count: int, like: str
) -> list[dict[str, Any]]:
    """Nodes of the pool of the named node, or of the first one, under the next free names."""
    known, _ = api.list("nodes")
    names = {existing["metadata"]["name"] for existing in known}
    pools = [pool for pool in settings.pools if like.startswith(f"{pool.name or 'node'}-")]
    pool = (pools or settings.pools)[0]
    made: list[dict[str, Any]] = []
    number = len(names)
    while len(made) < count:
        name = f"{pool.name or 'node'}-{number}"
        if name not in names:
            planned = PlannedNode(pool, name, number)
            made.append(build_node(planned, SystemClock().now(), api.release.git_version))
        number += 1
    return made
