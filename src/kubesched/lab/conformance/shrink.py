"""Shrinks a sequence with a difference, and writes it as manifests for kubectl."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from kubesched.base.errors import KubeschedError
from kubesched.lab.conformance.run import Difference, Played, Stages
from kubesched.lab.conformance.sequences import Json, Sequence, Step

T = TypeVar("T")
Differs = Callable[[Sequence], Awaitable[bool]]

MAX_PLAYS = 80
"""Maximum plays while shrinking."""

_REMOVABLE = (
    "affinity",
    "topologySpreadConstraints",
    "tolerations",
    "nodeSelector",
    "initContainers",
    "volumes",
    "resources",
    "priorityClassName",
    "taints",
    "unschedulable",
)
"""Optional fields of a spec."""


class _Budget:
    def __init__(self, differs: Differs, plays: int, stop: asyncio.Event | None) -> None:
        self._differs = differs
        self._left = plays
        self._stop = stop

    async def holds(self, scenario: Sequence) -> bool:
        """Whether the difference persists; False once the budget is spent or `stop` is set."""
        if self._left <= 0 or (self._stop is not None and self._stop.is_set()):
            return False
        self._left -= 1
        return await self._differs(scenario)


async def shrink(
    scenario: Sequence,
    end: int,
    differs: Differs,
    plays: int = MAX_PLAYS,
    stop: asyncio.Event | None = None,
) -> Sequence:
    """The smallest sequence found in `plays` plays or until `stop`; `end` is the differing step."""
    budget = _Budget(differs, plays, stop)
    current = msgspec.structs.replace(scenario, steps=scenario.steps[: end + 1])
    if not await budget.holds(current):
        return scenario

    async def with_steps(steps: list[Step]) -> bool:
        return await budget.holds(msgspec.structs.replace(current, steps=steps))

    async def with_objects(objects: list[Json]) -> bool:
        return await budget.holds(msgspec.structs.replace(current, objects=objects))

    last = current.steps[-1]

    async def with_steps_before(steps: list[Step]) -> bool:
        return await with_steps([*steps, last])

    fewer = await _fewer(current.steps[:-1], with_steps_before)
    current = msgspec.structs.replace(current, steps=[*fewer, last])
    current = msgspec.structs.replace(current, objects=await _fewer(current.objects, with_objects))
    if current.configuration and await budget.holds(plain := _plain(current)):
        current = plain
    # Keep the first: without its ranks kube-scheduler would break ties at random.
    for extender in current.extenders[:0:-1]:
        without = _without(current, extender.name)
        if await budget.holds(without):
            current = without
    for at in reversed(range(len(current.steps))):
        current = await _simpler(current, at, budget)
    return current


def _plain(scenario: Sequence) -> Sequence:
    """With the default configuration, which has no other profile."""
    steps = []
    for step in scenario.steps:
        if "schedulerName" in step.object.get("spec", {}):
            spec = {k: v for k, v in step.object["spec"].items() if k != "schedulerName"}
            step = msgspec.structs.replace(step, object={**step.object, "spec": spec})
        steps.append(step)
    return msgspec.structs.replace(scenario, steps=steps, configuration={}, extenders=[])


def _without(scenario: Sequence, extender: str) -> Sequence:
    listed = [
        entry
        for entry in scenario.configuration["extenders"]
        if not entry["urlPrefix"].endswith(f"/{extender}")
    ]
    return msgspec.structs.replace(
        scenario,
        configuration={**scenario.configuration, "extenders": listed},
        extenders=[policy for policy in scenario.extenders if policy.name != extender],
    )


async def _fewer(items: list[T], holds: Callable[[list[T]], Awaitable[bool]]) -> list[T]:
    """Remove ever smaller parts, as long as the difference persists."""
    size = len(items)
    while size >= 1:
        at = 0
        while at < len(items):
            candidate = items[:at] + items[at + size :]
            if await holds(candidate):
                items = candidate
            else:
                at += size
        size //= 2
    return items


async def _simpler(scenario: Sequence, at: int, budget: _Budget) -> Sequence:
    step = scenario.steps[at]
    if step.action != "create":
        return scenario
    for name in _REMOVABLE:
        spec = step.object.get("spec", {})
        if name not in spec:
            continue
        rest = {key: value for key, value in spec.items() if key != name}
        candidate = msgspec.structs.replace(step, object={**step.object, "spec": rest})
        steps = [*scenario.steps[:at], candidate, *scenario.steps[at + 1 :]]
        smaller = msgspec.structs.replace(scenario, steps=steps)
        if await budget.holds(smaller):
            scenario, step = smaller, candidate
    return scenario


async def shrink_difference(
    on_stage: Stages, played: Played, plays: int = MAX_PLAYS, stop: asyncio.Event | None = None
) -> Played:
    """The smallest case of a difference, played once more."""
    difference = played.difference
    assert difference is not None, "there is something to shrink"

    async def differs(scenario: Sequence) -> bool:
        try:
            return (await on_stage.play(scenario)).difference is not None
        except KubeschedError:
            return False  # a sequence that cannot be played to its end does not count

    smaller = await shrink(played.scenario, difference.at, differs, plays, stop)
    smallest = await on_stage.play(smaller)
    if smallest.difference is None:
        return smallest
    # A smaller cluster may differ at an earlier step; later steps are irrelevant.
    steps = smallest.scenario.steps[: smallest.difference.at + 1]
    return dataclasses.replace(
        smallest, scenario=msgspec.structs.replace(smallest.scenario, steps=steps)
    )


# -- manifests -------------------------------------------------------------------------------------


def write_case(folder: Path, scenario: Sequence, difference: Difference | None) -> None:
    """Write a manifest per object, and the commands that replay the case on any cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = ["#!/bin/sh", "# Replays the case on an empty cluster whose scheduler is running."]
    if difference is not None:
        commands.append(f"# Difference: {difference.what}")
        for finding in difference.findings:
            if not finding.agrees:
                commands.append(f"#   {finding.aspect.value}")
                commands.append(f"#     kube-scheduler  {_one_line(finding.expected)}")
                commands.append(f"#     kubesched       {_one_line(finding.got)}")
    if scenario.configuration:
        text = yaml.safe_dump(scenario.configuration, sort_keys=False)
        (folder / "scheduler-config.yaml").write_text(text)
        commands.append("# The scheduler has to be started with what scheduler-config.yaml says.")
    if scenario.extenders:
        commands.append("# Its extenders are served by `kubesched conformance run` only.")
    commands += ["set -e", 'cd "$(dirname "$0")"']
    for manifest in scenario.objects:
        name = f"00-{manifest['kind'].lower()}-{_file_name(manifest)}.yaml"
        (folder / name).write_text(yaml.safe_dump(manifest, sort_keys=False))
        commands.append(f"kubectl apply -f {name}")
    for number, step in enumerate(scenario.steps, start=1):
        commands += _commands(folder, number, step)
    script = folder / "replay.sh"
    script.write_text("\n".join(commands) + "\n")
    script.chmod(0o755)
    (folder / "sequence.json").write_bytes(msgspec.json.encode(scenario) + b"\n")


def _commands(folder: Path, number: int, step: Step) -> list[str]:
    where = f" -n {step.namespace}" if step.namespace else ""
    kind = step.kind.lower()
    if step.action == "create":
        name = f"{number:02}-{kind}-{_file_name(step.object)}.yaml"
        (folder / name).write_text(yaml.safe_dump(step.object, sort_keys=False))
        commands = [f"kubectl create -f {name}"]
    elif step.action == "patch":
        change = shlex.quote(json.dumps(step.patch))
        part = f" --subresource={step.subresource}" if step.subresource else ""
        way = "strategic" if step.is_strategic else "merge"
        commands = [f"kubectl patch {kind} {step.name}{where}{part} --type={way} -p {change}"]
    else:
        commands = [f"kubectl delete {kind} {step.name}{where} --grace-period=0 --force"]
    if step.asks_for_decision and step.kind == "Pod" and step.action != "delete":
        commands.append(f"kubectl wait pod {step.name}{where} --for=condition=PodScheduled || true")
        commands.append(f"kubectl get pod {step.name}{where} -o wide")
    return commands


def _file_name(document: Json) -> str:
    metadata = document["metadata"]
    return "-".join(part for part in (metadata.get("namespace", ""), metadata["name"]) if part)


def _one_line(value: object) -> str:
    return " ".join(str(value).split()) or "(nothing)"
