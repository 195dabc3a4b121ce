"""What-if plans while the user types.

Loading a cluster into a scheduler takes ten times as long as planning a few pods, so the next
cluster is loaded ahead, while the user reads the answer or types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from kubesched.config.defaults import without_extenders
from kubesched.config.features import FeatureGates
from kubesched.config.load import load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.page.changes import MAX_PODS, read_changes
from kubesched.insight.page.nodes import placements
from kubesched.insight.planning.manifests import Manifest, parse_manifests
from kubesched.insight.planning.model import Plan
from kubesched.insight.planning.plan import Changes, plan_in
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.plugins.registry import in_tree_registry

CONFIGURATION: Final = "KubeSchedulerConfiguration"
CHANGES: Final = "Changes"
EDITOR: Final = "YAML"
"""Name of the text in messages."""


class WhatIf:
    """Plans over successive states. Blocking: call it in a thread, one call at a time."""

    def __init__(self, config: KubeSchedulerConfiguration, gates: FeatureGates) -> None:
        self._config, self._notes = without_extenders(config)
        self._gates = gates
        self._spare: tuple[ClusterState, PlannedCluster] | None = None

    def prepare(self, state: ClusterState) -> None:
        """Load the state for the next question, unless already loaded."""
        if self._spare is None or self._spare[0] is not state:
            self._spare = state, self._loaded(state, self._config)

    def answer(self, state: ClusterState, text: str) -> dict[str, Any]:
        """The plan; with a configuration, also what the current one would place differently.

        Raises:
            PlanError, ConfigError: the text is invalid; the message gives the cause.
        """
        by_kind: dict[str, list[Manifest]] = {"Node": [], CONFIGURATION: [], CHANGES: [], "": []}
        for manifest in parse_manifests(EDITOR, text.encode()):
            by_kind[manifest.kind if manifest.kind in by_kind else ""].append(manifest)
        configs, manifests = by_kind[CONFIGURATION], by_kind[""]
        if len(configs) > 1:
            raise PlanError(f"{configs[1]}: only one configuration is possible")
        changes = replace(
            read_changes(by_kind[CHANGES], state), manifests=manifests, nodes=by_kind["Node"]
        )
        _check_size(manifests)
        if not configs:
            return self._plan(state, changes, self._config)
        asked = load(msgspec.json.encode(configs[0].obj), EDITOR, self._gates)
        config, notes = without_extenders(asked)
        now, then = (self._plan(state, changes, each) for each in (self._config, config))
        then["plan"].notes[:0] = notes
        return {**then, "differences": differences(now["plan"], then["plan"])}

    def _plan(
        self, state: ClusterState, changes: Changes, config: KubeSchedulerConfiguration
    ) -> dict[str, Any]:
        """The plan, and the nodes with their pods before and after."""
        world = None
        if config is self._config and self._spare is not None and self._spare[0] is state:
            world, self._spare = self._spare[1], None
        world = world or self._loaded(state, config)
        with world:
            before = placements(world.assembly)
            plan = plan_in(world, state, changes)
            after = placements(world.assembly)
        plan.notes[:0] = self._notes
        return {"plan": plan, "before": before, "after": after}

    def _loaded(self, state: ClusterState, config: KubeSchedulerConfiguration) -> PlannedCluster:
        registry = in_tree_registry()
        # Requests from the page must not import code.
        registry.add_installed(loaded_only=config is not self._config)
        return PlannedCluster(state, config, gates=self._gates, registry=registry)


def _check_size(manifests: Sequence[Manifest]) -> None:
    """Limit the number of pods, so that a typo cannot keep the page busy for minutes."""
    wanted = 0
    for manifest in manifests:
        spec = manifest.obj.get("spec")
        for field in ("replicas", "parallelism"):
            count = spec.get(field) if isinstance(spec, dict) else None
            if isinstance(count, int):
                wanted += count
    if wanted > MAX_PODS:
        raise PlanError(
            f"{wanted} pods are asked for; "
            f"here at most {MAX_PODS} are planned (kubesched plan has no limit)"
        )


def differences(before: Plan, after: Plan) -> list[dict[str, str]]:
    """Pods that two plans put on different nodes; the node is empty for an unplaced pod."""
    nodes_before, nodes_after = (
        {placement.pod: placement.node for placement in plan.placed} for plan in (before, after)
    )
    names = dict.fromkeys([*nodes_before, *nodes_after])
    return [
        {"pod": name, "before": nodes_before.get(name, ""), "after": nodes_after.get(name, "")}
        for name in names
        if nodes_before.get(name, "") != nodes_after.get(name, "")
    ]
