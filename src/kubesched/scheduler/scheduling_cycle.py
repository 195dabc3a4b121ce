"""The scheduling cycle: from a popped pod to an assumed pod, or to a failure.

Synchronous unless I/O is needed: no other code runs meanwhile, so the live tables double as the
snapshot. Extenders, and PostFilter plugins that evict pods themselves, need I/O: `run` then returns
an awaitable, and the event gate holds back watch events until it is done.
"""

from __future__ import annotations

from collections.abc import Awaitable
from copy import copy
from dataclasses import dataclass

from msgspec import structs

from kubesched.base.errors import ApiError, TransportError
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import PODS_TO_ACTIVATE, CycleState, PodsToActivate
from kubesched.framework.diagnosis import Diagnosis, Failed, FitError
from kubesched.framework.interfaces import (
    PostFilterAnswer,
)
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import CLEAR_NOMINATION, KEEP_NOMINATION
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.maybe_async import then
from kubesched.framework.runtime.permit import run_permit
from kubesched.framework.runtime.post_filter import run_post_filter
from kubesched.framework.runtime.reserve import run_reserve, run_unreserve
from kubesched.framework.status import Code, NodeToStatus, Status, error_status
from kubesched.scheduler.algorithm import ScheduleResult, SchedulingAlgorithm
from kubesched.scheduler.cache.cache import Cache, CacheError
from kubesched.scheduler.extended_algorithm import ExtendedAlgorithm
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue
from kubesched.scheduler.shadows import Shadows

log = get_logger(__name__)


@dataclass(slots=True)
class Assumed:
    """A pod that is assumed on a node and waits to be bound."""

    framework: Framework
    state: CycleState
    info: QueuedPodInfo
    pod: PodInfo
    """The assumed version: its spec names the node."""
    node_name: str
    result: ScheduleResult
    started: float


@dataclass(slots=True, eq=False)
class SchedulingCycle:
    """Runs one attempt at a time."""

    algorithm: SchedulingAlgorithm
    _cache: Cache
    _queue: SchedulingQueue
    _extended: ExtendedAlgorithm | None = None
    shadows: Shadows | None = None

    def run(
        self, framework: Framework, state: CycleState, info: QueuedPodInfo, started: float
    ) -> Assumed | Failed | Awaitable[Assumed | Failed]:
        self.recall_nomination(info.pod_info)
        algorithm = self._extended or self.algorithm
        walk_start = self.algorithm.next_start
        outcome = algorithm.schedule(framework, state, info.pod_info)
        if self.shadows is not None:  # then there are no extenders: the decision is made
            assert isinstance(outcome, ScheduleResult | Status)
            state.shadow_s = self.shadows.compare(framework, info.pod_info, outcome, walk_start)
            started += state.shadow_s
        if type(outcome) is ScheduleResult:  # inlined `then` for most pods
            return self._conclude(framework, state, info, started, outcome)
        return then(outcome, self._conclude, framework, state, info, started)

    def decide(
        self, framework: Framework, state: CycleState, pod: PodInfo
    ) -> ScheduleResult | Failed | Awaitable[ScheduleResult | Failed]:
        """The decision of an attempt without side effects: nothing is assumed, requeued or cached.

        PostFilter plugins do run; see `preemption.executor.Rehearsing` for those that evict.
        """
        self.recall_nomination(pod)
        # On a copy, because an extender may have to be awaited; and by full evaluation, because the
        # engine would cache results for later attempts.
        plain = copy(self.algorithm)
        plain.engine = None
        outcome = self.with_extenders(plain).schedule(framework, state, pod)
        return then(outcome, self._decision, framework, state, pod, framework.now())

    def with_extenders(self, plain: SchedulingAlgorithm) -> SchedulingAlgorithm | ExtendedAlgorithm:
        return plain if self._extended is None else self._extended.over(plain)

    def _decision(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        started: float,
        outcome: ScheduleResult | Status,
    ) -> ScheduleResult | Failed | Awaitable[Failed]:
        if isinstance(outcome, ScheduleResult):
            return outcome
        return self._try_to_make_room(framework, state, pod, outcome, started)

    def recall_nomination(self, pod: PodInfo) -> None:
        """Apply a nomination that the API server has not confirmed yet.

        Upstream writes the nomination before it pops the next pod. Here the status writer works in
        the background, so the victims can be gone, and the pod popped again, before the watch shows
        the nomination. Without this the pod would lose the node reserved for it.
        """
        status = pod.pod.status
        if status.nominated_node_name:
            return
        node_name = self._queue.nominator.node_of(pod.uid)
        if node_name:
            status = structs.replace(status, nominated_node_name=node_name)
            pod.pod = structs.replace(pod.pod, status=status)

    def _conclude(
        self,
        framework: Framework,
        state: CycleState,
        info: QueuedPodInfo,
        started: float,
        outcome: ScheduleResult | Status,
    ) -> Assumed | Failed | Awaitable[Failed]:
        if isinstance(outcome, Status):
            return self._try_to_make_room(framework, state, info.pod_info, outcome, started)
        framework.algorithm_done(started)
        return self.assume(
            Assumed(
                framework,
                state,
                info,
                info.pod_info.assumed_on(outcome.node_name),
                outcome.node_name,
                outcome,
                started,
            )
        )

    def _try_to_make_room(
        self,
        framework: Framework,
        state: CycleState,
        pod: PodInfo,
        failure: Status,
        attempt_started: float,
    ) -> Failed | Awaitable[Failed]:
        fit_error = failure.error
        if not isinstance(fit_error, FitError) or not framework.post_filter:
            framework.algorithm_done(attempt_started)
            return Failed(failure, CLEAR_NOMINATION)
        started = framework.now()
        statuses = fit_error.diagnosis.node_to_status

        def conclude(answer: PostFilterAnswer) -> Failed:
            result, status = answer
            framework.point_done("PostFilter", started, status)
            framework.algorithm_done(attempt_started)
            # Upstream: the message is appended even if PostFilter failed with an error.
            said = fit_error.diagnosis.post_filter_msg = (
                status.message if status is not None else ""
            )
            log.info(
                "Status after running PostFilter plugins for pod", v=5, pod=pod.pod, status=said
            )
            fit_error.diagnosis.is_post_filter_unfinished = _is_request_failure(status)
            info = result.nominating_info if result is not None else None
            return Failed(failure, info or KEEP_NOMINATION)

        return then(run_post_filter(framework, state, pod.pod, statuses), conclude)

    def assume(self, assumed: Assumed) -> Assumed | Failed:
        framework, state, pod = assumed.framework, assumed.state, assumed.pod
        try:
            self._cache.assume_pod(pod)
        except CacheError as error:
            return Failed(error_status(error), CLEAR_NOMINATION)
        # From here on the pod counts on its node; as a nominated pod it would count twice.
        self._queue.nominator.delete_nominated_pod(pod.pod)
        started = framework.now()
        refused = run_reserve(framework, state, pod.pod, assumed.node_name)
        framework.point_done("Reserve", started, refused)
        if refused is not None:
            self.undo(assumed)
            return Failed(
                as_one_node_failure(pod.key, assumed.node_name, refused), CLEAR_NOMINATION
            )
        started = framework.now()
        permit = run_permit(framework, state, pod.pod, assumed.node_name)
        framework.point_done("Permit", started, permit.status)
        if permit.status is not None and permit.status.code is not Code.WAIT:
            self.undo(assumed)
            return Failed(
                as_one_node_failure(pod.key, assumed.node_name, permit.status), CLEAR_NOMINATION
            )
        if permit.timeouts_s:
            waiting_pods = framework.handle.waiting_pods
            assert waiting_pods is not None, (
                "a Permit plugin asked to wait, but waiting pods are not wired"
            )
            waiting_pods.add(pod.pod, permit.timeouts_s)
        self.activate_asked_for(state)
        return assumed

    def undo(self, assumed: Assumed) -> bool:
        """Unreserve, then forget; False if the cache no longer has the assumption."""
        started = assumed.framework.now()
        run_unreserve(assumed.framework, assumed.state, assumed.pod.pod, assumed.node_name)
        assumed.framework.point_done("Unreserve", started)
        try:
            self._cache.forget_pod(assumed.pod.pod)
        except CacheError as error:
            log.error("ForgetPod failed", error, pod=assumed.pod.pod)
            return False
        return True

    def is_counted(self, assumed: Assumed) -> bool:
        """True if the pod still has its room: no deletion was seen since it was assumed."""
        known = self._cache.get_pod(assumed.pod.uid)
        return known is not None and known.pod.spec.node_name == assumed.node_name

    def activate_asked_for(self, state: CycleState) -> None:
        """Move the pods that plugins put into `PodsToActivate` to the active queue."""
        asked: PodsToActivate | None = state.get(PODS_TO_ACTIVATE)
        if asked is not None and asked.pods:
            self._queue.activate(dict(asked.pods))
            asked.pods.clear()


def _is_request_failure(status: Status | None) -> bool:
    """True if a plugin failed because of a failed API request."""
    error: BaseException | None = None
    if status is not None and status.code is Code.ERROR:
        error = status.error
    while error is not None and not isinstance(error, ApiError | TransportError):
        error = error.__cause__
    return error is not None


def as_one_node_failure(pod_key: str, node_name: str, status: Status) -> Status:
    """Turn a rejection by Reserve or Permit into a fit error for that node; keep errors."""
    if not status.is_rejected:
        return status
    diagnosis = Diagnosis(node_to_status=NodeToStatus({node_name: status}))
    diagnosis.add_plugin_of(status)
    return Status(status.code, error=FitError(pod_key, 1, diagnosis))
