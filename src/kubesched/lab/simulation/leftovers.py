"""What a scheduler holds when all is quiet: no more than one that has just started."""

from __future__ import annotations

from kubesched.framework.engine import is_idle
from kubesched.insight.state.virtual_loop import VirtualLoop
from kubesched.lab.simulation.processes import Incarnation

OWN_TASKS, OWN_TIMERS = 18, 4
"""Of a process that leads, beside those of its informers."""
PER_INFORMER = 3
"""Tasks: the informer, its reflector and the reflector's check. Timers: two, and the watch's own,
which stands for its connection.
"""


class Taken(str):
    """Something that a scheduler took and did not give back."""

    __slots__ = ()


def taken(loop: VirtualLoop, incarnation: Incarnation) -> Taken | None:
    """What it should have given back by now; None if there is nothing."""
    process = incarnation.process
    assembly, scheduler = process.assembly, process.assembly.scheduler
    framework = next(iter(assembly.frameworks.values()))
    in_pre_bind = framework.handle.pods_in_pre_bind
    of_informers = PER_INFORMER * len(process.informers.started())
    tasks, timers = loop.held_by(incarnation.name)
    counts = {
        "binding slots": scheduler.binding.slots.taken,
        "bindings": scheduler.bindings_under_way + scheduler.binding.waiting_count,
        "evictions": len(scheduler.background),
        "status writes": len(scheduler.status_writer),
        "parked events": len(scheduler.event_gate),
        "preemptors of pods on Permit": len(assembly.waiting_pods.preemptors),
        "pods in PreBind": len(in_pre_bind or ()),
        "busy plugins": sum(not is_idle(plugin) for plugin in framework.plugins),
        "nominations of pods that do not wait": _stale_nominations(incarnation),
        "tasks": max(tasks - OWN_TASKS - of_informers, 0),
        "timers": max(timers - OWN_TIMERS - of_informers, 0),
    }
    return next((Taken(f"{count} {what}") for what, count in counts.items() if count), None)


def _stale_nominations(incarnation: Incarnation) -> int:
    waiting = {pod.metadata.uid for pod in incarnation.pods.list() if not pod.spec.node_name}
    nominator = incarnation.process.assembly.scheduler.queue.nominator
    return sum(pod.uid not in waiting for pods in nominator.references().values() for pod in pods)
