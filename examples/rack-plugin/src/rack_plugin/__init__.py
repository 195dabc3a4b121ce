"""Racks: pods go to nodes in a rack, by preference in a certain one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kubesched.framework import (
    MAX_NODE_SCORE,
    Action,
    EnqueueExtensions,
    FilterPlugin,
    Resource,
    Rule,
    Scope,
    ScorePlugin,
    Verdicts,
    on_event,
    unresolvable,
)

NO_RACK = unresolvable("node(s) stood in no rack")


@dataclass(frozen=True)
class RacksArgs:
    """The arguments in the configuration's `pluginConfig`."""

    label: str = "example.com/rack"
    preferred: str = ""


class Racks(FilterPlugin, ScorePlugin, EnqueueExtensions):
    name = "Racks"
    args_type = RacksArgs

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.label_ids(self.args.label) < 0, NO_RACK)

    def filter_rule(self, state, pod):
        return Rule(Scope.NODE)  # the answer depends on the node object alone, so it may be kept

    def score_nodes(self, state, pod, nodes):
        preferred = nodes.interned((self.name, self.args), self._is_preferred)
        return np.where(preferred.ids[nodes.rows] >= 0, MAX_NODE_SCORE, 0)

    def score_rule(self, state, pod):
        return Rule(Scope.NODE)

    def _is_preferred(self, node):
        rack = (node.metadata.labels or {}).get(self.args.label)
        return True if rack and rack == self.args.preferred else None

    def events_to_register(self):
        return [on_event(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)]
