"""Every thread and task that the scheduler cannot do without: when it dies, the process ends and
says why.
"""

from __future__ import annotations

import os

import pytest

KILLER = """
import asyncio
import importlib
import os

from kubesched.framework.interfaces import FilterPlugin


class Killer(FilterPlugin):
    name = "Killer"

    def filter(self, state, pod, node_info):
        return None


async def die(*_args, **_named):
    await asyncio.sleep(0.3)
    error = os.environ["KILLER_ERROR"]
    if error != "ends":
        raise {"SystemExit": SystemExit, "MemoryError": MemoryError}[error]("killed by the test")


module, _, path = os.environ["KILLER_VICTIM"].partition(":")
owner, _, name = path.partition(".")
setattr(getattr(importlib.import_module(module), owner), name, die)
"""


@pytest.fixture
def killing(run, tmp_path):
    """Start a scheduler in which a method raises an error soon after it was called."""
    (tmp_path / "killing.py").write_text(KILLER)

    async def start(victim, error, *flags):
        plugins = {"multiPoint": {"enabled": [{"name": "killing:Killer"}]}}
        environment = {
            "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
            "KILLER_VICTIM": f"kubesched.{victim}",
            "KILLER_ERROR": error,
        }
        config = {"profiles": [{"plugins": plugins}]}
        return await run(*flags, config=config, environment=environment)

    return start


@pytest.mark.parametrize(
    ("victim", "error"),
    [
        # On the control thread.
        ("scheduler.watchdog:LoopWatchdog.run", "SystemExit"),
        ("app.stopping:ExitLimit.enforce", "MemoryError"),
        ("app.serving:Serving.run", "SystemExit"),
        ("app.serving:Serving.run", "ends"),
        ("base.http_server.listener:Listener._accept", "SystemExit"),
        ("base.http_server.listener:Listener._sweep", "MemoryError"),
        ("client.leader_election:LeaderElector.run", "SystemExit"),
        # On the main one.
        ("client.events:EventBroadcaster.run", "SystemExit"),
        ("base.garbage_collection:GarbageCollection.run", "MemoryError"),
        ("client.informers.informer:Informer.run", "SystemExit"),
        ("scheduler.scheduler:Scheduler._run_timers", "SystemExit"),
        ("scheduler.status_writer:StatusWriter._serve", "MemoryError"),
        ("scheduler.background:BackgroundTasks.run", "SystemExit"),
    ],
)
async def test_a_death_ends_the_process_with_its_reason(killing, victim, error):
    scheduler = await killing(victim, error)
    assert await scheduler.ended() == 1
    reason = "serving has ended" if error == "ends" else "killed by the test"
    assert reason in scheduler.log
