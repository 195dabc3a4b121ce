"""Builds a scheduler from a configuration and its dependencies.

The only constructor: `run`, the playground, tests, simulation and benchmarks all use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import cast

from kubesched.api.core_v1 import Pod
from kubesched.api.resources import ACCOUNTED, ACCOUNTED_BY_CONTAINER
from kubesched.base.clock import Clock
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.base.logs import get_logger
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.metrics.scheduler import ENTITIES, SHADOWS, SchedulerMetrics
from kubesched.config.defaults import with_extender_resources
from kubesched.config.features import FeatureGates
from kubesched.config.types import (
    POINTS_IN_ORDER_OF_USE,
    ExtensionPoint,
    KubeSchedulerConfiguration,
)
from kubesched.config.types import Extender as ExtenderConfig
from kubesched.framework.extenders import Extender
from kubesched.framework.handle import EventRecorder, Handle, Listers, SchedulerClient
from kubesched.framework.interfaces import (
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.preemption.evaluator import own_preemption
from kubesched.framework.profile import build_frameworks
from kubesched.framework.registry import Registry
from kubesched.framework.runtime import Framework
from kubesched.framework.waiting_pods import CallLater, PodsInPreBind, WaitingPods
from kubesched.plugins.dynamic_resources.manager import DRAManager
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.scheduler.background import BackgroundTasks
from kubesched.scheduler.batching import Batching, signer
from kubesched.scheduler.binding_cycle import BindingCycle
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.checkpoint import Checkpoints
from kubesched.scheduler.classes import ClassEngine
from kubesched.scheduler.decisions import DecisionRing
from kubesched.scheduler.event_gate import EventGate
from kubesched.scheduler.event_handlers import EventHandlers
from kubesched.scheduler.extended_algorithm import ExtendedAlgorithm
from kubesched.scheduler.failure import FailureHandler
from kubesched.scheduler.flight import FlightRecorder
from kubesched.scheduler.parts import Parts
from kubesched.scheduler.queue.hints import HintMap, PluginEvents, build_hint_map
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.queue.settings import QueueSettings
from kubesched.scheduler.scheduler import Scheduler
from kubesched.scheduler.scheduling_cycle import SchedulingCycle
from kubesched.scheduler.shadows import Shadow, Shadows
from kubesched.scheduler.status_writer import StatusWriter

log = get_logger(__name__)

_CAN_REJECT = frozenset(
    (PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, ReservePlugin, PermitPlugin)
)


ExtenderFactory = Callable[[Sequence[ExtenderConfig], NodeTable], Sequence[Extender]]


def no_extenders(configured: Sequence[ExtenderConfig], table: NodeTable) -> Sequence[Extender]:
    names = ", ".join(extender.url_prefix for extender in configured)
    raise ConfigError([FieldProblem("extenders", f"extenders are not supported here ({names})")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The environment of a scheduler."""

    listers: Listers
    client: SchedulerClient
    recorder: Callable[[str], EventRecorder]
    """Scheduler name -> recorder reporting under it."""
    clock: Clock
    random: Random
    call_later: CallLater
    metrics: SchedulerMetrics
    extenders: ExtenderFactory = no_extenders
    """Configured extenders -> extenders, in call order."""
    flight: FlightRecorder | None = None
    plugin_client: SchedulerClient | None = None
    """The client for plugins, if not `client`: a recorder must know when their calls return."""
    measures_plugins: bool = True
    """Whether extension points and plugins are timed and counted; False for in-memory what-ifs."""
    jitter: Random | None = None
    """For delays between retries, if not a copy of `random`, of which decisions draw alone."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A scheduler and the components its caller connects to."""

    scheduler: Scheduler
    handlers: EventHandlers
    hints: HintMap
    frameworks: dict[str, Framework]
    table: NodeTable
    waiting_pods: WaitingPods
    shadows: Shadows | None = None
    """Profiles that decide beside those in `frameworks`."""


def metrics_for(
    config: KubeSchedulerConfiguration, gates: FeatureGates, registry: MetricsRegistry
) -> SchedulerMetrics:
    """The scheduler's metrics, with those that gates and settings add."""
    conditions = {field.name for field in fields(gates) if getattr(gates, field.name) is True}
    conditions |= {ENTITIES} if gates.reference.entity_metrics else set()
    conditions |= {SHADOWS} if config.has_shadows else set()
    return SchedulerMetrics(registry, conditions)


def assemble(
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
    registry: Registry,
    dependencies: Dependencies,
    *,
    classes: bool = True,
    max_in_unschedulable_s: float = 300.0,
) -> Assembly:
    """Build everything, start nothing.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    shared = _Shared(with_extender_resources(config), gates, dependencies)
    built = build_frameworks(shared.config.profiles, registry, shared.handle, gates)
    frameworks = {name: made for name, made in built.items() if name not in shared.shadow_of}
    if log.enabled(2):
        _log_plugins(frameworks)
    hints = build_hint_map(
        {name: plugin_events(framework) for name, framework in frameworks.items()},
        has_extenders=bool(shared.extenders),
        group_resources=() if shared.groups is None else shared.groups.resources,
        reference=gates.reference,
        narrows=gates.SchedulerPreQueueingHints and not gates.CompositePodGroup,
    )
    batching: dict[str, Batching] = {}
    signers = _enable_batching(frameworks, gates, batching)
    queue = shared.queue = _make_queue(shared, frameworks, hints, signers, max_in_unschedulable_s)
    algorithm = SchedulingAlgorithm(
        shared.table,
        dependencies.random,
        parallelism=shared.config.parallelism,
        percentage_of_nodes_to_score=shared.config.percentage_of_nodes_to_score,
        engine=ClassEngine(shared.table) if classes else None,
        batching=batching,
    )
    is_largest_sum = gates.reference.footprint_is_max_of_sums
    cache = shared.parts.cache(
        shared.table, ACCOUNTED if is_largest_sum else ACCOUNTED_BY_CONTAINER
    )
    event_gate = EventGate()
    scheduler = _make_scheduler(shared, frameworks, queue, cache, event_gate, algorithm)
    shadows: Shadows | None = None
    if shared.shadow_of:
        metrics, clock = dependencies.metrics, dependencies.clock
        shadows = scheduler.cycle.shadows = Shadows(
            Shadow(built[name], frameworks[of], algorithm, metrics, clock)
            for name, of in shared.shadow_of.items()
        )
    handlers = shared.parts.handlers(
        cache,
        queue,
        shared.waiting_pods,
        frameworks.keys(),
        dependencies.metrics,
        dependencies.clock,
        event_gate,
        declared_features=gates.enabled("NodeDeclaredFeatures"),
        resize_events=gates.reference.target_pod_events,
        tries_resizes=shared.tries_resizes,
    )
    waiting = shared.waiting_pods
    return Assembly(scheduler, handlers, hints, frameworks, shared.table, waiting, shadows)


def _parts(gates: FeatureGates, world: Dependencies) -> Parts:
    """The parts that differ if pods are scheduled in groups."""
    if not gates.GenericWorkload:
        return Parts()
    from kubesched.scheduler.groups.parts import GroupParts

    return GroupParts(gates, world.plugin_client or world.client)


class _Shared:
    """What all profiles share, as their plugins see it."""

    def __init__(
        self, config: KubeSchedulerConfiguration, gates: FeatureGates, world: Dependencies
    ) -> None:
        self.config, self.gates, self.world = config, gates, world
        self.shadow_of = {
            profile.scheduler_name: profile.shadow.of
            for profile in config.profiles
            if profile.shadow is not None
        }
        self.table = NodeTable()
        self.extenders = world.extenders(config.extenders, self.table) if config.extenders else []
        self.pods = world.listers.of(Pod)
        self.nominator = Nominator(self.pods)
        self.waiting_pods = WaitingPods(world.call_later)
        self.background = BackgroundTasks(flight=world.flight)
        self.jitter = world.jitter or copy(world.random)
        self.parts = _parts(gates, world)
        self.groups = self.parts.groups
        self.tries_resizes = gates.InPlacePodVerticalScalingSchedulerPreemption
        self.queue: SchedulingQueue
        """Set after the profiles were built, which its order and its hints depend on."""
        self._in_pre_bind = PodsInPreBind()
        self._dra_manager = DRAManager(world.listers, gates)

    def handle(self, profile: str) -> Handle:
        world = self.world
        handle = Handle(
            table=self.table,
            clock=world.clock,
            random=world.random,
            jitter=self.jitter,
            profile_name=profile,
            listers=world.listers,
            client=world.plugin_client or world.client,
            recorder=world.recorder(profile),
            metrics=world.metrics if world.measures_plugins else None,
            waiting_pods=self.waiting_pods,
            pods_in_pre_bind=self._in_pre_bind,
            feature_gates=self.gates,
            parallelism=self.config.parallelism,
            extenders=self.extenders,
            nominator=self.nominator,
            activate=lambda pods: self.queue.activate(pods),
            spawn=self.background.spawn,
            groups=self.groups,
            dra_manager=self._dra_manager,
        )
        handle.preemption = partial(own_preemption, handle)
        if profile in self.shadow_of:  # it only reads
            handle.client = handle.recorder = handle.metrics = None
            handle.activate = handle.spawn = None
            handle.random = Random(0)
            handle.waiting_pods = WaitingPods(world.call_later)
            handle.pods_in_pre_bind = PodsInPreBind()
        return handle


def _make_queue(
    shared: _Shared,
    frameworks: Mapping[str, Framework],
    hints: HintMap,
    signers: Mapping[str, Callable[[PodInfo], bytes | None]],
    max_in_unschedulable_s: float,
) -> SchedulingQueue:
    config, gates, world = shared.config, shared.gates, shared.world
    first = next(iter(frameworks.values()))
    return shared.parts.queue(
        clock=world.clock if world.flight is None else world.flight.clock,
        stopwatch=world.clock,
        queue_sort=first.queue_sort[0],
        hints=hints,
        pre_enqueue={
            name: {plugin.name: plugin.pre_enqueue for plugin in framework.pre_enqueue}
            for name, framework in frameworks.items()
        },
        nominator=shared.nominator,
        metrics=world.metrics,
        random=world.random,
        signers=signers,
        settings=QueueSettings(
            initial_backoff_s=config.pod_initial_backoff_seconds,
            max_backoff_s=config.pod_max_backoff_seconds,
            max_in_unschedulable_s=max_in_unschedulable_s,
            pop_from_backoff_q=gates.enabled("SchedulerPopFromBackoffQ"),
            reference=gates.reference,
            tries_resizes=shared.tries_resizes,
        ),
    )


def _make_scheduler(
    shared: _Shared,
    frameworks: Mapping[str, Framework],
    queue: SchedulingQueue,
    cache: Cache,
    event_gate: EventGate,
    algorithm: SchedulingAlgorithm,
) -> Scheduler:
    """The cycles and the loop around them."""
    world = shared.world
    writer = StatusWriter(world.client, shared.pods, world.clock, shared.jitter)
    extended = ExtendedAlgorithm(algorithm, shared.extenders) if shared.extenders else None
    cycle = SchedulingCycle(algorithm, cache, queue, extended)
    decisions = DecisionRing()
    failures = FailureHandler(queue, shared.pods, writer.put, decisions, shared.tries_resizes)
    binding = BindingCycle(
        cycle,
        queue,
        failures,
        world.metrics,
        writer.put,
        writer.flush,
        writer.is_pending,
        event_gate=event_gate,
        nominate_for_expectation=shared.gates.enabled("NominatedNodeNameForExpectation"),
        counts_flushed=shared.gates.reference.flushed_pods_are_counted,
        flight=world.flight,
    )
    return shared.parts.scheduler(
        queue=queue,
        cache=cache,
        frameworks=frameworks,
        cycle=cycle,
        binding=binding,
        failures=failures,
        status_writer=writer,
        background=shared.background,
        metrics=world.metrics,
        clock=world.clock,
        random=world.random,
        event_gate=event_gate,
        decisions=decisions,
        flight=world.flight,
        checkpoints=Checkpoints(
            queue,
            cache,
            algorithm,
            world.random,
            world.listers,
            [plugin for framework in frameworks.values() for plugin in framework.plugins],
            shared.background,
        ),
    )


def _log_plugins(frameworks: Mapping[str, Framework]) -> None:
    """Log the plugins of every extension point, in the format of upstream's log record."""
    for framework in frameworks.values():
        listed = {
            point.value[0].upper() + point.value[1:]: {
                "Enabled": [
                    {
                        "Name": plugin.name,
                        "Weight": framework.score_weights.get(plugin.name, 0)
                        if point is ExtensionPoint.SCORE
                        else 0,
                    }
                    for plugin in framework.points.get(point.value, ())
                ]
                or None,
                "Disabled": None,
            }
            for point in POINTS_IN_ORDER_OF_USE
        }
        log.info("the scheduler starts to work with those plugins", v=2, Plugins=listed)


def _enable_batching(
    frameworks: dict[str, Framework], gates: FeatureGates, batching: dict[str, Batching]
) -> dict[str, Callable[[PodInfo], bytes | None]]:
    """Create a batching cache for profiles that can sign pods; returns the signing functions."""
    signers: dict[str, Callable[[PodInfo], bytes | None]] = {}
    if not gates.OpportunisticBatching:
        return signers
    for name, framework in frameworks.items():
        sign = signer(framework)
        if sign is not None:
            batching[name] = Batching(
                name,
                framework.handle.metrics,
                rescores=gates.reference.batches_are_scored_again,
            )
            signers[name] = partial(_sign_info, sign)
    return signers


def _sign_info(sign: Callable[[Pod], bytes | None], info: PodInfo) -> bytes | None:
    return sign(info.pod)


def plugin_events(framework: Framework) -> list[PluginEvents]:
    """The plugins that can reject a pod, each with its `events_to_register`."""
    # The first isinstance() with an abstract class checks all its subclasses.
    return [
        PluginEvents(
            plugin.name,
            cast("EnqueueExtensions", plugin).events_to_register
            if EnqueueExtensions in type(plugin).__mro__
            else None,
        )
        for plugin in framework.plugins
        if not _CAN_REJECT.isdisjoint(type(plugin).__mro__)
    ]
