"""A cluster with pod groups beside an extender that answers in a later turn of the loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from group_scenarios import Groups

from kubesched.framework.extenders import ExtenderFilterResult

CONFIG = """
extenders:
- urlPrefix: http://127.0.0.1:1/extender
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 1
"""


class Accepting:
    """An extender that answers in a later turn of the loop."""

    name = "http://127.0.0.1:1/extender"
    is_ignorable = False
    is_filter = True
    is_prioritizer = True
    is_binder = False
    supports_preemption = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.meanwhile: Any = lambda: None

    def is_interested(self, pod: Any) -> bool:
        return not pod.metadata.name.startswith("plain")

    async def filter(self, pod: Any, nodes: Any) -> ExtenderFilterResult:
        names = [node.metadata.name for node in nodes]
        self.asked.append((pod.metadata.name, names))
        await asyncio.sleep(0)
        self.meanwhile()
        return self.answer(pod, names)

    def answer(self, pod: Any, names: list[str]) -> ExtenderFilterResult:
        return ExtenderFilterResult(tuple(names))

    async def prioritize(self, pod: Any, nodes: Any) -> list[tuple[str, int]]:
        await asyncio.sleep(0)
        return []

    async def aclose(self) -> None:
        """Nothing is open."""


def cluster(extender: Accepting, *nodes: float, gates: str = "") -> Groups:
    def wrap(dependencies: Any) -> Any:
        return replace(dependencies, extenders=lambda _configured, _table: [extender])

    return Groups(*nodes, gates=gates, config=CONFIG, wrap=wrap)
