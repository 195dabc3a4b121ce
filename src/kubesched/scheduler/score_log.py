"""Logs every plugin's score of every node, at high verbosity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.base.logs import get_logger
from kubesched.framework.nodes.columns import Indices
from kubesched.framework.runtime.score import ScoreOutcome

log = get_logger(__name__)

SCORES_VERBOSITY: Final = 10


def log_scores(names: Sequence[str], pod: Pod, rows: Indices, outcome: ScoreOutcome) -> None:
    """Log weighted scores by plugin, and totals: a record per node and plugin."""
    columns, totals = outcome.columns, outcome.totals
    for index, row in enumerate(rows.tolist()):
        node = names[row]
        by_plugin = {name: int(column[index]) for name, column in columns.items()}
        for plugin, score in (by_plugin | outcome.constants).items():
            log.info(
                "Plugin scored node for pod",
                v=SCORES_VERBOSITY,
                pod=pod,
                plugin=plugin,
                node=node,
                score=score,
            )
        log.info(
            "Calculated node's final score for pod",
            v=SCORES_VERBOSITY,
            pod=pod,
            node=node,
            score=int(totals[index]),
        )
