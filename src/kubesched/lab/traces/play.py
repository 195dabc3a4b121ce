"""Selects the player for each cell of `kubesched replay`.

A recording under its own settings is played record by record, like `--verify` does: queue pops,
ends of bindings and calls, and extender answers come from the log, so every placement is
reproduced. Other configurations and seeds are modelled (`traces.player`), since bindings to other
nodes and new calls have no recorded end; their baseline is modelled as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.base.logs import silence
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.registry import Registry
from kubesched.insight.recording.records import AnyEntry, CallDone, Reached
from kubesched.insight.state.collector import collector_paused
from kubesched.lab.traces.log_player import play
from kubesched.lab.traces.measuring import Meter
from kubesched.lab.traces.outcome import Outcome, encode
from kubesched.lab.traces.player import Cell, play_trace
from kubesched.lab.traces.trace import OwnSettings, Trace
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.flight import BINDING_DONE


def play_cell(trace: Trace, cell: Cell) -> bytes:
    """The outcome of one cell as JSON; may run in another process."""
    # The outcome contains what the in-memory scheduler would log about pods.
    silence()
    return encode(play_outcome(trace, cell))


def play_outcome(trace: Trace, cell: Cell, registry: Registry | None = None) -> Outcome:
    """Play one cell.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
        TraceError, PlanError, RecordingError: the trace contradicts itself.
    """
    if trace.own is None or not cell.as_recorded:
        return play_trace(trace, cell, registry)
    recorded = RecordedPlay(trace, trace.own, cell)
    with collector_paused():
        played = play(trace.own.run, registry, observer=recorded)
    if not played.difference:
        return recorded.outcome()
    outcome = play_trace(trace, cell, registry)
    outcome.notes.append(
        f"{cell.name}: modelled, because the recording cannot be played to its end: "
        f"{played.difference}"
    )
    return outcome


class RecordedPlay:
    """Measures a recording while it is played; see `log_player.Observer`."""

    def __init__(self, trace: Trace, own: OwnSettings, cell: Cell) -> None:
        self.placements: dict[str, str] = {}
        """Pod UID -> the node that the played scheduler last chose for it."""
        self._trace = trace
        self._own = own
        self._cell = cell
        self._measured: Meter | None = None
        """Set where the playing begins: a recording may be read from before that."""
        self._now_s = 0.0
        self._chosen: dict[str, Pod] = {}
        """Pod UID -> the pod with the node it is being bound to."""
        self._bound: dict[str, Pod] = {}
        self._uids: dict[str, str] = {}
        """Pod key -> uid."""

    @property
    def _meter(self) -> Meter:
        assert self._measured is not None, "nothing is measured before the playing begins"
        return self._measured

    def begins(
        self, assembly: Assembly, objects: Iterable[Any], assumed: Mapping[str, str]
    ) -> None:
        self._measured = Meter(assembly, self._trace.ends_s)
        for obj in objects:
            if isinstance(obj, Pod) and obj.metadata.uid in assumed:
                obj = _on(obj, assumed[obj.metadata.uid])
            self.changed("a", obj)

    def comes_to(self, entry: AnyEntry) -> None:
        now_s = max(0.0, entry.time - self._own.monotonic_s)
        while self._measured is not None and self._measured.next_sample_s < now_s:
            self._measured.sample()
        self._now_s = now_s
        if isinstance(entry, Reached):
            if entry.point == BINDING_DONE and entry.outcome is None:
                self._note_bound(self._chosen.pop(entry.uid, None))
        elif isinstance(entry, CallDone):
            self._meter.evictions += entry.verb == "delete" and entry.error is None

    def chosen(self, pod: PodInfo, node_name: str) -> None:
        self.placements[pod.uid] = node_name
        self._chosen[pod.uid] = _on(pod.pod, node_name)

    def changed(self, op: str, obj: Any) -> None:  # noqa: ANN401  # a record of any kind
        if isinstance(obj, Pod):
            self._pod_changed(op, obj)

    def _pod_changed(self, op: str, pod: Pod) -> None:
        key, uid = key_of(pod.metadata), pod.metadata.uid
        known = self._uids.pop(key, None)
        if known is not None and (op in "dt" or known != uid):
            left = self._bound.pop(known, None)
            if left is not None:
                self._meter.left(left, self._now_s)
            known = None
        if op in "dt":
            return
        self._uids[key] = uid
        if known is not None:
            # The watch may show a binding before its task reports it, or without a report.
            self._note_bound(pod if pod.spec.node_name else None)
        elif pod.spec.node_name:
            self._bound[uid] = pod
            self._meter.occupies(pod, self._now_s)
        else:
            self._meter.submitted(key, self._now_s)

    def _note_bound(self, pod: Pod | None) -> None:
        if pod is not None and pod.metadata.uid not in self._bound:
            self._bound[pod.metadata.uid] = pod
            self._meter.bound(key_of(pod.metadata), pod, self._now_s)

    def outcome(self) -> Outcome:
        while self._meter.next_sample_s <= self._trace.ends_s:
            self._meter.sample()
        logged, cell = self._own.placements, self._cell
        same = sum(self.placements.get(uid) == node for uid, node in logged.items())
        note = f"{cell.name}: {same} of {len(logged)} recorded placements were reproduced"
        return self._meter.outcome(cell.name, cell.seed, [note])


def _on(pod: Pod, node_name: str) -> Pod:
    return structs.replace(pod, spec=structs.replace(pod.spec, node_name=node_name))
