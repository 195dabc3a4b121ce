"""`check_plugin` for the plugins that need no objects of their own."""

from __future__ import annotations

from typing import Any

import pytest

from kubesched.testing import check_plugin
from kubesched_plugins.golden.trimaran import (
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    RecordedCollector,
    TargetLoadPacking,
)
from kubesched_plugins.preemption_toleration import PreemptionToleration
from kubesched_plugins.trimaran.metrics import Metric, Snapshot

KINDS = [("CPU", "AVG"), ("CPU", "STD"), ("Memory", "AVG")]


class SomeLoad(dict[str, list[Metric]]):
    """Metrics of every node, whatever its name: by the letters in it."""

    def get(self, name: str, default: object = None) -> list[Metric]:  # type: ignore[override]
        del default
        return [Metric(*kind, sum(map(ord, name)) * (at + 3) % 90) for at, kind in enumerate(KINDS)]


class MeasuredCollector(RecordedCollector):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.show(Snapshot(SomeLoad(), 1_767_225_600))


@pytest.mark.parametrize(
    "plugin", [TargetLoadPacking, LoadVariationRiskBalancing, LowRiskOverCommitment]
)
def test_scores_by_load_keep_their_promises(
    plugin: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "collector_type", MeasuredCollector)
    check_plugin(plugin, {"watcherAddress": "http://watcher"}, examples=30)


def test_preemption_toleration_keeps_its_promises() -> None:
    check_plugin(PreemptionToleration, examples=10)
