"""Framework: the plugins of one profile, by extension point, and the handle they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)

P = TypeVar("P", bound=Plugin)


class Framework:
    """One profile's plugins in the order in which they run. The phases live in their own modules beside this one."""

    def __init__(
        self,
        handle: Handle,
        points: Mapping[str, Sequence[Plugin]],
        score_weights: Mapping[str, int],
        *,
        percentage_of_nodes_to_score: int | None = None,
    ) -> None:
        self.handle = handle
        self.profile_name = handle.profile_name
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.score_weights = dict(score_weights)

        def at(point: str, kind: type[P]) -> list[P]:
            plugins = list(points.get(point, ()))
            assert all(isinstance(plugin, kind) for plugin in plugins), f"wrong plugin at {point}"
            return cast("list[P]", plugins)

        self.pre_enqueue = at("preEnqueue", PreEnqueuePlugin)
        self.queue_sort = at("queueSort", QueueSortPlugin)
        self.pre_filter = at("preFilter", PreFilterPlugin)
        self.filter = at("filter", FilterPlugin)
        self.post_filter = at("postFilter", PostFilterPlugin)
        self.pre_score = at("preScore", PreScorePlugin)
        self.score = at("score", ScorePlugin)
        self.reserve = at("reserve", ReservePlugin)
        self.permit = at("permit", PermitPlugin)
        self.pre_bind = at("preBind", PreBindPlugin)
        self.bind = at("bind", BindPlugin)
        self.post_bind = at("postBind", PostBindPlugin)
        self.points = {point: list(plugins) for point, plugins in points.items()}
        handle.framework = self

    @property
    def plugins(self) -> list[Plugin]:
        """Every plugin once, in order of first appearance."""
        return list({id(p): p for plugins in self.points.values() for p in plugins}.values())

    @property
    def has_scoring(self) -> bool:
        return bool(self.score)
