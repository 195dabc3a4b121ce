"""An in-memory cluster whose caller makes the attempts, one after the other, and moves the clock.

`Cluster` runs the scheduler's own loop, which is what tests and sequences want to see. Plans and
measurements need to know where an attempt begins and ends. Background work (evictions, status
patches) runs in tasks, as it does in production.
"""

from __future__ import annotations

import asyncio

from kubesched.insight.state.cluster import Cluster
from kubesched.scheduler.scheduler import AssumedGroup, Finished, QueueEmpty, Suspended
from kubesched.scheduler.scheduling_cycle import Assumed


class SteppedCluster(Cluster):
    """Runs the scheduler attempt by attempt."""

    _is_started = False

    def attempt(self) -> bool:
        """Try the next pod, and bind it if it got a node; False if there is none."""
        scheduler = self.assembly.scheduler
        outcome = scheduler.attempt()
        if isinstance(outcome, QueueEmpty):
            return False
        concluded: Assumed | AssumedGroup | Finished
        if isinstance(outcome, Suspended):
            with scheduler.event_gate.hold():
                concluded = self.loop.run(outcome.outcome)
        else:
            concluded = outcome
        if isinstance(concluded, Assumed):
            self.changes += 1
            self.bind(concluded)
        elif isinstance(concluded, AssumedGroup):
            for assumed in concluded.members:
                self.changes += 1
                self.bind(assumed)
        return True

    def bind(self, assumed: Assumed) -> asyncio.Task[None]:
        """Run a binding until it ends or waits for something outside the scheduler."""
        task = self.loop.create_task(self.assembly.scheduler.binding.run(assumed))
        self.work()
        return task

    @property
    def background_count(self) -> int:
        scheduler = self.assembly.scheduler
        return len(scheduler.background) + len(scheduler.status_writer)

    def finish_background(self) -> bool:
        """Run background work as far as possible; returns whether there was any."""
        before = self.background_count, self.changes
        if not before[0]:
            return False
        self.work()
        return before != (self.background_count, self.changes)

    def work(self) -> None:
        """Run started work until it ends or waits for something outside the scheduler."""
        if not self._is_started:
            self._is_started = True
            scheduler = self.assembly.scheduler
            self.loop.create_task(scheduler.status_writer.run())
            self.loop.create_task(scheduler.background.run())
        self.loop.run_until_idle()

    def jump_to(self, moment: float) -> None:
        """Set the clock forward to this moment, if it is still to come; timers fire."""
        self.clock.advance(max(0.0, moment - self.clock.monotonic()))
        self._fire_timers()
        self.flush_queue()

    def flush_queue(self) -> None:
        """Let the queue act on deadlines that have passed."""
        self.assembly.scheduler.queue.run_timers()
