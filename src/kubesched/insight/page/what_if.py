"""What-if plans while the user types.

Loading a cluster into a scheduler takes ten times as long as planning a few pods, so the next
cluster is loaded ahead, while the user reads the answer or types.

What the forms ask for comes as YAML of kind `Changes` (docs/reference/page.md). It comes over the
network and never names a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.config.defaults import without_extenders
from kubesched.config.features import FeatureGates
from kubesched.config.load import load
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.insight.page.nodes import placements
from kubesched.insight.planning.existing_workloads import Scale
from kubesched.insight.planning.manifests import Manifest, parse_manifests
from kubesched.insight.planning.model import Plan
from kubesched.insight.planning.nodes import NewNodes
from kubesched.insight.planning.plan import Changes, plan_in
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.insight.state.replacements import is_daemon, is_mirror
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


MAX_PODS: Final = 20_000
_UNKNOWN: Final = re.compile("unknown field `(.*?)`")
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class ChangesDocument(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Changes of a cluster; workloads are `KIND/NAMESPACE/NAME`."""

    api_version: Literal["kubesched/v1"]
    kind: Literal["Changes"]
    drain: list[_Name] = []
    delete: list[_Name] = []
    scale: dict[_Name, Annotated[int, msgspec.Meta(ge=0, le=MAX_PODS)]] = {}
    add_nodes: dict[_Name, Annotated[int, msgspec.Meta(ge=1, le=1000)]] = {}
    """How many, by the node that they are like."""
    requests: dict[_Name, dict[str, str]] = {}
    place_again: bool = False
    """Every pod of a controller is made anew."""


def read_changes(manifests: Iterable[Manifest], state: ClusterState) -> Changes:
    """The changes of the last of these documents.

    Raises:
        PlanError: a field is unknown or invalid; the message names it, and the nearest one.
    """
    changes = Changes()
    for manifest in manifests:
        document = _read(manifest)
        again = state.of(Pod) if document.place_again else ()
        changes = Changes(
            drain=document.drain,
            delete=document.delete
            + [f"pod/{key_of(pod.metadata)}" for pod in again if _comes_back(pod)],
            scale=[Scale(workload, count) for workload, count in document.scale.items()],
            add_nodes=[NewNodes(count, like, "") for like, count in document.add_nodes.items()],
            requests=document.requests,
        )
    return changes


def _read(manifest: Manifest) -> ChangesDocument:
    try:
        return msgspec.convert(manifest.obj, ChangesDocument)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.search(str(error))
        known = ChangesDocument.__struct_encode_fields__
        nearest = get_close_matches(unknown[1], known, n=1) if unknown is not None else ()
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise PlanError(f"{manifest}: {error}{hint}") from None


def _comes_back(pod: Pod) -> bool:
    return pod.metadata.controller() is not None and not is_daemon(pod) and not is_mirror(pod)
