"""One scheduler process, from its command line to its exit code.

Startup order: flags, feature gates, logging; configuration, plugin imports; then, in the event
loop, clients; scheduler; serving; informers; leader election or immediate scheduling. Shutdown
order: readiness fails, no more pods are popped, work in progress is finished within a time limit,
the lease is released, events are flushed, connections are closed.

| Ended by | Exit code |
|---|---|
| a signal, with leader election | 0 |
| a signal, without leader election | 1, as kube-scheduler does |
| the lease was lost | 1 |
| any error | 1 |
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import platform
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kubesched.api.core_v1 import Pod
from kubesched.api.yaml_nodes import Plain
from kubesched.app import event_loop
from kubesched.app.connecting import Connections, connections_to
from kubesched.app.control_thread import ControlThread
from kubesched.app.diagnosis import diagnosis
from kubesched.app.flag_parsing import CommandLine
from kubesched.app.flags import RunOptions
from kubesched.app.process_metrics import (
    make_registry,
    register_common,
    register_event_losses,
    register_informers,
    register_recorder,
    register_tasks,
)
from kubesched.app.replica import Replica, election_settings, new_identity
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.app.server.health import PING, Check, waits_for
from kubesched.app.serving import Exposed, Serving
from kubesched.app.settings import RunSettings, complete, feature_gates, log_settings
from kubesched.app.stopping import ExitLimit, StopRequest
from kubesched.base import logs
from kubesched.base.clock import SystemClock
from kubesched.base.errors import ConfigError, KubeschedError, without_groups
from kubesched.base.garbage_collection import GarbageCollection
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.version import __version__
from kubesched.client.client_config import ClientConfig, load_config
from kubesched.client.leader_election import LeaderElectionSettings
from kubesched.client.metrics import ClientMetrics, LeaderMetrics
from kubesched.config import features
from kubesched.config.feature_table import Stage
from kubesched.config.features import FeatureGates
from kubesched.config.output import to_plain, to_yaml
from kubesched.framework.registry import Registry
from kubesched.insight.recording.recorded_dependencies import Recording, open_recording
from kubesched.insight.recording.writer import Limits
from kubesched.plugins.registry import load_plugins
from kubesched.scheduler.plugin_profile import PluginProfile, plugin_costs
from kubesched.scheduler.watchdog import LoopWatchdog

if TYPE_CHECKING:
    from kubesched.insight.page.source import Source

log = logs.get_logger(__name__)

SUCCESS, FAILURE = 0, 1


def run(line: CommandLine) -> int:
    """Run until told to stop; returns the exit code. Errors are logged, not raised."""
    options = line.options
    try:
        gates = feature_gates(options)
        features.check_implemented(gates)
    except ConfigError as error:
        logs.configure(logs.LogSettings())
        return _failed(error)
    try:
        logs.configure(log_settings(options, gates))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return FAILURE
    _warn_of_settled_gates(options, gates)
    _log_flags(options)
    try:
        # Before the loop starts: reading the configuration and importing plugins would block it.
        settings = complete(line, gates)
        registry = load_plugins(settings.config)
    except Exception as error:
        return _ended_by(error)
    gc.collect()
    try:
        return event_loop.run(_run(settings, registry))
    except KubeschedError:
        log.exception("command failed")
        return FAILURE


def _warn_of_settled_gates(options: RunOptions, gates: FeatureGates) -> None:
    """Gates that are named although their feature is stable or deprecated."""
    texts = {
        Stage.GA: "Warning: setting GA feature gate. It will be removed in a future release.",
        Stage.DEPRECATED: (
            "Warning: setting deprecated feature gate. It will be removed in a future release."
        ),
    }
    for name, value in features.wanted(options.feature_gates).items():
        stage = features.known(gates.versions)[name].stage
        if stage in texts:
            log.info(texts[stage], featureGate=name, value=value)


def _log_flags(options: RunOptions) -> None:
    if log.enabled(1):
        for name, value in options.shown().items():
            log.infof('FLAG: --%s="%s"', name, value, v=1)


def _failed(error: Exception | str) -> int:
    log.error("command failed", error if isinstance(error, str) else _text(error))
    return FAILURE


def _text(error: Exception) -> str:
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        listed = ", ".join(str(problem) for problem in error.problems)
        return f"{error.source}: [{listed}]" if error.source else f"[{listed}]"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _ended_by(error: Exception) -> int:
    """Log why the process ends; call it while handling the error."""
    alone = without_groups(error)
    if isinstance(alone, KubeschedError | OSError):
        return _failed(alone)
    log.exception("command failed")  # a bug: log the traceback
    return FAILURE


async def _run(settings: RunSettings, registry: Registry) -> int:
    stop = StopRequest()
    stop.install()
    try:
        return await SchedulerProcess(settings, stop, registry).run()
    except Exception as error:  # the outermost edge
        return _ended_by(error)
    finally:
        stop.uninstall()


class SchedulerProcess:
    """The parts of one process, started and stopped in order."""

    def __init__(self, settings: RunSettings, stop: StopRequest, registry: Registry | None) -> None:
        """`registry` replaces the in-tree and installed plugins."""
        self._settings = settings
        self._plugins = registry
        self._stop = stop
        self._clock = SystemClock()
        self._random = Random()
        self._registry = make_registry(settings.options)
        self._app: SchedulerApp | None = None
        self._watchdog: LoopWatchdog | None = None
        self._recording: Recording | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> int:
        options, config = self._settings.options, self._settings.config
        for name in self._settings.ignored_flags:
            log.warning("A flag is ignored because there is a configuration file", flag=name)
        election = config.leader_election
        elected = (
            election_settings(election, new_identity(self._random))
            if election.leader_elect
            else None
        )
        client_config = load_config(config.client_connection.kubeconfig, options.master)
        log.info("Found credentials", v=1, source=client_config.source)
        with self._recorded() as recording:
            connections = self._connect(client_config)
            return await self._run_connected(connections, self._make_serving(), elected, recording)

    def _connect(self, client_config: ClientConfig) -> Connections:
        options, config = self._settings.options, self._settings.config
        lock_config = load_config(config.client_connection.kubeconfig, options.master)
        return connections_to(
            client_config.connection,
            qps=config.client_connection.qps,
            burst=config.client_connection.burst,
            clock=self._clock,
            random=self._random,
            metrics=ClientMetrics(self._registry, self._clock),
            content_type=config.client_connection.content_type,
            lock_connection=lock_config.connection,
            reference=f"v{self._settings.gates.reference.release}",
        )

    async def _run_connected(
        self,
        connections: Connections,
        serving: Serving | None,
        elected: LeaderElectionSettings | None,
        recording: Recording | None,
    ) -> int:
        options = self._settings.options
        async with connections:
            await asyncio.sleep(0)  # assemble in a separate turn of the loop
            replica = self._make_replica(connections, elected, recording)
            await asyncio.sleep(0)
            self._loop, self._recording = asyncio.get_running_loop(), recording
            app = self._app = replica.app
            if options.write_config_to:
                return self._write_config(Path(options.write_config_to))
            self._register_metrics(connections, app)
            if recording is not None:
                register_recorder(self._registry, recording.recorder)
            self._log_start()
            loop = asyncio.get_running_loop()
            self._watchdog = watchdog = LoopWatchdog(loop, self._registry, self._clock)
            exit_limit = ExitLimit(self._stop, options.drain_timeout)
            with GarbageCollection(app.informers.object_count) as garbage_collection:
                async with (
                    ControlThread() as control,
                    _beside(connections.events.run(), name="events"),
                    _beside(control.run(watchdog.run), name="watchdog"),
                    _beside(control.run(exit_limit.enforce), name="exit limit"),
                    _served(serving, control),
                    diagnosis(app),
                    _beside(garbage_collection.run(app.synced), name="garbage collection"),
                ):
                    if elected is None:
                        return await self._run_alone(replica)
                    return await self._run_elected(replica, control, exit_limit)

    def _make_serving(self) -> Serving | None:
        if not self._settings.options.secure_port:
            return None
        elects = self._settings.config.leader_election.leader_elect
        # Upstream: the check is never connected to the lease, so it always passes; probes rely on
        # that.
        leading = (Check("leaderElection", lambda: None),) if elects else ()
        stopping = waits_for("shutdown", lambda: not self._stop.is_set, "process is shutting down")
        synced = Check("sched-handler-sync", self._sync_problem)
        exposed = Exposed(
            registry=self._registry,
            sli_registry=MetricsRegistry(),
            healthz=leading or (PING,),
            livez=(PING,),
            readyz=(*leading, stopping, synced),
            pods=self._pods,
            is_active=self._is_active,
            shadows=lambda: None if self._app is None else self._app.assembly.shadows,
            plugins=self._plugin_profile,
            page=self._page_source if self._settings.options.page else None,
        )
        return Serving(self._settings, exposed, clock=self._clock, random=self._random)

    def _page_source(self) -> Source | None:
        """What the page shows; called on the control thread."""
        if self._app is None or self._loop is None:
            return None
        from kubesched.app.page_serving import read_on
        from kubesched.app.page_sources import add_recording, scheduler_source

        source = scheduler_source(
            self._app, "this scheduler", self._settings.config, self._settings.gates
        )
        source.read = read_on(self._loop)
        if self._recording is not None:
            add_recording(source, self._recording)
        return source

    def _plugin_profile(self) -> PluginProfile:
        if self._app is None:
            return PluginProfile()
        blocked = () if self._watchdog is None else self._watchdog.blocked()
        return PluginProfile(plugins=plugin_costs(self._app.assembly), blocked=blocked)

    def _sync_problem(self) -> str | None:
        if self._app is None or not self._app.synced.is_set():
            return "handlers are not fully synchronized"
        return self._app.informers.blind()

    def _is_active(self) -> bool:
        return self._app is not None and self._app.is_scheduling

    def _pods(self) -> Iterable[Pod]:
        return () if self._app is None else self._app.informers.of(Pod).list()

    def _register_metrics(self, connections: Connections, app: SchedulerApp) -> None:
        register_common(self._registry, self._settings.gates)
        register_event_losses(self._registry, connections.events.dropped)
        as_upstream = self._settings.gates.reference.entity_metrics
        register_informers(self._registry, app.informers, as_upstream=as_upstream)
        register_tasks(self._registry, asyncio.get_running_loop())

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[Recording | None]:
        """Record while the body runs, if enabled."""
        settings = self._settings
        options = settings.options
        if not options.record or options.write_config_to:
            yield None
            return
        recording = open_recording(
            options.record,
            settings.config,
            settings.gates,
            limits=Limits(options.record_limit),
            clock=self._clock,
            random=self._random,
            max_in_unschedulable_s=options.pod_max_in_unschedulable_pods_duration,
        )
        try:
            yield recording
        finally:
            recording.close()

    def _make_replica(
        self,
        connections: Connections,
        election: LeaderElectionSettings | None,
        recording: Recording | None,
    ) -> Replica:
        settings = self._settings
        return Replica(
            settings.config,
            settings.gates,
            connections,
            election,
            registry=self._plugins,
            metrics_registry=self._registry,
            clock=self._clock,
            random=self._random,
            max_in_unschedulable_s=settings.options.pod_max_in_unschedulable_pods_duration,
            recording=recording,
        )

    def _write_config(self, path: Path) -> int:
        path.write_text(to_yaml(self._plain_config()), encoding="utf-8")
        log.info("Wrote configuration", file=str(path))
        return SUCCESS

    def _plain_config(self) -> dict[str, Plain]:
        return to_plain(self._settings.config, self._settings.gates.reference)

    def _log_start(self) -> None:
        log.info(
            "Starting Kubernetes Scheduler",
            version=f"v{self._settings.gates.reference.release}",
            kubesched=__version__,
            python=platform.python_version(),
        )
        if log.enabled(2):
            log.info("Using component config", v=2, config=to_yaml(self._plain_config()))

    # With and without leader election.

    async def _run_alone(self, replica: Replica) -> int:
        await self._until_stopped(replica.app, replica.run())
        # Upstream: a scheduler without leader election is not expected to finish, so a polite
        # signal is a failure.
        return _failed("finished without leader elect")

    async def _run_elected(
        self, replica: Replica, control: ControlThread, exit_limit: ExitLimit
    ) -> int:
        metrics = LeaderMetrics(self._registry)
        work = replica.run(metrics, control, exit_limit.leadership_lost)
        if await self._until_stopped(replica.app, work):
            log.info("Requested to terminate, exiting")
            return SUCCESS
        log.error("Leaderelection lost")
        return FAILURE

    async def _until_stopped(self, app: SchedulerApp, work: Coroutine[Any, Any, None]) -> bool:
        """Run the work until it ends or a stop is requested; True if requested."""
        task = asyncio.ensure_future(work)
        # Draining begins some loop turns later; until then a pod could still be popped.
        self._stop.on_asked = app.take_no_more_pods
        asked = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return False
            await app.drain(self._settings.options.drain_timeout)
            return True
        finally:
            await _cancelled(asked)
            await _cancelled(task)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end; re-raises its error."""
    if task.done():
        return
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None], *, name: str) -> AsyncIterator[None]:
    """Run a task alongside the body and cancel it afterwards; if it ends, the body is cancelled."""

    async def keep() -> None:
        await work
        raise KubeschedError(f"{name} has ended")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(keep(), name=name)
        try:
            yield
        finally:
            task.cancel()


@contextlib.asynccontextmanager
async def _served(serving: Serving | None, control: ControlThread) -> AsyncIterator[None]:
    if serving is None:
        yield
        return

    async def serve() -> None:
        async with serving:
            await serving.run()

    async with _beside(control.run(serve), name="serving"):
        yield
