"""One pod's explanation with the complete matrix of nodes and plugins, as columns."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from kubesched.framework.nodes.columns import Indices
from kubesched.insight.explain.evaluation import PASSES, Evaluation
from kubesched.insight.explain.model import Explanation
from kubesched.insight.explain.rows import ranks_of
from kubesched.insight.explain.selection import by_total, every_node, no_node
from kubesched.insight.page.columns import Array, pack, texts


class MatrixSelection:
    """A selection for `Explainer.explain` that also keeps the evaluation's columns.

    The columns are built at once, because the search for fixes changes the table temporarily.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] = {"plugins": [], "rejections": []}
        self.columns: dict[str, Array] = {}

    def __call__(self, evaluation: Evaluation) -> Indices:
        rows = every_node(evaluation)
        names = evaluation.table.names
        self.columns = {
            "row": rows.astype(np.int32),
            "name": texts(names[row] for row in rows.tolist()),
        }
        self._add_rejections(evaluation, rows)
        self._add_scores(evaluation)
        return no_node(evaluation)

    def _add_rejections(self, evaluation: Evaluation, rows: Indices) -> None:
        for at, rejections in enumerate(evaluation.rejections):
            ids = rejections.ids[rows]
            assert PASSES == -1, "the browser reads -1 as passing"
            self.columns[f"rejection {at}"] = ids.astype(np.int16)
            self.header["rejections"].append(
                {
                    "plugin": rejections.plugin,
                    "nominated": rejections.rivals,
                    "statuses": [list(status.all_reasons) for status in rejections.statuses],
                }
            )

    def _add_scores(self, evaluation: Evaluation) -> None:
        """Scores of the feasible nodes, which come first in row order."""
        feasible = len(evaluation.feasible)
        self.header["feasible"] = feasible
        if evaluation.totals is None or not feasible:
            return
        order = np.argsort(-evaluation.totals, kind="stable")
        assert (evaluation.feasible[order] == by_total(evaluation)).all()
        self.columns["total"] = evaluation.totals[order]
        self.columns["rank"] = ranks_of(evaluation.totals)[order].astype(np.int32)
        for score in evaluation.scores:
            self.header["plugins"].append(score.plugin)
            self.columns[f"raw {score.plugin}"] = score.raw[order]
            self.columns[f"normalized {score.plugin}"] = score.normalized[order]
            self.columns[f"weighted {score.plugin}"] = score.weighted[order]

    def pack(self, explanation: Explanation, **more: object) -> bytes:
        """The message for the browser."""
        header = {"explanation": msgspec.to_builtins(explanation), **self.header, **more}
        return pack(header, self.columns)
