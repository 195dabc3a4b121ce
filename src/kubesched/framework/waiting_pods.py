"""Assumed pods whose binding can still be stopped.

`WaitingPods` holds pods that Permit plugins asked to wait: each waits until every such plugin
allows it, one of them (or preemption, or the pod's deletion) rejects it, or the first timeout
expires. `PodsInPreBind` holds pods in PreBind, which can be cancelled. Both are shared by all
profiles.

Neither depends on an event loop: timers come from an injected `call_later`, and outcomes go to
callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol

from kubesched.api import times
from kubesched.api.core_v1 import Pod
from kubesched.framework.status import Code, Status, StatusError, error_status

MAX_WAIT_S = 15 * 60.0
"""Upper limit of a plugin's timeout."""


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]
"""(seconds, function) -> Timer; calls the function once, later, like an event loop's method."""

_ALLOWED = Status(Code.SUCCESS)


class WaitingPod:
    """A pod held by Permit plugins. Only the first outcome counts."""

    __slots__ = ("_callbacks", "_outcome", "_timers", "pod")

    def __init__(self, pod: Pod, timeouts_s: Mapping[str, float], call_later: CallLater) -> None:
        """`timeouts_s`: the timeout of each plugin that returned Wait."""
        self.pod = pod
        self._outcome: Status | None = None
        self._callbacks: list[Callable[[Status], None]] = []
        self._timers: dict[str, Timer | None] = dict.fromkeys(timeouts_s)
        for plugin, timeout_s in timeouts_s.items():
            limit_s = min(timeout_s, MAX_WAIT_S)
            if limit_s <= 0:
                self._time_out(plugin, limit_s)
                break
            self._timers[plugin] = call_later(limit_s, partial(self._time_out, plugin, limit_s))

    @property
    def outcome(self) -> Status | None:
        """The result of the wait; None while it lasts."""
        return self._outcome

    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed the pod yet."""
        return list(self._timers)

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin; the last one ends the wait. No-op for others."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._finish(_ALLOWED)

    def reject(self, plugin: str, message: str) -> bool:
        """End the wait with a rejection; False if it has already ended."""
        return self._finish(Status(Code.UNSCHEDULABLE, (message,), plugin=plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """End the wait because the pod is preempted; False if it has already ended."""
        return self._finish(error_status(StatusError(message), plugin=plugin))

    def add_done_callback(self, callback: Callable[[Status], None]) -> None:
        """Call `callback` with the outcome; immediately if the wait has ended."""
        if self._outcome is not None:
            callback(self._outcome)
        else:
            self._callbacks.append(callback)

    def _time_out(self, plugin: str, limit_s: float) -> None:
        waited = times.format_duration(limit_s)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    def _finish(self, outcome: Status) -> bool:
        if self._outcome is not None:
            return False
        self._outcome = outcome
        for timer in self._timers.values():
            if timer is not None:
                timer.cancel()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(outcome)
        return True

    def __repr__(self) -> str:
        meta = self.pod.metadata
        return f"<WaitingPod {meta.namespace}/{meta.name} for {', '.join(self._timers)}>"


class WaitingPods:
    """Every waiting pod, by UID."""

    def __init__(self, call_later: CallLater) -> None:
        self._by_uid: dict[str, WaitingPod] = {}
        self._call_later = call_later
        self.preemptors: dict[str, Pod] = {}
        """Pods to activate, by the UID of a victim whose stopped binding is being undone."""

    def add(self, pod: Pod, timeouts_s: Mapping[str, float]) -> WaitingPod:
        """Hold a pod; the timers start now."""
        waiting = WaitingPod(pod, timeouts_s, self._call_later)
        self._by_uid[pod.metadata.uid] = waiting
        return waiting

    def get(self, uid: str) -> WaitingPod | None:
        return self._by_uid.get(uid)

    def remove(self, uid: str) -> None:
        """Drop a pod whose wait has ended; called by its binding cycle."""
        self._by_uid.pop(uid, None)

    def reject_waiting_pod(self, uid: str) -> bool:
        """End the wait of a deleted pod; False if it does not wait or its wait has ended."""
        waiting = self._by_uid.get(uid)
        return waiting is not None and waiting.reject("", "removed")

    def __iter__(self) -> Iterator[WaitingPod]:
        """Every waiting pod; the map may change while iterating."""
        return iter(list(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)


class PodInPreBind:
    """PreBind of one pod, cancellable until it is marked as finished."""

    __slots__ = ("_cancel", "_cancel_reason", "_is_prebound")

    def __init__(self, cancel: Callable[[str], None]) -> None:
        """`cancel` stops the work; it is called at most once, with the reason."""
        self._cancel = cancel
        self._cancel_reason: str | None = None
        self._is_prebound = False

    def cancel(self, reason: str) -> bool:
        """Cancel PreBind; False if it is too late. The first reason is kept."""
        if self._is_prebound:
            return False
        if self._cancel_reason is None:
            self._cancel_reason = reason
            self._cancel(reason)
        return True

    def mark_prebound(self) -> str | None:
        """Mark PreBind as finished; returns the reason if it was cancelled, else None."""
        if self._cancel_reason is None:
            self._is_prebound = True
        return self._cancel_reason

    @property
    def cancel_reason(self) -> str | None:
        return self._cancel_reason


class PodsInPreBind:
    """Pods in PreBind, by UID."""

    def __init__(self) -> None:
        self._by_uid: dict[str, PodInPreBind] = {}

    def add(self, uid: str, cancel: Callable[[str], None]) -> PodInPreBind:
        entry = self._by_uid[uid] = PodInPreBind(cancel)
        return entry

    def get(self, uid: str) -> PodInPreBind | None:
        return self._by_uid.get(uid)

    def remove(self, uid: str) -> None:
        self._by_uid.pop(uid, None)

    def __len__(self) -> int:
        return len(self._by_uid)
