"""Compares the bindings of another scheduler with what ours would choose at that moment.

The state comes from informers. When a pod of the other scheduler gets its node, the pod is judged
on the state without it. If the two disagree, the judgement waits until events of the same moment
have arrived, and is repeated on neighbouring states: the other scheduler saw events earlier or
later, and counted pods that it had placed before their bindings arrived.

| Class | Means |
|---|---|
| `same`, `tie` | its node is our only best one, or one of them |
| `sampling` | its node is the best of some sample as large as the other scheduler takes |
| `race` | `same`, `tie` or `sampling` on a neighbouring state |
| `different` | none of these, with the plugin that explains it |
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.names import key_of
from kubesched.api.times import format_time
from kubesched.base.clock import Clock
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.algorithm import (
    MIN_FEASIBLE_NODES_PERCENTAGE,
    MIN_FEASIBLE_NODES_TO_FIND,
)
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.change_events import node_changes
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.shadows import DIFFERENT, ERROR, NEITHER, SAME, TIE, Cause, Judge, cause_of

T = TypeVar("T")

SAMPLING: Final = "sampling"
RACE: Final = "race"
CLASSES: Final = (SAME, TIE, SAMPLING, RACE, DIFFERENT, ERROR)
KEPT: Final = 1000
MAX_DOUBTS: Final = 1000
MAX_NEIGHBOURS: Final = 64
"""Events before and after a binding that are taken back or made one by one."""
MAX_CHANGES: Final = 10_000
NODE_VERSIONS: Final = 4


class Found(NamedTuple):
    """A binding, or the verdict that there is no node, that ours explains in no way."""

    time: float
    pod: str
    theirs: str
    ours: str
    plugin: str
    reason: str
    refused_since: float | None = None
    """When the event arrived since which their node refuses the pod: they decided on older data."""

    def line(self) -> str:
        """One sentence."""
        if self.refused_since is not None:
            since = format_time(self.refused_since)
            return (
                f"{self.pod}: its node {self.theirs} refuses it by {self.plugin} ({self.reason}) "
                f"since {since}, so the state it was chosen on is stale; ours: "
                f"{self.ours or 'none'}"
            )
        why = f"{self.plugin}: {self.reason}" if self.plugin else self.reason
        return f"{self.pod}: {self.theirs or 'no node'}; ours: {self.ours or 'none'}; {why}"


class _Change:
    """A pod that came to a node or left it, or a node that came, left or changed."""

    def __init__(
        self, cache: Cache, number: int, time: float, old: Pod | Node | None, new: Pod | Node | None
    ) -> None:
        obj = old or new
        assert obj is not None
        self.number, self.time = number, time
        self.node = obj.spec.node_name if isinstance(obj, Pod) else obj.metadata.name
        self._cache, self._obj, self._old, self._new = cache, obj, old, new

    def undo(self) -> None:
        self._set(self._old)

    def redo(self) -> None:
        self._set(self._new)

    def _set(self, obj: Pod | Node | None) -> None:
        cache = self._cache
        if isinstance(obj, Node):
            cache.update_node(obj)
        elif isinstance(self._obj, Pod):
            known = cache.get_pod(self._obj.metadata.uid)
            if known is None and obj is not None:
                cache.add_pod(self._obj)
            elif known is not None and obj is None:
                self._obj = known.pod  # perhaps a newer version
                cache.remove_pod(known.pod)
        elif self.node in cache.table.row_of:
            cache.remove_node(self.node)


class _Doubt(NamedTuple):
    number: int
    """The next change's number at that time."""
    time: float
    pod: PodInfo
    node: str


class BindingObserver:
    """Its handlers must be called before those of the scheduler whose state it judges on."""

    def __init__(
        self,
        assembly: Assembly,
        clock: Clock,
        scheduler_name: str,
        *,
        percentage: int = 0,
        window_s: float = 1.0,
        on_found: Callable[[Found], None] = lambda _found: None,
    ) -> None:
        """`percentage`: the other scheduler's `percentageOfNodesToScore`; 0 is adaptive."""
        self._cache, self._clock, self._name = assembly.scheduler.cache, clock, scheduler_name
        algorithm = assembly.scheduler.cycle.algorithm
        self._judge = Judge(assembly.frameworks[scheduler_name], algorithm)
        self._percentage, self.window_s, self._on_found = percentage, window_s, on_found
        self.is_synced = False
        """Set it once the informers have synced: older bindings are not judged."""
        self.bindings: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        """The same classes for verdicts that there is no node."""
        self.found: deque[Found] = deque(maxlen=KEPT)
        self._changes: deque[_Change] = deque(maxlen=MAX_CHANGES)
        self._doubts: deque[_Doubt] = deque()
        self._count = 0
        self._versions: dict[str, deque[tuple[float, Node]]] = {}
        """Per node: when it changed in what scheduling reads, and what it was before."""
        self.since = clock.now()

    # -- events ------------------------------------------------------------------------------------

    def pod_added(self, pod: Pod) -> None:
        if self.is_synced and pod.spec.node_name:
            self._note(None, pod)

    def pod_updated(self, old: Pod, new: Pod) -> None:
        is_theirs = self.is_synced and new.spec.scheduler_name == self._name
        if old.spec.node_name:
            return
        if new.spec.node_name:
            if is_theirs:
                self._compare(old, new.spec.node_name)
            self._note(None, new)
        elif is_theirs and (verdict := _verdict(new)) and verdict != _verdict(old):
            self._compare(new, "")

    def pod_deleted(self, pod: Pod) -> None:
        known = self._cache.get_pod(pod.metadata.uid)
        if self.is_synced and known is not None:
            self._note(known.pod, None)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if not self.is_synced:
            return
        self._note(old, new)
        if old is not None and new is not None and _matters(old, new):
            versions = self._versions.setdefault(old.metadata.name, deque(maxlen=NODE_VERSIONS))
            versions.append((self._clock.now(), old))
        elif new is None and old is not None:
            self._versions.pop(old.metadata.name, None)

    def _note(self, old: Pod | Node | None, new: Pod | Node | None) -> None:
        self._count += 1
        now = self._clock.monotonic()
        self._changes.append(_Change(self._cache, self._count, now, old, new))

    # -- judging -----------------------------------------------------------------------------------

    def _compare(self, pod: Pod, node: str) -> None:
        info = PodInfo(pod)
        result = self._class_now(info, node)
        if result is None and len(self._doubts) < MAX_DOUBTS:
            self._doubts.append(_Doubt(self._count + 1, self._clock.monotonic(), info, node))
            return
        self._count_result(node, result or ERROR)

    def _count_result(self, node: str, result: str) -> None:
        (self.bindings if node else self.failures)[result] += 1

    def _class_now(self, pod: PodInfo, node: str) -> str | None:
        """`same`, `tie`, `sampling`, `error`, or None if they disagree on the current state."""
        verdict = self._judge.decide(pod, node)
        if verdict.result in (SAME, TIE, ERROR):
            return verdict.result
        if not node:
            return SAME if verdict.result == NEITHER else None
        spare = self._spare(verdict.feasible)
        if spare > 0:
            (mine,), better = self._judge.weigh(pod, [node])
            if not isinstance(mine, Cause) and len(better) <= spare:
                return SAMPLING  # all better nodes can be outside a sample that has this one
        return None

    def _spare(self, feasible: int) -> int:
        """How many feasible nodes the other scheduler does not look at."""
        return max(0, feasible - self._sample(self._cache.table.node_count))

    def _sample(self, nodes: int) -> int:
        """How many feasible nodes the other scheduler looks for, by kube-scheduler's formula."""
        share = self._percentage or max(MIN_FEASIBLE_NODES_PERCENTAGE, 50 - nodes // 125)
        if nodes < MIN_FEASIBLE_NODES_TO_FIND or share >= 100:
            return nodes
        return max(MIN_FEASIBLE_NODES_TO_FIND, nodes * share // 100)

    def settle(self, *, all_of_them: bool = False) -> None:
        """Judge again what waited for the events around it; call it regularly."""
        now = self._clock.monotonic()
        while self._doubts and (all_of_them or self._doubts[0].time + self.window_s <= now):
            doubt = self._doubts.popleft()
            later = [c for c in self._changes if c.number >= doubt.number]
            found = self._with((), later, partial(self._resolve, doubt))
            if found is None:
                self._count_result(doubt.node, RACE)
                continue
            self._count_result(doubt.node, DIFFERENT)
            self.found.append(found)
            self._on_found(found)
        oldest = self._doubts[0].time if self._doubts else now
        while self._changes and self._changes[0].time < oldest - self.window_s:
            self._changes.popleft()

    @staticmethod
    def _with(redone: Iterable[_Change], undone: Sequence[_Change], judge: Callable[[], T]) -> T:
        """The answer with some changes made or taken back, in their order."""
        made = []
        for change in reversed(undone):
            change.undo()
        for change in redone:
            change.redo()
            made.append(change)
        try:
            return judge()
        finally:
            for change in reversed(made):
                change.undo()
            for change in undone:
                change.redo()

    def _resolve(self, doubt: _Doubt) -> Found | None:
        """None if a neighbouring state explains the decision.

        On the state before the binding; later changes are taken back, but known.
        """
        near = [c for c in self._changes if abs(c.time - doubt.time) <= self.window_s]
        before = [c for c in near if c.number < doubt.number]
        node = doubt.node
        after = [c for c in near if c.number >= doubt.number + bool(node)]

        def agrees() -> bool:
            return self._class_now(doubt.pod, node) in (SAME, TIE, SAMPLING)

        here, here_later = _on(before, node), _on(after, node)
        none: list[_Change] = []
        ways = [(here_later[:n], none) for n in range(len(here_later) + 1)]
        ways += [(none, here[-n:]) for n in range(1, len(here) + 1)]
        if node and any(
            self._with(redone, undone, partial(self._may_win, doubt, before, after))
            for redone, undone in ways
        ):
            return None
        if any(
            self._with(after[: n + 1], (), agrees) for n in range(min(len(after), MAX_NEIGHBOURS))
        ) or any(self._with((), before[-n:], agrees) for n in range(1, MAX_NEIGHBOURS)):
            return None
        return self._explain(doubt)

    def _may_win(self, doubt: _Doubt, before: Sequence[_Change], after: Sequence[_Change]) -> bool:
        """Whether each better node may have been worse: by its own changes of that moment."""
        table, moments = self._cache.table, dict[str, Generator[None, None, None]]()
        spare = self._spare(self._judge.decide(doubt.pod, doubt.node).feasible)
        try:
            while True:
                (mine,), better = self._judge.weigh(doubt.pod, [doubt.node])
                if isinstance(mine, Cause) or len(better) <= spare:
                    return not isinstance(mine, Cause)
                stuck = 0
                for name in [table.names[row] for row in better.tolist()]:
                    if name not in moments:
                        moments[name] = _moments(_on(before, name), _on(after, name))
                    stuck += next(moments[name], "none") == "none"
                if stuck > spare:
                    return False
        finally:
            for moment in moments.values():
                moment.close()

    def _explain(self, doubt: _Doubt) -> Found:
        verdict = self._judge.decide(doubt.pod, doubt.node)
        nodes = [name for name in (doubt.node, verdict.node) if name]
        (theirs, *ours), _ = self._judge.weigh(doubt.pod, nodes)
        since: float | None = None
        if not doubt.node:
            cause = Cause("", f"{verdict.feasible} nodes are feasible")
        elif isinstance(theirs, Cause):
            cause, since = theirs, self._refused_since(doubt)
        else:
            cause = cause_of(ours[0], theirs) if ours else Cause("", verdict.error)
        wall = self._clock.now() - (self._clock.monotonic() - doubt.time)
        return Found(wall, key_of(doubt.pod.pod.metadata), doubt.node, verdict.node, *cause, since)

    def _refused_since(self, doubt: _Doubt) -> float | None:
        """When the node changed to what refuses the pod, tried on its earlier versions."""
        table = self._cache.table
        row = table.row_of.get(doubt.node)
        current = None if row is None else table.nodes[row]
        if current is None:
            return None
        try:
            for time, older in reversed(self._versions.get(doubt.node, ())):
                self._cache.update_node(older)
                (answer,), _ = self._judge.weigh(doubt.pod, [doubt.node])
                if not isinstance(answer, Cause):
                    return time
        finally:
            self._cache.update_node(current)
        return None

    def report(self) -> dict[str, Any]:
        def listed(counts: Counter[str]) -> dict[str, int]:
            return {name: counts[name] for name in CLASSES}

        return {
            "scheduler": self._name,
            "since": format_time(self.since),
            "until": format_time(self._clock.now()),
            "bindings": listed(self.bindings),
            "unschedulable": listed(self.failures),
            "different": [
                {
                    **made._asdict(),
                    "time": format_time(made.time),
                    "refused_since": made.refused_since and format_time(made.refused_since),
                }
                for made in self.found
            ],
        }


def _on(changes: Sequence[_Change], node: str) -> list[_Change]:
    return [c for c in changes if c.node == node]


def _moments(before: Sequence[_Change], after: Sequence[_Change]) -> Generator[None, None, None]:
    """The other states of one node around a moment, one by one; closing it restores the node."""
    forth = [(change.redo, change.undo) for change in after]
    back = [(change.undo, change.redo) for change in reversed(before)]
    for steps in (forth, back):
        with ExitStack() as restored:
            for step, reverse in steps:
                step()
                restored.callback(reverse)
                yield


def _verdict(pod: Pod) -> str:
    """The message that no node takes the pod, if that is its condition."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
            return condition.message
    return ""


def _matters(old: Node, new: Node) -> bool:
    return bool(node_changes(old, new)) or old.spec.unschedulable != new.spec.unschedulable
