"""`kubesched up --reload`: saved plugins decide, broken ones do not."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
from processes import PATIENCE_S, until

from kubesched.app import reloading
from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.app.reloading import Reloader
from kubesched.base.errors import KubeschedError
from kubesched.config.load import load_file

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: "edited:Edited"}]}}}]
"""
PLUGIN = """\
from dataclasses import dataclass

import edited_words
from kubesched.framework import FilterPlugin, PermitPlugin, Rule, Scope, Verdicts, unschedulable
from kubesched.framework import Wait


class Edited(FilterPlugin, PermitPlugin):
    name = "Edited"
    held = False

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.label_ids("rack") < 0, unschedulable(edited_words.REASON))

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)

    def permit(self, state, pod, node_name):
        return Wait(600.0) if self.held else None
"""
OPEN = PLUGIN.replace('("rack") < 0', '("rack") < -1')
CONSTRUCTED = "\n    def __init__(self, args, handle):\n        raise ValueError('no\\nway')\n"
BROKEN = {
    "syntax": (f"{PLUGIN}def (\n", "edited.py:20: SyntaxError: invalid syntax"),
    "import": (f"{PLUGIN}missing\n", "edited.py:20: NameError: name 'missing' is not defined"),
    "exit": (f"{PLUGIN}raise SystemExit(3)\n", "edited.py:20: SystemExit: 3"),
    "class": (PLUGIN.replace("class Edited", "class Other"), "edited.py: plugin"),
    "constructor": (PLUGIN + CONSTRUCTED, "edited.py:22: ValueError: no way"),
    "events": (
        PLUGIN.replace("PermitPlugin)", "PermitPlugin, EnqueueExtensions)").replace(
            "import Wait", "import EnqueueExtensions, Wait"
        )
        + "\n    def events_to_register(self):\n        return 1 / 0\n",
        "edited.py:22: ZeroDivisionError",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(reloading, "DECIDE_S", PATIENCE_S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "edited.py").write_text(PLUGIN)
    (tmp_path / "edited_words.py").write_text("REASON = 'no rack'\n")
    yield tmp_path
    for name in ("edited", "edited_words"):
        sys.modules.pop(name, None)


class Reloading:
    """A playground, the lines that are told, and pods."""

    def __init__(self, running, told) -> None:
        self.running, self.told, self.api = running, told, running.cluster.api

    async def line(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await self.told.get()

    def create(self, name) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        self.api.create("pods", {"metadata": {"name": name}, "spec": spec}, "default")

    def reason(self, name) -> str:
        conditions = self.api.get("pods", "default", name)["status"].get("conditions") or ()
        return "".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

    def node(self, name) -> str:
        return self.api.get("pods", "default", name)["spec"].get("nodeName", "")


@contextlib.asynccontextmanager
async def reloading_in(folder: Path):
    told: asyncio.Queue[str] = asyncio.Queue()
    config = folder / "config.yaml"
    reloader = Reloader(Path(folder), str(config), lambda: load_file(config), told.put_nowait)
    settings = PlaygroundSettings(
        kubeconfig=folder / "kubeconfig", nodes=2, config=load_file(config)
    )
    async with playground(settings) as running, asyncio.TaskGroup() as group:
        task = group.create_task(reloader.run(running.seat, running.cluster.api, lambda: None))
        yield Reloading(running, told)
        task.cancel()


async def test_what_is_saved_decides_and_what_is_broken_does_not(folder, capfd):
    async with reloading_in(folder) as world:
        world.create("a")
        await until(lambda: "no rack" in world.reason("a"))
        first = world.running.scheduler
        for text, told in BROKEN.values():
            (folder / "edited.py").write_text(text)
            line = await world.line()
            assert line.startswith(told)
            assert line.endswith("; the code from before stays in use")
            assert "\n" not in line
            assert world.running.scheduler is first
        assert sys.modules["edited"].Edited.held is False, "the old module is back"
        world.create("b")
        await until(lambda: "no rack" in world.reason("b"))

        # A module that the plugin imports.
        (folder / "edited.py").write_text(PLUGIN)
        assert "2 pods were pending, 0 of them decided differently" in await world.line()
        (folder / "edited_words.py").write_text("REASON = 'lacks it'\n")
        line = await world.line()
        assert line.startswith("edited_words.py reloaded in ")
        assert line.endswith(": 2 pods were pending, 2 of them decided differently")
        line = await world.line()
        assert line.startswith("  default/a: 0/2 nodes are available: 2 no rack.")
        assert " → 0/2 nodes are available: 2 lacks it." in line
        await world.line()

        # Neither a file that is not imported nor one of another environment matters.
        (folder / "unrelated.py").write_text("1 / 0\n")
        (folder / ".venv").mkdir()
        (folder / ".venv" / "edited.py").write_text("1 / 0\n")
        (folder / "edited.py").write_text(OPEN)
        assert (await world.line()).startswith("edited.py reloaded in ")
        placed = sorted([await world.line(), await world.line()])
        assert [line.rpartition(" → ")[2] for line in placed] == [world.node("a"), world.node("b")]
        assert world.told.empty()
    assert "Traceback" not in capfd.readouterr().err


async def test_pods_that_permit_holds_are_tried_again(folder):
    held = OPEN.replace("held = False", "held = True")
    (folder / "edited.py").write_text(held)
    async with reloading_in(folder) as world:
        world.create("a")
        await until(lambda: len(world.running.scheduler.assembly.waiting_pods) == 1)
        assert not world.node("a")
        (folder / "edited.py").write_text(OPEN)
        await until(lambda: world.node("a"))
        assert (await world.line()).startswith("edited.py reloaded in ")


async def test_the_configuration_is_read_anew(folder):
    async with reloading_in(folder) as world:
        world.create("a")
        await until(lambda: "no rack" in world.reason("a"))
        (folder / "config.yaml").write_text(CONFIG.replace("multiPoint", "permit"))
        assert (await world.line()).startswith("config.yaml reloaded in ")
        await until(lambda: world.node("a"))


async def test_an_import_that_does_not_end_is_given_up(folder, monkeypatch):
    monkeypatch.setattr(reloading, "IMPORT_S", 0.2)
    async with reloading_in(folder) as world:
        (folder / "edited.py").write_text("import threading\nthreading.Event().wait(60)\n")
        assert "the import has not ended after 0 s" in await world.line()


@pytest.mark.parametrize(
    ("limit", "text"), [(1, "more than 1 Python files"), (None, "not a folder")]
)
def test_what_cannot_be_watched(folder, monkeypatch, limit, text):
    path = folder
    if limit is None:
        path = folder / "edited.py"
    else:
        monkeypatch.setattr(reloading, "MAX_FILES", limit)
    with pytest.raises(KubeschedError, match=text):
        Reloader(path, None, lambda: None)
