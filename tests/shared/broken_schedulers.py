"""Schedulers that were broken on purpose, each in one way, for the simulation to catch."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

from kubesched.app.simulated import SimulatedProcess
from kubesched.framework.extenders import Victims
from kubesched.framework.interfaces import (
    PostBindPlugin,
    PostFilterResult,
)
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.preemption.budgets import Budgets
from kubesched.framework.preemption.candidates import Candidate
from kubesched.framework.preemption.executor import on_behalf_of
from kubesched.framework.status import Code, Status, unresolvable
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.plugins.dynamic_resources import DynamicResources
from kubesched.plugins.gang_scheduling import GangScheduling
from kubesched.plugins.node_resources.fit import NodeResourcesFit
from kubesched.plugins.volume_binding import VolumeBinding


class LosesFailedPods(SimulatedProcess):
    """A pod whose attempt failed is forgotten."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        queue = self.assembly.scheduler.queue

        def forget(info: Any, _failure: Any = None) -> str:
            queue.done(info.pod_info.uid)
            return ""

        queue.add_unschedulable_if_not_present = forget  # type: ignore[method-assign]


class LeaksSlots(SimulatedProcess):
    """One slot for binding requests is not given back."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        slots = self.assembly.scheduler.binding.slots
        release = slots.release

        def leak() -> None:
            slots.release = release  # type: ignore[method-assign]

        slots.release = leak  # type: ignore[method-assign]


class KeepsPodsOut(SimulatedProcess):
    """Pods that fit on no node are gated."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        runner = self.assembly.scheduler.queue._transitions.pre_enqueue
        runner._plugins = {name: {"Nobody": self._gate} for name in runner._plugins}

    def _gate(self, pod: Any) -> Status | None:
        wanted = (pod.spec.node_selector or {}).items()
        nodes = [it for it in self.assembly.table.nodes if it is not None]
        has_some = any(wanted <= (it.metadata.labels or {}).items() for it in nodes)
        return None if has_some else unresolvable("kept out")


class NominatesLater(SimulatedProcess):
    """A nomination counts only once the watch shows it."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        nominator = self.assembly.scheduler.queue.nominator
        add = nominator.add_nominated_pod

        def add_known(pod: Any, nomination: Any = None) -> None:
            if nomination is None:
                add(pod)

        nominator.add_nominated_pod = add_known  # type: ignore[method-assign]


class QueuesOldVersions(SimulatedProcess):
    """A pod whose status has changed is queued as it was."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        queue = self.assembly.scheduler.queue
        update = queue.update

        def update_some(old: Any, new: Any, events: Any) -> None:
            if old.status == new.status:
                update(old, new, events)

        queue.update = update_some  # type: ignore[method-assign]


class CountsTooMuch(SimulatedProcess):
    """A gauge counts a goroutine that never was."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.metrics.goroutines.labels("binding").inc()


class ChoosesTheWorst(SimulatedProcess):
    """Points count against nodes."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for framework in self.assembly.frameworks.values():
            weights = framework.score_weights
            weights.update({name: -weight for name, weight in weights.items()})


class Generous(NodeResourcesFit):
    """Every pod fits everywhere."""

    def filter_nodes(self, *_arguments: Any) -> None:
        return None


class IgnoresRoom(SimulatedProcess):
    """Nodes never fill up."""

    def __init__(self, parts: Any) -> None:
        parts.registry.unregister(Generous.name)
        parts.registry.register(Generous.name, lambda: Generous)
        super().__init__(parts)


def blind_to(plugin: str) -> type[SimulatedProcess]:
    """A scheduler in which one plugin has been replaced by one that does nothing."""

    class Nothing(PostBindPlugin):
        name = plugin

        def post_bind(self, *_arguments: Any) -> None:
            """Nothing is done."""

    class Blind(SimulatedProcess):
        __doc__ = f"There is no {plugin}."

        def __init__(self, parts: Any) -> None:
            parts.registry.unregister(plugin)
            parts.registry.register(plugin, lambda: Nothing)
            super().__init__(parts)

    return Blind


class Lax(GangScheduling):
    """Any number of members is enough."""

    def placement_feasible(self, *_arguments: Any) -> None:
        return None

    def permit(self, *_arguments: Any) -> None:
        return None


class BindsPartsOfGangs(SimulatedProcess):
    """Members are bound as they come."""

    def __init__(self, parts: Any) -> None:
        parts.registry.unregister(Lax.name)
        parts.registry.register(Lax.name, lambda: Lax)
        super().__init__(parts)


class TellsGroupsNothing(SimulatedProcess):
    """Groups have no conditions."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.groups.conditions.put = lambda *_arguments: None


class HasNoBackoffForGroups(SimulatedProcess):
    """A group that failed is tried again at once."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.queue._is_backing_off = lambda _entity: False


class SaysNothing(SimulatedProcess):
    """Pods are not told why they wait."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)

        async def write(_update: Any) -> bool:
            return True

        self.assembly.scheduler.status_writer._write = write  # type: ignore[method-assign]


class KeepsNominationsToItself(SimulatedProcess):
    """Conditions are written without nominations."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        writer = self.assembly.scheduler.status_writer
        put = writer.put
        writer.put = lambda pod, condition, _nomination: put(pod, condition, None)  # type: ignore[method-assign]
        self.assembly.scheduler.failures._put_status = writer.put


class RecordsNothing(SimulatedProcess):
    """There are no events."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for framework in self.assembly.frameworks.values():
            framework.handle.recorder = None


class EvictsWithoutAWord(SimulatedProcess):
    """Victims are not told that they are victims."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for framework in self.assembly.frameworks.values():
            for plugin in framework.post_filter:
                if isinstance(plugin, DefaultPreemption):
                    executor = plugin.evaluator.executor
                    executor.delete = partial(self._delete, executor)  # type: ignore[method-assign]

    async def _delete(self, executor: Any, victim: Any, _preemptor: Any) -> bool:
        await executor._client.delete_pod(victim)
        return True


class IsDeaf(SimulatedProcess):
    """Pods that did not fit are never told that something changed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.handlers._move = lambda *_arguments: None  # type: ignore[method-assign]


class LeadsAlways(SimulatedProcess):
    """Writes without asking whether it leads."""

    def may_write(self) -> bool:
        return True


class Dies(SimulatedProcess):
    """Falls over once it has something to do."""

    async def run(self) -> None:
        raise RuntimeError("fell over")


class Stumbles(SimulatedProcess):
    """A plugin raises after every binding, which is caught."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for framework in self.assembly.frameworks.values():
            framework.post_bind.append(SimpleNamespace(name="Stumbles"))  # type: ignore[arg-type]


class NeverConfirms(SimulatedProcess):
    """What the watch says about bound pods is not heard."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.cache.add_pod = lambda _pod: None  # type: ignore[method-assign]


class KeepsGhosts(SimulatedProcess):
    """Pods that are gone stay in the cache."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.cache.remove_pod = lambda _pod: None  # type: ignore[method-assign]


class Spins(SimulatedProcess):
    """Looks for work again and again without ever resting."""

    async def run(self) -> None:
        while True:  # noqa: ASYNC110  # what it does wrong
            await asyncio.sleep(0)


class PopsTheLeastImportantFirst(SimulatedProcess):
    """Takes pods in the wrong order."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        queue = self.assembly.scheduler.queue
        pop_specific = queue.pop_specific_pod

        def pop() -> Any:
            ready = queue.pods_in_active_q()
            if not ready:
                return None
            return pop_specific(min(ready, key=lambda pod: pod.spec.priority or 0))

        queue.pop = pop  # type: ignore[method-assign]


class SleepsForEver(SimulatedProcess):
    """Who waits for an event is never tried again without one."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.queue.next_deadline = lambda: None  # type: ignore[method-assign]


class Careless(DefaultPreemption):
    """Ignores disruption budgets."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.evaluator.budgets.list = lambda: Budgets(())  # type: ignore[method-assign]
        self.evaluator._best = lambda shortlist: max(  # type: ignore[method-assign]
            shortlist.candidates(), key=lambda item: len(item.victims.pods)
        )


class Deluded(DefaultPreemption):
    """Room is announced where no victim could make any."""

    def post_filter(self, state: Any, pod: Any, statuses: Any) -> Any:
        for name in self.handle.table.row_of:
            if statuses.get(name).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PostFilterResult(NominatingInfo(override=True, node_name=name)), None
        return super().post_filter(state, pod, statuses)


class _Generous(DefaultPreemption):
    """More pods of the chosen node are evicted than have to be."""

    @staticmethod
    def also(priority: int, own: int) -> bool:
        raise NotImplementedError

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        find = self.evaluator._find_candidates

        def remember(state: Any, pod: Any, statuses: Any, **how: Any) -> Any:
            self._priority = pod.spec.priority or 0
            return find(state, pod, statuses, **how)

        best = self.evaluator._best

        def more(shortlist: Any) -> Any:
            chosen = best(shortlist)
            row = handle.table.row_of[chosen.node_name]
            known = {pod.metadata.uid for pod in chosen.victims.pods}
            added = [
                info.pod
                for info in handle.table.pods[row].values()
                if info.uid not in known and self.also(info.priority, self._priority)
            ]
            victims = Victims((*chosen.victims.pods, *added), chosen.victims.pdb_violations)
            return Candidate(chosen.node_name, victims)

        self.evaluator._find_candidates = remember  # type: ignore[method-assign]
        self.evaluator._best = more  # type: ignore[method-assign]


class Ruthless(_Generous):
    """Evicts its equals as well."""

    @staticmethod
    def also(priority: int, own: int) -> bool:
        return priority >= own


class Wasteful(_Generous):
    """Evicts all it may."""

    @staticmethod
    def also(priority: int, own: int) -> bool:
        return priority < own


class Insistent(DefaultPreemption):
    """Deletes victims that are terminating, too."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        executor = self.evaluator.executor

        def start(candidate: Any, preemptor: Any) -> None:
            executor._preempting.add(preemptor.metadata.uid)
            victims = list(candidate.victims.pods)
            handle.spawn(executor._evict(candidate, victims, on_behalf_of(preemptor)), "evict")

        executor.start = start  # type: ignore[method-assign]


class _PreemptsWith(SimulatedProcess):
    """Preempts in another way."""

    way: type[DefaultPreemption]

    def __init__(self, parts: Any) -> None:
        parts.registry.unregister(DefaultPreemption.name)
        parts.registry.register(DefaultPreemption.name, lambda: self.way)
        super().__init__(parts)


class IgnoresBudgets(_PreemptsWith):
    """Evicts whom it likes, and as many as it can."""

    way = Careless


class EvictsItsEquals(_PreemptsWith):
    """Evicts pods of the same priority."""

    way = Ruthless


class EvictsTooMany(_PreemptsWith):
    """Evicts pods that could have stayed."""

    way = Wasteful


class EvictsTwice(_PreemptsWith):
    """Evicts pods that are terminating."""

    way = Insistent


class PreemptsInVain(_PreemptsWith):
    """Nominates pods to nodes that they cannot use."""

    way = Deluded


class Hasty(VolumeBinding):
    """Does not wait for volumes."""

    async def pre_bind(self, *_arguments: Any) -> None:
        return None

    def pre_bind_pre_flight(self, *_arguments: Any) -> None:
        return None


class BindsBeforeVolumes(SimulatedProcess):
    """Pods are bound before their claims."""

    def __init__(self, parts: Any) -> None:
        parts.registry.unregister(Hasty.name)
        parts.registry.register(Hasty.name, lambda: Hasty)
        super().__init__(parts)


class ForgetsWhatItGave(SimulatedProcess):
    """Devices count as taken only when the watch says so."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        tracker = next(iter(self.assembly.frameworks.values())).handle.dra_manager.claims
        tracker.add_in_flight = lambda *_: None
        tracker.assume = lambda _claim: True


class HoldsRoomForTheGone(SimulatedProcess):
    """The room of a pod that is deleted while it is being bound is not given up."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.assembly.scheduler.cache.forget_pod = lambda _pod: None  # type: ignore[method-assign]


class Possessive(DynamicResources):
    """Does not take its reservations back."""

    answers_per_class = True

    def unreserve(self, *_arguments: Any) -> None:
        return None


class KeepsReservations(SimulatedProcess):
    """A pod that was not bound keeps its claims."""

    def __init__(self, parts: Any) -> None:
        parts.registry.unregister(Possessive.name)
        parts.registry.register(Possessive.name, lambda: Possessive)
        super().__init__(parts)


class Empty(DynamicResources):
    """Does not write to claims."""

    answers_per_class = True

    async def pre_bind(self, *_arguments: Any) -> None:
        return None

    def pre_bind_pre_flight(self, *_arguments: Any) -> None:
        return None


class BindsWithoutDevices(SimulatedProcess):
    """Pods are bound before their claims are allocated."""

    def __init__(self, parts: Any) -> None:
        parts.registry.unregister(Empty.name)
        parts.registry.register(Empty.name, lambda: Empty)
        super().__init__(parts)


class KnowsBetter(SimulatedProcess):
    """An extender is asked, but not heard."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        extended = self.assembly.scheduler.cycle._extended
        if extended is not None:
            extended._rows = lambda _extender, _names, rows: rows  # type: ignore[method-assign]


class Miscounts(SimulatedProcess):
    """Every pod is counted a little too large."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        table = self.assembly.scheduler.cache.table
        account = table._account

        def miscount(pod: Any, row: int, sign: int) -> None:
            account(pod, row, sign)
            table.requested[0].add(row, 1)

        table._account = miscount  # type: ignore[method-assign]
