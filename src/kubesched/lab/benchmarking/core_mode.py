"""Core mode: runs a workload through the production core, without an API server or network.

From a pod's arrival in the queue to its binding, the code is that of `kubesched run`: queue,
scheduling cycle, plugins, cache, binding cycle, event handlers. Left out: the client, JSON, the
network, and concurrent binding tasks. Rates in a workload file use virtual time
(`core_cluster.PACE_S`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from msgspec import structs

from kubesched.api.core_v1 import Node, Pod
from kubesched.base.errors import KubeschedError
from kubesched.config.versions import DEFAULT_VERSIONS, Versions
from kubesched.lab.benchmarking import operations as ops
from kubesched.lab.benchmarking.core_cluster import PACE_S, CoreCluster
from kubesched.lab.benchmarking.core_measuring import Measurement
from kubesched.lab.benchmarking.core_stage import CoreStage, Progress
from kubesched.lab.benchmarking.device_claims import allocated_claims
from kubesched.lab.benchmarking.results import Contestant, RunResult
from kubesched.lab.benchmarking.scheduler_settings import configuration, feature_gates
from kubesched.lab.benchmarking.workload_files import Workload
from kubesched.scheduler.plugin_profile import plugin_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOptions:
    """Repetitions and overrides of a run."""

    repeats: int = 3
    warmup: int = 1
    """Warm-up repetitions, not reported."""
    classes: bool = True
    seed: int = 1
    percentage_of_nodes_to_score: int | None = None
    """Overrides the workload's setting."""
    pods_per_s: float = 0.0
    """Creation rate of measured pods, in virtual time; 0: all at once."""
    times_cycles: bool = False
    """Also time scheduling cycles alone, which makes attempts slightly slower."""
    profiles_plugins: bool = False
    versions: Versions = DEFAULT_VERSIONS
    make_cluster: Callable[..., CoreCluster] = CoreCluster


def run_core(
    workload: Workload, options: CoreOptions, progress: Progress = lambda _text: None
) -> list[RunResult]:
    """Run all repetitions of a workload.

    Raises:
        KubeschedError: the workload cannot be run, or got stuck.
    """
    if workload.not_supported:
        raise KubeschedError(f"{workload.full_name}: {workload.not_supported}")
    all_results: list[RunResult] = []
    for number in range(1 - options.warmup, options.repeats + 1):
        what = f"repeat {number} of {options.repeats}" if number > 0 else "warm-up"

        def tell(text: str, what: str = what) -> None:
            progress(f"{workload.full_name}: {what}: {text}")

        try:
            results = play(workload, options, number, tell)
        except KubeschedError as error:
            raise KubeschedError(f"{workload.full_name}: {error}") from error
        if number > 0:
            all_results += results
    return all_results


def with_core_decisions(
    results: Sequence[RunResult],
    workload: Workload,
    options: CoreOptions,
    progress: Progress = lambda _text: None,
) -> list[RunResult]:
    """Add core-mode decision costs to our end-to-end results, one repetition for each.

    Raises:
        KubeschedError: as `run_core`.
    """
    repeats = max((it.repeat for it in results if it.contestant == Contestant.KUBESCHED), default=0)
    timed = replace(options, repeats=repeats, warmup=0, times_cycles=True)
    costs = (result.decision_cpu for result in run_core(workload, timed, progress))
    return [
        structs.replace(result, decision_cpu=next(costs, None))
        if result.contestant == Contestant.KUBESCHED
        else result
        for result in results
    ]


def play(
    workload: Workload,
    options: CoreOptions,
    repeat: int,
    progress: Progress = lambda _text: None,
    make_measurement: type[Measurement] = Measurement,
) -> list[RunResult]:
    """Run one repetition; returns a result per measured interval."""
    gates, notes = feature_gates(workload, options.versions)
    cluster = options.make_cluster(
        configuration(workload, gates, options.percentage_of_nodes_to_score),
        gates,
        classes=options.classes,
        seed=options.seed,
    )
    stage = CoreStage(cluster, progress, make_measurement, times_cycles=options.times_cycles)
    player = _Player(workload, options, repeat, stage)
    with cluster:
        for op in workload.ops:
            progress(op.opcode)
            player.play(op)
        cluster.assembly.scheduler.check_invariants()
    if not player.results:
        raise KubeschedError("no operation collects metrics")
    costs = plugin_costs(cluster.assembly) if options.profiles_plugins else ()
    return [structs.replace(result, notes=notes, plugins=costs) for result in player.results]


class _Player:
    """Plays the operations of one repetition in order."""

    def __init__(
        self, workload: Workload, options: CoreOptions, repeat: int, stage: CoreStage
    ) -> None:
        self._workload = workload
        self._options = options
        self._repeat = repeat
        self._stage = stage
        self._cluster = stage.cluster
        self._names = ops.Names()
        self._measured_name = ""
        self.results: list[RunResult] = []

    def play(self, op: ops.Op) -> None:
        if isinstance(op, ops.CreateNodes | ops.CreateNamespaces | ops.CreateAny):
            for manifest in op.manifests(self._names):
                self._cluster.add(self._cluster.made(manifest))
        elif isinstance(op, ops.CreateResourceDriver):
            names = [node.metadata.name for node in self._cluster.listers.of(Node).list()]
            for manifest in op.manifests(names):
                self._cluster.add(self._cluster.made(manifest))
        elif isinstance(op, ops.AllocResourceClaims):
            random = Random(self._options.seed)
            for claim in allocated_claims(self._cluster.listers, op.namespace, random):
                self._cluster.put(claim)
        elif isinstance(op, ops.CreatePods):
            self._create_pods([op])
        elif isinstance(op, ops.CreatePodSets):
            self._create_pods(list(op.sets()))
        elif isinstance(op, ops.DeletePods):
            self._delete_pods(op)
        elif isinstance(op, ops.UpdateAny):
            self._update(op)
        elif isinstance(op, ops.Churn):
            steps = self._creations(op) if op.mode == "create" else self._recreations(op)
            self._stage.go_on_beside(steps, op.interval_milliseconds / 1000)
        elif isinstance(op, ops.Barrier):
            self._barrier(op)
        elif isinstance(op, ops.Sleep):
            self._stage.until_time(self._stage.clock.monotonic() + op.duration)
        elif isinstance(op, ops.StartCollectingMetrics):
            self._measured_name = f"/{op.name}" if op.name else ""
            self._stage.start_measuring(op.namespaces, op.label_selector)
        elif isinstance(op, ops.StopCollectingMetrics):
            self._stop_measuring()
        else:
            raise KubeschedError(f"{op.opcode} cannot be played in core mode")

    def _stop_measuring(self) -> None:
        measured = self._stage.stop_measuring()
        self.results.append(
            measured.result(
                self._workload.full_name + self._measured_name,
                self._cluster.assembly.scheduler.cache.node_count,
                classes=self._options.classes,
                repeat=self._repeat,
                threshold=self._workload.threshold,
            )
        )
        self._measured_name = ""

    # -- pods --------------------------------------------------------------------------------------

    def _create_pods(self, sets: list[ops.CreatePods]) -> None:
        if not sets:
            return
        first = sets[0]
        made = [
            self._cluster.made(manifest)
            for pod_set in sets
            for manifest in pod_set.manifests(self._names)
        ]
        for obj in made:
            if not isinstance(obj, Pod):
                self._cluster.add(obj)
        pods = [obj for obj in made if isinstance(obj, Pod)]
        if first.collect_metrics:
            self._stage.start_measuring([pod_set.namespace for pod_set in sets], {})
        if first.collect_metrics and self._options.pods_per_s and not first.steady_state:
            self._stage.go_on_beside(self._arrivals(pods), 1 / self._options.pods_per_s)
        else:
            self._stage.enqueue(pods)
        if first.steady_state:
            self._hold_steady(first)
        elif not first.skip_wait_to_completion:
            self._stage.until_bound(pods, f"pods of {first.namespace}")
        if first.collect_metrics:
            self._stop_measuring()

    def _arrivals(self, pods: Sequence[Pod]) -> Iterator[None]:
        for pod in pods:
            self._cluster.add(pod)
            yield

    def _hold_steady(self, op: ops.CreatePods) -> None:
        """Replace every bound pod with a new one until the duration is over."""
        bound: list[Pod] = []
        self._stage.on_bound = bound.append

        def replacements() -> Iterator[None]:
            index = op.count
            while True:
                for pod in bound:
                    if pod.metadata.namespace == op.namespace:
                        self._cluster.delete(pod)
                        for manifest in op.manifests_of(index, self._names):
                            self._cluster.add(self._cluster.made(manifest))
                        index += 1
                bound.clear()
                yield

        end = self._stage.clock.monotonic() + op.duration
        activity = self._stage.go_on_beside(replacements(), PACE_S)
        self._stage.until_time(end)
        self._stage.end_beside(activity)
        self._stage.on_bound = lambda _pod: None

    def _delete_pods(self, op: ops.DeletePods) -> None:
        doomed = self._cluster.pods((op.namespace,), op.label_selector)

        def deletions() -> Iterator[None]:
            for pod in doomed:
                self._stage.forget(pod)
                self._cluster.delete(pod)
                yield

        self._at_rate(deletions(), op.delete_pods_per_second, op.skip_wait_to_completion)

    def _update(self, op: ops.UpdateAny) -> None:
        made = [self._cluster.made(manifest) for manifest in op.manifests(self._names)]

        def updates() -> Iterator[None]:
            for obj in made:
                self._cluster.replace(obj)
                yield

        self._at_rate(updates(), op.update_per_second, op.skip_wait_to_completion)

    def _at_rate(self, steps: Iterator[None], per_second: int, skip_wait: bool) -> None:
        """Run the steps at a rate alongside scheduling, or all at once."""
        if not per_second:
            for _ in steps:
                pass
            return
        activity = self._stage.go_on_beside(steps, 1 / per_second)
        if not skip_wait:
            self._stage.until_over(activity)

    def _barrier(self, op: ops.Barrier) -> None:
        if op.stage_requirement == "Attempted":
            self._stage.until_attempted()
        else:
            pods = self._cluster.pods(op.namespaces, op.label_selector)
            self._stage.until_bound(pods, "pods behind a barrier")

    # -- churn -------------------------------------------------------------------------------------

    def _creations(self, op: ops.Churn) -> Iterator[None]:
        turn = 0
        while not op.number or turn < op.number:
            self._create_each(op, turn)
            turn += 1
            yield

    def _recreations(self, op: ops.Churn) -> Iterator[None]:
        turn = 0
        while True:
            living: list[list[object]] = []
            for _ in range(op.number):
                living.append(self._create_each(op, turn))
                turn += 1
                yield
            for objects in living:
                for obj in objects:
                    self._cluster.delete(obj)
                yield

    def _create_each(self, op: ops.Churn, turn: int) -> list[object]:
        made: list[object] = [
            self._cluster.made(manifest) for manifest in op.manifests_of(turn, self._names)
        ]
        for obj in made:
            self._cluster.add(obj)
        return made
